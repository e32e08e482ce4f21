"""`fedge cost` says what a run would cost, before it is run."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from fedge.cli.common import (
    HINT,
    NAMES,
    ConfigFile,
    Format,
    Output,
    Pairs,
    complete_word,
    gather,
    guarded,
    importing,
    keys_of_run,
)
from fedge.errors import ConfigError

app = typer.Typer(no_args_is_help=True, help="What a run would cost, before it is run.")


@app.command("run", epilog=HINT)
def cost_run(
    algorithm: Annotated[
        str | None, typer.Argument(help=f"one of: {NAMES}", show_default=False, autocompletion=complete_word)
    ] = None,
    pairs: Pairs = None,
    config: ConfigFile = None,
    format: Output = Format.text,
) -> None:
    """Say what a run would cost without training it: seconds, bytes, multiply-adds, memory, and who sets its pace."""
    with guarded():
        with importing():
            from rich.console import Console

            from fedge.experiment.config import Config
            from fedge.runner.expected import expected_costs
            from fedge.view import terminal
            from fedge.view.expected import cost_lines
        found = expected_costs(Config.of(keys_of_run(algorithm, pairs or [], config, None)))
        if format is Format.json:
            print(json.dumps(found))
        else:
            terminal.say(Console(), cost_lines(found))


@app.command("cuts", epilog=HINT)
def cost_cuts(pairs: Pairs = None, config: ConfigFile = None, format: Output = Format.text) -> None:
    """Show for every place to cut a model its activations, halves and work, and whether splitting beats sending it.

    Unless given: the model's own data set (CIFAR-10 for residual networks, else MNIST), batch 10, rounds of 1 × 5
    local steps.
    """
    with guarded():
        with importing():
            from rich.console import Console

            from fedge.experiment.build import cut_prices
            from fedge.experiment.config import Config
            from fedge.runner import device
            from fedge.view import terminal
        keys = gather(pairs or [], config, None)
        data = "cifar10" if str(keys.get("model")).startswith("resnet") else "mnist"
        chosen = {"model": "cnn", "data": data, "local_steps": 5, "edge_rounds": 1} | keys | {"algorithm": "hiersfl"}
        if "cut" in keys:
            raise ConfigError("the table lists every cut; leave cut out")
        device.prepare()
        prices = cut_prices(Config.of(chosen))
        if format is Format.json:
            print(json.dumps([terminal.cut_row(p) for p in prices]))
        else:
            terminal.say(Console(), terminal.cut_lines(prices))
