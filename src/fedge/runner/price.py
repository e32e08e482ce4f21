"""What a run costs, known before it starts: bytes and simulated seconds after each round, and when a budget ends it."""

from __future__ import annotations

from typing import Any, NamedTuple

from fedge.cost.ledger import totals
from fedge.errors import ConfigError
from fedge.runner.setup import Experiment


class Price(NamedTuple):
    """What a run has cost after a round."""

    sent: dict[str, int]  # bytes per tier, from the start
    seconds: float  # simulated, from the start


def price(made: Experiment) -> list[Price]:
    """The cost after each round that the configuration allows: all `rounds`, or those that fit the budgets."""
    config, clock = made.config, made.clock
    rounds: list[Price] = []
    ready, sent = clock.start, dict[str, int]()
    while config.rounds is None or len(rounds) < config.rounds:
        ready = clock.advance(ready, len(rounds))
        for tier, size in totals(clock.ledger.round(len(rounds))).items():
            sent[tier] = sent.get(tier, 0) + size
        total = {"budget_seconds": float(ready.max()), "budget_bytes": sum(sent.values())}
        for key, needed in total.items():
            budget = getattr(config, key)
            if budget is not None and needed > budget * (1 + 1e-12):
                if not rounds:
                    raise ConfigError(f"{key}={budget:g} does not cover one global round, which takes {needed:g}")
                return rounds
        rounds.append(Price(dict(sent), float(ready.max())))
    return rounds


def links(made: Experiment, rounds: int) -> dict[str, Any]:
    """Bytes on every link over the whole run; links are clients, edges, or [from, to] between edges."""
    ledger = made.clock.ledger
    links: dict[str, Any] = {}
    for index in range(rounds):
        for tier, each in ledger.round(index).items():
            links[tier] = links.get(tier, 0) + each
    pairs = {"edge_to_edge_links": ledger.edge_links} if ledger.algorithm.gossip else {}
    return {tier: {"total": int(each.sum()), "links": each.tolist()} for tier, each in links.items()} | pairs
