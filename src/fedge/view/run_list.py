"""`fedge list` shows the runs in a folder, a line each: state, algorithm, what sets it apart, how good it is, when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedge.errors import RunError
from fedge.runner.inspect import summary
from fedge.runner.rows import tested
from fedge.studies.csv_text import csv_text
from fedge.view.numbers import metric_text, words
from fedge.view.page_data import changed_keys, damage, keys_that_differ, runs_in
from fedge.view.tables import blocks

DAMAGED = "damaged"
Line = dict[str, Any]


def run_list(folder: Path) -> list[Line]:
    """Sum up every run in a folder, the newest first."""
    places = runs_in(folder)
    if not places:
        raise RunError(f"{folder} does not hold a run; give the folder of your runs, or make one with fedge run")
    lines = [_line(place, folder) for place in places]
    apart = keys_that_differ(lines)
    for line in lines:
        line["differs"] = {key: value for key, value in line["changed"].items() if key in apart or len(lines) == 1}
    return sorted(lines, key=lambda line: (line["begun"] or "", line["name"]), reverse=True)


def _line(place: Path, folder: Path) -> Line:
    name = str(place.relative_to(folder)) if place != folder else place.name
    try:
        about, problem = summary(place), None
        row = about["final"]
        main = tested(row)[0] if row else None
        changed, result = changed_keys(about["config"]), _result(row, main)
    except Exception as found:  # whatever a run's files hold, the others are listed
        about, problem, row, main, changed, result = {}, damage(place, found), None, None, [], ""
    config = about.get("config", {})
    return {
        "name": name,
        "out": str(place),
        "state": about.get("state", DAMAGED),
        "algorithm": config.get("algorithm"),
        "changed": {change["key"]: change["value"] for change in changed},
        "metric": main,
        "value": row[main] if row and main else None,
        "round": row["round"] if row else None,
        "rounds": config.get("rounds"),
        "seed": config.get("seed"),
        "begun": about["begun"] if isinstance(about.get("begun"), str) else None,
        "problem": problem,
        "config": config,
        "result": result,
    }


def to_json(lines: Sequence[Line]) -> list[Line]:
    return [{key: value for key, value in line.items() if key not in ("result", "changed", "config")} for line in lines]


def to_csv(lines: Sequence[Line]) -> str:
    """Write a line for each run, with a column for each key that sets runs apart."""
    keys = list(dict.fromkeys(key for line in lines for key in line["differs"]))
    heads = ["name", "state", "algorithm", "metric", "value", "round", "rounds", "begun"]
    own = [key for key in keys if key not in heads]
    rows = [[line[head] for head in heads] + [line["config"].get(key) for key in own] for line in lines]
    return csv_text([[*heads, *own], *rows])


HEADS = ("run", "state", "algorithm", "result", "round", "begun", "differs in")
LEAST = 10  # characters of what differs, or a line is no line any more
GAP = "  "


def to_text(lines: Sequence[Line], width: int | None) -> str:
    """Write a line for each run with what the width has room for (None: all), or a block where that is little."""
    rows = [list(HEADS), *(_cells(line) for line in lines)]
    shorter = [rows, [[*row[:5], row[5][:10], row[6]] for row in rows], [[*row[:5], row[6]] for row in rows]]
    for cut in shorter:  # without the time of the day, then without the day
        wide = [max(map(len, column)) + len(GAP) for column in zip(*cut, strict=True)][:-1]
        if width is None or sum(wide) + LEAST <= width:
            return "\n".join(_cut(row, wide, width).rstrip() for row in cut)
    return blocks(HEADS, rows[1:])


def _cut(row: Sequence[str], wide: Sequence[int], width: int | None) -> str:
    line = "".join(f"{cell:{size}}" for cell, size in zip(row, wide, strict=False)) + row[-1]
    return line if width is None or len(line) <= width else f"{line[: width - 1]}…"


def _cells(line: Line) -> list[str]:
    """Write a run for people, in the order of `HEADS`."""
    differs = " ".join(f"{key}={value}" for key, value in line["differs"].items())
    return [
        line["name"], line["state"], line["algorithm"] or "", line["result"], _length(line),
        (line["begun"] or "")[:16].replace("T", " "), differs,
    ]  # fmt: skip


def _result(row: Mapping[str, Any] | None, main: str | None) -> str:
    return f"{words(main)} {metric_text(dict(row), main)}" if row and main else ""


def _length(line: Line) -> str:
    if line["round"] is None:
        return ""
    return f"{line['round']}/{line['rounds']}" if line["rounds"] else str(line["round"])
