"""`fedge show` says what a folder holds, and whether it is still what was written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fedge.cli.common import Format, Output, guarded, importing
from fedge.errors import RunError

app = typer.Typer()


@app.command("show")
def show_command(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="a run folder, or that of a comparison, a sweep or a plan")
    ],
    verify: Annotated[bool, typer.Option("--verify", help="compare every file with the checksums left")] = False,
    format: Output = Format.text,
) -> None:
    """Say what was run in a folder, how far it came, and what it came to."""
    with guarded():
        with importing():
            from rich.console import Console

            from fedge.runner import inspect
            from fedge.runner.record import holds_run
            from fedge.studies.stored_plan import PLANNED, plan_in, read_plan
            from fedge.view import terminal
        if (folder / PLANNED).exists():
            _show_plan(folder, format)
            return
        plan = plan_in(folder)
        planned = [folder] if plan is None else [folder / name for name in read_plan(plan)]
        folders = [own for own in planned if holds_run(own)] or planned[:1]  # a study may have runs that have not begun
        found: list[dict[str, Any]] = []
        for own in folders:
            found.append(inspect.summary(own))
            if verify:
                found[-1]["verified"] = inspect.verify(own)
        if format is Format.json:
            print(json.dumps(found if len(found) > 1 else found[0]))
        else:
            terminal.say(Console(), "\n\n".join(terminal.run_lines(summary) for summary in found))


def _show_plan(folder: Path, format: Format) -> None:
    """Show the answer that a plan came to."""
    from rich.console import Console

    from fedge.cli.plan import say
    from fedge.runner import files
    from fedge.studies.answer import ANSWER
    from fedge.studies.stored_plan import resume_command

    if not (folder / ANSWER).exists():
        raise RunError(f"the plan in {folder} has no answer yet; go on with: {resume_command(folder)}")
    found = files.read_json(folder / ANSWER)
    if format is Format.json:
        print(json.dumps(found))
    else:
        say(Console(), found)
