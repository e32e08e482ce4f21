"""These are the errors that fedge raises on purpose.

    FedgeError                  exit code 1
    ├── ConfigError             exit code 2: a key, a value or a combination that cannot be
    ├── DataError               exit code 3: a data set is missing, damaged or cannot be fetched
    ├── RunError                exit code 4: a run folder, a checkpoint or a resume that cannot be used
    ├── DivergenceError         exit code 5: the loss or a weight of a run is no longer a finite number
    ├── FleetError              exit code 6: a node, a certificate or a message that a fleet cannot go on with
    └── StoppedError            exit code 128 + the signal that asked for it (Ctrl-C: 130)

Each message is one sentence that says what was given, what is allowed and what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class FedgeError(Exception):
    exit_code = 1


class ConfigError(FedgeError):
    exit_code = 2


class DataError(FedgeError):
    exit_code = 3


class RunError(FedgeError):
    exit_code = 4


class DivergenceError(FedgeError):
    """A run diverged; `result` is what it came to until then."""

    exit_code = 5

    def __init__(self, sentence: str, result: Any = None) -> None:
        super().__init__(sentence)
        self.result = result


class FleetError(FedgeError):
    exit_code = 6


class StoppedError(FedgeError):
    """A run was asked to stop, and did; `signal` is the number of the one that asked, `folder` that of a plan."""

    def __init__(self, sentence: str, signal: int = 2, folder: Path | None = None) -> None:
        super().__init__(sentence)
        self.exit_code, self.folder = 128 + signal, folder

    def continued_by(self, command: str) -> StoppedError:
        """Return the same with the command that goes on with all that was begun, where there is something to go on."""
        said, _, saved = str(self).partition("; continue with: ")
        return StoppedError(said + (f"; continue with: {command}" if saved else ""), self.exit_code - 128)


def brief(given: object, most: int = 100) -> str:
    """Show what was given within one line: its first characters, with a number for each that cannot be shown."""
    try:
        text = str(given)
    except (ValueError, RecursionError):  # an integer of thousands of digits, a list in a list in a list …
        return f"({type(given).__name__} too long to show)"
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[:most])
    return shown if len(text) <= most else f"{shown}…"


def suggestion(given: str, allowed: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for the nearest allowed word, or nothing when none is near."""
    near = difflib.get_close_matches(given[:100], list(allowed), n=1, cutoff=0.5)
    return f"; did you mean '{near[0]}'?" if near else ""


def unknown(kind: str, given: str, allowed: Iterable[str]) -> str:
    """Write one sentence about a name that is not in a list of names."""
    names = sorted(allowed)
    return f"unknown {kind} '{brief(given)}'; allowed: {', '.join(names)}{suggestion(given, names)}"
