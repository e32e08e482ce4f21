"""The commands share what is here: options, keys from words and files, errors as sentences.

Help, and most of what is wrong with words, takes no JAX; the names and values of keys do, and options that may be keys.
A command imports what its work takes inside itself, as `importing`, once its words were read.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from fedge.algorithms import ALGORITHMS
from fedge.errors import ConfigError, FedgeError, RunError, brief
from fedge.runner import signals

if TYPE_CHECKING:
    from fedge.runner.result import Result
    from fedge.view.progress import Ticker
    from fedge.view.sweep_progress import SweepTicker


class Format(StrEnum):
    text = "text"
    json = "json"


class Draw(StrEnum):
    all = "all"
    none = "none"


NAMES = ", ".join(ALGORITHMS)
HINT = "`fedge keys` lists every key with its default and what it takes."


def complete_word(incomplete: str) -> list[str]:
    """Complete the name of an algorithm, a key, or a value that is a word, for the shell."""
    from fedge.experiment.config import all_fields
    from fedge.experiment.config import words as words_of

    key, equals, begun = incomplete.partition("=")
    if equals:
        return [f"{key}={word}" for word in (words_of(key) if key in all_fields() else []) if word.startswith(begun)]
    return [word for word in (*ALGORITHMS, *(f"{key}=" for key in all_fields())) if word.startswith(incomplete)]


Pairs = Annotated[
    list[str] | None,
    typer.Argument(metavar="key=value", help="any keys of the run", show_default=False, autocompletion=complete_word),
]
ConfigFile = Annotated[Path | None, typer.Option("--config", metavar="FILE.toml", help="keys from a file")]
Seed = Annotated[int | None, typer.Option("--seed", help="the same as seed=N")]
Out = Annotated[str | None, typer.Option("--out", metavar="DIR", help="run folder; default: a new one in runs/")]
Drawing = Annotated[Draw, typer.Option("--draw", help="none: no pictures, neither here nor in the run folder")]
Output = Annotated[Format, typer.Option("--format", help="json: standard output is one object")]


@contextmanager
def uncollected() -> Iterator[None]:
    """Let Python look for no garbage while modules are imported, nor ever again among what they brought: they stay.

    It would look through all of it again and again, which is a sixth of the time that JAX and Flax take to import.
    """
    before = len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > before:
            gc.freeze()
        gc.enable()


@contextmanager
def importing() -> Iterator[None]:
    """Import what takes a while: a signal meanwhile ends the process at once, and JAX may refuse its settings."""
    request = signals.of_this_process()
    try:
        with uncollected(), request.importing() if request is not None else nullcontext():
            yield
    except ValueError as problem:
        _leave(f"cannot start ({problem}); mend that variable or leave it out", ConfigError.exit_code)


@contextmanager
def guarded(ticker: Ticker | SweepTicker | None = None, go_on: str = "") -> Iterator[None]:
    """Turn errors into one sentence on standard error and a stable exit code; `go_on` is how to, once stopped."""
    try:
        yield
    except FedgeError as problem:
        _leave(str(problem), problem.exit_code)
    except BrokenPipeError:  # whoever was reading has gone; there is nobody to tell
        sys.stdout = None
        raise typer.Exit(1) from None
    except OSError as problem:
        place = problem.filename or "standard output"
        _leave(f"cannot use {place}: {problem.strerror}; choose another place", RunError.exit_code)
    except _failures() as problem:
        reason = (str(problem).splitlines() or ["out of memory"])[0][:150]
        full = isinstance(problem, MemoryError) or reason.startswith("RESOURCE_EXHAUSTED")
        if processes() == 1 and full:
            _leave(f"not enough memory ({reason}); try a smaller batch or chunk", RunError.exit_code)
        if processes() == 1:
            _leave(f"a compiled program failed ({reason}); report it with the run's keys", RunError.exit_code)
        again = f"; start all of them again with --resume {ticker.out}" if ticker and ticker.out else ""
        _leave(f"this or another process was lost or failed ({reason}){again}", RunError.exit_code)
    except (KeyboardInterrupt, signals.Leave) as wish:
        _leave(f"stopped{_advice(ticker) or go_on}", getattr(wish, "exit_code", 130))
    finally:
        if ticker is not None:
            ticker.close()


def _failures() -> tuple[type[Exception], ...]:
    """Return what says that memory is full or that a compiled program failed, where there may have been one."""
    errors = sys.modules.get("jax.errors")
    return (MemoryError,) if errors is None else (MemoryError, errors.JaxRuntimeError)


def processes() -> int:
    """Count the processes of this run; there is one until it knows its devices."""
    device = sys.modules.get("fedge.runner.device")
    return 1 if device is None else device.processes()


def _advice(ticker: Ticker | SweepTicker | None) -> str:
    """Say how to go on with a run that was left at once, where that is possible."""
    folder = ticker.out if ticker else None
    if folder is None:
        return ""
    from fedge.runner import record
    from fedge.studies.stored_plan import plan_in, resume_command

    if not record.resumable(folder):
        return ""
    return f"; continue with: {resume_command(folder.parent if plan_in(folder.parent) else folder)}"


def _leave(sentence: str, code: int) -> NoReturn:
    print(f"fedge: {sentence}", file=sys.stderr, flush=True)
    if processes() > 1:  # the others wait for this one, and JAX would wait for them
        os._exit(code)
    raise typer.Exit(code) from None


def gather(pairs: list[str], file: Path | None, seed: int | None) -> dict[str, Any]:
    """Read the keys of a file, then those of the command line, which win."""
    from fedge.experiment.checks import CUSTOM
    from fedge.experiment.config import allowed, parse
    from fedge.experiment.files import read_toml

    given: dict[str, Any] = dict(parse(pairs))
    if seed is not None:
        if "seed" in given:
            raise ConfigError("seed is given twice; use either seed=N or --seed N")
        given["seed"] = seed
    keys = (read_toml(file) if file is not None else {}) | given
    for key in ("partition", "assign"):
        if isinstance(keys.get(key), list):
            raise ConfigError(f"{key} is a list; write it into a file, one integer a line, and give {key}=FILE.txt")
    for key in ("data", "model", "optimizer", "partition", "assign", "task", "init"):
        if str(keys.get(key)).lower() == CUSTOM:
            raise ConfigError(f"{key}=custom means an object passed in from Python; name one of: {allowed(key)}")
    return keys


def keys_of_run(algorithm: str | None, pairs: list[str], file: Path | None, seed: int | None) -> dict[str, Any]:
    """Read the keys of a run whose algorithm may be a word in front of them."""
    words = [*([algorithm] if algorithm and "=" in algorithm else []), *pairs]
    keys = gather(words, file, seed)
    if algorithm and "=" not in algorithm:
        if any(word.startswith("algorithm=") for word in words):
            raise ConfigError(f"the algorithm is given twice; keep {algorithm} or algorithm=…, not both")
        keys["algorithm"] = algorithm
    return keys


def folder_of(out: str | None) -> Path | None:
    """Read the option --out; an empty word would be the current folder, which nobody means by it."""
    if out is None:
        return None
    if not out.strip() or "\0" in out:
        raise ConfigError(f"--out '{brief(out)}' is no name of a folder; give one or leave --out away")
    return Path(out)


def stop_request() -> signals.StopRequest | None:
    """Return the wish to stop that signals can express, where this process was started as a command."""
    return signals.of_this_process()


def figures(results: list[Result], folder: Path, draw: Draw) -> list[Path]:
    """Write the pictures of runs into their folder, if any are wanted; return where they are."""
    if draw is Draw.none:
        return []
    from fedge.view import hierarchy, plots  # matplotlib takes a while to import, and a refused run never needs it

    every = [r.experiment for r in results]
    made = next((e for e in every if e.job.algorithm.has_edges), every[0])
    drawn = {
        "curves": plots.curves(results),
        "labels": hierarchy.label_heatmap(made),
        "topology": hierarchy.topology(made),
    }
    for r in results:
        if graph := hierarchy.edge_graph(r.experiment):
            drawn["graph"] = graph
    return [path for name, figure in drawn.items() for path in plots.save(figure, folder / name)]
