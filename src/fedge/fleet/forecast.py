"""What a fleet's processors and links gave in its first rounds, and what the clock predicts from it for later ones.

The seconds of a round are divided by what its slowest edge says of itself:

    client      the steps of its slowest client, edge round after edge round, as the client measured them
    edge        its edge rounds besides: what its clients are sent and send, and what it makes of it
    exchange    with its neighbours
    cloud       the round besides: what edges (FedAvg: clients) are sent and send, and what the cloud makes of it

Each part by the steps or the bits that lie one after another in it is a rate, so latency, framing, copies and sums are
in the rates of links, and rates are lower than what the cables carry. The first round compiles and is left out; the
medians of the next quarter are put in the clock in the place of configured rates, and it reckons the rounds after them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, NamedTuple

from fedge.cost.clock import Clock, Rates
from fedge.experiment.build import Experiment
from fedge.net.wire import Facts, is_number

FREE = Rates(0.0, math.inf, math.inf, math.inf, math.inf, downlink=True)  # nothing takes any time


class Parts(NamedTuple):
    """These are the seconds of a round, divided; a part that an algorithm lacks is 0."""

    client: float
    edge: float = 0.0
    exchange: float = 0.0
    cloud: float = 0.0


LINKS = {"uplink_bps": "clients' links", "edge_bps": "edges' links", "cloud_bps": "the cloud's links"}
RATES = {"client": "step_seconds", "edge": "uplink_bps", "exchange": "edge_bps", "cloud": "cloud_bps"}


def parts_of(seconds: float, said: Sequence[Facts]) -> Parts | None:
    """Divide the seconds of a round by what its edges said; None where one did not say it in numbers."""
    told = [[facts.get("seconds"), facts.get("client_seconds"), facts.get("exchange_seconds", 0.0)] for facts in said]
    numbers = [[float(x) for x in each if is_number(x)] for each in told]
    if not numbers or any(len(each) < 3 for each in numbers):
        return None
    whole, client, exchange = max(numbers, key=lambda each: each[0] - each[2])
    return Parts(client, whole - client - exchange, exchange, max(0.0, seconds - whole))


@dataclass(frozen=True)
class Forecast:
    """These are measured rates, and what the clock made of them."""

    learned: tuple[int, int]  # the first and the last round that the rates are from, counted from 1
    ahead: tuple[int, int]  # the rounds that are predicted
    rates: Mapping[str, float]
    predicted: float  # seconds of a round
    measured: float  # median

    def lines(self) -> list[str]:
        """Return what people read."""
        told = [f"{LINKS[key]} {rate / 1e6:.4g} Mbit/s" for key, rate in self.rates.items() if key in LINKS]
        if (step := self.rates.get("step_seconds")) is not None:
            told.insert(0, f"a local step {1000 * step:.3g} ms")
        return [f"{_numbers(self.ahead)}: predicted {self.predicted:.3f} s a round, measured {self.measured:.3f} s "
                f"({self.predicted / self.measured - 1:+.0%})",
                f"  by what was measured in {_numbers(self.learned)}: {', '.join(told)}"]  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        return {"rates": {**self.rates, "of_rounds": self.learned}, "rounds": self.ahead,
                "predicted_seconds_per_round": self.predicted, "measured_seconds_per_round": self.measured}  # fmt: skip


def forecast(made: Experiment, first: int, parts: Sequence[Parts | None], seconds: Sequence[float]) -> Forecast | None:
    """Learn from rounds of a fleet, the first of which was `first`, and predict the others; None where too few are."""
    count = max(1, (len(seconds) - 1) // 4)
    learned, ahead = range(1, 1 + count), range(1 + count, len(seconds))
    known = {n: own for n in learned if (own := parts[n]) is not None} if ahead else {}
    if not known:
        return None
    found = dict[str, Any]()
    for part, key in RATES.items():
        one: dict[str, Any] = {key: 1.0}
        units = {n: _clock(made, replace(FREE, **one), range(first + n, first + n + 1)) for n in known}
        if not any(units.values()):
            continue
        spent = {n: max(getattr(own, part), 1e-9) for n, own in known.items()}
        found[key] = median(spent[n] / units[n] if part == "client" else units[n] / spent[n] for n in known)
    predicted = _clock(made, replace(FREE, **found), range(first + ahead[0], first + len(seconds))) / len(ahead)
    of, to = ((first + 1 + rounds[0], first + 1 + rounds[-1]) for rounds in (learned, ahead))
    return Forecast(of, to, found, predicted, median(seconds[n] for n in ahead))


def _numbers(ends: tuple[int, int]) -> str:
    return f"round {ends[0]}" if ends[0] == ends[1] else f"rounds {ends[0]}–{ends[1]}"


def _clock(made: Experiment, rates: Rates, rounds: range) -> float:
    """Return the seconds that the clock reckons for these rounds."""
    work = made.clock.work if isinstance(made.clock, Clock) else 1.0
    clock = Clock(made.clock.ledger, rates, work=work)
    ready = clock.start
    for index in rounds:
        ready = clock.advance(ready, index)
    return float(ready.max())
