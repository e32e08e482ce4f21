"""The command line parses words, calls what they name and sets the exit code; each group of commands has a file."""

from __future__ import annotations

import logging
import os
import sys
from typing import Annotated, Any

import typer
from rich.console import Console

from fedge import __version__
from fedge.algorithms import ALGORITHMS
from fedge.cli import cost, data, reproduce, run, show
from fedge.cli.common import HINT, guarded
from fedge.errors import ConfigError, RunError, brief
from fedge.experiment.config import all_fields
from fedge.view import terminal

Misuse: Any = typer.BadParameter.__mro__[2]  # what typer raises for words it cannot read, whichever parser it carries


class Commands(typer.core.TyperGroup):
    """These are the commands. Words that they cannot read are answered with one sentence too."""

    def main(self, args: Any = None, **extra: Any) -> Any:  # type: ignore[override]  # for what calls it here
        words = list(sys.argv[1:] if args is None else args)
        try:
            code = super().main(words, **extra | {"standalone_mode": False})
        except Misuse as problem:
            if not str(problem) or type(problem).__name__ == "NoArgsIsHelpError":
                problem.show()  # the help, to whoever gave no words at all
            else:
                print(f"fedge: {answer(problem.format_message(), words)}", file=sys.stderr)
            code = ConfigError.exit_code
        except typer.Abort:
            code = 130
        sys.exit(code if isinstance(code, int) else 0)


def answer(complaint: str, words: list[str]) -> str:
    """Say what is wrong with the words, and what to write where a key or an algorithm was meant."""
    for word, value in zip(words, [*words[1:], "VALUE"], strict=True):
        option, equals, given = word.partition("=")
        key = option.lstrip("-").replace("-", "_")
        if f"No such option: {option}" in complaint and key in all_fields():
            return f"{option} is no option but a key; write {key}={brief(given if equals else value)}"
        if word.lower() in ALGORITHMS and complaint.startswith("No such command"):
            return f"{word} is an algorithm; write fedge run {word}"
    return " ".join(complaint.split())


app = typer.Typer(
    cls=Commands, no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
)
app.command("run", epilog=HINT)(run.run_command)
app.command("compare", epilog=HINT)(run.compare_command)
app.command("reproduce")(reproduce.reproduce_command)
app.command("show")(show.show_command)
app.add_typer(data.app, name="data")
app.add_typer(cost.app, name="cost")


@app.command("keys")
def keys_command() -> None:
    """List every key of a run: its default, what it takes, what it means."""
    with guarded():
        Console().print(terminal.keys_table())


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
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal without τ gets a ? for it
    logging.basicConfig(format="fedge: %(message)s")
    logging.getLogger("fedge").setLevel(logging.INFO)
    try:
        app()
    except SystemExit as leaving:
        sys.exit(flush_output(leaving.code))


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
