"""`fedge run` and `fedge compare` say what is about to run, and draw it, before they show how it goes."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from fedge.cli.common import Draw
from fedge.experiment.build import Experiment
from fedge.view import terminal
from fedge.view.progress import Ticker


class Narrator(Ticker):
    """This ticker first says what is about to run, and draws it: the topology once, and each graph between edges."""

    def __init__(self, console: Console | None, draw: Draw, compared: bool = False) -> None:
        super().__init__()
        self._stage, self._draws, self._compared = console, draw is Draw.all, compared
        self._drawn = False

    def ready(self, experiment: Experiment, out: Path) -> None:
        if self._stage is not None:
            if not self._drawn:
                width = self._stage.width
                terminal.say(self._stage, f"{terminal.describe(experiment, width)}\n")
                if self._draws:
                    terminal.say(self._stage, f"{terminal.topology_picture(experiment, self._compared, width)}\n")
                self._drawn = True
            if self._draws and (graph := terminal.graph_picture(experiment, self._stage.width)):
                terminal.say(self._stage, f"{graph}\n")
        super().ready(experiment, out)
