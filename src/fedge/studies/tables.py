"""Write a figure's results as text: where its series ended, and what came of the paper's claims.

A README takes the text in between `<!-- FIGURE -->` and `<!-- end of FIGURE -->`, so that its numbers and its verdicts
are those of the stored runs and of no other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedge.errors import RunError
from fedge.studies.curve import Curve, Table, names_of, read_file, write_file
from fedge.studies.recipe import FigureRecipe, Recipe
from fedge.studies.verdict import Comparison, Verdict, measure, verdicts

WORDS = {
    "accuracy": "accuracy",
    "edge_accuracy": "edges' accuracy",
    "global_loss": "training loss",
    "objective": "objective",
    "load": "whole models to the target",
    "simulated_seconds": "s",
    "iteration": "iterations",
    "round": "rounds",
    "bytes": "bytes",
    "client_load": "whole models",
}
SHOWN = ("accuracy", "global_loss", "objective", "edge_accuracy")
LOADS = {"client_load": "a client sends", "edge_load": "an edge gets", "cloud_load": "the cloud gets"}
TINY = 1e-9  # a ζ that is rounding only
SEVERAL = 3  # comparisons that are listed one by one


def text_of(recipe: Recipe, figure: FigureRecipe, curves: Sequence[Curve], *, short: bool = False) -> str:
    """Return a table for each variant, or, for a README, for those that are not aside, and one of the claims."""
    judged, titles = verdicts(figure, curves), recipe.titles()
    parts = []
    for variant in judged:
        if short and variant in recipe.variants and recipe.variants[variant].aside:
            continue
        own = [c for c in curves if c.variant == variant]
        count = len(own[0].seeds)
        head = f"{titles.get(variant, variant)}, {count} seed{'s' * (count > 1)}:"
        parts.append(head[:1].upper() + head[1:] + "\n\n" + _series_table(figure, own))
    if figure.claims:
        parts.append(_claims_table(figure, judged, titles))
    return "\n\n".join(parts)


def _series_table(figure: FigureRecipe, curves: list[Curve]) -> str:
    columns = [
        ["series", *names_of(curves)],
        ["rate", *(f"{c.lr:g}" for c in curves)],
        ["iterations", *(f"{c.columns['iteration'][0, -1]:,.0f}" for c in curves)],
    ]
    if figure.target is not None:
        columns += _target_columns(curves, figure.target)
    else:
        for place in figure.table_at or [math.inf]:
            where = f" at {place:,.10g} {WORDS[figure.x]}" if math.isfinite(place) else ""
            cells = [spread(figure.y, measure(figure, c, figure.y, place)) for c in curves]
            columns.append([WORDS[figure.y] + where, *cells])
        others = [c for c in SHOWN if c != figure.y and all(c in curve.columns for curve in curves)]
        columns += [[WORDS[c], *(spread(c, curve.columns[c][:, -1]) for curve in curves)] for c in others]
    if any("zeta" in c.columns for c in curves):
        columns.append(["ζ", *(_range(c.columns["zeta"]) if "zeta" in c.columns else "" for c in curves)])
    if figure.x == "client_load":
        columns += [[f"{title} a round", *(_a_round(c, load) for c in curves)] for load, title in LOADS.items()]
    return table(columns)


def _target_columns(curves: list[Curve], target: float) -> list[list[str]]:
    columns = []
    for smooth, title in ((1, f"whole models to {target:.0%}"), (5, "to a mean of five")):
        loads = [c.load_to(target, smooth) for c in curves]
        columns.append([title, *(spread("load", x[np.isfinite(x)]) for x in loads)])
        columns.append(["seeds there", *(f"{np.isfinite(x).sum()} of {len(x)}" for x in loads)])
    return columns


def _a_round(curve: Curve, load: str) -> str:
    return f"{curve.columns[load][0, -1] / curve.columns['round'][0, -1]:.4g}"


def _range(values: Table) -> str:
    low, high = (f"{0 if x < TINY else x:.2g}" for x in (values.min(), values.max()))
    return low if low == high else f"{low} to {high}"


def _claims_table(figure: FigureRecipe, judged: dict[str, list[Verdict]], titles: dict[str, str]) -> str:
    columns: list[list[str]] = [["claim"], ["runs"], ["verdict"], ["measured"]]
    for number, claim in enumerate(figure.claims):
        for place, (variant, each) in enumerate(judged.items()):
            verdict = each[number]
            mark = "" if verdict.survives else " †"
            column = claim.column or figure.y
            row = (claim.says if place == 0 else "", titles.get(variant, variant), f"**{verdict.word}**{mark}",
                   evidence(verdict, figure.x if claim.levels_off else column))  # fmt: skip
            for cells, cell in zip(columns, row, strict=True):
                cells.append(cell)
    return table(columns)


def evidence(verdict: Verdict, column: str) -> str:
    """Say what a verdict rests on: each comparison, or where there are many, how they lie. Where curves level off is
    said of each."""
    found = verdict.comparisons
    if len(found) <= SEVERAL or verdict.claim.levels_off:
        return "; ".join(_comparison_text(c, column) for c in found)
    words = [f"{sum(c.word is word for c in found)} {word}" for word in dict.fromkeys(c.word for c in found)]
    means = [c.found.mean for c in found]
    agree, seeds = sum(c.agree for c in found), sum(c.seeds for c in found)
    lowest, highest = (number(column, x, sign=True) for x in (np.nanmin(means), np.nanmax(means)))
    apart = f"{lowest} to {highest}{unit(column, sign=True)}"
    return f"{len(found)} pairs: {', '.join(words)}; {apart}; {agree} of {seeds} seeds agree"


def _comparison_text(c: Comparison, column: str) -> str:
    if math.isnan(c.found.mean):
        return f"{c.what}: {c.agree} of {c.seeds} seeds agree"
    sign = " − " in c.what
    mean, low, high = (number(column, x, sign=sign) for x in c.found[:3])
    return f"{c.what}: {mean}{unit(column, sign=sign)} [{low}, {high}], {c.agree} of {c.seeds} seeds agree"


def spread(column: str, values: Table) -> str:
    """Write mean ± standard deviation."""
    if not len(values):
        return "–"
    if not np.isfinite(values).all():
        return f"diverged on {(~np.isfinite(values)).sum()} of {len(values)} seeds"
    deviation = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    return f"{number(column, values.mean())} ± {number(column, deviation)}{' %' if 'accuracy' in column else ''}"


def number(column: str, x: float, *, sign: bool = False) -> str:
    plus = "+" if sign else ""
    if math.isinf(x):
        return "−∞" if x < 0 else "∞"
    if "accuracy" in column or column == "load":
        text = f"{x * (100 if 'accuracy' in column else 1):{plus}.1f}"
    elif column in ("global_loss", "objective"):
        text = f"{x:{plus}.3f}"
    else:
        text = f"{x:{plus},.4g}"
    return text.replace("-", "−")


def unit(column: str, *, sign: bool) -> str:
    if "accuracy" in column:
        return " points" if sign else " %"
    return " s" if column == "simulated_seconds" else ""


def table(columns: list[list[str]]) -> str:
    """Write columns, each with its title first, as a Markdown table."""
    rows = list(zip(*columns, strict=True))
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(columns), *lines[1:]])


def put(readme: Path, name: str, text: str) -> bool:
    """Replace a figure's text in a README; say whether it has a place for it."""
    old = read_file(readme)
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    if begin not in old and end not in old:
        return False
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if len(pattern.findall(old)) != 1:
        raise RunError(f"{readme} must have one '{begin}' and after it one '{end}'; mend it")
    new = pattern.sub(lambda _: f"{begin}\n{text}\n{end}", old)
    if new != old:
        write_file(readme, new.encode())
    return True


def text_in(readme: str, name: str) -> str | None:
    """Return a figure's text in a README, if it has one."""
    found = re.search(f"<!-- {re.escape(name)} -->\n(.*?)\n<!-- end of {re.escape(name)} -->", readme, re.DOTALL)
    return found and found[1]
