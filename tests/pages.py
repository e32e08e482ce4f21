"""Runs for tests of pages and of the board: trained once in a process, then copied and changed."""

import functools
import json
import os
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import fedge
from fedge.runner.signals import StopRequest
from fedge.view.board import listen, serve

KEYS = {"clients": 6, "cells": 3, "rounds": 3, "local_steps": 1, "edge_rounds": 2, "batch": 5}
NAMES = ["fedavg", "hierfavg", "hist", "hiersfl", "sdfeel"]


@functools.cache
def compare_once():
    """Compare the algorithms, with unequal devices so that somebody waits; one process does it for all."""
    place = Path(os.environ["FEDGE_CACHE"]) / "compared"  # the tests' own
    if not place.exists():
        own = place.with_name(f"pages-{os.getpid()}") / place.name
        fedge.compare(NAMES, KEYS, device_spread=1.0, metrics="cells,clients", out=own)
        with suppress(OSError):  # another process was quicker
            own.rename(place)
    return place


def copied(folder, place, **changes):
    """Copy a run's record and change what its run.json says."""
    place.mkdir(parents=True)
    for path in folder.iterdir():
        if path.suffix in (".json", ".jsonl"):
            (place / path.name).write_bytes(path.read_bytes())
    about = json.loads((place / "run.json").read_text())
    (place / "run.json").write_text(json.dumps(about | changes))
    return place


def half_done(folder, place):
    """Copy a run as it was after its first round; return its place and the lines that are still to come."""
    copied(folder, place, state="running", ended=None)
    for name in ("ledger.json", "result.json"):
        (place / name).unlink()
    first, *rest = (place / "metrics.jsonl").read_text().splitlines(keepends=True)
    (place / "metrics.jsonl").write_text(first)
    return place, rest


@contextmanager
def board_of(folder, host="127.0.0.1"):
    """Serve a board from a thread; it is stopped as a signal would stop it."""
    stop = StopRequest()
    with listen(host, 0) as place:
        address = f"http://127.0.0.1:{place.getsockname()[1]}"
        thread = threading.Thread(target=serve, args=(folder, host, place, stop))
        thread.start()
        try:
            yield address
        finally:
            stop.signal = 15
            thread.join(60)
            assert not thread.is_alive()
