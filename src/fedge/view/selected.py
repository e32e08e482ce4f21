"""Runs that somebody names are read together, to be laid over one another or handed on."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedge.errors import RunError
from fedge.view.page_data import runs_in, selection

AXES = {"rounds": "round", "iterations": "iteration", "seconds": "simulated_seconds", "bytes": "bytes"}
log = logging.getLogger(__name__)
Page = dict[str, Any]


def select(folders: Sequence[Path]) -> Page:
    """Read the runs in these folders, be each that of a run, a comparison or a sweep; runs with nothing to show are
    named and left out."""
    places: list[Path] = []
    for folder in folders:
        found = runs_in(folder)
        if not found:
            raise RunError(f"{folder} does not hold a run; give the folder of a run, a comparison or a sweep")
        places += [place.absolute() for place in found]
    places = list(dict.fromkeys(places))
    root = Path(os.path.commonpath(places)) if len(places) > 1 else places[0]
    page = selection(places, "sweep" if len(places) > 1 else "run", root)
    for run in page["runs"]:
        if run["problem"]:
            log.warning("%s is left out: %s", run["name"], run["problem"])
        elif not run["rows"]:
            log.warning("%s is left out: it has no evaluated round yet", run["name"])
    if not any(run["rows"] and not run["problem"] for run in page["runs"]):
        raise RunError(f"{', '.join(str(folder) for folder in folders)} has no evaluated round yet; wait for one")
    return page


def usable(page: Page) -> list[dict[str, Any]]:
    return [run for run in page["runs"] if run["rows"] and not run["problem"]]


def columns_of(page: Page, x: str, y: str | None) -> tuple[str, str]:
    """Name the columns to draw, after a check that every run has them."""
    runs, across = usable(page), AXES[x]
    up = y if y is not None else runs[0]["main"]
    for axis, name in ((x, across), (up, up)):
        for run in runs:
            if all(value is None for value in run["columns"].get(name, [])):
                shared = [name for name in runs[0]["columns"] if all(name in other["columns"] for other in runs)]
                known = list(AXES) if name == across else [n for n in shared if n not in AXES.values()]
                raise RunError(f"{run['name']} has no {axis} in its record, so that the runs cannot share an axis; "
                               f"all of them have: {', '.join(n for n in known if n != axis)}")  # fmt: skip
    return across, up


def lines_of(page: Page) -> list[tuple[str, list[dict[str, Any]], dict[str, Any]]]:
    """Gather what is one line of a figure: a name, its runs, and the bands over seeds where there are several."""
    found = []
    for group in page["groups"]:
        members = [page["runs"][n] for n in group["runs"]]
        members = [run for run in members if run["rows"] and not run["problem"]]
        seeds = {run["seed"] for run in members}
        if len(members) > 1 and len(seeds) == len(members) and len(members) == len(group["runs"]):
            found.append((group["name"], members, group["columns"]))
        else:
            found += [(run["label"], [run], {}) for run in members]
    return found
