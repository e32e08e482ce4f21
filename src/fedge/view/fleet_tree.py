"""A fleet that runs: below a run's own lines a tree, a line for each node; elsewhere plain lines say who is there."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from fedge.experiment.build import Experiment
from fedge.experiment.config import Config
from fedge.fleet.leader import Leader
from fedge.net.names import edge
from fedge.runner.rows import Row, tested
from fedge.view.progress import Ticker
from fedge.view.prose import size


class FleetTicker(Ticker):
    """This follows a leader's rounds."""

    def __init__(self) -> None:
        super().__init__()
        self._leader: Leader | None = None
        self._there = 0  # how many were connected when a line said so
        self.folder: Path | None = None  # of the run, once there is one

    def ready(self, experiment: Experiment, out: Path) -> None:
        self.folder = out
        super().ready(experiment, out)

    def follow(self, leader: Leader) -> None:
        """Show what this leader knows from now on."""
        self._leader, leader.hub.changed = leader, self._look
        leader.hub.progress.rounds = leader.work.made.config.rounds

    def tested(self, row: Row, config: Config) -> None:
        if self._leader is not None:
            names = dict.fromkeys((tested(row)[0], "loss"))
            self._leader.hub.progress.scores = {name: row[name] for name in names if row[name] is not None}
        super().tested(row, config)

    def _look(self) -> None:
        """Say who has come or gone, where lines are plain."""
        if self._console.is_terminal or self._leader is None:
            return
        hub = self._leader.hub
        there, self._there = self._there, len(hub.connected())
        if there != self._there and not hub.leaving:
            self._print(f"{hub.me.words}: {self._there} of {len(hub.children)} are connected")

    def _draw(self) -> Text:
        if self._leader is None:
            return super()._draw()
        return Text("\n".join([str(super()._draw()), *tree(self._leader)]), no_wrap=True, overflow="crop")


def tree(leader: Leader) -> list[str]:
    """Draw who leads, the edges, and how many clients each has."""
    hub, topology = leader.hub, leader.work.topology
    there = hub.connected()
    top = hub.me.words + ("" if hub.progress.seconds is None else f"  {hub.progress.seconds:.2f} s a round")
    if not leader.work.algorithm.has_edges:
        return [top, f"└─ {len(there)} of {topology.clients} clients are connected"]
    lines = [top]
    for cell in range(topology.cells):
        said, branch = leader.said.get(cell), "└─" if cell == topology.cells - 1 else "├─"
        words = [edge(cell).words, "connected" if edge(cell) in there else "not there"]
        if said is not None:
            clients = sum(name.role == "client" for name in leader.below(cell))
            sent = sum(payload for links in said["sent"].values() for payload, _ in links.values())
            words += [f"{clients} of {len(topology.roster[cell])} clients", f"{said['seconds']:.2f} s a round",
                      f"{size(sent)} on its links"]  # fmt: skip
        lines.append(f"{branch} {'  '.join(words)}")
    return lines
