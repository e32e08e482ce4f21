"""`fedge theory` puts the papers' bounds beside what was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fedge.cli.common import (
    HINT,
    NAMES,
    ConfigFile,
    Format,
    Out,
    Output,
    Pairs,
    Seed,
    folder_of,
    gather,
    guarded,
    importing,
)
from fedge.errors import ConfigError
from fedge.runner import files
from fedge.studies.words import PROBES

app = typer.Typer(no_args_is_help=True, help="What the papers' bounds say of a run, beside what was measured.")


@app.callback()
def group() -> None:
    """Keep `estimate` a command of a group, although it is the only one."""


@app.command("estimate", epilog=HINT)
def estimate_command(
    what: Annotated[str, typer.Argument(metavar="RUN|ALGORITHM", help=f"a run folder, or one of: {NAMES}")],
    pairs: Pairs = None,
    probes: Annotated[int, typer.Option("--probes", help="models to measure at, from first to last")] = PROBES,
    config: ConfigFile = None,
    seed: Seed = None,
    out: Out = None,
    format: Output = Format.text,
) -> None:
    """Measure what a theory assumes (curvature, noise, unlike clients) along a run, and evaluate its bounds with it.

    A run that was made is made again from its record, with probes. The answer goes into its folder, or into --out.
    """
    with guarded():
        with importing():
            from rich.console import Console

            from fedge.runner.run import default_folder
            from fedge.studies.estimate import estimate
            from fedge.view import terminal
        if is_run := Path(what).is_dir():
            if pairs or config is not None or seed is not None:
                raise ConfigError("a run that was made keeps its own keys; give its folder alone")
            found = estimate(run=what, probes=probes)
        else:
            found = estimate(gather(pairs or [], config, seed) | {"algorithm": what}, probes=probes)
        folder = folder_of(out) or (Path(what) if is_run else default_folder("theory"))
        files.make_folder(folder)
        answer = found.to_json()
        files.write_json(folder / "theory.json", answer)
        from fedge.view import theory  # matplotlib takes a while to import
        from fedge.view.plots import save

        drawn = save(theory.figure(answer), folder / "theory")
        if format is Format.json:
            print(json.dumps(answer | {"out": str(folder)}))
            return
        console = Console()
        terminal.say(console, f"{theory.heading(found)}\n")
        console.print(theory.constants_table(found))
        if answer["bounds"]:
            console.print(theory.bounds_table(answer))
        terminal.say(console, theory.remarks(answer))
        terminal.say(console, f"\nwritten: {folder / 'theory.json'}, {', '.join(p.name for p in drawn)}")
