"""A plan in words: what was asked, what is recommended, how sure that is, what would change it, what it shows."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Mapping
from typing import Any

from fedge.errors import FedgeError
from fedge.studies.exposure import excluded, in_words
from fedge.studies.question import UNITS, split
from fedge.view.numbers import is_share, words
from fedge.view.prose import title

RATES = {
    "cpu_hz": "clients' processors", "edge_hz": "edges' processors", "uplink_bps": "clients' uplinks",
    "edge_bps": "links between edges", "cloud_bps": "links to the cloud",
}  # fmt: skip


AIMS = {"seconds": "in the fewest simulated seconds", "bytes": "with the fewest bytes sent",
        "energy": "with the least energy of clients"}  # fmt: skip


PASSED = {"data": "the data set", "model": "the model", "optimizer": "the optimiser", "task": "the objective"}


# What was asked, as plan.json has it


def ask(asked: Mapping[str, Any], metric: str) -> str:
    """Ask the question in a sentence, and say what must not be seen or exceeded."""
    value = target_of(asked)
    target = f"{words(metric)} {asked.get('target') if value is None else _value(metric, value)}"
    where = f" on the network {asked['network']}" if asked.get("network") else ""
    try:
        q = split(asked)[0]
    except FedgeError:  # somebody has changed it
        return f"Which algorithm, with which keys, reaches {target}{where}?"
    said = [f"Which algorithm, with which keys, reaches {target}{where} {AIMS[q.minimise]}?"]
    if hidden := sorted(excluded(q.exclude)):
        said.append(f"Nobody but the clients may see their {' and '.join(hidden)}.")
    if q.deadline is not None:
        said.append(f"It may take {q.deadline:,.4g} simulated seconds at most.")
    if q.client_memory is not None:
        said.append(f"A client has {q.client_memory / 1e6:,.4g} MB.")
    return " ".join(said)


def target_of(asked: Mapping[str, Any]) -> float | None:
    """Return the value to reach; None where somebody has put something else there."""
    try:
        value = float(asked["target"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None


def command(asked: Mapping[str, Any]) -> str:
    """Return what to type to ask the same again, into a new folder."""
    return shlex.join(["fedge", "plan", *typed(asked)])


def typed(asked: Mapping[str, Any]) -> list[str]:
    """Write the question as it is typed: lr=0.02,0.05."""
    said = {key: value if isinstance(value, list) else [value] for key, value in asked.items()}
    return [f"{key}={','.join(str(v).lower() if isinstance(v, bool) else str(v) for v in values)}"
            for key, values in said.items()]  # fmt: skip


def count(number: int, noun: str) -> str:
    """Write how many there are: 1 setting, 2 settings."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


# What came of it, as answer.json has it


def reply(found: dict[str, Any]) -> str:
    """Answer the question in a sentence."""
    pick = found["recommended"]
    if pick is None:
        return f"Nothing reached {goal(found)} with {count(found['effort']['client_steps'], 'client step')}."
    name, _, keys = pick["name"].partition(" ")
    seeds = pick["over_seeds"]
    sure = f"; {seeds['reached']} of {len(seeds['seeds'])} fresh seeds got there" if seeds["seeds"] else ""
    return (f"{title(name)}{f' with {keys}' if keys else ''} is recommended: it takes {cost_of(found)}"
            f"{sure}.")  # fmt: skip


def cost_of(found: dict[str, Any]) -> str:
    """Write what the recommended setting costs."""
    minimise = found["question"]["minimise"]
    unit, scale = UNITS[minimise]
    return f"{found['recommended'][minimise] * scale:,.4g} {unit}"


def sentences(found: dict[str, Any]) -> list[str]:
    """Say what is recommended and the command that runs it, then all that `remarks` has, as lines of a terminal."""
    pick, said = found["recommended"], list[str]()
    if pick is not None:
        said = [f"recommended: {pick['name']}", *([f"    {pick['command']}"] if pick["command"] else []), ""]
    for head, lines in remarks(found).items():
        said.append(f"{head}: {lines[0]}")
        said += [f"{'':{len(head) + 2}}{line}" for line in lines[1:]]
    return said


def remarks(found: dict[str, Any]) -> dict[str, list[str]]:
    """Say how sure the answer is, what was not tried, what would change it, and what it shows to whom."""
    pick = found["recommended"]
    if pick is None:
        missed = f"nothing reached {goal(found)}; {_tried(found)}"
        return {"answer": [missed]} | ({"not tried": untried} if (untried := _not_tried(found)) else {})
    line = next(line for line in found["settings"] if line["name"] == pick["name"])
    said = {"to run it": _only_python(pick), "how sure": [*_how_sure(found, pick), _tried(found)],
            "not tried": _not_tried(found), "bottleneck": _bottleneck(pick), "other rates": _other_rates(found, pick),
            "it shows": [in_words(line["exposes"])]}  # fmt: skip
    return {head: lines for head, lines in said.items() if lines}


