"""A process dies at every moment: killed before a file operation, it makes neither that nor any other."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Death(BaseException):
    pass


class Reaper:
    """This counts what is about to change under a folder, and strikes before the n-th change."""

    def __init__(self) -> None:
        self.folder, self.left, self.seen, self.armed = "", -1, 0, False
        self.error: BaseException | None = None
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple) -> None:
        if not self.armed or not self._changes(event, arguments):
            return
        self.seen += 1
        if self.error is not None:
            if self.seen == self.left + 1 and event != "os.remove":  # what fails once may be tidied up
                raise self.error
        elif self.left >= 0 and self.seen > self.left:
            raise Death

    def _changes(self, event: str, arguments: tuple) -> bool:
        if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & WRITES):
            return False
        if event not in ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.chmod", "os.link", "os.symlink"):
            return False
        return isinstance(arguments[0], (str, Path)) and str(arguments[0]).startswith(self.folder)

    @contextmanager
    def strikes(self, folder: Path, before: int = -1, error: OSError | None = None):
        """The n-th change (from 0) under the folder is death, or fails with an error; without a number changes are only
        counted."""
        self.folder, self.left, self.seen, self.armed, self.error = str(folder), before, 0, True, error
        try:
            yield
        except Death:
            pass
        finally:
            self.armed = False


reaper = Reaper()
