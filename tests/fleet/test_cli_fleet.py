"""The commands of a fleet, as words on a command line."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedge.cli import app

pytest.importorskip("cryptography")
EXAMPLE = str(Path(__file__).parents[2] / "examples/fleet.toml")


def call(*words):
    return CliRunner().invoke(app, ["fleet", *words])


def test_init_says_what_it_made_and_refuses_to_make_it_twice(tmp_path):
    out = str(tmp_path / "nodes")
    made = call("init", EXAMPLE, "--out", out)
    assert made.exit_code == 0
    for expected in (
        "7 folders in",
        "edge-0       listens at 127.0.0.1:7401; dials cloud",
        "authority signs certificates",
    ):
        assert expected in made.stdout
    again = call("init", EXAMPLE, "--out", out)
    assert (again.exit_code, again.stdout) == (6, "")
    assert again.stderr.startswith(f"fedge: {out} exists already and is kept")
    revoked = call("init", EXAMPLE, "--out", out, "--revoke", "edge-1")
    assert "revoked what was issued to edge-1; the list is in 7 folders" in revoked.stdout
    assert "valid until" in call("init", EXAMPLE, "--out", out, "--renew", "edge-1").stdout
    both = call("init", EXAMPLE, "--out", out, "--renew", "cloud", "--revoke", "cloud")
    assert (both.exit_code, both.stderr.count("\n")) == (2, 1)
