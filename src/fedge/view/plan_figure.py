"""The picture of a plan's answer: what settings cost that reached the target, and what each rate would change."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedge.view.plots import COLOURS, tidy

FAR = 20  # times as much, from which on an axis is logarithmic


def figure(found: dict[str, Any]) -> Figure:
    """Draw what the settings cost that reached the target, and what each rate would do to the recommended one."""
    drawing = Figure(figsize=(11, 4.4), layout="constrained")
    left, right = drawing.subplots(1, 2, width_ratios=(1.2, 1))
    _costs(left, found)
    _tornado(right, found["recommended"])
    return drawing


def _costs(axes: Axes, found: dict[str, Any]) -> None:
    lines = [line for line in found["settings"] if line["reached"]]
    names = list(dict.fromkeys(line["keys"]["algorithm"] for line in found["settings"]))
    most = max((line["client_memory"] for line in lines), default=1)
    for name in names:
        own = [line for line in lines if line["keys"]["algorithm"] == name]
        if own:
            axes.scatter(
                [line["race"]["seconds"] for line in own], [line["race"]["bytes"] / 1e6 for line in own],
                [30 + 170 * line["client_memory"] / most for line in own],
                color=COLOURS[names.index(name) % len(COLOURS)], label=name,
                edgecolors=["black" if line["front"] else "none" for line in own],
            )  # fmt: skip
    if pick := found["recommended"]:
        raced = next(line["race"] for line in lines if line["name"] == pick["name"])
        axes.annotate("recommended", (raced["seconds"], raced["bytes"] / 1e6), (12, 12), textcoords="offset points",
                      arrowprops={"arrowstyle": "-"}, fontsize=8)  # fmt: skip
        for key, scale in (("seconds", axes.set_xscale), ("bytes", axes.set_yscale)):
            values = [line["race"][key] for line in lines]
            if max(values) > FAR * min(values):  # on a short logarithmic axis there is no room for its labels
                scale("log")
        axes.margins(0.15)
        axes.legend(frameon=False, fontsize=8)
    else:
        axes.text(0.5, 0.5, "nothing reached the target", ha="center", transform=axes.transAxes)
    axes.set_xlabel("simulated seconds to the target, on the seed of the race")
    axes.set_ylabel("MB sent on all tiers")
    axes.set_title("larger: more memory at a client; ringed: the front", fontsize=9)
    tidy(axes)


def _tornado(axes: Axes, pick: dict[str, Any] | None) -> None:
    if pick is None or not pick["changes"]:
        axes.axis("off")
        return
    rates = list(dict.fromkeys(c["rate"] for c in pick["changes"]))
    for factor, colour in ((0.5, COLOURS[1]), (2.0, COLOURS[2])):
        widths = [next(c["seconds"] for c in pick["changes"] if (c["rate"], c["factor"]) == (r, factor)) for r in rates]
        said = "half as fast" if factor == 0.5 else "twice as fast"
        axes.barh(rates, [w / pick["seconds"] - 1 for w in widths], color=colour, label=said)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:+.0%}")
    axes.set_xlabel("change of the recommended setting's time")
    axes.legend(frameon=False, fontsize=8)
    tidy(axes)
