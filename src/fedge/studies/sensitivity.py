"""Say what would change a plan's answer: the finalists' costs with each rate of the network halved and doubled.

What a setting learns does not depend on rates, so nothing is trained for this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from fedge.cost.clock import Clock, Rates
from fedge.experiment.build import Experiment
from fedge.studies.trials import Spent, Trial, mean_of

FACTORS = (0.5, 2.0)


class Change(NamedTuple):
    """This is what a rate that is so many times as large would do."""

    rate: str
    factor: float
    cost: float  # of the recommended setting
    seconds: float  # of it
    best: str  # the cheapest setting then
    best_cost: float


def changes(
    pick: str, reached: Mapping[str, tuple[Trial, Sequence[int]]], price: Callable[[Spent], float]
) -> list[Change]:  # fmt: skip
    """Recompute what each setting costs with every rate changed; it was at its target after these rounds, by seeds."""
    found = []
    for rate in rates_of(reached[pick][0].made):
        for factor in FACTORS:
            spent = {}
            for name, (trial, rounds) in reached.items():
                other = with_rate(trial, rate, factor)
                spent[name] = mean_of([other.spent(n) for n in rounds])
            best = min(spent, key=lambda name: (price(spent[name]), name != pick))
            now = spent[pick]
            found.append(Change(rate, factor, price(now), now.seconds, best, price(spent[best])))
    return found


def rates_of(made: Experiment) -> tuple[str, ...]:
    return RATES if isinstance(made.clock, Clock) else ()


RATES = ("cpu_hz", "edge_hz", "uplink_bps", "edge_bps", "cloud_bps")


def with_rate(trial: Trial, rate: str, factor: float) -> Trial:
    """Return the same setting on a network with another rate."""
    clock: Any = trial.made.clock
    clock = replace(clock, rates=_scaled(clock.rates, rate, factor))
    return Trial(trial.keys, replace(trial.made, clock=clock), trial.energy, trial.client_memory)


def _scaled(rates: Rates, rate: str, factor: float) -> Rates:
    match rate:
        case "cpu_hz":  # an edge's speed is counted in that of a client
            return replace(rates, step_seconds=rates.step_seconds / factor, edge_speed=rates.edge_speed / factor)
        case "edge_hz":
            return replace(rates, edge_speed=rates.edge_speed * factor)
        case "uplink_bps":
            return replace(rates, uplink_bps=rates.uplink_bps * factor)
        case "edge_bps":
            return replace(rates, edge_bps=rates.edge_bps * factor)
        case _:
            return replace(rates, cloud_bps=rates.cloud_bps * factor)


def bottleneck(found: list[Change], seconds: float) -> tuple[str, float] | None:
    """Return the rate whose doubling saves most of the recommended setting's time, and the share that it saves."""
    doubled = [change for change in found if change.factor == 2.0]
    if not doubled:
        return None
    best = min(doubled, key=lambda change: change.seconds)
    return best.rate, 1 - best.seconds / seconds
