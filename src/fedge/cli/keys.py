"""`fedge keys` says what a run can be told."""

from __future__ import annotations

import typer
from rich.console import Console

from fedge.cli.common import guarded
from fedge.view import terminal

app = typer.Typer()


@app.command("keys")
def keys_command() -> None:
    """List every key of a run: its default, what it takes, what it means."""
    with guarded():
        Console().print(terminal.keys_table())
