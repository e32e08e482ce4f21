"""The commands of README and docs are run, page by page and in their order, in an empty folder and made small.

What a reader would have before typing them is made first: data, a model, runs. The keys as they stand in the pages
are held against the parser by test_docs.py.
"""

import re
import shutil
import sys
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import fedge
from fedge import algorithms
from fedge.cli import app
from fedge.models import own as own_models
from fedge.runner import prepare
from fedge.runner.cache import ProgramCache
from fedge.studies import planner, reproduce, sweep
from fedge.view import plots
from tests.documents import ROOT, blocks, lines

SIZES = {"clients": 12, "cells": 3, "rounds": 1, "local_steps": 1, "edge_rounds": 1, "batch": 5, "devices": 1}
SEARCH = {"codec": "none", "eval_every": 1, "target": 0.17, "budget": 1000, "seeds": 1, "finalists": 1}
SHORTER = {"rounds = 100": "rounds = 1", "seeds = 5": "seeds = 2", "clients = 20": "clients = 12",
           "cells = 5": "cells = 3", "gossip = 10": "gossip = 2"}  # fmt: skip  # in the files that a page shows
CACHE = ProgramCache(32)
COMMANDS = {page: [line.words for line in found if line.runs and line.words]
            for page, found in groupby(lines(), key=lambda line: line.block.page)}  # fmt: skip


def small(words):
    """Make a command's run small: keys of its size that are given, and those that it would have unless given."""
    given = dict(word.split("=", 1) for word in words if re.match(r"\w+=", word))
    if words[0] not in ("run", "compare", "sweep", "plan"):
        return words
    if "--resume" in words:
        sizes = {"rounds": 2} if "rounds" in given else {}
    else:
        sizes = {key: value for key, value in SIZES.items() if key not in counted(words, given)}
        sizes |= {"model": "mlp"} if given.get("model") == "cnn" and "cut" not in given else {}
    if words[0] == "plan" and "--resume" not in words:
        del sizes["rounds"]
        sizes |= SEARCH | {key: value for key, value in (("algorithm", "hierfavg"), ("lr", 0.05)) if key not in given}
    kept = [two_values(word) for word in words if word.partition("=")[0] not in sizes]
    if "--seeds" in kept:
        kept[kept.index("--seeds") + 1] = "2"
    pictures = [] if words[0] == "plan" else ["--draw", "none"]
    return [*kept, *(f"{key}={value}" for key, value in sizes.items()), *pictures]


def counted(words, given):
    """Name the keys whose numbers a network, a table or a file says."""
    if "network" in given or any("networks/" in word for word in words):
        return {"clients", "cells"}
    files = {key for key in ("partition", "assign") if "." in given.get(key, "")}
    return {"clients"} if "client_column" in given else {"clients", "cells"} if files else set()


def two_values(word):
    key, equals, value = word.partition("=")
    return key + equals + ",".join(value.split(",")[:2])


def what_a_reader_has(page, folder, one):
    """Make the files that the commands of these pages are about."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (60, 28, 28, 1), np.uint8), np.arange(60) % 10
    np.savez(folder / "images.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    rows = [f"{30 + n % 50},{100 + n},{5 + n % 3},hospital {n % 10},{'ill' if n % 2 else 'well'}" for n in range(100)]
    (folder / "patients.csv").write_text("\n".join(["age,pressure,glucose,hospital,diagnosis", *rows]))
    (folder / "mypkg").mkdir()
    (folder / "mypkg/mine.py").write_text(
        "import numpy as np\n\n\ndef load():\n    return dict(np.load('images.npz'))\n"
    )
    np.save(folder / "clients.npy", np.arange(6000) % 12)
    (folder / "cells.txt").write_text("\n".join(str(n % 3) for n in range(12)))
    (folder / "my.toml").write_text("lr = 0.1\n")
    shutil.copytree(ROOT / "examples", folder / "examples")
    if "papers" in page:
        shutil.copytree(ROOT / "papers", folder / "papers")  # where results are written
    made = [] if page == "README.md" else ["runs/mine"]  # the README makes it itself
    for place in ("runs/a", "runs/b", "runs/my-sweep/one", "runs/my-sweep/two", *made):
        shutil.copytree(one, folder / place)
    for block in blocks():
        if block.page == page and (named := re.match(r"# ([\w/]+\.(?:py|toml))\n", block.body)):
            body = block.body
            for long, short in SHORTER.items():
                body = body.replace(long, short)
            (folder / named[1]).parent.mkdir(exist_ok=True)
            (folder / named[1]).write_text(body)


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """A run as a reader may have one."""
    folder = tmp_path_factory.mktemp("runs") / "one"
    fedge.run(algorithm="hierfavg", out=folder, cache=CACHE, **SIZES)
    return folder


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """An empty folder, where what a page defines is forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.setattr(algorithms, "OWN", {})
    monkeypatch.setattr(own_models, "OWN", {})
    for module in (prepare, planner, reproduce, sweep):
        monkeypatch.setattr(module, "ProgramCache", lambda *_: CACHE)
    monkeypatch.setattr(reproduce, "OWN", tmp_path / "papers")
    monkeypatch.setattr(plots, "save", lambda figure, path: [path.with_suffix(".png")])  # drawn, and not painted
    monkeypatch.setenv("COLUMNS", "120")
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("page", [page for page, commands in COMMANDS.items() if commands])
def test_the_commands_of_a_page_run(page, one, outside):
    what_a_reader_has(page, outside, one)
    for words in COMMANDS[page]:
        typed = [str(max(Path().glob(word.replace("…", "*")))) if word.endswith("…") else word for word in small(words)]
        done = CliRunner().invoke(app, typed)
        assert done.exit_code == 0, (words, typed, done.output, done.exception)
        assert done.stdout or "--out" in typed, typed
