"""Keys for one time lie in a folder that its maker removes; if that was killed, the processes that it started do.

They are told which folder it is, and remove no other: what is in it says the same token, which nobody can guess.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

WITH_PARENT = "--with-parent"  # how they are told
PREFIX, MARK = "fedge-fleet-", ".temporary"


class Temporary(NamedTuple):
    """This is a folder that was made for one time, and the token in it."""

    folder: Path
    token: str

    def __str__(self) -> str:
        return f"{self.token}:{self.folder}"

    @classmethod
    def of(cls, words: str) -> Temporary:
        """Read what a process was told."""
        token, _, folder = words.partition(":")
        return cls(Path(folder), token)

    def remove(self) -> None:
        """Remove the folder with all in it, if it is the one that was made."""
        if not self.token or not self.folder.name.startswith(PREFIX):
            return
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if (self.folder / MARK).read_text() == self.token:
                shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def temporary() -> Iterator[Temporary]:
    """Make a folder for this time only."""
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as folder:
        made = Temporary(Path(folder), secrets.token_hex(16))
        (made.folder / MARK).write_text(made.token)
        yield made
