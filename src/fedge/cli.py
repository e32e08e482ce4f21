"""The command line: parse, call, exit code."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from jax.errors import JaxRuntimeError
from rich.console import Console

from fedge import __version__
from fedge.algorithms import ALGORITHMS
from fedge.data import load
from fedge.data.sources import where
from fedge.errors import ConfigError, FedgeError, RunError
from fedge.runner import compare as comparison
from fedge.runner import loop
from fedge.runner.config import CUSTOM, Config, parse, read_toml, words
from fedge.runner.device import HOSTS, leads, processes
from fedge.runner.loop import Result
from fedge.runner.reproduce import figures_of, reproduce
from fedge.runner.setup import Experiment, cut_prices, experiment
from fedge.view import terminal
from fedge.view.progress import Ticker

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
data_app = typer.Typer(no_args_is_help=True, help="Data sets: list them, get them, see who would hold what.")
app.add_typer(data_app, name="data")
cost_app = typer.Typer(no_args_is_help=True, help="What a run would cost, before it is run.")
app.add_typer(cost_app, name="cost")


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
        _leave(str(problem), problem.exit_code)
    except BrokenPipeError:  # whoever was reading has gone; there is nobody to tell
        sys.stdout = None
        raise typer.Exit(1) from None
    except OSError as problem:
        place = problem.filename or "a file"
        _leave(f"cannot use {place}: {problem.strerror}; choose another place", RunError.exit_code)
    except (MemoryError, JaxRuntimeError) as problem:
        reason = (str(problem).splitlines() or ["out of memory"])[0][:150]
        if processes() == 1:
            _leave(f"the machine could not do it ({reason}); try a smaller batch or chunk", RunError.exit_code)
        again = f"; start all of them again with --resume {ticker.out}" if ticker and ticker.out else ""
        _leave(f"this or another process was lost or failed ({reason}){again}", RunError.exit_code)
    except KeyboardInterrupt:
        folder, verb = ticker.out if ticker else None, "run"
        if folder is not None and (folder.parent / comparison.PLAN).exists():
            folder, verb = folder.parent, "compare"
        _leave(f"stopped; continue with: fedge {verb} --resume {folder}" if folder else "stopped", 130)
    finally:
        if ticker is not None:
            ticker.close()


def _leave(sentence: str, code: int) -> NoReturn:
    print(f"fedge: {sentence}", file=sys.stderr, flush=True)
    if processes() > 1:  # the others wait for this one, and JAX would wait for them
        os._exit(code)
    raise typer.Exit(code) from None


def gather(pairs: list[str], file: Path | None, seed: int | None) -> dict[str, Any]:
    """Keys from the file, overridden by the words of the command line."""
    words: dict[str, Any] = dict(parse(pairs))
    if seed is not None:
        if "seed" in words:
            raise ConfigError("seed is given twice; use either seed=N or --seed N")
        words["seed"] = seed
    return (read_toml(file) if file else {}) | words


class Narrator(Ticker):
    """A ticker that first draws what is about to run: the topology once, each graph between edges."""

    def __init__(self, console: Console | None, compared: bool = False) -> None:
        super().__init__()
        self._stage, self._compared = console, compared
        self._drawn = False

    def ready(self, experiment: Experiment, out: Path) -> None:
        if self._stage is not None:
            if not self._drawn:
                picture = terminal.topology_picture(experiment, self._compared)
                terminal.say(self._stage, f"{terminal.describe(experiment)}\n\n{picture}\n")
                self._drawn = True
            if graph := terminal.graph_picture(experiment):
                terminal.say(self._stage, f"{graph}\n")
        super().ready(experiment, out)


def figures(results: list[Result], folder: Path) -> list[Path]:
    from fedge.view import hierarchy, plots  # matplotlib takes a while to import, and a refused run never needs it

    made = next((r.experiment for r in results if terminal.has_edges(r.experiment)), results[0].experiment)
    drawn = {
        "curves": plots.curves(results),
        "labels": hierarchy.label_heatmap(made),
        "topology": hierarchy.topology(made),
    }
    for r in results:
        if graph := hierarchy.edge_graph(r.experiment):
            drawn["graph"] = graph
    return [path for name, figure in drawn.items() for path in plots.save(figure, folder / name)]


@app.command("run", epilog=HINT)
def run_command(
    algorithm: Annotated[str | None, typer.Argument(help=f"one of: {NAMES}", show_default=False)] = None,
    pairs: Pairs = None,
    config: ConfigFile = None,
    seed: Seed = None,
    out: Out = None,
    resume: Annotated[Path | None, typer.Option("--resume", metavar="DIR", help="continue the run in DIR")] = None,
    hosts: Annotated[
        str | None, typer.Option("--hosts", metavar="WHO", envvar="FEDGE_HOSTS", help=f"several processes: {HOSTS}")
    ] = None,
    format: Output = Format.text,
) -> None:
    """Run one algorithm."""
    console = Console()
    ticker = Narrator(console if format is Format.text else None)
    with guarded(ticker):
        if hosts is not None:  # the library between the processes writes to file 1 as it likes
            sys.stdout = os.fdopen(os.dup(1), "w", encoding=sys.stdout.encoding, errors="replace")
            os.dup2(2, 1)
        words = [*([algorithm] if algorithm and "=" in algorithm else []), *(pairs or [])]
        if resume is not None:
            if algorithm or config or out or seed is not None:
                raise ConfigError("--resume continues a run as it was configured; give --resume DIR alone")
            result = loop.run(resume=resume, listener=ticker, hosts=hosts)
        else:
            keys = gather(words, config, seed)
            if algorithm and "=" not in algorithm:
                if any(w.startswith("algorithm=") for w in words):
                    raise ConfigError(f"the algorithm is given twice; keep {algorithm} or algorithm=…, not both")
                keys["algorithm"] = algorithm
            result = loop.run(keys, out=out, listener=ticker, hosts=hosts)
        if not leads():
            return
        figures([result], result.out)
        if format is Format.json:
            print(json.dumps(result.to_json()))
        else:
            console.print(terminal.result_table([result]))
            terminal.say(console, f"\nrun folder: {result.out}  (metrics.jsonl, weights.safetensors, curves.png, …)")


@app.command("compare", epilog=HINT)
def compare_command(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ALGORITHM ...] [key=value ...]", help=f"{NAMES}; unless named, each paper's own"),
    ] = None,
    config: ConfigFile = None,
    seed: Seed = None,
    out: Out = None,
    resume: Annotated[Path | None, typer.Option("--resume", metavar="DIR", help="finish the comparison in DIR")] = None,
    format: Output = Format.text,
) -> None:
    """Run several algorithms (unless named, each paper's own) on the same data, clients and initial model."""
    console = Console()
    names = [w for w in words or [] if "=" not in w]
    ticker = Narrator(console if format is Format.text else None, compared=len(names) != 1)
    with guarded(ticker):
        keys = gather([w for w in words or [] if "=" in w], config, seed)
        results = comparison.compare(names, out=out, resume=resume, listener=ticker, **keys)
        everyone = list(results.values())
        folder = everyone[0].out.parent
        drawn = figures(everyone, folder)
        if format is Format.json:
            print(json.dumps({"results": [r.to_json() for r in everyone], "out": str(folder)}))
        else:
            console.print(terminal.result_table(everyone))
            pictures = ", ".join(p.name for p in drawn if p.suffix == ".png")
            terminal.say(console, f"\nrun folder: {folder}  ({pictures}; PDFs; one sub-folder per algorithm)")


class Draw(StrEnum):
    yes = "yes"
    no = "no"
    only = "only"


@app.command("reproduce")
def reproduce_command(
    target: Annotated[str, typer.Argument(metavar="PAPER[/FIGURE]", help="sdfeel/fig4b, 'hist/fig2*', ./MY_OWN/fig1")],
    seeds: Annotated[int | None, typer.Option("--seeds", min=1, help="instead of the recipe's")] = None,
    variant: Annotated[str | None, typer.Option("--variant", help="printed, tuned, …: all unless given")] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="default: papers/PAPER/results")] = None,
    draw: Annotated[
        Draw, typer.Option("--draw", help="only: from CSV files that are there, without training")
    ] = Draw.yes,
) -> None:
    """Reproduce a paper's figures: CSV, PNG, PDF and a JSON summary for each."""
    with guarded():
        if draw is Draw.only:
            figures = iter(figures_of(target, out))
        else:
            figures = reproduce(target, out, seeds, variant, lambda line: print(line, file=sys.stderr, flush=True))
        for name, figure, folder in figures:
            if draw is not Draw.no:
                from fedge.view import plots

                plots.save(plots.reproduction(figure, folder / f"{name}.csv"), folder / name)
            print(f"{name}: {folder / name}.csv and .json" + ("" if draw is Draw.no else ", .png and .pdf"))


