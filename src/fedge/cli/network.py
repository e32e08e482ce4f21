"""`fedge network` makes example networks, and draws one that was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fedge.cli.common import HINT, NAMES, Format, Output, Pairs, complete_word, guarded, importing, keys_of_run
from fedge.errors import ConfigError, RunError, unknown

app = typer.Typer(no_args_is_help=True, help="A network as measured: examples to begin with, and a look at one.")


@app.command("make")
def network_make(
    name: Annotated[
        str | None, typer.Argument(help="which example; unless given, all are named", show_default=False)
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE.toml", help="write it there")] = None,
) -> None:
    """Write an example network with the source of each number, to be changed to what you measured."""
    with guarded():
        with importing():
            from rich.console import Console

            from fedge.experiment.network_file import about, examples
            from fedge.view import terminal
        known = examples()
        if name is None:
            terminal.say(Console(), "\n".join(f"{one:<12}{about(text)}" for one, text in known.items()))
            return
        if name not in known:
            raise ConfigError(unknown("network", name, known))
        if out is None:
            print(known[name], end="")
        elif out.exists():
            raise RunError(f"{out} is there already; give another --out")
        else:
            out.write_text(known[name], encoding="utf-8")


@app.command("show", epilog=HINT)
def network_show(
    file: Annotated[str, typer.Argument(metavar="FILE", help="a network: a .toml file or a folder of .csv files")],
    algorithm: Annotated[str, typer.Argument(help=f"one of: {NAMES}", autocompletion=complete_word)] = "hierfavg",
    pairs: Pairs = None,
    format: Output = Format.text,
) -> None:
    """Draw a network, and say what takes longest on each of its tiers for an algorithm and a model."""
    with guarded():
        with importing():
            from rich.console import Console

            from fedge.experiment.config import Config
            from fedge.experiment.network_file import read_network
            from fedge.runner.expected import bottlenecks_of
            from fedge.view import terminal
            from fedge.view.network import bottleneck_lines, network_lines
        network, keys = read_network(file), keys_of_run(algorithm, pairs or [], None, None)
        config = Config.of({"algorithm": "hierfavg"} | keys | {"network": file})
        if format is Format.text:
            terminal.say(Console(), f"{network_lines(network)}\n")
        found, what = bottlenecks_of(config)
        if format is Format.json:
            print(json.dumps([one._asdict() | {"span": one.span._asdict()} for one in found]))
        else:
            terminal.say(Console(), bottleneck_lines(found, what))
