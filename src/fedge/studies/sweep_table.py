"""The table of a sweep: a line for each setting, each number a mean over seeds with its 95 % confidence interval.

A setting of which a seed diverged has no mean, since that of the others would flatter it; the line says how many did.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from fedge.runner.rows import NUMBERS, Row, tested
from fedge.studies.csv_text import csv_text
from fedge.studies.grid import axes_of
from fedge.studies.interval import Interval, interval
from fedge.studies.stored_plan import Plan

AFTER = ("simulated_seconds", "bytes")


class Outcome(NamedTuple):
    """This is how a run ended."""

    final: Row
    diverged: bool
    reached: Mapping[str, Any] | None  # the target, and at what cost


class Line(NamedTuple):
    """This is a line of the table: a setting and what its seeds came to."""

    setting: dict[str, Any]  # the keys that tell settings apart
    seeds: int
    diverged: int
    main: str  # the metric that counts
    columns: dict[str, Interval | None]  # None where a seed diverged, or where a number is not defined
    reached: int | None  # seeds that were at the target; None where there is none


def lines_of(plan: Plan, outcomes: Mapping[str, Outcome]) -> list[Line]:
    """Gather the runs that differ in their seed only."""
    axes, found = axes_of(plan), dict[str, list[str]]()
    for name, chosen in plan.items():
        if name in outcomes:
            found.setdefault(str({key: value for key, value in chosen.items() if key != "seed"}), []).append(name)
    lines = []
    for names in found.values():
        chosen, own = plan[names[0]], [outcomes[name] for name in names]
        has_target = chosen.get("target") is not None
        reached = [o.reached for o in own if o.reached is not None]
        lines.append(
            Line(
                setting={key: chosen[key] for key in axes if key in chosen},
                seeds=len(own),
                diverged=sum(o.diverged for o in own),
                main=tested(own[0].final)[0],
                columns=_columns(own) | (_of_target(reached, len(own)) if has_target else {}),
                reached=len(reached) if has_target else None,
            )
        )
    return lines


def _columns(own: list[Outcome]) -> dict[str, Interval | None]:
    """Average each column that all runs have a number in; bytes are those of all tiers."""
    finals = [o.final | {"bytes": sum(o.final["bytes"].values())} for o in own]
    names = [name for name, value in finals[0].items() if not isinstance(value, list) and name not in ("round",)]
    names = [*tested(own[0].final), *(n for n in names if n not in tested(own[0].final))]
    return {name: _mean([final.get(name) for final in finals], own) for name in names}


def _mean(values: list[Any], own: list[Outcome]) -> Interval | None:
    numbers = [v for v in values if isinstance(v, NUMBERS) and math.isfinite(v)]
    return interval(numbers) if len(numbers) == len(own) and not any(o.diverged for o in own) else None


def _of_target(reached: list[Mapping[str, Any]], seeds: int) -> dict[str, Interval | None]:
    """Average what the target cost, where every seed was at it."""
    whole = reached if len(reached) == seeds else []
    return {
        "target_round": interval([r["round"] for r in whole]) if whole else None,
        "target_seconds": interval([r["simulated_seconds"] for r in whole]) if whole else None,
        "target_bytes": interval([sum(r["bytes"].values()) for r in whole]) if whole else None,
    }


def csv_of(lines: list[Line]) -> str:
    """Write the table as CSV: of each column the mean, and the half width of its interval where there are seeds."""
    keys = list(dict.fromkeys(key for line in lines for key in line.setting))
    names = list(dict.fromkeys(name for line in lines for name in line.columns))
    heads = [part for name in names for part in (name, f"{name}_ci95")]
    extra = ["reached"] if any(line.reached is not None for line in lines) else []
    rows: list[list[Any]] = [[*keys, "seeds", "diverged", *extra, *heads]]
    for line in lines:
        cells = [line.setting.get(key, "") for key in keys] + [
            line.seeds,
            line.diverged,
            *([line.reached] * len(extra)),
        ]
        for name in names:
            found = line.columns.get(name)
            bounded = found is not None and math.isfinite(found.half)
            cells += [found.mean if found else None, found.half if found and bounded else None]
        rows.append(cells)
    return csv_text(rows)
