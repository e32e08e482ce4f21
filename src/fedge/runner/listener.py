"""Listeners are told how a run goes on: progress, trackers, and whatever a user wants to do or to decide meanwhile.

class Patience(fedge.Listener):
    def tested(self, row, config):
        return row["accuracy"] > 0.8  # true: stop the run here

fedge.run(algorithm="hierfavg", listener=Patience())
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from fedge.errors import FedgeError, RunError, brief
from fedge.experiment.build import Experiment
from fedge.experiment.config import Config
from fedge.runner import device
from fedge.runner.result import Result
from fedge.runner.rows import Row

log = logging.getLogger(__name__)


class Listener:
    """A listener is told how a run goes on; each method does nothing unless it is overridden.

    `trained` and `tested` may return True to stop the run there: it is saved, tested and can be resumed.
    """

    def study(self, runs: int, done: int) -> None:
        """A sweep of so many runs begins or goes on; this many of them are over already."""

    def ready(self, experiment: Experiment, out: Path) -> None:
        """The run is about to train its first round, or the first after it was resumed; `out` is its folder."""

    def part(self, number: int, part: float, config: Config) -> None:
        """This part (0 to 1) of round `number` is done; only rounds that last long say so."""

    def trained(self, done: int, loss: float, config: Config) -> bool | None:
        """The first `done` rounds are trained; `loss` is the training loss of the last of them.

        Rounds that are neither tested nor saved may be told of together.
        """

    def tested(self, row: Row, config: Config) -> bool | None:
        """The model was evaluated: `row` is the new line of `metrics.jsonl`."""

    def saved(self, path: Path, done: int) -> None:
        """The state after `done` rounds was written to `path`, from which the run can be resumed."""

    def finished(self, result: Result) -> None:
        """The run is over, by itself, by a listener's wish or because it diverged."""


class ListenerError(RunError):
    """A listener raised an exception; the run was saved."""


class Audience:
    """These are the listeners of a run. What one of them does wrong becomes a sentence that names it.

    In a notebook one that shows progress listens unless others are given; an empty list is silence.
    """

    def __init__(self, listeners: Listener | Sequence[Listener] | None) -> None:
        if listeners is None:
            listeners = [import_module("fedge.view.notebook").Cell()] if in_notebook() else []
        self._all = [listeners] if isinstance(listeners, Listener) else list(listeners)

    def __iter__(self) -> Iterator[Listener]:
        return iter(self._all)

    def tell(self, event: str, *what: Any) -> bool:
        """Tell everybody of an event; return whether one of them wishes the run to stop."""
        wishes = [self._tell_one(listener, event, what) for listener in self._all]
        stop = event in ("trained", "tested") and any(wishes)
        if stop and device.processes() > 1:
            log.warning("a listener wished to stop, which a run by several processes does not heed")
            return False
        return stop

    def _tell_one(self, listener: Listener, event: str, what: tuple[Any, ...]) -> Any:
        try:
            return getattr(listener, event)(*what)
        except Exception as problem:
            if isinstance(problem, FedgeError) or type(listener).__module__.startswith("fedge."):
                raise  # of fedge's own, a full disk is told of as elsewhere
            said = brief(f"{type(problem).__name__}: {problem}", 200)
            raise ListenerError(f"the listener {type(listener).__name__} failed in {event} ({said})") from problem


def in_notebook() -> bool:
    """Tell whether this is Python in a notebook, with cells to draw into."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and type(ipython.get_ipython()).__name__ == "ZMQInteractiveShell"
