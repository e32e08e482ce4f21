"""Runs are handed on: as CSV, as a table for LaTeX, and to trackers, which get what a listener would have heard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedge.runner import files
from fedge.studies.csv_text import csv_text
from fedge.studies.sweep_table import Outcome, lines_of
from fedge.view.selected import Page, usable
from fedge.view.sweep_table import latex_of
from fedge.view.trackers import TRACKERS


def to_csv(page: Page) -> str:
    """Write a line for each run and evaluated round: what sets the run apart, then every number of the row."""
    runs, keys = usable(page), page["differing"]
    names = list(dict.fromkeys(name for run in runs for name in run["columns"]))
    tiers = list(dict.fromkeys(tier for run in runs for tier in run["tiers"]))
    lines: list[list[Any]] = [["run", *keys, *names, *(f"bytes_{tier}" for tier in tiers)]]
    for run in runs:
        own = [run["name"], *(run["apart"].get(key) for key in keys)]
        columns = [run["columns"].get(name) for name in names] + [run["tiers"].get(tier) for tier in tiers]
        for place in range(len(run["columns"]["round"])):
            lines.append([*own, *(_cell(column, place) for column in columns)])
    return csv_text(lines)


def _cell(column: list[float | None] | None, place: int) -> Any:
    value = column[place] if column else None
    return int(value) if value is not None and value == int(value) and abs(value) < 2**53 else value


def to_latex(page: Page) -> str:
    """Write a line for each setting: its last row, as mean and interval where it was run with several seeds."""
    runs = {run["name"]: run for run in usable(page)}
    plan = {name: {key: run["config"].get(key) for key in ("algorithm", "seed")} | run["apart"]
            for name, run in runs.items()}  # fmt: skip
    outcomes = {name: Outcome(_last(run), run["state"] == "diverged", run["reached"]) for name, run in runs.items()}
    return latex_of(lines_of(plan, outcomes))


def _last(run: dict[str, Any]) -> dict[str, Any]:
    columns = {name: column[-1] for name, column in run["columns"].items()}
    return {**columns, "bytes": {tier: sent[-1] for tier, sent in run["tiers"].items()}}


def write(place: Path, text: str) -> None:
    files.make_folder(place.parent)
    files.write_bytes(place, text.encode())


def to_tracker(page: Page, name: str, place: Path | None) -> tuple[str, int]:
    """Hand every run to a tracker, as if it listened; return where they went, and how many they are."""
    tracker, runs = TRACKERS[name](place), usable(page)
    for run in runs:
        tracker.begin(run["label"], run["config"])
        columns = run["columns"]
        for at in range(len(columns["round"])):
            row = {key: column[at] for key, column in columns.items()}
            tracker.add(row | {"bytes": {tier: sent[at] for tier, sent in run["tiers"].items()}})
        tracker.end(run["state"])
    return tracker.where, len(runs)
