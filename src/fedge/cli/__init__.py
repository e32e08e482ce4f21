"""The command line parses words, calls what they name and sets the exit code; each group of commands has a file."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import sys
from typing import Annotated, Any, NamedTuple

import typer

from fedge import __version__
from fedge.cli import plain
from fedge.errors import ConfigError, RunError

Misuse: Any = typer.BadParameter.__mro__[2]  # what typer raises for words it cannot read, whichever parser it carries


class Place(NamedTuple):
    """This says where a command stands: its module is imported when the command is called."""

    module: str  # of this room; its `app` has the command, or is the group of commands of this name
    summary: str  # the line that `fedge --help` prints


COMMANDS = {
    "run": Place("run", "Run one algorithm."),
    "compare": Place("run", "Run several algorithms under the same conditions."),
    "sweep": Place("sweep", "Run a grid of settings over seeds: a table with intervals."),
    "plan": Place("plan", "Find the algorithm and keys that reach a target at the least cost."),
    "reproduce": Place("reproduce", "Reproduce a paper's figures."),
    "show": Place("show", "Say what was run in a folder, and what came of it."),
    "list": Place("runs", "List the runs in a folder."),
    "plot": Place("runs", "Lay runs over one another in a figure."),
    "export": Place("runs", "Hand runs on: CSV, LaTeX, figures, trackers."),
    "board": Place("board", "Look at runs in a browser, also while they train."),
    "keys": Place("keys", "List the keys of a run and what they mean."),
    "data": Place("data", "List data sets, get them, see who would hold what."),
    "fleet": Place("fleet", "Run an experiment on machines: certificates, manifests, nodes."),
    "network": Place("network", "A network as measured: make an example, look at one."),
    "cost": Place("cost", "What a run would cost, before it is run."),
    "theory": Place("theory", "What the papers' bounds say of a run, beside what was measured."),
}


class Commands(typer.core.TyperGroup):
    """These are the commands. Words that they cannot read are answered with one sentence too."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        for name, place in COMMANDS.items():
            self.add_command(typer.core.TyperCommand(name, help=place.summary), name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Put the command itself in the place of its line in the help."""
        name, found, rest = super().resolve_command(ctx, args)
        return name, load(name) if name in COMMANDS else found, rest

    def main(self, args: Any = None, **extra: Any) -> Any:  # type: ignore[override]  # for what calls it here
        words = list(sys.argv[1:] if args is None else args)
        try:
            code = super().main(words, **extra | {"standalone_mode": False})
        except Misuse as problem:
            if not str(problem) or type(problem).__name__ == "NoArgsIsHelpError":
                problem.show()  # the help, to whoever gave no words at all
            else:
                _explain(problem, words)
            code = ConfigError.exit_code
        except typer.Abort:
            code = 130
        sys.exit(code if isinstance(code, int) else 0)


def _explain(problem: Any, words: list[str]) -> None:
    """Say in one sentence what is wrong with words that the parser cannot read."""
    from fedge.cli.misread import answer

    with contextlib.suppress(typer.Exit):  # what the sentence is made of could not be imported, which was said
        print(f"fedge: {answer(problem, words)}", file=sys.stderr)


def load(name: str) -> Any:
    """Import a command."""
    from fedge.cli.common import importing

    with importing():
        module = importlib.import_module(f"fedge.cli.{COMMANDS[name].module}")
    module.app.rich_markup_mode = app.rich_markup_mode
    group = typer.main.get_group(module.app)
    return group.commands.get(name, group)


app = typer.Typer(cls=Commands, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)


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
    if sys.stdout is None:
        print("fedge: standard output is closed; send it to a file, or to /dev/null", file=sys.stderr)
        sys.exit(RunError.exit_code)
    plain.register()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors=plain.ERRORS)  # type: ignore[union-attr]
    logging.basicConfig(format="fedge: %(message)s")
    logging.getLogger("fedge").setLevel(logging.INFO)
    try:
        app(prog_name="fedge")
    except SystemExit as leaving:
        sys.exit(flush_output(leaving.code))
    except OSError as problem:  # what `guarded` does not see: help that finds no room, or a sentence on standard error
        with contextlib.suppress(OSError):
            if not isinstance(problem, BrokenPipeError):
                print(f"fedge: cannot write to standard output: {problem.strerror}", file=sys.stderr)
        sys.exit(flush_output(1 if isinstance(problem, BrokenPipeError) else RunError.exit_code))


def flush_output(code: Any) -> Any:
    """Write out what is left of the output; the exit code says so where that cannot be done."""
    output = sys.stdout or sys.__stdout__  # the first is none where its reader has gone
    try:
        if output is not None:
            output.flush()
    except OSError as problem:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python would try, and complain, once more
        if not isinstance(problem, BrokenPipeError):  # a reader that has gone has read what it wanted
            print(f"fedge: cannot write to standard output: {problem.strerror}", file=sys.stderr)
        return code or (1 if isinstance(problem, BrokenPipeError) else RunError.exit_code)
    return code
