"""`fedge plan` finds the algorithm and the keys that reach a target at the least cost."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedge.cli.common import (
    HINT,
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
from fedge.errors import ConfigError, StoppedError, brief
from fedge.studies.words import WORDS

if TYPE_CHECKING:
    from rich.console import Console

    from fedge.studies.answer import Answer

app = typer.Typer()


@app.command("plan", epilog=HINT)
def plan_command(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NETWORK.toml] target=NUMBER [key=value,value ...]",
            help="; ".join(f"{name}=: {what}" for name, what in WORDS.items())
            + "; any keys of runs, fixed by one value "
            "and a choice among several",
            autocompletion=complete_word,
        ),
    ] = None,
    budget: Annotated[int | None, typer.Option("--budget", help="client steps that planning takes, at most")] = None,
    config: ConfigFile = None,
    seed: Seed = None,
    out: Out = None,
    resume: Annotated[Path | None, typer.Option("--resume", metavar="DIR", help="finish the plan in DIR")] = None,
    draw: Drawing = Draw.all,
    format: Output = Format.text,
) -> None:
    """Find which algorithm and which keys reach a target at the least cost, and say how sure that is."""
    with importing():
        from fedge.studies.planner import plan
        from fedge.view.plan_progress import PlanTicker
        from fedge.view.report import write_report
    ticker = PlanTicker()
    with guarded(), contextlib.closing(ticker):
        if resume is not None and (words or config or out or seed is not None or budget is not None):
            raise ConfigError("--resume goes on with a plan as it was begun; give --resume DIR alone")
        asked = {} if resume is not None else _asked(words or [], budget, config, seed)
        try:
            found = plan(asked, out=folder_of(out), resume=resume, stop=stop_request(), tell=ticker)
        except StoppedError as problem:
            if problem.folder is not None:
                write_report(problem.folder)
            raise
        ticker.close()
        tell(found, format, draw)


def _asked(words: list[str], budget: int | None, config: Path | None, seed: int | None) -> dict[str, Any]:
    """Read a network's file, the planner's own words and the keys of runs."""
    from fedge.experiment.config import parse

    files = [word for word in words if "=" not in word]
    pairs = [word for word in words if "=" in word]
    own = [word for word in pairs if word.partition("=")[0] in WORDS]
    asked = gather([word for word in pairs if word not in own], config, seed)
    for word in files:
        if not Path(word).exists():
            raise ConfigError(f"'{brief(word)}' is neither a network's file nor of the form key=value; name algorithms "
                              "as in algorithm=hierfavg,hist")  # fmt: skip
        if "network" in asked:
            raise ConfigError("the network is given twice; give it once")
        asked["network"] = word
    if budget is not None:
        own.append(f"budget={budget}")
    return asked | parse(own)


def tell(answer: Answer, format: Format, draw: Draw) -> None:
    """Draw the answer, and show it."""
    from rich.console import Console

    from fedge.view import terminal
    from fedge.view.report import write_report

    found, console, drawn = answer.to_json(), Console(), ["answer.json", "settings.csv"]
    report = write_report(answer.out)
    if draw is not Draw.none:
        from fedge.view.plan_figure import figure  # matplotlib takes a while to import
        from fedge.view.plots import save

        drawn += [path.name for path in save(figure(found), answer.out / "front")]
    if format is Format.json:
        print(json.dumps(found | {"out": str(answer.out)}))
        return
    say(console, found)
    terminal.say(console, f"\nplan folder: {answer.out}  ({', '.join(drawn)}; runs/ of the finals)")
    terminal.say(console, f"report: {report}")


def say(console: Console, found: dict[str, Any]) -> None:
    """Show an answer, as answer.json has it."""
    from fedge.view import terminal
    from fedge.view.plan import not_reached, table
    from fedge.view.plan_words import sentences

    if found["recommended"] is not None:
        console.print(table(found))
        terminal.say(
            console, "→ recommended, • on the front: in the race no other had less of seconds, bytes and memory"
        )
        terminal.say(console, "seeds: fresh ones that reached the target, of those that costs are means of")
    missed = not_reached(found)
    if missed.row_count:
        terminal.say(console, "\nnot at the target:")
        console.print(missed)
    terminal.say(console, "\n" + "\n".join(sentences(found)))
