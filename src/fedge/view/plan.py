"""A plan's answer for people: tables on a terminal, and a picture."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich import box
from rich.console import Console
from rich.table import Table

from fedge.studies.exposure import in_words
from fedge.studies.question import UNITS
from fedge.view.numbers import duration, is_share, shown, words
from fedge.view.plots import COLOURS, tidy

FAR = 20  # times as much, from which on an axis is logarithmic
LISTED = 12  # settings of a table
SILENCE = 15.0  # seconds after which it is said again how far a lap is
RATES = {
    "cpu_hz": "clients' processors", "edge_hz": "edges' processors", "uplink_bps": "clients' uplinks",
    "edge_bps": "links between edges", "cloud_bps": "links to the cloud",
}  # fmt: skip


def table(found: dict[str, Any]) -> Table:
    """Return the settings that reached the target, the cheapest first; those of the front are marked."""
    energy = any(line["energy"] is not None for line in found["settings"])
    table = Table(box=box.SQUARE)
    for head in ("", "setting", "seconds", "MB sent", "client MB", *(["joules"] if energy else []), "rounds", "seeds",
                 "shows"):  # fmt: skip
        table.add_column(head, justify="left" if head in ("", "setting", "seeds", "shows") else "right")
    lines = [line for line in found["settings"] if line["reached"]]
    chosen = lines[:LISTED] + [line for line in lines[LISTED:] if line["front"]]
    pick = (found["recommended"] or {}).get("name")
    for line in chosen:
        mark = "→" if line["name"] == pick else "•" if line["front"] else ""
        cells = [f"{line['seconds']:,.4g}", f"{line['bytes'] / 1e6:,.4g}", f"{line['client_memory'] / 1e6:,.3g}"]
        cells += [f"{line['energy']:,.4g}"] if energy else []
        seen = ", ".join(what for what in line["exposes"] if what != "updates")
        fresh = line["fresh_seeds"]
        seeds = "race's" if fresh is None else f"{fresh['reached']} of {fresh['of']}"
        table.add_row(mark, line["name"], *cells, f"{line['rounds']:,.4g}", seeds, seen)
    return table


def not_reached(found: dict[str, Any]) -> Table:
    """Return how far the best setting of each algorithm came that did not reach the target."""
    metric, share = found["target"]["metric"], is_share(found["target"]["metric"])
    table = Table(box=box.SQUARE)
    for head in ("the best of each algorithm", words(metric), "after seconds", "what became of it"):
        table.add_column(head, justify="right" if head in (words(metric), "after seconds") else "left")
    there = {line["keys"]["algorithm"] for line in found["settings"] if line["reached"]}
    higher = found["target"]["value"] > found["target"]["untrained"]
    best: dict[str, Any] = {}
    for line in found["settings"]:
        name = line["keys"]["algorithm"]
        if name in there:
            continue
        now, old = line["best"], best.get(name, {}).get("best")
        if name not in best or (now is not None and (old is None or (now > old) == higher)):
            best[name] = line
    for line in best.values():
        tested = line["best"] is not None
        value = "not tested" if not tested else f"{line['best']:.1%}" if share else shown(line["best"], 4)
        table.add_row(line["name"], value, f"{line['at_seconds']:,.4g}" if tested else "", line["fate"])
    return table


def sentences(found: dict[str, Any]) -> list[str]:
    """Say what is recommended, how sure that is, what would change it and what it shows."""
    effort, pick = found["effort"], found["recommended"]
    target = found["target"]
    goal = f"{words(target['metric'])} {_value(target['metric'], target['value'])}"
    tried = (f"tried {effort['tried']:,} of {effort['possible']:,} settings with {effort['client_steps']:,} client "
             f"steps (of {effort['budget']:,}{', all spent' if effort['budget_spent'] else ''})")  # fmt: skip
    if pick is None:
        return [f"nothing reached {goal}; {tried}", *_left_out(found)]
    line = next(line for line in found["settings"] if line["name"] == pick["name"])
    said = [f"recommended: {pick['name']}", f"    {pick['command']}", ""]
    minimise, seeds = found["question"]["minimise"], pick["over_seeds"]
    unit, scale = UNITS[minimise]
    if seeds["seeds"]:
        said.append(f"how sure: {seeds['reached']} of {len(seeds['seeds'])} fresh seeds reached {goal}"
                    f"{_spread(seeds.get(minimise), scale, unit)}")  # fmt: skip
    else:
        said.append(f"how sure: {goal} was reached on the seed of the search; no budget was left for others")
    if (rival := pick["runner_up"]) is not None:
        gap = rival["costs_more"]
        said.append(f"          the next best, {rival['name']}, costs {gap['mean'] * scale:+,.3g} {unit}"
                    f"{_spread(gap, scale, unit, mean=False)} on the same {rival['seeds']} seeds")  # fmt: skip
    said += [f"          {tried}", *(f"          {line}" for line in _left_out(found))]
    said += _what_changes(found, pick)
    said.append(f"it shows: {in_words(line['exposes'])}")
    return said


def _left_out(found: dict[str, Any]) -> list[str]:
    """Say how many settings were not possible, and why most of them were not."""
    reasons = Counter(found["refused"].values())
    if not reasons:
        return []
    (why, count), *others = reasons.most_common()
    more = f", and {sum(n for _, n in others):,} for other reasons (answer.json)" if others else ""
    return [f"left out {count:,}: {why}{more}"]


def _what_changes(found: dict[str, Any], pick: dict[str, Any]) -> list[str]:
    said, minimise = [], found["question"]["minimise"]
    unit, scale = UNITS[minimise]
    if (limit := pick["bottleneck"]) is not None:
        what = f"{RATES[limit['rate']]} ({limit['rate']})" if limit["rate"] in RATES else limit["rate"]
        saved = limit["saves_when_doubled"]
        said.append(f"bottleneck: {what}: twice as fast saves {saved:.0%} of the time")
    turns = [c for c in pick["changes"] if c["best"] != pick["name"]]
    for c in turns:
        how = "half" if c["factor"] == 0.5 else "twice"
        costs = f"{c['best_cost'] * scale:,.4g} {unit} instead of {c['cost'] * scale:,.4g} {unit}"
        said.append(f"with {how} the speed of {RATES.get(c['rate'], c['rate'])} {c['best']} is cheaper: {costs}")
    if pick["changes"] and not turns:
        said.append("no rate, halved or doubled, changes the choice among the settings that reached the target")
    return said


def _value(metric: str, value: float) -> str:
    return f"{value:.1%}" if is_share(metric) else shown(value, 4)


def _spread(found: dict[str, Any] | None, scale: float, unit: str, *, mean: bool = True) -> str:
    if found is None:
        return ""
    said = f" in {found['mean'] * scale:,.4g} {unit}" if mean else ""
    if found["low"] is not None:
        said += f" ({found['low'] * scale:,.4g} to {found['high'] * scale:,.4g}, 95 %)"
    return said


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


class PlanTicker:
    """This tells how a plan goes on: a line for each lap, now and then how far it is, and the time that it has left."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._what, self._began, self._said = "", 0.0, 0.0

    def __call__(self, what: str, done: int, of: int, steps: int) -> None:
        now = time.monotonic()
        if what != self._what:
            self._what, self._began = what, now
            self._print(f"{what} ({steps:,} client steps so far)", now)
        elif done and now - self._said >= SILENCE:
            left = (now - self._began) / done * (of - done)
            self._print(f"{what}: {done} of {of}; about {duration(left)} left of this at most", now)

    def _print(self, line: str, now: float) -> None:
        self._said = now
        print(line, file=self._console.file, flush=True)
