"""What a client or a cell remembers is kept turn by turn: a run that goes back a few rounds finds what was known then.

A file for each turn holds what was remembered after it. Of earlier global rounds only the last turn's stays, and of so
many rounds as a leader may have to go back.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fedge.errors import FleetError
from fedge.fleet.work import Numbers
from fedge.runner import checkpoint, files
from fedge.runner.checkpoint import DamagedError

Rows = Mapping[str, Numbers]  # what it is → path → numbers
SUFFIX = ".safetensors"
log = logging.getLogger(__name__)


class Keeping(NamedTuple):
    """This says where a process keeps what its nodes remember, and of which run it is."""

    folder: Path | None = None  # None: in memory alone
    identity: str = ""


class Entry(NamedTuple):
    turn: int
    rows: Rows


class Entries:
    """These are what one node remembered after its turns, of which `each` make a global round."""

    def __init__(self, place: Keeping, name: str, each: int, rounds: int) -> None:
        self._folder = None if place.folder is None else place.folder / name
        self._identity, self._each, self._rounds = place.identity, each, rounds
        self._held: dict[int, Rows] = {}  # all where there are no files, else the newest
        self._turns: list[int] = []
        if self._folder is not None:
            try:
                files.make_folder(self._folder)
            except OSError as problem:
                raise FleetError(f"{name} cannot keep its memory in {self._folder} ({problem.strerror}); choose "
                                 "another place with --out") from None  # fmt: skip
            self._turns = sorted(int(f.stem) for f in self._folder.glob(f"*{SUFFIX}") if f.stem.isdecimal())
            self._newest()  # what belongs to another run is refused at once

    def before(self, turn: int, last: int | None = None) -> Entry | None:
        """Return what was remembered before a turn; later ones are undone, and those before it but after `last`.

        What was remembered after this very turn stays until something else is: who is killed meanwhile may need it.
        """
        self._drop([t for t in self._turns if t > turn or (last is not None and last < t < turn)])
        return self._newest(turn)

    def _newest(self, turn: int | None = None) -> Entry | None:
        """Return the last that can be read, before some turn if that is said; what cannot be is forgotten."""
        for newest in reversed([t for t in self._turns if turn is None or t < turn]):
            if newest not in self._held and (rows := self._read(newest)) is not None:
                self._held = {newest: rows}
            if newest in self._held:
                return Entry(newest, self._held[newest])
        return None

    def keep(self, turn: int, rows: Rows) -> None:
        """Remember this after a turn, durably where there is a folder."""
        if self._folder is not None:
            arrays = {f"{kind}/{path}": w for kind, own in rows.items() for path, w in own.items()}
            checkpoint.save_arrays(self._file(turn), arrays, {"identity": self._identity})
            self._held.clear()
        self._held[turn] = rows
        self._turns = sorted({*self._turns, turn})
        lasts = {t // self._each: t for t in self._turns}
        wanted = {lasts[n] for n in sorted(lasts)[-1 - self._rounds :]}
        self._drop([t for t in self._turns if t not in wanted and t // self._each != turn // self._each])

    def _read(self, turn: int) -> Rows | None:
        """Read what was written; a file that is damaged is removed, and one of another run refused."""
        try:
            arrays, notes, _ = checkpoint.read_arrays(self._file(turn))
        except DamagedError as problem:
            log.warning("%s; what it held is forgotten", problem)
            self._drop([turn])
            return None
        if notes.get("identity") != self._identity:
            raise FleetError(f"{self._file(turn)} belongs to another run; remove {self._folder}, or choose another "
                             "place with --out")  # fmt: skip
        rows: dict[str, dict[str, Any]] = {}
        for name, w in arrays.items():
            kind, _, path = name.partition("/")
            rows.setdefault(kind, {})[path] = w
        return rows

    def _file(self, turn: int) -> Path:
        assert self._folder is not None
        return self._folder / f"{turn}{SUFFIX}"

    def _drop(self, turns: list[int]) -> None:
        for turn in turns:
            self._held.pop(turn, None)
            if self._folder is not None:
                self._file(turn).unlink(missing_ok=True)
        self._turns = [turn for turn in self._turns if turn not in turns]
