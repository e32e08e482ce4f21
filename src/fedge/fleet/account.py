"""A fleet's account: bytes as the ledger predicts them beside those on the wire, and the seconds of a round."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

from fedge.fleet.forecast import Forecast, forecast
from fedge.fleet.leader import Leader
from fedge.net.tally import Bytes
from fedge.runner.costs import Costs


@dataclass(frozen=True)
class Account:
    """This is what some rounds of a fleet have cost."""

    first: int  # round
    done: int  # rounds, from the start of the run
    predicted: dict[str, int]  # tier → bytes
    counted: dict[str, Bytes]
    seconds: list[float]  # of each round
    simulated: float  # seconds of a round, by the configured rates
    forecast: Forecast | None = None  # of later rounds, by rates that were measured in earlier ones
    again: int = 0  # rounds that edges have made again, because they began anew

    @property
    def agrees(self) -> bool:
        """Say whether as many bytes of tensors came as the ledger predicts, in every tier."""
        return all(self.counted.get(tier, Bytes()).payload == size for tier, size in self.predicted.items())

    def to_json(self) -> dict[str, Any]:
        tiers = {
            tier: {"predicted": self.predicted.get(tier), "payload": count.payload, "framing": count.framing}
            for tier, count in self.tiers()
        }
        return {"rounds": [self.first, self.done], "made_again": self.again, "bytes": tiers, "seconds": self.seconds,
                "simulated_seconds_per_round": self.simulated,
                "forecast": None if self.forecast is None else self.forecast.to_json()}  # fmt: skip

    def tiers(self) -> list[tuple[str, Bytes]]:
        """List the tiers of the ledger, then others that carried something (to the monitor)."""
        others = [tier for tier in self.counted if tier not in self.predicted]
        return [(tier, self.counted.get(tier, Bytes())) for tier in (*self.predicted, *others)]

    def lines(self) -> list[str]:
        """Return a table that people read."""
        if not self.seconds:
            return ["no round was left to be made"]
        rows = [("bytes of rounds " + f"{self.first + 1}–{self.done}", "predicted", "payload", "framing")]
        for tier, count in self.tiers():
            size = self.predicted.get(tier)
            rows.append((tier.replace("_", " "), "–" if size is None else f"{size:,}", f"{count.payload:,}",
                         f"{count.framing:,}"))  # fmt: skip
        widths = [max(len(row[n]) for row in rows) for n in range(4)]
        lines = ["  ".join([row[0].ljust(widths[0]), *(row[n].rjust(widths[n]) for n in (1, 2, 3))]) for row in rows]
        if self.again:
            lines.append(f"rounds 1–{self.again} were made again: edges without a cloud begin anew")
        steady = self.seconds[1:] or self.seconds
        first = f"; the first took {self.seconds[0]:.2f} s" if len(self.seconds) > 1 else ""
        return [*lines, f"a round took {median(steady):.3f} s{first} (with the configured rates the clock reckons "
                f"{self.simulated:.2f} s)", *([] if self.forecast is None else self.forecast.lines())]  # fmt: skip


def account_of(leader: Leader) -> Account:
    """Take stock of all rounds that a leader has made."""
    costs, first, done = Costs(leader.work.made), leader.first or 0, leader.done
    again = first if leader.work.algorithm.gossip is not None else 0
    counted, before, after = (costs.after(rounds) for rounds in (first - again, first, done))
    predicted = {tier: size - counted.sent.get(tier, 0) for tier, size in after.sent.items()}
    simulated = (after.seconds - before.seconds) / max(1, done - first)
    missed = done - first - len(leader.seconds)
    ahead = None if missed else forecast(leader.work.made, first, leader.parts, leader.seconds)
    return Account(first - again, done, predicted, leader.counted(), leader.seconds, simulated, ahead, again)
