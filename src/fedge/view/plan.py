"""A plan's answer on a terminal, as tables."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.table import Table

from fedge.view.numbers import is_share, shown, words

LISTED = 12  # settings of a table


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
