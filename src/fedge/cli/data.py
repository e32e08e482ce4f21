"""`fedge data` lists the data sets, and shows who would hold what of them."""

from __future__ import annotations

from typing import Annotated

import typer

from fedge.algorithms import ALGORITHMS
from fedge.cli.common import HINT, ConfigFile, Pairs, Seed, folder_of, gather, guarded, importing
from fedge.errors import ConfigError

app = typer.Typer(no_args_is_help=True, help="Data sets: list them, get them, see who would hold what.")


@app.command("list")
def data_list() -> None:
    """List the data sets fedge knows and where each would be read from."""
    with guarded():
        with importing():
            from rich.console import Console

            from fedge.view import terminal
        terminal.say(Console(), terminal.data_lines())


@app.command("get")
def data_get(names: Annotated[list[str], typer.Argument(metavar="NAME ...")]) -> None:
    """Fetch data sets into the cache (FEDGE_DATA and the cache are looked at first) and verify them."""
    with guarded():
        with importing():
            from fedge.data import load
            from fedge.data.sources import where
        for name in names:
            dataset = load(name)
            place = where(name)
            print(f"{name}: {len(dataset.x_train):,} + {len(dataset.x_test):,} images, checksums verified ({place})")


@app.command("partition", epilog=HINT)
def data_partition(
    pairs: Pairs = None,
    config: ConfigFile = None,
    seed: Seed = None,
    out: Annotated[str, typer.Option("--out", metavar="FILE.png", help="the heat map")] = "runs/labels.png",
) -> None:
    """Show who would hold which labels: a table per cell, and a heat map over all clients."""
    with guarded():
        place = folder_of(out)
        if place is None or not place.name:
            raise ConfigError(f"--out {out} is no name of a file; give one such as labels.png")
        with importing():
            from rich.console import Console

            from fedge.experiment.build import experiment
            from fedge.experiment.config import Config
            from fedge.runner import device
            from fedge.view import hierarchy, plots, terminal
        chosen = Config.of({"algorithm": next(iter(ALGORITHMS))} | gather(pairs or [], config, seed))
        device.prepare()
        made = experiment(chosen)
        console = Console()
        place.parent.mkdir(parents=True, exist_ok=True)
        plots.save(hierarchy.label_heatmap(made), place.with_suffix(""))
        terminal.say(console, terminal.cell_lines(made))
        terminal.say(console, f"heat map: {place.with_suffix('.png')} (and .pdf)")
