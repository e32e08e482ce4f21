"""A session is commands as a reader would type them; they are run in an empty folder, and shown with their output.

    ```{session}
    fedge keys lr
    ```

A command that fails shows its sentence and its exit code.
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections.abc import Iterable
from contextlib import chdir
from unittest.mock import patch

from typer.testing import CliRunner

from fedge.cli import app

BLOCK = re.compile(r"^```\{session\}\n(.*?)^```$", re.M | re.S)
WIDTH = "100"


def show(lines: Iterable[str]) -> str:
    """Return a block with each command, what it printed, and the exit code where that is not 0."""
    shown = []
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        for line in lines:
            output, code = call(line)
            shown += [f"$ {line}", *output.splitlines(), *([f"(exit code {code})"] if code else []), ""]
    return "\n".join(["```{code-block} text", ":class: session", "", *shown[:-1], "```"])


def call(line: str) -> tuple[str, int]:
    """Call one command in this process."""
    words = shlex.split(line)
    assert words[0] == "fedge", line
    with patch.dict(os.environ, {"COLUMNS": WIDTH, "TERMINAL_WIDTH": WIDTH}):
        done = CliRunner().invoke(app, words[1:])
    return done.output, done.exit_code
