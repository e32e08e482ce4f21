"""`fedge show` says what a folder holds, and whether it is still what was written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from fedge.cli.common import Format, Output, guarded
from fedge.runner import inspect
from fedge.studies.compare import PLAN, read_plan
from fedge.view import terminal

app = typer.Typer()


@app.command("show")
def show_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="a run folder, or that of a comparison")],
    verify: Annotated[bool, typer.Option("--verify", help="compare every file with the checksums left")] = False,
    format: Output = Format.text,
) -> None:
    """Say what was run in a folder, how far it came, and what it came to."""
    with guarded():
        folders = [folder / name for name in read_plan(folder)] if (folder / PLAN).exists() else [folder]
        found: list[dict[str, Any]] = []
        for own in folders:
            found.append(inspect.summary(own))
            if verify:
                found[-1]["verified"] = inspect.verify(own)
        if format is Format.json:
            print(json.dumps(found if len(found) > 1 else found[0]))
        else:
            terminal.say(Console(), "\n\n".join(terminal.run_lines(summary) for summary in found))
