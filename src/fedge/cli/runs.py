"""`fedge list`, `fedge plot` and `fedge export` look at runs that are there, and change none of them."""

from __future__ import annotations

import json
import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fedge.cli.common import folder_of, guarded, importing
from fedge.errors import ConfigError, RunError

app = typer.Typer()
RUNS = Path("runs")


class Listed(StrEnum):
    text = "text"
    json = "json"
    csv = "csv"


class X(StrEnum):
    rounds = "rounds"
    iterations = "iterations"
    seconds = "seconds"
    bytes = "bytes"


class To(StrEnum):
    csv = "csv"
    latex = "latex"
    svg = "svg"
    pdf = "pdf"
    tensorboard = "tensorboard"
    mlflow = "mlflow"
    wandb = "wandb"


Runs = Annotated[
    list[Path], typer.Argument(metavar="RUN ...", help="folders of runs, comparisons or sweeps", show_default=False)
]
Across = Annotated[X, typer.Option("--x", help="what to draw against")]
Up = Annotated[str | None, typer.Option("--y", metavar="METRIC", help="loss, train_loss, …; default: the main metric")]


@app.command("list")
def list_command(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="where to look")] = RUNS,
    format: Annotated[Listed, typer.Option("--format", help="for people, or for programs")] = Listed.text,
) -> None:
    """List the runs in a folder, the newest first: state, algorithm, what differs, the main metric, when."""
    with guarded():
        with importing():
            from fedge.view import run_list
        lines = run_list.run_list(folder)
        if format is Listed.json:
            print(json.dumps(run_list.to_json(lines)))
        elif format is Listed.csv:
            print(run_list.to_csv(lines), end="")
        else:
            from rich.console import Console

            from fedge.view import terminal

            console = Console()
            wide = None if not console.is_terminal and "COLUMNS" not in os.environ else console.width
            terminal.say(console, run_list.to_text(lines, wide))


@app.command("plot")
def plot_command(
    runs: Runs,
    x: Across = X.rounds,
    y: Up = None,
    out: Annotated[str, typer.Option("--out", metavar="FILE", help=".svg, .pdf or .png")] = "runs/plot.png",
) -> None:
    """Lay runs over one another: a line for each, named by what differs; bands over seeds (95 % of the mean)."""
    with guarded():
        place = picture_place(out)
        with importing():
            from fedge.view import overlay, plots
            from fedge.view.selected import select
        page = select(runs)
        figure = overlay.overlay(page, x.value, y)
        place.parent.mkdir(parents=True, exist_ok=True)
        plots.write(figure, place)
        print(f"figure: {place}")


def picture_place(out: str) -> Path:
    place = folder_of(out)
    if place is None or place.suffix.lower() not in (".svg", ".pdf", ".png"):
        raise ConfigError(f"--out {out} is no picture; give a file that ends in .svg, .pdf or .png")
    return place


@app.command("export")
def export_command(
    runs: Runs,
    to: Annotated[To, typer.Option("--to", help="what to write", show_default=False)],
    x: Across = X.rounds,
    y: Up = None,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="PLACE", help="default: standard output; runs/… for figures and trackers"),
    ] = None,
) -> None:
    """Hand runs on: each evaluated round as CSV, a table for LaTeX, a figure, or to a tracker you have installed.

    tensorboard, mlflow and wandb are extras: pip install 'fedge[tensorboard]' and so on. Without --out, MLflow's own
    MLFLOW_TRACKING_URI is heeded; Weights & Biases works offline unless WANDB_MODE says otherwise.
    """
    with guarded():
        place = folder_of(out)
        if to in (To.svg, To.pdf):
            plot_command(runs, x, y, str(place or f"runs/plot.{to}"))
            return
        with importing():
            from fedge.view import export
            from fedge.view.selected import select
        page = select(runs)
        if to in (To.csv, To.latex):
            text = export.to_csv(page) if to is To.csv else export.to_latex(page)
            if place is None:
                print(text, end="")
            else:
                export.write(place, text)
                print(f"written: {place}")
            return
        if place is not None and place.is_file():
            raise RunError(f"{place} is a file; {to} wants a folder")
        where, count = export.to_tracker(page, to.value, place)
        print(f"{count} run{'s' if count > 1 else ''} handed to {to}: {where}")
