"""Reckon what a run costs as it goes: bytes and simulated seconds after each round, and when a budget ends it."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

import numpy as np

from fedge.cost.ledger import Links
from fedge.cost.waits import Waits
from fedge.errors import ConfigError
from fedge.experiment.build import Experiment
from fedge.experiment.checks import most_rounds

AHEAD = 64  # rounds that a budget is held against before they are trained
SLACK = 1 + 1e-12  # a budget of ten rounds' sum covers ten rounds, however the sum was rounded
LONG = 5_000  # edge rounds and exchanges in a global round that are reckoned in about a second
HEARD = 10**6  # cells, and hundreds of clients, × edge rounds whose waits are reckoned in about ten seconds
log = logging.getLogger(__name__)


class Spent(NamedTuple):
    """This is what a run has cost after a round, from its start."""

    sent: dict[str, int]  # bytes per tier
    seconds: float  # simulated


class Costs:
    """This keeps the account of one run. Reckoning follows the training; before it, only a budget asks for one round.

    `rounds` is how many there will be: as configured, or as many as a budget covers where all rounds cost the same.
    Otherwise it is None, and `more` says after each round whether another one is covered.
    """

    def __init__(self, made: Experiment) -> None:
        self._config, self._clock, self._ledger = made.config, made.clock, made.clock.ledger
        self._budgets = {
            key: budget for key in ("budget_seconds", "budget_bytes") if (budget := getattr(made.config, key))
        }
        self._restart()
        self._links: Links = {}
        self._counted = 0
        self._heard, self._heard_of, self._heard_at = self._deaf(), 0, self._clock.start
        self.rounds = made.config.rounds
        if self._budgets:
            self.rounds = self._rounds_within_budget()

    def more(self, done: int) -> bool:
        """Tell whether another round follows the first `done`."""
        if self.rounds is not None:
            return done < self.rounds
        most = min(most_rounds(self._config), self._config.rounds or np.inf)
        return done < most and self._short_budget(self._at(done + 1)) is None

    def last(self) -> int:
        """Count all rounds before training, one by one where it takes that."""
        if self.rounds is not None:
            return self.rounds
        done = 1
        while self.more(done):
            done += 1
        return done

    def until(self, done: int, *every: int) -> int:
        """Find the next round that is a multiple of one of these intervals (0: never), or the last one. Where a budget
        has yet to be asked, this looks no further than `AHEAD`."""
        last = min([self.rounds or done + AHEAD, *((done // n + 1) * n for n in every if n)])
        return last if self.rounds else next((n for n in range(done, last) if not self.more(n)), last)

    def after(self, done: int) -> Spent:
        """Tell what the first `done` rounds cost."""
        self._count(done)
        return self._at(done)

    def links(self, done: int) -> dict[str, Any]:
        """Add up each link's bytes in the first `done` rounds; a link is a client, an edge, or [from, to] of edges."""
        self._count(done)
        pairs = {"edge_to_edge_links": self._ledger.edge_links} if self._ledger.edge_links else {}
        return {tier: {"total": int(each.sum()), "links": each.tolist()} for tier, each in self._links.items()} | pairs

    def waits(self, done: int) -> Waits | None:
        """Tell who waited for whom in the first `done` rounds; None where reckoning it again would take long."""
        topology, clock = self._ledger.algorithm.topology, self._clock
        alike = clock.equal and self._ledger.alike
        if not alike and (topology.cells + topology.clients // 100) * done * self._config.edge_rounds > HEARD:
            return None
        if alike or done < self._heard_of:
            self._heard, self._heard_of, self._heard_at = self._deaf(), 0, clock.start
        for index in range(self._heard_of, min(done, 1) if alike else done):
            self._heard_at, self._heard_of = clock.advance(self._heard_at, index, self._heard), index + 1
        return self._heard.times(done) if alike else self._heard

    def _deaf(self) -> Waits:
        """Return an account of waits that has heard of nothing yet."""
        topology = self._ledger.algorithm.topology
        return Waits.of(topology.clients, topology.cells)

    def _restart(self) -> None:
        self._ready, self._sent, self._done = self._clock.start, dict[str, int](), 0
        self._spent = {0: Spent({}, 0.0)}  # after the latest rounds

    def _at(self, done: int) -> Spent:
        if done < min(self._spent):
            self._restart()
        while self._done < done:
            self._ready = self._clock.advance(self._ready, self._done)
            for tier, size in self._ledger.totals(self._done).items():
                self._sent[tier] = self._sent.get(tier, 0) + size
            self._done += 1
            self._spent[self._done] = Spent(dict(self._sent), float(self._ready.max()))
            self._spent.pop(self._done - 2 * AHEAD, None)
        return self._spent[done]

    def _count(self, done: int) -> None:
        """Add up what each link carries."""
        if done < self._counted or self._ledger.steady:
            self._links, self._counted = {}, 0
        if self._ledger.steady:
            self._links, self._counted = {tier: done * each for tier, each in self._ledger.round(0).items()}, done
        for index in range(self._counted, done):
            for tier, each in self._ledger.round(index).items():
                self._links[tier] = self._links.get(tier, 0) + each
        self._counted = done

    def _short_budget(self, spent: Spent) -> tuple[str, float] | None:
        """Name the budget that does not cover this, and what it would have to be."""
        needed = {"budget_seconds": spent.seconds, "budget_bytes": sum(spent.sent.values())}
        return next(((key, needed[key]) for key, budget in self._budgets.items() if needed[key] > budget * SLACK), None)

    def _rounds_within_budget(self) -> int | None:
        """Count the rounds that the budgets cover, where the first one tells; refuse budgets that do not cover it."""
        config, equal = self._config, self._clock.equal
        gossip = self._ledger.algorithm.gossip
        exchanges = (gossip.steps if gossip else 0) + config.edge_rounds
        if exchanges > LONG and not equal:
            log.info("reckoning the simulated seconds of a global round of %d edge rounds and exchanges", exchanges)
        first = self._at(1)
        if short := self._short_budget(first):
            key, needed = short
            raise ConfigError(f"{key}={self._budgets[key]:g} does not cover one global round, which takes {needed:g}")
        if not (equal and self._ledger.alike and np.ptp(self._ready) == 0):
            return None
        each = {"budget_seconds": first.seconds, "budget_bytes": sum(first.sent.values())}
        covered = {key: int(budget * SLACK / each[key]) for key, budget in self._budgets.items()}
        key = min(covered, key=lambda key: covered[key])
        rounds = min(covered[key], config.rounds or covered[key])
        if rounds > (most := most_rounds(config)):
            raise ConfigError(f"{key}={self._budgets[key]:g} covers {rounds:.3g} global rounds, more than the {most} "
                              "that can be counted; lower it or give rounds")  # fmt: skip
        return rounds
