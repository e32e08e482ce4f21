"""The wheel is built here, without a network, and used as somebody would who has nothing but it."""

import hashlib
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from fnmatch import fnmatch
from pathlib import Path

import pytest

from fedge import __version__

ROOT = Path(__file__).parents[1]
MEGABYTE = 10**6


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(out)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def unpacked(wheel):
    """What an installer would put into site-packages."""
    place = wheel.parent / "site"
    zipfile.ZipFile(wheel).extractall(place)
    return place


def names(wheel):
    return zipfile.ZipFile(wheel).namelist()


def fedge(unpacked, folder, *words):
    """Call the unpacked fedge in a folder; a path in PYTHONPATH goes before the checkout."""
    there = os.environ | {"PYTHONPATH": str(unpacked)}
    command = [sys.executable, "-m", "fedge", *words]
    return subprocess.run(command, cwd=folder, env=there, capture_output=True, text=True, check=False)


def test_the_wheel_holds_sources_recipes_curves_and_licences(wheel):
    for folder, kind in (("src/fedge", "*.py"), ("papers", "*/recipes.toml"), ("papers", "*/results/*.csv")):
        home = ROOT / folder
        within = "fedge" if folder == "src/fedge" else "fedge/papers"
        wanted = {f"{within}/{p.relative_to(home)}" for p in (home.rglob if kind == "*.py" else home.glob)(kind)}
        assert wanted <= {*names(wheel)}
    assert sum(fnmatch(name, "*.dist-info/licenses/*LICENSE") for name in names(wheel)) == 2
    assert "fedge/data/builtin/train-images-idx3-ubyte.gz" in names(wheel)
    assert "fedge/py.typed" in names(wheel)


def test_the_wheel_holds_nothing_else_and_is_small(wheel):
    top = {name.split("/")[0] for name in names(wheel)}
    assert top == {"fedge", f"fedge-{__version__}.dist-info"}
    assert not [n for n in names(wheel) if n.endswith((".png", ".pdf", ".md", ".pyc")) or "tests" in n]
    assert wheel.stat().st_size < 6 * MEGABYTE  # 3.1 of them are images for training


def test_metadata_says_what_it_is(unpacked):
    (text,) = [p.read_text() for p in unpacked.glob("*.dist-info/METADATA")]
    assert f"\nVersion: {__version__}\n" in text
    assert "\nLicense-Expression: Apache-2.0\n" in text
    assert "\nClassifier: Programming Language :: Python :: 3.11\n" in text
    assert "fedge = fedge.__main__:main" in (next(unpacked.glob("*.dist-info/entry_points.txt"))).read_text()


def test_a_figure_is_drawn_from_an_installed_wheel_in_an_empty_folder(unpacked, tmp_path):
    """The curves come with the wheel; what is made of them goes into the current folder, not the wheel."""
    before = digests(unpacked / "fedge/papers")
    done = fedge(unpacked, tmp_path, "reproduce", "sdfeel/fig4a", "--draw", "only")
    assert done.returncode == 0, done.stderr
    assert str(unpacked) in done.stdout  # where the curves are
    assert "**refuted**" in done.stdout
    made = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert made == {f"papers/sdfeel/results/fig4a.{kind}" for kind in ("md", "png", "pdf")}
    assert (tmp_path / "papers/sdfeel/results/fig4a.md").read_bytes() == (
        ROOT / "papers/sdfeel/results/fig4a.md"
    ).read_bytes()
    assert digests(unpacked / "fedge/papers") == before


def test_what_was_run_here_goes_before_what_came_with_the_wheel(unpacked, tmp_path):
    """The curves of one's own run are those that are told of."""
    own = Path("papers/sdfeel/results/fig4a.csv")
    (tmp_path / own).parent.mkdir(parents=True)
    lines = (ROOT / own).read_text().splitlines(keepends=True)
    (tmp_path / own).write_text("".join(line for line in lines if line.startswith(("variant,", "printed,"))))
    done = fedge(unpacked, tmp_path, "reproduce", "sdfeel/fig4a", "--draw", "only")
    assert done.returncode == 0, done.stderr
    assert f"\n{own} and .json" in done.stdout
    assert "As printed, " in done.stdout
    assert "Tuned rate, " not in done.stdout


def test_a_recipe_that_is_not_in_the_wheel_is_one_sentence(unpacked, tmp_path):
    done = fedge(unpacked, tmp_path, "reproduce", "fedprox")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "allowed: hiersfl, hist, sdfeel" in done.stderr


def test_the_version_stands_in_one_place(unpacked, tmp_path):
    """What cannot read it from there is compared with it."""
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dynamic"] == ["version"]
    assert re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.M)[1] == __version__
    assert (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1].startswith(f"{__version__} (")
    assert fedge(unpacked, tmp_path, "--version").stdout == f"fedge {__version__}\n"


def digests(folder):
    return {p: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.rglob("*") if p.is_file()}
