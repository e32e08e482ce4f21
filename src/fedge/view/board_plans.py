"""Plans as the board lists them: what was asked, how far the best setting has come, and what is recommended."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

from fedge.runner.record import RUN, RUNNING
from fedge.studies.answer import ANSWER, SETTINGS
from fedge.studies.stored_plan import PLANNED
from fedge.studies.trials import TRIALS
from fedge.view.page_data import DEPTH, damage
from fedge.view.plan_page import plan_page
from fedge.view.plan_words import cost_of, typed

OF_A_PLAN = (PLANNED, TRIALS, SETTINGS, ANSWER)
POINTS = 16  # of a sparkline


def plans_in(folder: Path, depth: int = DEPTH) -> list[Path]:
    """List the plan folders in a folder; links lead elsewhere and are left alone."""
    try:
        if (folder / PLANNED).exists():
            return [folder]
        if not depth or (folder / RUN).exists():
            return []
        below = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []
    return [plan for name in below for plan in plans_in(folder / name, depth - 1)]


class Plans:
    """This knows the plans below a folder, and reads one again only when its files have changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._looks: dict[Path, Any] = {}
        self.rows: dict[Path, dict[str, Any]] = {}

    def read(self, at: Callable[[Path], Any], name: Callable[[Path], str]) -> None:
        """Look at all plans; `at` says when a file was changed, `name` what a plan is called."""
        known, looks = self.rows, self._looks
        self.rows, self._looks = {}, {}
        for plan in plans_in(self._folder):
            self._looks[plan] = look = [at(plan / file) for file in OF_A_PLAN]
            same = looks.get(plan) == look and known[plan]["state"] != RUNNING  # its process may have died
            self.rows[plan] = known[plan] if same else plan_row(plan, name(plan))

    def look(self, place: Path, at: Callable[[Path], Any]) -> Any:
        """Return something that changes when there is more to see of a plan; None for what is none."""
        row = self.rows.get(place)
        return None if row is None else ([at(place / file) for file in OF_A_PLAN], row["state"])


def plan_row(folder: Path, name: str) -> dict[str, Any]:
    """Return the row of a plan; one that cannot be read is a row with a sentence."""
    row: dict[str, Any] = {
        "name": name, "state": "damaged", "algorithm": "plan", "differs": [], "metric": None, "value": None,
        "share": False, "spark": [], "round": None, "rounds": None, "begun": None, "problem": None, "study": None,
    }  # fmt: skip
    try:
        found = plan_page(folder)
        asked = [pair[:80] for pair in typed(found["asked"])][:40]
        pick = found["answer"] and found["answer"]["recommended"]
        best = best_so_far(found)
        return row | {
            "state": found["state"], "problem": found["problem"], "begun": found["begun"],
            "differs": [*asked, f"→ {pick['name']} in {cost_of(found['answer'])}"] if pick else asked,
            "metric": found["target"]["title"], "share": found["target"]["share"],
            "value": best[-1] if best else None,
            "spark": [best[(len(best) - 1) * n // (POINTS - 1)] for n in range(POINTS)] if best else [],
        }  # fmt: skip
    except Exception as problem:  # whatever its files hold, the others are listed
        return row | {"problem": damage(folder, problem)}


def best_so_far(found: Mapping[str, Any]) -> list[float]:
    """Return the best value of the target's metric after each test, the cheapest test first."""
    target, tests = found["target"], list[tuple[float, float]]()
    for one in found["race"]:
        seconds, values = one["columns"].get("simulated_seconds", []), one["columns"].get(target["metric"], [])
        tests += [(s, v) for s, v in zip(seconds, values, strict=False) if s is not None and v is not None]
    return list(accumulate((value for _, value in sorted(tests)), max if target["higher"] else min))
