"""The command line: parse, call, exit code."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from fedge import __version__
from fedge.algorithms import ALGORITHMS
from fedge.data import load
from fedge.data.sources import where
from fedge.errors import ConfigError, FedgeError
from fedge.runner import compare as comparison
from fedge.runner import loop
from fedge.runner.config import Config, parse, read_toml
from fedge.runner.loop import Result
from fedge.runner.setup import Experiment, experiment
from fedge.view import terminal
from fedge.view.progress import Ticker

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
data_app = typer.Typer(no_args_is_help=True, help="Data sets: list them, get them, see who would hold what.")
app.add_typer(data_app, name="data")


class Format(StrEnum):
    text = "text"
    json = "json"


NAMES = ", ".join(ALGORITHMS)
HINT = "`fedge keys` lists every key with its default and what it takes."
Pairs = Annotated[list[str] | None, typer.Argument(metavar="key=value", help="any keys of the run", show_default=False)]
ConfigFile = Annotated[Path | None, typer.Option("--config", metavar="FILE.toml", help="keys from a file")]
Seed = Annotated[int | None, typer.Option("--seed", help="the same as seed=N")]
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="run folder; default: a new one in runs/")]
Output = Annotated[Format, typer.Option("--format", help="json: standard output is one object")]


@contextmanager
def guarded(ticker: Ticker | None = None) -> Iterator[None]:
    """Errors become one sentence on standard error and a stable exit code."""
    try:
        yield
    except FedgeError as problem:
        print(f"fedge: {problem}", file=sys.stderr)
        raise typer.Exit(problem.exit_code) from None
    except KeyboardInterrupt:
        folder = ticker.out if ticker else None
        again = f"; continue with: fedge run --resume {folder}" if folder else ""
        print(f"fedge: stopped{again}", file=sys.stderr)
        raise typer.Exit(130) from None
    finally:
        if ticker is not None:
            ticker.close()


def gather(pairs: list[str], file: Path | None, seed: int | None) -> dict[str, Any]:
    """Keys from the file, overridden by the words of the command line."""
    words: dict[str, Any] = dict(parse(pairs))
    if seed is not None:
        if "seed" in words:
            raise ConfigError("seed is given twice; use either seed=N or --seed N")
        words["seed"] = seed
    return (read_toml(file) if file else {}) | words


class Narrator(Ticker):
    """A ticker that first draws what is about to run, once."""

    def __init__(self, console: Console | None) -> None:
        super().__init__()
        self._stage = console

    def ready(self, experiment: Experiment, out: Path) -> None:
        if self._stage is not None:
            terminal.say(self._stage, f"{terminal.describe(experiment)}\n\n{terminal.topology_picture(experiment)}\n")
            self._stage = None
        super().ready(experiment, out)


def figures(results: list[Result], folder: Path) -> list[Path]:
    from fedge.view import plots  # matplotlib takes a while to import, and a refused run never needs it

    made = results[0].experiment
    drawn = {"curves": plots.curves(results), "labels": plots.label_heatmap(made), "topology": plots.topology(made)}
    return [path for name, figure in drawn.items() for path in plots.save(figure, folder / name)]


@app.command("run", epilog=HINT)
def run_command(
    algorithm: Annotated[str | None, typer.Argument(help=f"one of: {NAMES}", show_default=False)] = None,
    pairs: Pairs = None,
    config: ConfigFile = None,
    seed: Seed = None,
    out: Out = None,
    resume: Annotated[Path | None, typer.Option("--resume", metavar="DIR", help="continue the run in DIR")] = None,
    format: Output = Format.text,
) -> None:
    """Run one algorithm."""
    console = Console()
    ticker = Narrator(console if format is Format.text else None)
    with guarded(ticker):
        words = [*([algorithm] if algorithm and "=" in algorithm else []), *(pairs or [])]
        if resume is not None:
            if algorithm or config or out or seed is not None:
                raise ConfigError("--resume continues a run as it was configured; give --resume DIR alone")
            result = loop.run(resume=resume, listener=ticker)
        else:
            keys = gather(words, config, seed)
            if algorithm and "=" not in algorithm:
                keys["algorithm"] = algorithm
            result = loop.run(keys, out=out, listener=ticker)
        figures([result], result.out)
        if format is Format.json:
            print(json.dumps(result.to_json()))
        else:
            console.print(terminal.result_table([result]))
            terminal.say(console, f"\nrun folder: {result.out}  (metrics.jsonl, weights.safetensors, curves.png, …)")


@app.command("compare", epilog=HINT)
def compare_command(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[ALGORITHM ...] [key=value ...]", help=f"{NAMES}; all unless named")
    ] = None,
    config: ConfigFile = None,
    seed: Seed = None,
    out: Out = None,
    format: Output = Format.text,
) -> None:
    """Run several algorithms (all, unless named) on the same data, clients and initial model."""
    console = Console()
    ticker = Narrator(console if format is Format.text else None)
    with guarded(ticker):
        names = [w for w in words or [] if "=" not in w]
        keys = gather([w for w in words or [] if "=" in w], config, seed)
        results = comparison.compare(names, out=out, listener=ticker, **keys)
        everyone = list(results.values())
        folder = everyone[0].out.parent
        drawn = figures(everyone, folder)
        if format is Format.json:
            print(json.dumps({"results": [r.to_json() for r in everyone], "out": str(folder)}))
        else:
            console.print(terminal.result_table(everyone))
            pictures = ", ".join(p.name for p in drawn if p.suffix == ".png")
            terminal.say(console, f"\nrun folder: {folder}  ({pictures}; PDFs; one sub-folder per algorithm)")


@app.command("keys")
def keys_command() -> None:
    """Every key of a run: its default, what it takes, what it means."""
    Console().print(terminal.keys_table())


@data_app.command("list")
def data_list() -> None:
    """The data sets fedge knows and where each would be read from."""
    terminal.say(Console(), terminal.data_lines())


@data_app.command("get")
def data_get(names: Annotated[list[str], typer.Argument(metavar="NAME ...")]) -> None:
    """Fetch data sets into the cache (FEDGE_DATA and the cache are looked at first) and verify them."""
    with guarded():
        for name in names:
            dataset = load(name)
            place = where(name)
            print(f"{name}: {len(dataset.x_train):,} + {len(dataset.x_test):,} images, checksums verified ({place})")


@data_app.command("partition", epilog=HINT)
def data_partition(
    pairs: Pairs = None,
    config: ConfigFile = None,
    seed: Seed = None,
    out: Annotated[Path, typer.Option("--out", metavar="FILE.png", help="the heat map")] = Path("labels.png"),
) -> None:
    """Show who would hold which labels: a table per cell, and a heat map over all clients."""
    with guarded():
        made = experiment(Config.of({"algorithm": next(iter(ALGORITHMS))} | gather(pairs or [], config, seed)))
        console = Console()
        console.print(terminal.cell_table(made))
        from fedge.view import plots

        plots.save(plots.label_heatmap(made), out.with_suffix(""))
        terminal.say(console, f"heat map: {out.with_suffix('.png')} (and .pdf)")


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
    logging.basicConfig(format="fedge: %(message)s")
    logging.getLogger("fedge").setLevel(logging.INFO)
    app()


if __name__ == "__main__":
    main()
