"""What README and docs tell a reader to type is what fedge understands, and their Python runs.

Each command is read by the real parser, and its keys make a valid configuration; test_docs_commands.py runs them, made
small, and sessions are run while the site is built. Blocks of Python are run, page by page, in few and short rounds;
tables in TOML are read by what they are for. What cannot be run is marked (documents.py).
"""

import json
import re
import sys
import tomllib
from pathlib import Path

import pytest

import fedge
from fedge.cli import COMMANDS, load
from fedge.experiment.config import Config, parse
from fedge.experiment.fleet_file import fleet_of
from fedge.experiment.network_file import read_network
from fedge.runner.cache import ProgramCache
from fedge.studies import compare, grid
from tests.documents import PAGES, ROOT, blocks, lines

ELSEWHERE = {"own-algorithm.md": "test_tutorial.py", "tasks.md": "test_tasks.py"}  # tests that run a page's Python
SHORT = {"rounds": 1, "local_steps": 1, "edge_rounds": 1, "batch": 5}
CACHE = ProgramCache(4)


def commands():
    """Yield (page, words) of each command that a reader could type."""
    for line in lines():
        if line.words:
            yield line.block.page, line.words


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
    marked = [block for block in blocks() if block.why is not None]
    for block in marked:
        assert len(block.why) > 10, block
        for begun in block.some:
            assert any(line.text.removeprefix("fedge ").startswith(begun) for line in lines() if line.block == block), (
                begun
            )
    text = "".join(page.read_text() for page in PAGES)
    assert text.count("<!-- not run") == len(marked)


def test_whatever_a_reader_would_type_is_run_or_marked():
    for line in lines():
        assert line.words or not line.runs, line


def test_tables_of_a_page_are_what_they_are_for(tmp_path):
    """Those whose first line names a file are written into it for the commands of their page."""
    tables = {}
    for block in blocks():
        if block.kind == "toml" and not re.match(r"# [\w/]+\.toml\n", block.body):
            tables[block.page] = tables.get(block.page, "") + block.body + "\n"
    assert tables.keys() == {"docs/fleet.md", "docs/network.md"}
    assert len(fleet_of(tomllib.loads(tables["docs/fleet.md"]), "fleet").nodes) >= 5
    (tmp_path / "network.toml").write_text(tables["docs/network.md"])
    assert len(read_network(tmp_path / "network.toml").clients) > 1
