"""Say in plain words what was run and what came of it, and what to type to have it again."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from fedge.view.numbers import is_share, shown, words

Run = Mapping[str, Any]
TITLES = {"fedavg": "FedAvg", "hierfavg": "HierFAVG", "hfedavg": "HFedAvg", "hist": "HIST", "sdfeel": "SD-FEEL",
          "hiersfl": "HierSFL"}  # fmt: skip
STATES = {
    "running": "It is still running.",
    "stopped": "It was stopped before its end.",
    "failed": "It failed before its end.",
    "diverged": "It diverged: its loss is no longer a finite number.",
    "lost": "Its process died before its end.",
    "damaged": "Its record is damaged.",
}
UNITS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def title(algorithm: str) -> str:
    """Write an algorithm's name as its paper does."""
    return TITLES.get(algorithm, algorithm)


def says(kind: str, runs: Sequence[Run], differing: Sequence[str]) -> str:
    """Return the paragraph at the top of a page."""
    known = [run for run in runs if run["problem"] is None]
    if not known:
        return f"None of the {len(runs)} runs here can be read."
    if len(runs) == 1:
        return _one(known[0])
    return " ".join([_several(kind, runs, known, differing), *_best(known)])


def _one(run: Run) -> str:
    said = [f"{title(run['algorithm'])} trained {_model(run)}{_data(run)}{_clients(run)}.", *_schedule(run)]
    if (end := _end(run)) is not None:
        said.append(end)
    if isinstance(reached := run["reached"], dict) and isinstance(reached.get("round"), int):
        said.append(f"Its target was reached after round {reached['round']:,}.")
    if run["state"] in STATES:
        said.append(STATES[run["state"]])
    return " ".join(said)


def _several(kind: str, runs: Sequence[Run], known: Sequence[Run], differing: Sequence[str]) -> str:
    first = known[0]
    algorithms = list(dict.fromkeys(title(run["algorithm"]) for run in known))
    if kind == "comparison":
        who = f"{_list(algorithms)} ran on equal terms: the same data, clients, initial model and order of samples."
    else:
        apart = [key for key in differing if key in _varied(known)]
        who = f"{len(runs)} runs of {_list(algorithms)}"
        who += f" that differ in {_list(apart)}." if apart else "."
    return f"{who} They trained {_model(first)}{_data(first)}{_clients(first)}."


def _varied(runs: Sequence[Run]) -> set[str]:
    """Name the keys whose values are worth a word: those that are set, not what follows from the algorithm."""
    keys = {change["key"] for run in runs for change in run["changed"]}
    return keys | {"algorithm", "seed"}


def _model(run: Run) -> str:
    found = (run["setting"] or {}).get("model")
    model = found if isinstance(found, dict) else {}
    name = str(model.get("name") or run["config"].get("model", "a model"))
    count = model.get("parameters")
    return f"{name} ({count:,} parameters)" if isinstance(count, int) else name


def _data(run: Run) -> str:
    name, partition = run["config"].get("data"), run["config"].get("partition")
    return f" on {name}, dealt by {partition}," if partition else f" on {name}"


def _clients(run: Run) -> str:
    config = run["config"]
    clients, cells = config.get("clients"), config.get("cells")
    if not isinstance(clients, int) or not isinstance(cells, int):
        return ""
    inside = f" in {cells:,} cell{'s' * (cells > 1)}"
    return f" with {clients:,} client{'s' * (clients > 1)}{inside}"


def _schedule(run: Run) -> list[str]:
    config = run["config"]
    local, edge, rounds = (config.get(key) for key in ("local_steps", "edge_rounds", "rounds"))
    if not isinstance(local, int) or not isinstance(edge, int):
        return []
    length = f"{rounds:,} global rounds" if isinstance(rounds, int) else "global rounds"
    return [f"{length[0].upper()}{length[1:]} of {edge:,} edge round{'s' * (edge > 1)} × {local:,} local "
            f"step{'s' * (local > 1)} were asked for."]  # fmt: skip


