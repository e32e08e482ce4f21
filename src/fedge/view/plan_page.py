"""The numbers of a plan's page: what was asked, how the race went so far, and the answer once there is one.

`plan_page(folder)` returns plain values only, as `page_data` does; the finals are the page's runs.

    state, problem, command, says   as of a run
    asked, target                   the question, key by key; of the target its metric, title, share, value, and whether
                                    higher is better
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
from fedge.studies.stored_plan import PLANNED, resume_command
from fedge.studies.trials import TRIALS
from fedge.view.numbers import is_share, words
from fedge.view.plan_words import ask, command, count, remarks, reply, target_of

MOST = 400  # settings that a page shows
POINTS = 100  # tests of each of them
READ = 2**25  # bytes of a file that a page reads
OF_A_TEST = ("round", "iteration", "loss", "simulated_seconds", "bytes")


def plan_page(folder: Path) -> dict[str, Any]:
    """Return what a page shows of a plan besides its finals."""
    stored = files.read_json(folder / PLANNED)
    asked = stored.get("question")
    asked = {str(key): value for key, value in asked.items()} if isinstance(asked, dict) else {}
    found, problem = _answered(folder)
    race, unread = _race(folder / TRIALS)
    metric = str(asked.get("target_metric") or _metric(race))
    answer = found["answer"]
    state = "damaged" if problem else "finished" if answer else "running" if files.is_locked(folder) else "stopped"
    return {
        "state": state,
        "problem": problem or unread,
        "begun": begun if isinstance(begun := stored.get("begun"), str) else None,
        "command": None if stored.get("passed_in") else command(asked),
        "says": f"{ask(asked, metric)} {reply(answer) if answer else _so_far(race, state, resume_command(folder))}",
        "asked": asked,
        "target": {
            "metric": metric,
            "title": words(metric),
            "share": is_share(metric),
            "value": target_of(asked),
            "higher": _higher(stored, answer, race, metric, target_of(asked)),
        },
        "race": race[:MOST],
        "more": max(0, len(race) - MOST),
        **found,
    }


def _answered(folder: Path) -> tuple[dict[str, Any], str | None]:
    """Read the answer and what is said of it; a sentence where it cannot be read."""
    path, settings, nothing = folder / ANSWER, folder / SETTINGS, {"answer": None, "remarks": None, "csv": None}
    if not path.is_file() or (problem := _too_large(path)):
        return nothing, problem if path.is_file() else None
    try:
        answer = files.read_json(path)
        reply(answer)
        csv = files.read_text(settings) if settings.is_file() and not _too_large(settings) else None
        return {"answer": answer, "remarks": remarks(answer), "csv": csv}, None
    except FedgeError as problem:
        return nothing, str(problem)
    except Exception:  # whatever it holds, the race is shown
        return nothing, f"{path} is damaged (it is no answer of a plan); restore it"


def _too_large(path: Path) -> str | None:
    """Say that a file is larger than a page reads; None where it is not."""
    size = path.stat().st_size
    return f"{path} has {size:,} bytes, more than the {READ:,} that a page reads" if size > READ else None


def _higher(
    stored: Mapping[str, Any], answer: Mapping[str, Any] | None, race: Sequence[Mapping[str, Any]], metric: str,
    value: float | None,
) -> bool:  # fmt: skip
    """Say whether higher is better; an older plan that has no answer is judged by its metric's name and first test."""
    if answer is not None and isinstance(untrained := answer["target"].get("untrained"), int | float):
        return bool(answer["target"]["value"] > untrained)
    if isinstance(known := stored.get("higher_is_better"), bool):
        return known
    tests = (number for one in race for number in one["columns"].get(metric, []) if number is not None)
    return is_share(metric) or value is None or next(tests, value) <= value


# The race


def _race(path: Path) -> tuple[list[dict[str, Any]], str | None]:
    """Return every setting's tests so far, in the order in which they first came; a sentence where there are too many.

    The last line may be half written, also within a character.
    """
    if not path.is_file() or (problem := _too_large(path)):
        return [], problem if path.is_file() else None
    found: dict[str, list[Any]] = {}
    steps: dict[str, int] = {}
    for line in files.read_bytes(path).split(b"\n"):
        try:
            lap = files.parse_json(line.decode(errors="replace"), str(path))
            name, rows = str(lap["name"]), list(lap["rows"])
            steps[name] = steps.get(name, 0) + int(lap["steps"])
            found.setdefault(name, []).extend(row for row in rows if isinstance(row, dict))
        except (FedgeError, KeyError, TypeError, ValueError):  # it is being written, or somebody else's
            continue
    return [
        {"name": name, "algorithm": name.split(" ")[0], "steps": steps[name], "columns": _columns(rows)}
        for name, rows in found.items()
    ], None


def _so_far(race: Sequence[Mapping[str, Any]], state: str, resume: str) -> str:
    steps = sum(one["steps"] for one in race)
    said = f"So far {count(len(race), 'setting')} trained with {count(steps, 'client step')}"
    ends = {"running": "the search goes on", "stopped": f"there is no answer yet, and {resume} goes on"}
    return f"{said}; {ends.get(state, 'the answer cannot be read')}."


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[float | None]]:
    kept = [rows[n] for n in np.linspace(0, len(rows) - 1, POINTS).round().astype(int)] if len(rows) > POINTS else rows
    names = dict.fromkeys(key for row in kept for key in row)
    return {name: [_total(row.get(name)) for row in kept] for name in names}


def _total(value: Any) -> float | None:
    """Return a number, or the sum of the bytes of all tiers; a page with many settings is large, so six digits do."""
    try:
        total = float(sum(value.values() if isinstance(value, dict) else [value]))
    except (TypeError, OverflowError):
        return None
    if not math.isfinite(total):
        return None
    return int(total) if total.is_integer() else float(f"{total:.6g}")


def _metric(race: Sequence[Mapping[str, Any]]) -> str:
    return next((name for one in race for name in one["columns"] if name not in OF_A_TEST), "accuracy")
