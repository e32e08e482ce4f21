"""The numbers of a plan's page: what was asked, how the race went so far, and the answer once there is one.

`plan_page(folder)` returns plain values only, as `page_data` does; the finals are the page's runs.

    state, problem, command, says   as of a run
    asked, target                   the question, key by key; of the target its metric, title, share and value
    race, more                      of each setting: name, algorithm, steps, columns (a number for each of its tests);
                                    how many settings are left out because they are many
    answer, remarks, csv            answer.json, what is said of it (`plan_words.remarks`), settings.csv; or None
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedge.errors import FedgeError
from fedge.runner import files
from fedge.studies.answer import ANSWER, SETTINGS
from fedge.studies.stored_plan import PLANNED
from fedge.studies.trials import TRIALS
from fedge.view.numbers import is_share, words
from fedge.view.plan_words import ask, command, remarks, reply, target_of

MOST = 400  # settings that a page shows
POINTS = 100  # tests of each of them
READ = 2**25  # bytes of a file that a page reads
OF_A_TEST = ("round", "iteration", "loss", "simulated_seconds", "bytes")


def plan_page(folder: Path) -> dict[str, Any]:
    """Return what a page shows of a plan besides its finals."""
    stored = files.read_json(folder / PLANNED)
    asked = stored.get("question")
    asked = {str(key): value for key, value in asked.items()} if isinstance(asked, dict) else {}
    race = _race(folder / TRIALS)
    found, problem = _answered(folder)
    metric = str(asked.get("target_metric") or _metric(race))
    answer = found["answer"]
    state = "damaged" if problem else "finished" if answer else "running" if files.is_locked(folder) else "stopped"
    return {
        "state": state,
        "problem": problem,
        "begun": begun if isinstance(begun := stored.get("begun"), str) else None,
        "command": command(asked),
        "says": f"{ask(asked, metric)} {reply(answer) if answer else _so_far(race, state)}",
        "asked": asked,
        "target": {"metric": metric, "title": words(metric), "share": is_share(metric), "value": target_of(asked)},
        "race": race[:MOST],
        "more": max(0, len(race) - MOST),
        **found,
    }


def _answered(folder: Path) -> tuple[dict[str, Any], str | None]:
    """Read the answer and what is said of it; a sentence where it cannot be read."""
    path, nothing = folder / ANSWER, {"answer": None, "remarks": None, "csv": None}
    if not path.is_file() or path.stat().st_size > READ:
        return nothing, None
    try:
        answer = files.read_json(path)
        reply(answer)
        return {"answer": answer, "remarks": remarks(answer), "csv": files.read_text(folder / SETTINGS)}, None
    except FedgeError as problem:
        return nothing, str(problem)
    except Exception:  # whatever it holds, the race is shown
        return nothing, f"{path} is damaged (it is no answer of a plan); restore it"


# The race


def _race(path: Path) -> list[dict[str, Any]]:
    """Return every setting's tests so far, in the order in which they first came; the last line may be half written."""
    if not path.is_file() or path.stat().st_size > READ:
        return []
    found: dict[str, list[Any]] = {}
    steps: dict[str, int] = {}
    for line in files.read_text(path).splitlines():
        try:
            lap = files.parse_json(line, str(path))
            name, rows = str(lap["name"]), list(lap["rows"])
            steps[name] = steps.get(name, 0) + int(lap["steps"])
            found.setdefault(name, []).extend(row for row in rows if isinstance(row, dict))
        except (FedgeError, KeyError, TypeError, ValueError):  # it is being written, or somebody else's
            continue
    return [
        {"name": name, "algorithm": name.split(" ")[0], "steps": steps[name], "columns": _columns(rows)}
        for name, rows in found.items()
    ]


def _so_far(race: Sequence[Mapping[str, Any]], state: str) -> str:
    said = f"{len(race)} settings have trained so far, with {sum(one['steps'] for one in race):,} client steps"
    ends = "the search goes on" if state == "running" else "there is no answer yet, and fedge plan --resume goes on"
    return f"{said}; {ends}."


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[float | None]]:
    kept = [rows[n] for n in np.linspace(0, len(rows) - 1, POINTS).round().astype(int)] if len(rows) > POINTS else rows
    names = dict.fromkeys(key for row in kept for key in row)
    return {name: [_total(row.get(name)) for row in kept] for name in names}


def _total(value: Any) -> float | None:
    """Return a number, or the sum of the bytes of all tiers."""
    try:
        total = float(sum(value.values() if isinstance(value, dict) else [value]))
    except (TypeError, OverflowError):
        return None
    return total if math.isfinite(total) else None


def _metric(race: Sequence[Mapping[str, Any]]) -> str:
    return next((name for one in race for name in one["columns"] if name not in OF_A_TEST), "accuracy")