def _only_python(pick: dict[str, Any]) -> list[str]:
    """Say why no command runs the recommended setting, where none does."""
    given = [PASSED.get(key, key) for key in pick.get("passed_in", [])]
    listed = f"{', '.join(given[:-1])} and {given[-1]}" if len(given) > 1 else "".join(given)
    return [f"only Python can: {listed} {'were' if len(given) > 1 else 'was'} passed in from there"] if given else []


def goal(found: dict[str, Any]) -> str:
    """Write the target: accuracy 75.0%."""
    metric = found["target"]["metric"]
    return f"{words(metric)} {_value(metric, found['target']['value'])}"


def _value(metric: str, value: float) -> str:
    return f"{value:.1%}" if is_share(metric) else f"{value:,.4g}"


def _tried(found: dict[str, Any]) -> str:
    effort = found["effort"]
    spent = "; the race ended because its next lap did not fit into its two thirds" if effort["budget_spent"] else ""
    return (f"tried {effort['tried']:,} of {count(effort['possible'], 'setting')} with "
            f"{count(effort['client_steps'], 'client step')} (of {effort['budget']:,}{spent})")  # fmt: skip


def _how_sure(found: dict[str, Any], pick: dict[str, Any]) -> list[str]:
    minimise, seeds = found["question"]["minimise"], pick["over_seeds"]
    unit, scale = UNITS[minimise]
    if not seeds["seeds"]:
        return [f"{goal(found)} was reached on the seed of the search; too little budget was left for others"]
    said = [f"{seeds['reached']} of {len(seeds['seeds'])} fresh seeds reached {goal(found)}"
            f"{_spread(seeds.get(minimise), scale, unit)}"]  # fmt: skip
    if (rival := pick["runner_up"]) is not None:
        gap = rival["costs_more"]
        said.append(f"the next best, {rival['name']}, costs {gap['mean'] * scale:+,.3g} {unit}"
                    f"{_spread(gap, scale, unit, mean=False)} on the same {rival['seeds']} seeds")  # fmt: skip
    return said


def _not_tried(found: dict[str, Any]) -> list[str]:
    """Say which settings nobody tried: those that were left out, those that were not drawn, and other values."""
    effort, said = found["effort"], _left_out(found)
    if (rest := effort["possible"] - effort["tried"] - effort["refused"]) > 0:
        said.append(f"{count(rest, 'setting')} not drawn (settings={found['question']['settings']} race)")
    values: dict[str, list[Any]] = {}
    for own in found.get("choices", {}).values():
        for key, some in own["values"].items():
            values[key] = [*values.get(key, []), *(value for value in some if value not in values.get(key, []))]
    if values:
        listed = " ".join(f"{key}={','.join(map(str, some))}" for key, some in values.items())
        said.append(f"only these values were choices: {listed}; every other key had one value")
    return said


def _left_out(found: dict[str, Any]) -> list[str]:
    """Say how many settings were not possible, and why most of them were not."""
    reasons = Counter(found["refused"].values())
    if not reasons:
        return []
    (why, count), *others = reasons.most_common()
    more = f", and {sum(n for _, n in others):,} for other reasons (answer.json)" if others else ""
    return [f"left out {count:,}: {why}{more}"]


def _bottleneck(pick: dict[str, Any]) -> list[str]:
    if (limit := pick["bottleneck"]) is None:
        return []
    what = f"{RATES[limit['rate']]} ({limit['rate']})" if limit["rate"] in RATES else limit["rate"]
    return [f"{what}: twice as fast saves {limit['saves_when_doubled']:.0%} of the time"]


def _other_rates(found: dict[str, Any], pick: dict[str, Any]) -> list[str]:
    unit, scale = UNITS[found["question"]["minimise"]]
    said = []
    for c in pick["changes"]:
        if c["best"] != pick["name"]:
            how = "half" if c["factor"] == 0.5 else "twice"
            costs = f"{c['best_cost'] * scale:,.4g} {unit} instead of {c['cost'] * scale:,.4g} {unit}"
            said.append(f"with {how} the speed of {RATES.get(c['rate'], c['rate'])} {c['best']} is cheaper: {costs}")
    if pick["changes"] and not said:
        said.append("none, halved or doubled, changes the choice among the settings that reached the target")
    return said


def _spread(found: dict[str, Any] | None, scale: float, unit: str, *, mean: bool = True) -> str:
    if found is None:
        return ""
    said = f" in {found['mean'] * scale:,.4g} {unit}" if mean else ""
    if found["low"] is not None:
        said += f" ({found['low'] * scale:,.4g} to {found['high'] * scale:,.4g}, 95 %)"
    return said
