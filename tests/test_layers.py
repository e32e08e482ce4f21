"""Imports point one way (an AST walk):

core ← algorithms, updates, models, data, cost, theory ← engine, net ← experiment ← runner ← fleet, studies ← view ← cli
"""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src/fedge"
ALLOWED = {
    "errors": set(),
    "plugins": {"errors"},
    "core": {"errors"},
    "algorithms": {"core", "errors", "plugins"},
    "models": {"core", "errors", "plugins"},
    "data": {"core", "errors", "plugins"},
    "cost": {"core", "errors"},
    "theory": {"core", "errors"},
    "engine": {"core", "errors"},
    "net": {"core", "errors", "cost"},
    "updates": {"core", "errors", "plugins"},
    "experiment": {"core", "errors", "plugins", "algorithms", "updates", "models", "data", "cost", "engine", "net"},
    "runner": {"core", "errors", "plugins", "algorithms", "models", "data", "cost", "engine", "experiment", "_version"},
    "fleet": {"core", "errors", "cost", "data", "engine", "net", "experiment", "runner", "_version"},
    "studies": {
        "core",
        "errors",
        "plugins",
        "algorithms",
        "models",
        "data",
        "cost",
        "theory",
        "engine",
        "experiment",
        "runner",
    },
    "view": {"core", "errors", "algorithms", "cost", "data", "experiment", "runner", "studies", "net", "fleet"},
    "__main__": {"cli", "runner"},
    "cli": {
        "",
        "__main__",
        "errors",
        "plugins",
        "algorithms",
        "data",
        "experiment",
        "runner",
        "studies",
        "view",
        "net",
        "fleet",
    },
}


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path: Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "fedge":
            if node.module == "fedge":
                names = (alias.name for alias in node.names)
                yield from (n if (SOURCE / n).exists() or (SOURCE / f"{n}.py").exists() else "" for n in names)
            else:
                yield node.module.split(".", 1)[1]
        elif isinstance(node, ast.Import):
            yield from (a.name.split(".", 1)[1] for a in node.names if a.name.startswith("fedge."))


FILES = sorted(
    p for p in SOURCE.rglob("*.py") if p.parent != SOURCE or p.name in ("errors.py", "plugins.py", "__main__.py")
)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_one_way(path):
    home = room(path)
    for module in imports(path):
        target = module.split(".")[0]
        assert target == home or target in ALLOWED[home], f"{path.name} in {home} imports {module}"


@pytest.mark.parametrize("path", [p for p in FILES if room(p) == "algorithms" and p.name != "__init__.py"], ids=str)
def test_algorithms_do_not_import_each_other(path):
    assert not [m for m in imports(path) if m.startswith("algorithms")]


@pytest.mark.parametrize("path", [p for p in FILES if room(p) == "engine"], ids=str)
def test_engines_never_name_an_algorithm(path):
    names = {f.stem for f in (SOURCE / "algorithms").glob("*.py")} - {"__init__"}
    words = {n.id for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Name)}
    words |= {n.value for n in ast.walk(ast.parse(path.read_text()))
              if isinstance(n, ast.Constant) and isinstance(n.value, str)}  # fmt: skip
    assert not names & words


def test_nothing_is_pickled_and_no_seed_is_global():
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        for forbidden in ("import pickle", "np.random.seed", "random.seed(", "allow_pickle=True"):
            assert forbidden not in text, f"{path} has {forbidden}"
