"""What happens at a node as lines of JSON: when, where, in which round, what.

    {"time": "2026-11-19T20:50:01.123Z", "node": "edge-1", "level": "warning", "round": 3, "event": "missing",
     "message": "edge 1 goes on without client 4 in round 3", "peer": "client-4"}

Whatever the program logs becomes a line. `note` also names the event, and gives values that a program can read.
"""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedge.net.names import Name

EVENT, VALUES = "fedge_event", "fedge_values"
PLAIN = "log"  # the event of a line that names none
log, quiet = logging.getLogger("fedge.fleet"), logging.getLogger("fedge-events")
quiet.propagate, quiet.level = False, logging.INFO


def note(event: str, sentence: str, *, level: int = logging.INFO, round: int | None = None, **values: Any) -> None:
    """Log what happened in a sentence, and as an event with its values; below a warning it is for files alone."""
    known = values if round is None else {"round": round, **values}
    (log if level >= logging.WARNING else quiet).log(level, "%s", sentence, extra={EVENT: event, VALUES: known})


class LogFile(logging.Handler):
    """This handler appends a line to a file, whole even where several processes write to one."""

    def __init__(self, path: Path, node: Name) -> None:
        super().__init__()
        self._node = str(node)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            os.write(self._file, (json.dumps(self.line(record), default=str) + "\n").encode())
        except OSError:  # a disk that is full is no reason to end a run; logging says so on standard error
            self.handleError(record)

    def line(self, record: logging.LogRecord) -> dict[str, Any]:
        """Return what is written of a record."""
        values = dict(getattr(record, VALUES, {}))
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        return {
            "time": moment.replace("+00:00", "Z"),
            "node": self._node,
            "level": record.levelname.lower(),
            "round": values.pop("round", None),
            "event": getattr(record, EVENT, PLAIN),
            "message": record.getMessage(),
            **{key: str(value) if isinstance(value, Name) else value for key, value in values.items()},
        }

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        super().close()
