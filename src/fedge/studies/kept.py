"""Keep the finished runs of a figure while a reproduction is under way, so that one that was stopped goes on.

`FIGURE.runs.jsonl` has a line for each finished run: its keys, the seconds it took, its rows, and a digest of these
with the code, the versions and the hardware that made it. A line whose digest does not hold was cut short, damaged or
made by another program, and its run is made again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedge.runner import files
from fedge.runner.identity import canonical, digest_of
from fedge.runner.rows import Row
from fedge.studies.curve import read_file


class KeptRuns:
    """These are the finished runs of a figure, by their names, and the seconds that all of them took."""

    def __init__(self, path: Path, made_with: Mapping[str, Any]) -> None:
        self._path, self._made_with = path, canonical(made_with)
        self.rows: dict[str, list[Row]] = {}
        self.seconds, self._last = 0.0, time.perf_counter()
        text = read_file(path, "replace") if path.exists() or path.is_symlink() else ""
        for line in text.splitlines():
            self._take(line)
        self._gap = "\n" if text and not text.endswith("\n") else ""  # after a line that was cut short

    def _take(self, line: str) -> None:
        try:
            found = json.loads(line)
            if found["digest"] != self._digest(found["run"], found["seconds"], found["rows"]):
                return
        except (ValueError, TypeError, KeyError, RecursionError):
            return
        self.rows[found["run"]] = found["rows"]
        self.seconds += found["seconds"]

    def add(self, name: str, rows: list[Row]) -> None:
        """Write down a run that has just finished."""
        now = time.perf_counter()
        seconds, self._last = now - self._last, now
        self.seconds += seconds
        self.rows[name] = rows
        line = files.line({"digest": self._digest(name, seconds, rows), "run": name, "seconds": seconds, "rows": rows})
        files.append(self._path, self._gap + line)
        self._gap = ""

    def remove(self) -> None:
        """Forget the runs, which are in the curves of figures now."""
        self._path.unlink(missing_ok=True)

    def _digest(self, name: str, seconds: float, rows: list[Row]) -> str:
        return digest_of(self._made_with, name, canonical([seconds, rows]))
