"""The command line: parse, call, exit code; a file for each group of commands."""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer
from rich.console import Console

from fedge import __version__
from fedge.cli import cost, data, reproduce, run, show
from fedge.cli.common import HINT
from fedge.view import terminal

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
app.command("run", epilog=HINT)(run.run_command)
app.command("compare", epilog=HINT)(run.compare_command)
app.command("reproduce")(reproduce.reproduce_command)
app.command("show")(show.show_command)
app.add_typer(data.app, name="data")
app.add_typer(cost.app, name="cost")


@app.command("keys")
def keys_command() -> None:
    """Every key of a run: its default, what it takes, what it means."""
    Console().print(terminal.keys_table())


def _version(wanted: bool) -> None:
    if wanted:
        print(f"fedge {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="print it")] = False,
) -> None:
    """fedge: hierarchical federated learning over clients, edge servers and a cloud."""


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal without τ gets a ? for it
    logging.basicConfig(format="fedge: %(message)s")
    logging.getLogger("fedge").setLevel(logging.INFO)
    app()
