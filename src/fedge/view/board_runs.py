"""The runs in a folder, as the board lists them: few words of each, read again only when its files have changed.

No file is looked at more often than once a second, however many pages are open. What is read may be of any kind, half
written or somebody else's: a run that cannot be read is a row with a sentence.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedge.errors import RunError, brief
from fedge.runner.inspect import state_of
from fedge.runner.record import LEDGER, METRICS, RESULT, RUN, RUNNING, SETTING, read_about
from fedge.runner.rows import Row, tested
from fedge.studies.stored_plan import RUNS, plan_in
from fedge.view.board_plans import Plans
from fedge.view.numbers import is_share, words
from fedge.view.page_data import changed_keys, damage, is_number, page_data, runs_in, selection

SECOND = 1.0  # between two looks at the same file
SHARE = 0.1  # of the time that may go into looking at the list
FIRST = 50  # runs that a reader sees before the others have been read
POINTS = 16  # of a sparkline
WHOLE = 2**20  # bytes of metrics up to which a sparkline shows all of a run
TAIL = 2**16  # bytes that are read of a longer one
LOOKED_AT = (RUN, METRICS, SETTING, LEDGER, RESULT)
Look = tuple[int, int] | None  # when a file was changed last, and its size


class Looks:
    """This looks at files for everybody, and remembers for a second what it saw."""

    def __init__(self) -> None:
        self._seen: dict[Path, tuple[float, Look]] = {}

    def at(self, path: Path) -> Look:
        when, found = self._seen.get(path, (-SECOND, None))
        if time.monotonic() - when >= SECOND:
            try:
                status = path.stat()
                found = (status.st_mtime_ns, status.st_size)
            except OSError:
                found = None
            self._seen[path] = (time.monotonic(), found)
        return found

    def at_run(self, folder: Path) -> tuple[Look, ...]:
        return tuple(self.at(folder / name) for name in LOOKED_AT)


class Known(NamedTuple):
    """This is what was found of a run when its files were last read."""

    look: tuple[Look, ...]
    row: dict[str, Any]
    about: Mapping[str, Any]


class Listing:
    """This lists the runs below a folder, and finds the places of those that a reader names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.looks = Looks()
        self._known: dict[Path, Known] = {}
        self._plans = Plans(folder)
        self._places: dict[str, Path] = {}  # runs and studies by name; nothing else is ever opened
        self._rows: list[dict[str, Any]] = []
        self._some = threading.Event()  # the newest runs have been read
        self._again = 0.0  # when the list may be looked at again
        self._one = threading.Lock()

    def start(self) -> None:
        """Begin to read, before somebody asks."""
        threading.Thread(target=self.rows, daemon=True).start()

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each run, the newest first."""
        with self._one:
            if (began := time.monotonic()) >= self._again:
                try:
                    self._rows = self._list()
                finally:
                    self._some.set()
                now = time.monotonic()
                self._again = now + max(SECOND, (now - began) / SHARE)
            return self._rows

    def latest(self) -> list[dict[str, Any]]:
        """Return the rows of the last look, at first those of the newest runs, so that nobody waits for all of them."""
        self._some.wait()
        return self._rows

    def places(self, names: Sequence[str]) -> list[Path]:
        """Return where runs and studies of these names lie."""
        self.rows()
        if missing := [name for name in names if name not in self._places]:
            raise RunError(f"no run is called '{brief(missing[0])}' in {self.folder}; go back to the list")
        return [self._places[name] for name in names]

    def data(self, names: Sequence[str]) -> dict[str, Any]:
        """Return what a page shows of a run, of a study, or of several of them laid over one another."""
        places = self.places(names)
        if len(places) == 1:
            return page_data(places[0])
        runs = dict.fromkeys(run for place in places for run in runs_in(place))
        return selection(list(runs), "selection", self.folder)

    def look(self, names: Sequence[str]) -> tuple[Any, ...]:
        """Return something that changes when there is more to see of these."""
        places = self.places(names)
        plans = [self._plans.look(place, self.looks.at) for place in places]
        runs = [run for place in places for run in runs_in(place)]
        return (*plans, *((run, self.looks.at_run(run), self._known[run].row["state"] if run in self._known else None)
                          for run in runs))  # fmt: skip

    def _list(self) -> list[dict[str, Any]]:
        runs, known = runs_in(self.folder), dict[Path, Known]()
        for run in sorted(runs, key=lambda run: self.looks.at(run / RUN) or (0, 0), reverse=True):
            known[run] = self._look_again(run)
            if len(known) == FIRST and not self._some.is_set():
                self._rows = self._in_order(known)
                self._some.set()
        self._known = known
        self._plans.read(self.looks.at, self.name)
        return self._in_order(known)

    def _in_order(self, known: Mapping[Path, Known]) -> list[dict[str, Any]]:
        runs = list(known)
        parents = {run.parent for run in runs if run != self.folder}
        studies = {parent: self.name(parent) for parent in parents if plan_in(parent) is not None}
        self._places = {name: parent for parent, name in studies.items()} | {self.name(run): run for run in runs}
        plans = {plan: row["name"] for plan, row in self._plans.rows.items()}
        self._places |= {name: plan for plan, name in plans.items()}
        studies |= {plan / RUNS: name for plan, name in plans.items()}
        rows = [found.row | {"study": studies.get(run.parent)} for run, found in known.items()]
        return sorted([*rows, *self._plans.rows.values()], key=lambda row: row["begun"] or "", reverse=True)

    def name(self, place: Path) -> str:
        return place.relative_to(self.folder).as_posix() if place != self.folder else self.folder.resolve().name

    def _look_again(self, run: Path) -> Known:
        look, known = (self.looks.at(run / RUN), self.looks.at(run / METRICS)), self._known.get(run)
        if known is None or known.look != look:
            return self._read(run, look)
        if known.about.get("state") == RUNNING:  # its process may have died without a word
            known.row["state"] = state_of(run, known.about)
        return known

    def _read(self, run: Path, look: tuple[Look, ...]) -> Known:
        row: dict[str, Any] = {
            "name": self.name(run), "state": "damaged", "algorithm": None, "differs": [], "metric": None, "value": None,
            "share": False, "spark": [], "round": None, "rounds": None, "begun": None, "problem": None,
        }  # fmt: skip
        about: Mapping[str, Any] = {}
        try:
            about = read_about(run)
            config = about["config"]
            row |= {
                "state": state_of(run, about),
                "algorithm": str(config.get("algorithm")),
                "differs": [f"{change['key']}={change['value']}"[:80] for change in changed_keys(config)][:40],
                "rounds": config.get("rounds") if isinstance(config.get("rounds"), int) else None,
                "begun": about.get("begun") if isinstance(about.get("begun"), str) else None,
            }
            row |= curve(sampled(run / METRICS), run / METRICS)
        except Exception as problem:  # whatever a run's files hold, the others are listed
            row |= {"state": "damaged", "problem": damage(run, problem)}
        return Known(look, row, about)


def sampled(path: Path) -> list[bytes]:
    """Return some lines of a run's metrics, the last whole one with them."""
    if not path.is_file():  # not there yet; or a pipe, which would be waited for
        return []
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > WHOLE:
                file.seek(size - TAIL)
                file.readline()
            lines = file.read(WHOLE).split(b"\n")[:-1]  # what follows the last line's end is still being written
    except OSError:
        return []
    count = min(POINTS, len(lines))
    return [lines[(len(lines) - 1) * n // max(count - 1, 1)] for n in range(count)]


def curve(lines: Sequence[bytes], path: Path) -> dict[str, Any]:
    """Return how the main metric went, and what it came to; of each line no more is checked than is shown of it."""
    try:
        last: Row = json.loads(lines[-1]) if lines else {}
        main = next(iter(tested(last)), None) if lines else None
        if main is None:
            return {}
        numbers = [value if is_number(value := number_in(line, main)) else None for line in lines]
        number = int(last["round"])
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        raise RunError(f"{path} is damaged (a line is no row of a run); restore it") from None
    return {"metric": words(main), "value": numbers[-1], "share": is_share(main), "spark": numbers, "round": number}


def number_in(line: bytes, name: str) -> Any:
    """Read one number of a row; only where it does not stand there plainly is all of the row read."""
    found = re.findall(rb'"%s": ?(-?\d+(?:\.\d+)?(?:e[-+]?\d+)?)[,}]' % re.escape(name.encode()), line)
    return float(found[0]) if len(found) == 1 else json.loads(line).get(name)
