"""What README and docs tell a reader to type is what fedge understands, and their Python runs.

Each command is read by the real parser, and its keys make a valid configuration; sessions are run while the site is
built. Blocks of Python are run, page by page, in few and short rounds. A block that cannot be run is marked:

    <!-- not run: the reason -->
"""

import json
import re
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import fedge
from fedge.cli import COMMANDS, load
from fedge.experiment.config import Config, parse
from fedge.runner.cache import ProgramCache
from fedge.studies import compare, grid

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(p for p in (ROOT / "docs").rglob("*.md") if "decisions" not in p.parts)]
FENCE = re.compile(
    r"^(?:<!-- not run: (?P<why>[^\n]+) -->\n)?(?P<indent> *)```(?P<kind>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```$",
    re.M | re.S,
)
ELSEWHERE = {"own-algorithm.md": "test_tutorial.py", "tasks.md": "test_tasks.py"}  # tests that run a page's Python
SHORT = {"rounds": 1, "local_steps": 1, "edge_rounds": 1, "batch": 5}
CACHE = ProgramCache(4)


class Block(NamedTuple):
    page: str
    kind: str
    why: str | None  # it is not run
    body: str


def blocks():
    for page in PAGES:
        for found in FENCE.finditer(page.read_text()):
            indent = len(found["indent"])
            body = "\n".join(line[indent:] for line in found["body"].splitlines())
            yield Block(str(page.relative_to(ROOT)), found["kind"], found["why"], body)


def commands():
    """Yield (page, words) of each command that a reader could type."""
    for block in blocks():
        if block.kind in ("", "sh", "text"):
            lines = block.body.replace("\\\n", " ").splitlines()
            for line in lines:
                found = re.match(r"(?:\$ |srun )?(?:\.venv/bin/)?fedge (.*)", line)
                if found and (block.kind != "text" or line.startswith("$ ")):
                    words = shlex.split(found[1], comments=True)
                    yield block.page, words[: words.index(">")] if ">" in words else words


def test_there_is_something_to_check():
    assert len(list(commands())) > 50
    assert sum(block.kind == "python" for block in blocks()) > 10


@pytest.mark.parametrize(("page", "words"), list(commands()))
def test_a_command_is_understood(page, words):
    name, *rest = words
    assert name in COMMANDS or name.startswith("--"), words
    if name not in COMMANDS:
        return
    command = load(name)
    while hasattr(command, "commands") and rest:
        name, *rest = rest
        command = command.commands[name]
    if "commands" in vars(command):
        return
    given = command.make_context(name, list(rest)).params  # raises what the command line would say
    check_keys(name, given)


def check_keys(name, given):
    """Check the keys of what trains; a function or a file of the reader's is not here to be looked into."""
    words = [*(given.get("words") or []), *(given.get("pairs") or []), *filter(None, [given.get("algorithm")])]
    own = any(re.search(r"^[\w.]+:\w+$|=[a-z]\w*(\.\w+)*:[a-z]\w*$", word) for word in words)
    if name not in ("run", "compare", "sweep") or own or given.get("resume") or given.get("config"):
        return
    names, keys = [w for w in words if "=" not in w], parse([w for w in words if "=" in w])
    if name == "run":
        Config.of({"algorithm": names[0]} | dict(keys))
    else:
        assert (grid if name == "sweep" else compare).make_plan(names, dict(keys))


def short_runs(folder, monkeypatch):
    """Let what a reader would wait for be over in a moment, in an empty folder."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    run = fedge.run

    def short(*given, **keys):
        few = {} if "partition" in keys else {"clients": 6, "cells": 3}  # whose arrays say how many there are
        return run(*given, **keys | SHORT | few, cache=CACHE)

    monkeypatch.setattr(fedge, "run", short)


@pytest.mark.parametrize("page", sorted({b.page for b in blocks() if b.kind == "python" and b.why is None}))
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    if other := ELSEWHERE.get(Path(page).name):
        assert Path(page).name in (ROOT / "tests" / other).read_text()
        return
    short_runs(tmp_path, monkeypatch)
    names = {"__name__": "page", "fedge": fedge}
    for block in blocks():
        if block.page == page and block.kind == "python" and block.why is None:
            if named := re.match(r"# (\w+\.py)\n", block.body):
                (tmp_path / named[1]).write_text(block.body)
            exec(compile(block.body, page, "exec"), names)


@pytest.mark.parametrize("path", sorted((ROOT / "docs").rglob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_runs_and_holds_its_outputs(path, tmp_path, monkeypatch):
    """Its cells are run as they are, in few rounds; the outputs that the site shows are those of a whole run."""
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    shown = [output for cell in cells for output in cell["outputs"]]
    assert "image/png" in {kind for output in shown for kind in output.get("data", {})}
    assert {output["output_type"] for output in shown} <= {"display_data", "execute_result"}  # no error, no warning
    short_runs(tmp_path, monkeypatch)
    names = {"__name__": "page"}
    for cell in cells:
        exec(compile("".join(cell["source"]), path.name, "exec"), names)


def test_what_is_not_run_says_why():
    for block in blocks():
        if block.why is not None:
            assert len(block.why) > 10, block
    text = "".join(page.read_text() for page in PAGES)
    assert text.count("<!-- not run") == sum(block.why is not None for block in blocks())