def _end(run: Run) -> str | None:
    name, columns = run["main"], run["columns"]
    if name is None or not columns.get(name):
        return None
    values, number = columns[name], columns["round"][-1]
    if values[-1] is None:
        return f"After round {number:,} its {words(name)} was not a finite number."
    known = [(value, n) for value, n in zip(values, columns["round"], strict=True) if value is not None]
    falls = falls_in(run, name)
    best, when = (min if falls else max)(known)
    peak = "" if best == values[-1] else f" (best: {amount(name, best)} after round {when:,})"
    cost = f"sent {size(columns['bytes'][-1])} and took {seconds(columns['simulated_seconds'][-1])} of simulated time"
    return f"After {number:,} rounds its test {words(name)} was {amount(name, values[-1])}{peak}; until then it {cost}."


def falls_in(run: Run, name: str) -> bool:
    """Tell whether smaller values of a metric are better."""
    found = (run["setting"] or {}).get("falls")
    return "loss" in name or name in (found if isinstance(found, list) else ())


def _best(runs: Sequence[Run]) -> list[str]:
    """Say which run, or which mean over seeds, ended best, which was quickest and which sent least."""
    name = next((run["main"] for run in runs if run["main"]), None)
    ends: dict[str, list[tuple[float, float, float]]] = {}
    for run in runs:
        columns = run["columns"]
        if name is not None and columns.get(name) and columns[name][-1] is not None:
            last = (columns[name][-1], columns["simulated_seconds"][-1], columns["bytes"][-1])
            ends.setdefault(run["group"], []).append(last)
    if name is None or len(ends) < 2:
        return []
    mean = {label: [math.fsum(one[n] for one in each) / len(each) for n in range(3)] for label, each in ends.items()}
    sign = 1 if falls_in(runs[0], name) else -1
    best = min(mean, key=lambda label: sign * mean[label][0])
    fast, lean = (min(mean, key=lambda label: mean[label][n]) for n in (1, 2))
    mark = " on average over seeds" if any(len(each) > 1 for each in ends.values()) else ""
    said = [f"{title(best)} ended best, with {words(name)} {amount(name, mean[best][0])}{mark}."]
    if len({one[1] for one in mean.values()}) > 1:
        said.append(f"{title(fast)} took the least simulated time, {seconds(mean[fast][1])}, "
                    f"and {title(lean)} sent the least, {size(mean[lean][2])}.")  # fmt: skip
    return said


# What to type


def repeat_command(kind: str, runs: Sequence[Run]) -> str | None:
    """Return the command that makes the same again, into a new folder; None where only the Python that made it can."""
    run = next((run for run in runs if run["config"]), None)
    if run is None or kind == "selection" or (kind == "sweep" and run["command"] is None):
        return None
    if run["command"] is not None:
        try:
            given = shlex.split(run["command"])
        except ValueError:
            return None
        return shlex.join(_without_folder(given))
    if "custom" in run["config"].values() or kind != "run":
        return None
    keys = [f"{change['key']}={_word(change['value'])}" for change in run["changed"]]
    return shlex.join(["fedge", "run", run["algorithm"], *keys])


def _without_folder(given: list[str]) -> list[str]:
    kept = [word for n, word in enumerate(given) if word != "--out" and (n == 0 or given[n - 1] != "--out")]
    return [word for word in kept if not word.startswith("--out=")]


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# Numbers


def amount(name: str, value: float) -> str:
    return f"{value:.1%}" if is_share(name) else shown(value, 4)


def size(count: float) -> str:
    """Write a number of bytes."""
    for unit, one in UNITS:
        if count >= one:
            return f"{count / one:,.3g} {unit}" if count < 1000 * one else f"{count / one:,.0f} {unit}"
    return f"{count:,.0f} bytes"


def seconds(count: float) -> str:
    """Write a time."""
    return f"{count:,.1f} s" if count < 10_000 else f"{count / 3600:,.1f} h"


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
