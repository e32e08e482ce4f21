"""The course of a run is what is known of it while it goes on, written as a line for each tier."""

from __future__ import annotations

import time
from collections.abc import Sequence

from fedge.experiment.build import Experiment
from fedge.runner.rows import Row, tested
from fedge.view.numbers import duration, metric_text, words
from fedge.view.prose import size

BAR = 12  # characters of a bar; with less room there is none
NARROW = 60  # characters of a terminal that has the simulated time in a line of its own
LABEL = 8
GAP = "  "


class Course:
    """This hears of rounds and says how far the run is, how fast, and how good."""

    def __init__(self, made: Experiment) -> None:
        self.made = made
        self.row: Row | None = None
        self.done = 0
        self.inside = ""  # how far a long round is
        self._began = time.monotonic()
        self._mark: tuple[int, float] | None = None  # rounds after the first stretch, which was compiled, and when
        self._now = self._began

    def trained(self, done: int) -> None:
        self.done, self._now, self.inside = done, time.monotonic(), ""
        self._mark = self._mark or (done, self._now)

    def tested(self, row: Row) -> None:
        self.row, self.done = row, row["round"]

    @property
    def pace(self) -> float:
        """Return how many rounds a second takes, or 0 where nobody knows yet."""
        first, since = self._mark or (self.done, self._now)
        return (self.done - first) / (self._now - since) if self.done > first and self._now > since else 0.0

    @property
    def left(self) -> str:
        rounds = self.made.config.rounds
        if not self.pace or not rounds or self.done >= rounds:
            return ""
        return f"about {duration((rounds - self.done) / self.pace)} left"

    @property
    def steps(self) -> str:
        return f"{self.pace * self.made.job.steps_per_round:,.0f} steps/s" if self.pace else ""

    @property
    def quality(self) -> list[str]:
        """Write the main metric and the loss, as they were last."""
        names = dict.fromkeys((tested(self.row)[0], "loss")) if self.row else {}
        return [f"{words(name)} {metric_text(self.row, name, digits=3)}" for name in names] if self.row else []

    @property
    def simulated(self) -> str:
        seconds = (self.row or {}).get("simulated_seconds")
        return "" if seconds is None else f"{seconds:,.0f} simulated s"

    def sent(self, who: str) -> str:
        """Write the bytes that went from or to a tier below the cloud; '' stands for all."""
        tiers = (self.row or {}).get("bytes", {})
        count = sum(own for tier, own in tiers.items() if _below(tier) == who or not who)
        return f"{size(count)} sent" if tiers else ""

    def line(self) -> str:
        """Write everything in one line, for a file or a pipe."""
        return GAP.join(filter(None, [*self.quality, self.steps, self.sent(""), self.simulated, self.left]))

    def lines(self, width: int) -> list[str]:
        """Write a line for each tier below a line that says how far the run is, each within the width."""
        config, algorithm = self.made.config, self.made.job.algorithm
        edges = [f"{config.cells:,} edges", f"{config.edge_rounds} averages a round"]
        narrow = width < NARROW
        quality = self.quality if narrow else [*self.quality, self.simulated]
        tiers = {} if algorithm.gossip else {"cloud": quality}
        if algorithm.has_edges:
            tiers["edges"] = [*(quality if algorithm.gossip else []), self.sent("edge"), *edges]
        tiers["clients"] = [self.steps, self.sent("client"), f"{config.clients:,} clients"]
        tiers["time"] = [self.simulated] if narrow else []
        below = [_fit(label.ljust(LABEL), parts, width) for label, parts in tiers.items() if any(parts)]
        return [self._head(width), *below] if self._mark else [self._head(width)]

    def _head(self, width: int) -> str:
        config = self.made.config
        if self._mark is None:
            waited = duration(time.monotonic() - self._began)
            return _fit(config.algorithm, [self.inside or f"compiling … {waited}"], width)
        of = f"/{config.rounds:,}" if config.rounds else ""
        first, rest = f"{config.algorithm}{GAP}round {self.done:,}{of}", self.inside or self.left
        if len(first) + len(GAP) + len(rest) > width:
            rest = rest.removeprefix("about ")
        room = width - len(first) - len(rest) - 2 * len(GAP)
        if not config.rounds or room < BAR:
            return _fit(first, [rest], width)
        full = round(room * min(self.done / config.rounds, 1))
        return f"{first}{GAP}{'━' * full}{'─' * (room - full)}{GAP}{rest}".rstrip()


def _below(tier: str) -> str:
    """Name the lower end of a link: clients' traffic is theirs, whoever is at the other end."""
    return "client" if "client" in tier else "edge"


def _fit(first: str, parts: Sequence[str], width: int) -> str:
    """Join what there is, as far as the line has room for it."""
    line = first
    for part in filter(None, parts):
        if len(line) + len(GAP) + len(part) <= width:
            line += GAP + part
    return line[:width]
