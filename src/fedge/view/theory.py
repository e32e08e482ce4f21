"""Theory beside practice, for people: tables on a terminal, and a figure."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from rich import box
from rich.table import Table

from fedge.studies.estimate import Estimate
from fedge.view.plots import COLOURS, tidy

THEOREMS = {"sdfeel": "SD-FEEL's Theorem 1", "hist": "HIST's Theorem 1", "hiersfl": "HierSFL's Theorem 1"}


def heading(found: Estimate) -> str:
    """Say what was measured, and along what."""
    c, m = found.config, found.measurements
    return (
        f"{c.algorithm}, lr={c.lr:g}: {m.topology.clients:,} clients in {m.topology.cells:,} "
        f"cell{'s' if m.topology.cells > 1 else ''}, {m.tau2} × {m.tau1} steps per round\n"
        f"measured at {len(m.rounds)} models, after rounds {', '.join(map(str, m.rounds))}"
    )


def constants_table(found: Estimate) -> Table:
    """Return each constant and its spread over the models measured."""
    caption = (
        "spread over the models of the run; ±: standard error from the samples drawn (σ²), or how far power iterations "
        "were from their end (L); L is the largest of "
        f"{found.curved} of {found.measurements.topology.clients:,} clients"
    )
    table = Table(box=box.SQUARE, caption=caption, caption_justify="left")
    for head in ("constant", "what it bounds", "least", "mean", "most", "after round"):
        table.add_column(head, justify="left" if head in ("constant", "what it bounds") else "right")
    for c in found.constants:
        error = f" ± {c.error:.1g}" if c.error else ""
        table.add_row(c.symbol, c.meaning, f"{c.least:.4g}", f"{c.mean:.4g}", f"{c.most:.4g}{error}", str(c.round))
    return table


def bounds_table(found: dict[str, Any]) -> Table:
    """Return the bounds term by term, and below them what was measured."""
    table = Table(box=box.SQUARE)
    table.add_column(THEOREMS[found["theory"]])
    names = list(found["bounds"])
    for name in names:
        table.add_column(name, justify="right")
    terms = dict.fromkeys(term for bound in found["bounds"].values() for term in bound["terms"])
    for term in terms:
        table.add_row(term, *(_number(found["bounds"][name]["terms"].get(term, "")) for name in names))
    table.add_section()
    table.add_row("bound on the mean ‖∇F‖²", *(_number(found["bounds"][name]["value"]) for name in names))
    measured = found["gradient2"]
    table.add_row("measured: mean", *[_number(measured["mean"])] * len(names))
    table.add_row("measured: at the start", *[_number(measured["start"])] * len(names))
    table.add_row("measured: at the end", *[_number(measured["last"])] * len(names))
    return table


def _number(x: Any) -> str:
    return "∞" if x is None else x if isinstance(x, str) else f"{x:.4g}"


def remarks(found: dict[str, Any]) -> str:
    """Say what each bound is worth, and what else there is to know."""
    lines = [f"{name}: {bound['verdict']}" for name, bound in found["bounds"].items()]
    if found["theory"] == "sdfeel" and found["algorithm"] != "sdfeel" and lines:
        lines.append(f"{found['algorithm']} is SD-FEEL whose edges agree fully after each global round (ζ^α = 0)")
    lines += [f"no bound was evaluated: {why}" for why in found["uncovered"]]
    return "\n".join([*lines, *found["notes"]])


def figure(found: dict[str, Any]) -> Figure:
    """Draw the squared gradient norm over rounds beside the bounds on its mean, and the bounds' terms."""
    drawing = Figure(figsize=(11, 4.2), layout="constrained")
    left, right = drawing.subplots(1, 2, width_ratios=(1.1, 1))
    probes = found["probes"]
    rounds, gradient2 = [p["round"] for p in probes], [p["gradient2"] for p in probes]
    left.plot(rounds, gradient2, marker="o", color=COLOURS[0], label="measured ‖∇F‖²")
    left.axhline(found["gradient2"]["mean"], color=COLOURS[0], linestyle=":", label="its mean over the run")
    left.set_yscale("log")
    left.set_xlabel("global rounds")
    left.set_ylabel("squared gradient norm")
    left.xaxis.set_major_locator(MaxNLocator(integer=True))
    terms = list(dict.fromkeys(t for b in found["bounds"].values() for t in b["terms"]))
    count = max(len(found["bounds"]), 1)
    for n, (name, bound) in enumerate(found["bounds"].items()):
        if bound["value"] is not None and bound["value"] > 0:
            style = "-" if bound["valid"] else "--"
            said = f"bound, {name}{'' if bound['valid'] else ' (a condition is broken)'}"
            left.axhline(bound["value"], color=COLOURS[n + 1], linestyle=style, label=said)
        heights = [bound["terms"].get(t) or float("nan") for t in terms]
        places = [k + 0.8 / count * (n - (count - 1) / 2) for k in range(len(terms))]
        right.barh(places, heights, 0.8 / count, color=COLOURS[n + 1], label=name)
    left.legend(frameon=False, fontsize=8)
    if terms:
        right.set_yticks(range(len(terms)), terms)
        right.invert_yaxis()
        right.set_xscale("log")
        right.set_xlabel("term of the bound")
        right.axvline(
            found["gradient2"]["start"], color="black", linewidth=1, linestyle=":", label="‖∇F‖² at the start"
        )
        right.legend(frameon=False, fontsize=8)
    else:
        right.axis("off")
        right.text(0.5, 0.5, "no bound speaks of this run", ha="center", transform=right.transAxes)
    for axes in (left, right):
        tidy(axes)
    return drawing
