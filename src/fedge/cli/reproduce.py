"""`fedge reproduce` makes a paper's figures."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from fedge.cli.common import folder_of, guarded, importing
from fedge.errors import RunError

app = typer.Typer()


class Draw(StrEnum):
    yes = "yes"
    no = "no"
    only = "only"


@app.command("reproduce")
def reproduce_command(
    target: Annotated[str, typer.Argument(metavar="PAPER[/FIGURE]", help="sdfeel/fig4b, 'hist/fig2*', ./MY_OWN/fig1")],
    seeds: Annotated[int | None, typer.Option("--seeds", min=1, max=1000, help="instead of the recipe's")] = None,
    variant: Annotated[str | None, typer.Option("--variant", help="printed, tuned, …: all unless given")] = None,
    out: Annotated[str | None, typer.Option("--out", metavar="DIR", help="default: papers/PAPER/results")] = None,
    draw: Annotated[
        Draw, typer.Option("--draw", help="only: pictures, tables and verdicts of CSV files that are there")
    ] = Draw.yes,
) -> None:
    """Reproduce a paper's figures: each seed's curve (CSV), how it was made (JSON), PNG, PDF, tables and verdicts."""
    with guarded(go_on="" if draw is Draw.only else "; the same command goes on from the runs that have finished"):
        folder = folder_of(out)
        with importing():
            from fedge.studies.reproduce import figures_of, reproduce, tell
        if draw is Draw.only:
            figures = iter(figures_of(target, folder))
        else:
            figures = reproduce(target, folder, seeds, variant, lambda line: print(line, file=sys.stderr, flush=True))
        told = False
        for place in figures:
            if draw is Draw.only and not place.source.exists():
                print(f"{place.name}: no runs of {place.runs} are in {place.folder}; make them without --draw only",
                      file=sys.stderr)  # fmt: skip
                continue
            told = True
            print(f"{place.name}: {place.figure.caption}\n\n{tell(place)}\n")
            if draw is not Draw.no:
                from fedge.view import plots

                drawing = plots.reproduction(place.figure, place.curves(), place.recipe.titles())
                plots.save(drawing, place.folder / place.name)
            drawn = "" if draw is Draw.no else ", .png and .pdf"
            print(f"{place.source} and .json; {place.folder / place.name}.md{drawn}\n")
        if not told:
            raise RunError(f"nothing of {target} has been run yet; leave --draw only out")
