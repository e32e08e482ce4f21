"""An attempt gets a data set from one place, by processes that cannot keep anybody waiting."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from fedge.errors import DataError

PATIENCE = 15.0  # seconds that a place has, and some more for what it has sent:
RATE = 50_000  # bytes a second; at less, CIFAR-10 would take more than an hour
LARGEST = 2**30  # bytes; the largest package has a fifth of that


@dataclass(frozen=True)
class Attempt:
    """An attempt has a temporary folder that everything is downloaded into, and remembers when it began."""

    folder: Path
    began: float = field(default_factory=time.monotonic)

    def download(self, url: str, digest: str) -> None:
        script = Path(__file__).with_name("download.py")
        self.call(sys.executable, "-P", str(script), url, digest, str(self.folder))

    def call(self, *command: str) -> None:
        """Run a command in the folder. At the deadline it is ended, with whatever it has started."""
        if shutil.which(command[0]) is None:
            raise DataError(f"{command[0]} is not installed")
        with tempfile.TemporaryFile() as said:
            child = subprocess.Popen(
                command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said,
                start_new_session=True,
            )  # fmt: skip
            try:
                while child.poll() is None:
                    self._check_deadline()
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        child.wait(0.1)
            finally:
                if child.returncode is None:
                    os.killpg(child.pid, signal.SIGKILL)
                    child.wait()
            if child.returncode:
                said.seek(max(0, said.tell() - 2**14))
                raise DataError(_reason(said.read().decode(errors="replace")))

    def _check_deadline(self) -> None:
        received, seconds = _bytes_in(self.folder), time.monotonic() - self.began
        if received > LARGEST:
            raise DataError(f"it sent more than {LARGEST:,} bytes")
        if seconds > PATIENCE + received / RATE:
            raise DataError(f"{received:,} bytes came in {seconds:.0f} s")


def _bytes_in(folder: Path) -> int:
    total = 0
    for place, _, files in os.walk(folder):
        for file in files:
            with contextlib.suppress(OSError):  # it was there a moment ago
                total += os.lstat(os.path.join(place, file)).st_size
    return total


def _reason(said: str) -> str:
    """Return the line of an error output that says most: one with a reason in it, or else the last."""
    lines = [line.strip() for line in said.splitlines() if line.strip()] or ["no message"]
    return next((line for line in lines if "reason:" in line), lines[-1])
