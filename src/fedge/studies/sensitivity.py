"""Say what would change a plan's answer: the cheapest settings' costs with each rate of the network halved and doubled.

What a setting learns does not depend on rates, so nothing is trained for this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from fedge.cost.clock import Clock, Rates
from fedge.cost.network import Both
from fedge.cost.network_clock import NetworkClock
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
    pick: str, reached: Mapping[str, Sequence[tuple[Trial, int]]], price: Callable[[Spent], float]
) -> list[Change]:  # fmt: skip
    """Recompute what each setting costs with every rate changed: the mean of its runs, each up to so many rounds."""
    found = []
    for rate in rates_of(reached[pick][0][0].made):
        for factor in FACTORS:
            spent = {
                name: mean_of([with_rate(trial, rate, factor).spent(n) for trial, n in runs])
                for name, runs in reached.items()
            }
            best = min(spent, key=lambda name: (price(spent[name]), name != pick))
            now = spent[pick]
            found.append(Change(rate, factor, price(now), now.seconds, best, price(spent[best])))
    return found


RATES = ("cpu_hz", "edge_hz", "uplink_bps", "edge_bps", "cloud_bps")
OF_NETWORK = ("clients' processors", "edges' processors", "clients' links", "links shared in cells", "edges' lines",
              "backhaul", "links between edges")  # fmt: skip


def rates_of(made: Experiment) -> tuple[str, ...]:
    """Name what there is to be faster or slower: the keys of a run, or the kinds of devices and links of a network."""
    return RATES if isinstance(made.clock, Clock) else OF_NETWORK


def with_rate(trial: Trial, rate: str, factor: float) -> Trial:
    """Return the same setting where this is so many times as fast."""
    clock = trial.made.clock
    if isinstance(clock, Clock):
        other: Clock | NetworkClock = replace(clock, rates=_scaled(clock.rates, rate, factor))
    else:
        other = _of_network(clock, rate, factor)
    return Trial(trial.keys, replace(trial.made, clock=other), trial.energy, trial.client_memory)


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


def _of_network(clock: NetworkClock, kind: str, factor: float) -> NetworkClock:
    """Return the clock of a network in which everything of a kind is so many times as fast."""
    network, step = clock.network, clock.step

    def times(rate: Both) -> Both:
        return Both(factor * rate.up, factor * rate.down)

    match kind:
        case "clients' processors":
            step = step._replace(client=step.client / factor)
        case "edges' processors":
            step = step._replace(edge=step.edge / factor)
        case "clients' links":
            own = (replace(c, rate=times(c.rate), to_cloud=times(c.to_cloud)) for c in network.clients)
            network = replace(network, clients=tuple(own))
        case "links shared in cells":
            network = replace(network, edges=tuple(replace(e, shared=times(e.shared)) for e in network.edges))
        case "edges' lines":
            far = (replace(e, line=times(e.line), to_cloud=times(e.to_cloud)) for e in network.edges)
            network = replace(network, edges=tuple(far))
        case "backhaul":
            network = replace(network, backhaul=times(network.backhaul))
        case _:
            links = {pair: factor * rate for pair, rate in (network.links or {}).items()}
            network = replace(network, links=links)
    return replace(clock, network=network, step=step)


def bottleneck(found: list[Change], seconds: float) -> tuple[str, float] | None:
    """Return the rate whose doubling saves most of the recommended setting's time, and the share that it saves."""
    doubled = [change for change in found if change.factor == 2.0]
    if not doubled:
        return None
    best = min(doubled, key=lambda change: change.seconds)
    return best.rate, 1 - best.seconds / seconds
