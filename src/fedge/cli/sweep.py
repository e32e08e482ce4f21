"""`fedge sweep` runs a grid of settings over seeds."""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedge.cli.common import (
    HINT,
    NAMES,
    ConfigFile,
    Draw,
    Drawing,
    Format,
    Out,
    Output,
    Seed,
    complete_word,
    folder_of,
    gather,
    guarded,
    importing,
    stop_request,
)
from fedge.errors import ConfigError, DivergenceError, RunError

if TYPE_CHECKING:
    from fedge.studies.sweep import Sweep
    from fedge.studies.sweep_table import Line

app = typer.Typer()


@app.command("sweep", epilog=HINT)
def sweep_command(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="ALGORITHM ... [key=value,value ...]", help=f"{NAMES}", autocompletion=complete_word),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option("--seeds", help="so many seeds of each setting, from 0 or --seed on")
    ] = None,
    config: ConfigFile = None,
    seed: Seed = None,
    out: Out = None,
    resume: Annotated[Path | None, typer.Option("--resume", metavar="DIR", help="finish the sweep in DIR")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="more than 1,000 runs are meant")] = False,
    draw: Drawing = Draw.all,
    format: Output = Format.text,
) -> None:
    """Run every combination of the values given for some keys, over seeds; a table of means with 95 % intervals."""
    with importing():
        from fedge.studies.sweep import sweep
        from fedge.view.sweep_progress import SweepTicker
    ticker = SweepTicker()
    with guarded(ticker):
        names = [w for w in words or [] if "=" not in w]
        if resume is not None and (words or config or out or seed is not None or seeds is not None):
            raise ConfigError("--resume goes on with a sweep as it was begun; give --resume DIR alone")
        keys = gather([w for w in words or [] if "=" in w], config, seed)
        done = sweep(names, keys, seeds=seeds, out=folder_of(out), resume=resume, listener=ticker,
                     stop=stop_request(), many=yes)  # fmt: skip
        ticker.close()
        tell(done, format, draw)
        if all(line.diverged == line.seeds for line in done.table):
            raise DivergenceError("every run diverged and ended with its last good state; try a lower lr")


def tell(done: Sweep, format: Format, draw: Draw) -> None:
    """Write the table beside the runs, in three forms and a figure, and show it."""
    from rich.console import Console

    from fedge.runner import files
    from fedge.studies.sweep_table import csv_of
    from fedge.view import terminal
    from fedge.view.report import write_report
    from fedge.view.sweep_table import latex_of, text_table

    table, console = done.table, Console()
    files.write_bytes(done.out / "table.csv", csv_of(table).encode())
    files.write_bytes(done.out / "table.tex", latex_of(table).encode())
    report = write_report(done.out)
    drawn = ["table.csv", "table.tex", *draw_curves(done.out, draw)]
    if format is Format.json:
        print(json.dumps({"table": [line_json(line) for line in table], "out": str(done.out)}))
        return
    console.print(text_table(table, console.width))
    runs = f"a run folder for each of {len(done.outcomes):,} runs"
    terminal.say(console, f"\nsweep folder: {done.out}  ({', '.join(drawn)}; {runs})")
    terminal.say(console, f"report: {report}")
    terminal.say(console, f"next: fedge plot {shlex.quote(str(done.out))} --x bytes")


def draw_curves(folder: Path, draw: Draw) -> list[str]:
    """Draw the runs of a sweep over one another, if that is wanted and they can share an axis."""
    if draw is Draw.none:
        return []
    from fedge.view import overlay, plots
    from fedge.view.selected import select

    try:
        return [path.name for path in plots.save(overlay.overlay(select([folder])), folder / "curves")]
    except RunError:  # of what diverged at once there is nothing to draw
        return []


def line_json(line: Line) -> dict[str, Any]:
    """Return a line of the table as JSON has it: of each column the mean, and the ends of its interval."""
    columns = {
        name: None if found is None else {
            "mean": found.mean,
            "low": found.low if math.isfinite(found.low) else None,
            "high": found.high if math.isfinite(found.high) else None,
        }
        for name, found in line.columns.items()
    }  # fmt: skip
    return {"setting": line.setting, "seeds": line.seeds, "diverged": line.diverged, "reached": line.reached, **columns}
