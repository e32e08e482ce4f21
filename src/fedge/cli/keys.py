"""`fedge keys` says what a run can be told."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from fedge.cli.common import Format, Output, complete_word, guarded, importing

app = typer.Typer()


def complete_key(incomplete: str) -> list[str]:
    return [word.removesuffix("=") for word in complete_word(incomplete)]


@app.command("keys")
def keys_command(
    of: Annotated[
        str | None,
        typer.Argument(
            metavar="[ALGORITHM|KEY|model=NAME]",
            help="of one algorithm, all about one key, or of a model of your own",
            autocompletion=complete_key,
        ),
    ] = None,
    format: Output = Format.text,
) -> None:
    """List the keys of a run: who reads each, what it takes, what it means, and what it is unless given."""
    with guarded():
        with importing():
            from rich.console import Console

            from fedge.experiment.keys import describe, every_key, is_algorithm, keys_of, keys_of_model
            from fedge.view import terminal
        if of is not None and not is_algorithm(of) and not of.startswith("model="):
            one = describe(of)
            if format is Format.json:
                print(json.dumps(one.to_json()))
            else:
                terminal.say(Console(), terminal.key_lines(one))
            return
        own = of is not None and of.startswith("model=")
        found = every_key() if of is None else keys_of_model(of.removeprefix("model=")) if own else keys_of(of)
        if format is Format.json:
            print(json.dumps([key.to_json() for key in found]))
        else:
            console = Console()
            terminal.say(console, terminal.keys_text(found, console.width))
