"""What an update gives to clients and cells to remember lies with those whose it is, and is never sent whole.

control     edge → client: the cell's row of a correction, before a start, once in each edge round or global round
origin      edge → client: the model that the cell began the global round with, where no start has brought it

A client keeps its own row and what codecs took off, its edge the cell's row and whose turns have counted; under FedAvg
the cloud does, which has the row in its checkpoint. A start says which of a client's turns counted last, so that what
it learnt in a later one is undone; and from which turn on its cell's row is known, so that all of a cell begin anew
where their edge has lost that.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fedge.core import tree
from fedge.core.contract import Direct
from fedge.core.tree import Weights
from fedge.core.update import Kept, Memory
from fedge.experiment.build import Experiment
from fedge.fleet.entries import Entries, Entry, Keeping
from fedge.fleet.work import Numbers, Work, on_host
from fedge.net.names import Name, client
from fedge.net.wire import Facts, Message, is_number

CONTROL, ORIGIN = "control", "origin"
CHANGE = "change:"  # before the numbers of how a client's row has changed
COUNTED, MISSED, SINCE = "counted", "missed", "since"  # facts of a start: turns
SHIFT, LOST, BEGAN, ROW, MINE, TURNS = "shift", "lost", "began", "row", "mine", "turns"
NEVER = -1
log = logging.getLogger(__name__)


def without_rows(made: Experiment) -> Experiment:
    """Return an experiment whose state has no rows of clients, nor of cells where edges keep them."""
    algorithm = made.job.algorithm
    if not algorithm.way.keeps:
        return made
    flat = isinstance(algorithm.exchange, Direct)

    @jax.jit
    def start(weights: Weights) -> Kept:
        kept = algorithm.start(weights)
        return Kept(kept.state, Memory({}, {}, kept.memory.control if flat else {}))

    return replace(made, job=replace(made.job, algorithm=replace(algorithm, start=start)))


def entries_of(work: Work, place: Keeping, name: Name, each: int) -> Entries:
    """Open what a node remembers; a leader may go back to the older of its two checkpoints."""
    return Entries(place, str(name), each, 2 * work.made.config.checkpoint_every + 1)


def turn_of(work: Work, message: Message) -> int:
    return message.round * work.schedule.edge_rounds + message.edge_round


def row_of(work: Work, cell: int) -> Numbers:
    """Return a row before anything was learnt."""
    whole = work.stack_of(cell).weights
    return {p: np.zeros(w.shape, w.dtype) for p, w in whole.items() if p in work.task.trainable and work.at_client(p)}


def stepped(work: Work, name: str, function: Any, *rows: Any, steps: int) -> Numbers:
    """Let a correction learn from how far something moved in so many steps."""
    size = jnp.asarray(steps * work.job.lr, work.task.dtype)
    return {path: np.asarray(w) for path, w in work.program(name, lambda: function)(*rows, size).items()}


class ClientMemory:
    """This is what one client remembers."""

    def __init__(self, work: Work, cell: int, number: int, place: Keeping) -> None:
        self._work, self._empty, self._name = work, row_of(work, cell), client(number)
        self._entries = entries_of(work, place, self._name, work.schedule.edge_rounds)

    def recall(self, start: Message, model: Numbers) -> Memory:
        """Return what the client knows as it is asked to train from a model."""
        work, way, turn = self._work, self._work.way, turn_of(self._work, start)
        counted, missed, since = (_turn(start.facts.get(key)) for key in (COUNTED, MISSED, SINCE))
        entry = self._entries.before(turn, counted if missed is None else missed - 1)
        if counted is not None and counted < turn and (entry is None or entry.turn < counted):
            log.warning("%s has lost its memory of round %d; it goes on with what it still knows", self._name.words,
                        counted // work.schedule.edge_rounds + 1)  # fmt: skip
        if entry is not None and since is not None and entry.turn < since:
            entry = None
        rows = {} if entry is None else entry.rows
        shift = self._shift(entry, turn, model) if way.correction is not None else {}
        return Memory(shift, rows.get(LOST, self._empty) if way.feeds_back else {}, {})

    def _shift(self, entry: Entry | None, turn: int, model: Numbers) -> Weights:
        """Return the client's row of a correction; the model that came is the average that it learns from."""
        work, correction = self._work, self._work.way.correction
        assert correction is not None
        each = work.schedule.edge_rounds
        if entry is None or not (correction.persistent or entry.turn // each == turn // each):
            return self._empty
        shift = entry.rows[SHIFT]
        if not correction.follows:
            return shift
        if entry.turn != turn - 1:
            return self._empty  # it has missed an average
        moved = tree.subtract({path: model[path] for path in shift}, entry.rows[BEGAN])
        return stepped(work, "after edge", correction.after_edge, shift, moved, steps=work.schedule.local_steps)

    def keep(self, start: Message, model: Numbers, memory: Memory) -> None:
        """Remember what the client knows after it has trained from a model."""
        correction = self._work.way.correction
        rows = {kind: on_host(own) for kind, own in ((SHIFT, memory.shift), (LOST, memory.lost)) if own}
        if correction is not None and correction.follows:
            rows[BEGAN] = {path: np.asarray(model[path]) for path in memory.shift}
        if all(np.isfinite(w).all() for own in rows.values() for w in own.values()):  # else its update is refused too
            self._entries.keep(turn_of(self._work, start), rows)


class CellMemory:
    """This is a cell's row of a correction, and which turns of its clients have counted."""

    def __init__(self, work: Work, cell: int, name: Name, place: Keeping | None) -> None:
        self._work, self._cell, self._name = work, cell, name
        self.row: Numbers = dict(row_of(work, cell)) if work.way.correction is not None else {}
        self._entries = entries_of(work, place, name, 1) if place is not None and work.way.keeps else None
        self._has_row = bool(self.row) and work.algorithm.has_edges  # else it is in the leader's checkpoint
        self._clients = [int(i) for i in work.topology.roster[cell]]
        self._counted: dict[int, int] = {}  # client → its last turn that counted
        self._missed: dict[int, int] = {}  # client → its first turn after that which did not
        self._since = 0

    def begin(self, index: int, model: Numbers, merged: int | None) -> None:
        """Take up what was known before a global round; `merged` is the last whose model of this cell has counted."""
        work, first = self._work, index * self._work.schedule.edge_rounds
        self._counted, self._missed = (
            {number: turn for number, turn in table.items() if turn < first} for table in (self._counted, self._missed)
        )
        if self._entries is None:
            return
        entry, correction = self._entries.before(index), work.way.correction
        if entry is not None and (turns := entry.rows.get(TURNS)) is not None:
            self._counted, self._missed = (from_table(turns[key], self._clients) for key in (COUNTED, MISSED))
            self._since = int(turns[SINCE][0])
        if not self._has_row or correction is None:
            return
        self.row = dict(row_of(work, self._cell) if entry is None else entry.rows[ROW])
        self._since = first if entry is None else self._since
        if entry is None and index:
            log.warning("%s knows nothing of its cell's corrections before round %d; they begin anew", self._name.words,
                        index + 1)  # fmt: skip
        counts = merged is None or merged == index - 1
        if entry is not None and MINE in entry.rows and entry.turn == index - 1 and counts:
            apart = tree.subtract(entry.rows[MINE], {path: model[path] for path in entry.rows[MINE]})
            self.row = stepped(work, "after cloud", correction.cell_after_cloud, self.row, apart,
                               steps=work.schedule.period)  # fmt: skip

    def facts(self, number: int) -> Facts:
        """Return what a start tells a client of its turns."""
        if not self._work.way.keeps:
            return {}
        return {SINCE: self._since, COUNTED: self._counted.get(number), MISSED: self._missed.get(number)}

    def learn(self, turn: int, asked: list[int], answers: dict[int, Message]) -> None:
        """Note whose turn has counted, and learn from how their rows have changed."""
        for number in asked:
            if number in answers:
                self._counted[number] = turn
                self._missed.pop(number, None)
            else:
                self._missed.setdefault(number, turn)
        correction, topology = self._work.way.correction, self._work.topology
        if correction is None or not correction.up:
            return
        total: Numbers = {path: np.zeros_like(w) for path, w in self.row.items()}
        for number, message in answers.items():
            part = float(topology.weight[number] / topology.cell_weight[self._cell])
            total = {path: w + part * message.tensors[f"{CHANGE}{path}"] for path, w in total.items()}
        self.row = on_host(correction.cell_after_edge(self.row, total))

    def keep(self, index: int, model: Numbers | None) -> None:
        """Remember what is known after a global round, which came to this model if it came to one."""
        if self._entries is None:
            return
        correction, tables = self._work.way.correction, ((COUNTED, self._counted), (MISSED, self._missed))
        turns = {key: as_table(table, self._clients) for key, table in tables} | {SINCE: np.array([self._since])}
        rows: dict[str, Numbers] = {TURNS: turns}
        if self._has_row:
            rows[ROW] = self.row
        if self._has_row and correction is not None and correction.follows and model is not None:
            rows[MINE] = {path: np.asarray(model[path]) for path in self.row}
        self._entries.keep(index, rows)


def as_table(found: Mapping[int, int], numbers: Sequence[int]) -> NDArray[Any]:
    """Write down when something was last true of each of these, for a file."""
    return np.array([found.get(number, NEVER) for number in numbers], np.int64)


def from_table(table: NDArray[Any], numbers: Sequence[int]) -> dict[int, int]:
    return {number: int(turn) for number, turn in zip(numbers, table, strict=True) if turn != NEVER}


def _turn(fact: Any) -> int | None:
    return int(fact) if is_number(fact) else None
