"""`fedge run` runs one algorithm, and `fedge compare` several."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedge.cli import plain
from fedge.cli.common import (
    HINT,
    NAMES,
    ConfigFile,
    Draw,
    Drawing,
    Format,
    Out,
    Output,
    Pairs,
    Seed,
    complete_word,
    figures,
    folder_of,
    gather,
    guarded,
    importing,
    keys_of_run,
    stop_request,
)
from fedge.errors import ConfigError, DivergenceError
from fedge.runner.hosts import HOSTS

if TYPE_CHECKING:
    from rich.console import Console

    from fedge.runner.result import Result

app = typer.Typer()


@app.command("run", epilog=HINT)
def run_command(
    algorithm: Annotated[
        str | None, typer.Argument(help=f"one of: {NAMES}", show_default=False, autocompletion=complete_word)
    ] = None,
    pairs: Pairs = None,
    config: ConfigFile = None,
    seed: Seed = None,
    out: Out = None,
    resume: Annotated[Path | None, typer.Option("--resume", metavar="DIR", help="continue the run in DIR")] = None,
    hosts: Annotated[
        str | None, typer.Option("--hosts", metavar="WHO", envvar="FEDGE_HOSTS", help=f"several processes: {HOSTS}")
    ] = None,
    draw: Drawing = Draw.all,
    format: Output = Format.text,
) -> None:
    """Run one algorithm."""
    with importing():
        from rich.console import Console

        from fedge.cli.narrator import Narrator
        from fedge.experiment.config import parse, require_known
        from fedge.runner.device import leads
        from fedge.runner.run import run
        from fedge.view.report import write_report
    console = Console()
    ticker = Narrator(console if format is Format.text else None, draw)
    with guarded(ticker):
        if hosts is not None:  # the library between the processes writes to file 1 as it likes
            sys.stdout = os.fdopen(os.dup(1), "w", encoding=sys.stdout.encoding, errors=plain.ERRORS)
            os.dup2(2, 1)
        stop = stop_request() if hosts is None else None  # several processes would stop at different rounds
        if resume is not None:
            if (algorithm and "=" not in algorithm) or config or out or seed is not None:
                raise ConfigError(
                    "--resume continues a run as it was configured; give --resume DIR alone, or with rounds=N to go on "
                    "for longer"
                )
            words = [*([algorithm] if algorithm else []), *(pairs or [])]
            longer: dict[str, Any] = dict(parse(words))
            require_known(longer)
            result = run(resume=resume, listener=ticker, hosts=hosts, stop=stop, **longer)
        else:
            keys = keys_of_run(algorithm, pairs or [], config, seed)
            result = run(keys, out=folder_of(out), listener=ticker, hosts=hosts, stop=stop)
        if not leads():
            return
        drawn = figures([result], result.out, draw)
        report = write_report(result.out)
        if format is Format.json:
            print(json.dumps(result.to_json()))
        else:
            tell(console, [result], result.out, report, drawn)


@app.command("compare", epilog=HINT)
def compare_command(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ALGORITHM ...] [key=value ...]",
            help=f"{NAMES}; unless named, each paper's own",
            autocompletion=complete_word,
        ),
    ] = None,
    config: ConfigFile = None,
    seed: Seed = None,
    out: Out = None,
    resume: Annotated[Path | None, typer.Option("--resume", metavar="DIR", help="finish the comparison in DIR")] = None,
    draw: Drawing = Draw.all,
    format: Output = Format.text,
) -> None:
    """Run several algorithms (unless named, each paper's own) on the same data, clients and initial model."""
    with importing():
        from rich.console import Console

        from fedge.cli.narrator import Narrator
        from fedge.studies.compare import compare
        from fedge.view.report import write_report
    console = Console()
    names = [w for w in words or [] if "=" not in w]
    ticker = Narrator(console if format is Format.text else None, draw, compared=len(names) != 1)
    with guarded(ticker):
        keys = gather([w for w in words or [] if "=" in w], config, seed)
        results = compare(names, keys, out=folder_of(out), resume=resume, listener=ticker, stop=stop_request())
        everyone = list(results.values())
        folder = everyone[0].out.parent
        drawn = figures(everyone, folder, draw)
        report = write_report(folder)
        if format is Format.json:
            print(json.dumps({"results": [r.to_json() for r in everyone], "out": str(folder)}))
        else:
            tell(console, everyone, folder, report, drawn)
        if lost := [r.algorithm for r in everyone if r.diverged]:
            raise DivergenceError(f"{', '.join(lost)} diverged and ended with the last good state; try a lower lr")


def tell(console: Console, results: list[Result], folder: Path, report: Path, drawn: list[Path]) -> None:
    """Say what came of runs, where it lies, and what to type next."""
    from fedge.view import terminal
    from fedge.view.numbers import on_request

    console.print(terminal.result_table(results, console.width))
    for r in results:
        if said := on_request(r.final):
            terminal.say(console, f"{r.algorithm}: {said}")
    if said := terminal.ending(results):
        terminal.say(console, said)
    pictures = [path.name for path in drawn if path.suffix == ".png"]
    inside = [*pictures, "PDFs"] if pictures else []
    several = folder != results[0].out
    inside.append("one sub-folder per algorithm" if several else "metrics.jsonl, weights.safetensors, …")
    terminal.say(console, f"\nrun folder: {folder}  ({', '.join(inside)})")
    terminal.say(console, f"report: {report}")
    place = shlex.quote(str(folder))
    longer = f"fedge run --resume {place} rounds={2 * results[0].final['round']}"
    terminal.say(console, f"next: fedge plot {place} --x seconds" + ("" if several else f", or {longer}"))