@cost_app.command("cuts", epilog=HINT)
def cost_cuts(pairs: Pairs = None, config: ConfigFile = None, format: Output = Format.text) -> None:
    """For every place to cut a model: activations, halves, work, and whether splitting beats sending the model.

    Unless given: the model's own data set (CIFAR-10 for resnet18, else MNIST), batch 10, rounds of 1 × 5 local steps.
    """
    with guarded():
        keys = gather(pairs or [], config, None)
        data = "cifar10" if keys.get("model") == "resnet18" else "mnist"
        chosen = {"model": "cnn", "data": data, "local_steps": 5, "edge_rounds": 1} | keys | {"algorithm": "hiersfl"}
        for key in ("model", "data"):
            if chosen[key] == CUSTOM:
                raise ConfigError(
                    f"{key}=custom has no table on the command line; name one of: {', '.join(words(key))}"
                )
        if "cut" in keys:
            raise ConfigError("the table lists every cut; leave cut out")
        prices = cut_prices(Config.of(chosen))
        if format is Format.json:
            print(json.dumps([terminal.cut_row(p) for p in prices]))
        else:
            terminal.say(Console(), terminal.cut_lines(prices))


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
    out: Annotated[Path, typer.Option("--out", metavar="FILE.png", help="the heat map")] = Path("runs/labels.png"),
) -> None:
    """Show who would hold which labels: a table per cell, and a heat map over all clients."""
    with guarded():
        made = experiment(Config.of({"algorithm": next(iter(ALGORITHMS))} | gather(pairs or [], config, seed)))
        console = Console()
        from fedge.view import hierarchy, plots

        out.parent.mkdir(parents=True, exist_ok=True)
        plots.save(hierarchy.label_heatmap(made), out.with_suffix(""))
        terminal.say(console, terminal.cell_lines(made))
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
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal without τ gets a ? for it
    logging.basicConfig(format="fedge: %(message)s")
    logging.getLogger("fedge").setLevel(logging.INFO)
    app()


if __name__ == "__main__":
    main()
