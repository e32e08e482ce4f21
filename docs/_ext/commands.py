"""Reference pages as Markdown: commands from the parser, keys from the models, algorithms from their files."""

from __future__ import annotations

import inspect
import pkgutil
from importlib import import_module
from typing import Any

import fedge.updates
from fedge import errors
from fedge.algorithms import ALGORITHMS
from fedge.cli import COMMANDS, load
from fedge.experiment.keys import EVERY_RUN, Key, every_key

COMMON = "--help"


def commands() -> str:
    """Describe every command: how it is called, what it does, what it takes."""
    return "\n\n".join(part for name in COMMANDS for part in _command(f"fedge {name}", load(name)))


def _command(name: str, command: Any, depth: int = 2) -> list[str]:
    heading = f"{'#' * depth} `{name}`"
    if own := getattr(command, "commands", None):
        within = [part for word, inner in sorted(own.items()) for part in _command(f"{name} {word}", inner, depth + 1)]
        return [heading, inspect.cleandoc(command.help or ""), *within]
    context = command.context_class(command, info_name=name)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    rows = [p.get_help_record(context) for p in command.params]
    rows = [row for row in rows if row and row[0] != COMMON]
    table = _table(["argument or option", "what it is"], [[_code(words), _plain(what)] for words, what in rows])
    return [heading, f"```text\n{usage}\n```", inspect.cleandoc(command.help or ""), table]


def keys() -> str:
    """Describe every key of a run, under a heading for each reader."""
    groups: dict[str, list[Key]] = {}
    for key in every_key():
        groups.setdefault(key.read_by, []).append(key)
    parts = []
    for reader, found in groups.items():
        rows = [[f"`{k.name}`", _default(k), _plain(k.takes), _plain(k.meaning)] for k in found]
        title = "Every run" if reader == EVERY_RUN else reader[0].upper() + reader[1:]
        parts += [f"## {title}", _table(["key", "unless given", "takes", "meaning"], rows)]
    return "\n\n".join(parts)


def _default(key: Key) -> str:
    if key.default in (None, ""):
        shown = "–"
    else:
        word = str(key.default).lower() if isinstance(key.default, bool) else key.default
        shown = _code(f"{word:.6g}" if isinstance(word, float) else f"{word}")
    others = "".join(f"<br>{algorithm}: `{value}`" for algorithm, value in key.defaults.items())
    return shown + others


def algorithms() -> str:
    """Show the head of every algorithm's file: its paper, its equations, its symbols, its departures."""
    parts, seen = [], set()
    for name, entry in ALGORITHMS.items():
        module = inspect.getmodule(entry.factory)
        if module is None or module.__name__ in seen:
            continue
        seen.add(module.__name__)
        names = [n for n, e in ALGORITHMS.items() if inspect.getmodule(e.factory) is module]
        also = f"Names: {', '.join(f'`{n}`{_with(n)}' for n in names)}."
        parts += [f"## {name}", also, f"```text\n{inspect.cleandoc(module.__doc__ or '')}\n```"]
    return "\n\n".join(parts)


def _with(name: str) -> str:
    defaults = ALGORITHMS[name].defaults
    return f" (with {', '.join(f'`{k}={v}`' for k, v in defaults.items())})" if defaults else ""


def updates() -> str:
    """Show the head of every file of updates that states an equation or a paper."""
    parts = []
    for module in sorted(m.name for m in pkgutil.iter_modules(fedge.updates.__path__)):
        text = inspect.cleandoc(import_module(f"fedge.updates.{module}").__doc__ or "")
        if "\n\n    " in text:  # an equation
            parts += [f"### `{module}.py`", f"```text\n{text}\n```"]
    return "\n\n".join(parts)


def exit_codes() -> str:
    """Show the tree of errors with their exit codes."""
    return f"```text\n{inspect.cleandoc(errors.__doc__ or '')}\n```"


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _plain(text: str) -> str:
    """Keep a text within its cell: | would end it, < would begin a tag."""
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")


def _table(titles: list[str], rows: list[list[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) if rows else ""
