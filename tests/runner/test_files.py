"""Files are written whole, with ordinary modes, into their own folder; whoever laid links there gains nothing."""

import errno
import os

import pytest

import fedge
from fedge.errors import RunError
from fedge.runner import files
from fedge.runner.cache import ProgramCache
from fedge.studies.compare import read_plan, write_plan
from tests.runner.deaths import reaper

KEYS = {"algorithm": "hierfavg", "clients": 4, "cells": 2, "rounds": 3, "local_steps": 1, "edge_rounds": 1, "batch": 5,
        "checkpoint_every": 1}  # fmt: skip
CACHE = ProgramCache()


def run(**where):
    return fedge.run(KEYS, cache=CACHE, **where) if "out" in where else fedge.run(cache=CACHE, **where)


def test_modes_are_what_the_users_mask_says(tmp_path):
    before = os.umask(0o027)
    try:
        run(out=tmp_path / "run")
    finally:
        os.umask(before)
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in (tmp_path / "run").iterdir()} == dict.fromkeys(
        [p.name for p in (tmp_path / "run").iterdir()], "0o640"
    )


def test_links_in_a_folder_of_somebody_else_lead_nowhere(tmp_path):
    """Every file of a run that is resumed is a link to a file outside: none of those is written."""
    folder, outside = tmp_path / "run", tmp_path / "outside"
    run(out=folder)
    outside.mkdir()
    names = [path.name for path in folder.iterdir()]
    for name in names:
        (folder / name).rename(outside / name)
        (folder / name).symlink_to(outside / name)
    before = {p.name: p.read_bytes() for p in outside.iterdir()}
    with pytest.raises(RunError, match=r"\.lock is a link to another place"):
        run(resume=folder, rounds=5)
    (folder / files.LOCK).unlink()
    run(resume=folder, rounds=5)  # two more checkpoints, so that the one before is a new one too
    assert {p.name: p.read_bytes() for p in outside.iterdir()} == before
    assert {p.name for p in folder.iterdir() if p.is_symlink()} == set()
    assert {p.name for p in folder.iterdir()} == set(names)


def test_whatever_has_a_name_is_on_the_disk(tmp_path, monkeypatch):
    """A file is synced before it takes its place, its folder right after; so are a new folder and a line of metrics.

    Power that fails cannot be tried here. That the calls are made, on the right descriptors and in this order, can.
    """
    events = []

    def place(handle):
        return os.path.realpath(f"/dev/fd/{handle}")

    def spy(name, where):
        original = getattr(os, name)

        def spied(*arguments, **options):
            events.append((name, *where(*arguments)))
            return original(*arguments, **options)

        monkeypatch.setattr(os, name, spied)

    spy("fsync", lambda handle: [place(handle)])
    spy("replace", lambda source, target: [str(source), str(target)])
    folder = tmp_path / "new/run"
    run(out=folder)
    assert events[:2] == [("fsync", str(tmp_path / "new")), ("fsync", str(tmp_path))]
    moved = [(n, event[1], event[2]) for n, event in enumerate(events) if event[0] == "replace"]
    written = [(n, source, target) for n, source, target in moved if source.endswith(".part")]
    moved_only = {str(folder / name) for name in (files.LOCK, "checkpoint.previous.safetensors")}
    assert {target for _, _, target in written} == {str(p) for p in folder.iterdir()} - moved_only
    for n, source, _ in written:
        assert events[n - 1] == ("fsync", source)
        assert events[n + 1] == ("fsync", str(folder))
    aside = [n for n, source, _ in moved if not source.endswith(".part")]  # newest checkpoints, to be the ones before
    assert len(aside) == 3
    assert all(events[n + 1][1].endswith(".part") for n in aside)  # and the folder is synced with the new one
    assert events.count(("fsync", str(folder / "metrics.jsonl"))) == 3


def test_a_comparison_stays_in_its_folder(tmp_path):
    folder = tmp_path / "both"
    fedge.compare(["fedavg"], out=folder, **{k: v for k, v in KEYS.items() if k != "algorithm"})
    write_plan(folder, {"../fedavg": {"algorithm": "../fedavg"}})
    with pytest.raises(RunError, match=r"compare.json is damaged \('../fedavg' with its keys is no run"):
        read_plan(folder)
    write_plan(folder, {"fedavg": {"algorithm": "fedavg"}})
    (folder / "fedavg").rename(tmp_path / "elsewhere")
    (folder / "fedavg").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match="is a link to another place"):
        fedge.compare(resume=folder)


def test_a_disk_that_is_full_at_any_moment_costs_no_state(tmp_path):
    """Each write in turn finds no room, once; resumed with room again, the run is the one that always had it."""
    run(out=tmp_path / "whole")
    with reaper.strikes(tmp_path / "count"):
        run(out=tmp_path / "count")
    expected = (tmp_path / "whole/weights.safetensors").read_bytes()
    for moment in range(1, reaper.seen, 4):
        folder = tmp_path / str(moment)
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
        with reaper.strikes(folder, moment, full), pytest.raises((OSError, RunError)):
            run(out=folder)
        assert not list(folder.glob(".*.part")), moment
        if (folder / "run.json").exists():
            run(resume=folder)
        else:
            run(out=folder)
        assert (folder / "weights.safetensors").read_bytes() == expected, moment


def test_what_is_read_is_bounded(tmp_path, monkeypatch):
    (tmp_path / "large.json").write_text("{}" + " " * 1000)
    monkeypatch.setattr(files, "MOST", 100)
    with pytest.raises(RunError, match="1,002 bytes, more than a run writes"):
        files.read_json(tmp_path / "large.json")
    os.mkfifo(tmp_path / "fifo.json")
    with pytest.raises(RunError, match="does not hold a run"):
        files.read_json(tmp_path / "fifo.json")
