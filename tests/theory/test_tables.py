"""The theory sections of the papers' READMEs name functions and tests that exist."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEADER = "| | what it says | verdict | function | test |"


def rows(paper: str) -> list[list[str]]:
    section = (ROOT / "papers" / paper / "README.md").read_text(encoding="utf-8").partition("\n## Theory\n")[2]
    table = section[section.index(HEADER) :].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table]


def exists(function: str) -> bool:
    """A name begins in `fedge.theory` unless it says `fedge.`; it may be a module."""
    path = function if function.startswith("fedge.") else f"fedge.theory.{function}"
    module, _, name = path.rpartition(".")
    return hasattr(importlib.import_module(module), name)


def is_defined(test: str) -> bool:
    """A test is looked for in `tests/theory` unless a file is named, as in `core/test_topology.py::test_operators`."""
    file, _, name = test.rpartition("::")
    files = [ROOT / "tests" / file] if file else (ROOT / "tests" / "theory").glob("test_*.py")
    return any(re.search(rf"^def {name}\(", f.read_text(encoding="utf-8"), re.MULTILINE) for f in files)


@pytest.mark.parametrize(("paper", "least"), [("sdfeel", 20), ("hist", 14), ("hiersfl", 9)])
def test_the_tables_name_what_exists(paper, least):
    table = rows(paper)
    assert len(table) >= least
    for row in table:
        assert len(row) == 5, row[0]
        *_, verdict, functions, tests = row
        assert verdict
        for names, found in ((functions, exists), (tests, is_defined)):
            named = re.findall("`([^`]*)`", names)
            assert not names or named, f"{row[0]}: {names} stands in no backticks"
            assert [name for name in named if not found(name)] == [], row[0]


def test_a_name_that_does_not_exist_is_seen():
    assert exists("sdfeel.theorem1_fixed")
    assert exists("fedge.core.graph.mixing_matrix")
    assert not exists("sdfeel.theorem2_fixed")
    assert is_defined("core/test_topology.py::test_operators")
    assert not is_defined("test_operators")


@pytest.mark.parametrize("paper", ["sdfeel", "hist", "hiersfl"])
def test_every_function_of_the_theory_is_in_a_table(paper):
    """So a new bound gets its verdict. Helpers that a row's function calls are named in that row."""
    named = {name for row in rows(paper) for name in re.findall("`([^`]*)`", row[3])}
    missing = []
    for module in (paper, "sdfeel_lemmas") if paper == "sdfeel" else (paper,):
        source = (ROOT / "src" / "fedge" / "theory" / f"{module}.py").read_text(encoding="utf-8")
        functions = re.findall(r"^def ([a-z]\w*)\(", source, re.MULTILINE)
        missing += [f"{module}.{name}" for name in functions if f"{module}.{name}" not in named]
    assert missing == []
