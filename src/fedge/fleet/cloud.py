"""The cloud is an engine: it makes global rounds as any other, and its cells are at the end of links.

What is written down, tested, saved and resumed is the runner's business, as for every engine. Where there are no edges
(FedAvg) the cloud has one cell of its own, with all clients.
"""

from __future__ import annotations

import logging
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedge.core.contract import Stack, State
from fedge.core.update import Hop, Kept
from fedge.errors import brief
from fedge.fleet.cell import Cell, Dealt, DivergedError, NoQuorumError
from fedge.fleet.edge import ABSENT, DEAL, MERGED
from fedge.fleet.entries import Entries, Keeping
from fedge.fleet.leader import Leader
from fedge.fleet.memory import COUNTED, NEVER, TURNS, as_table, entries_of, from_table
from fedge.fleet.told import without
from fedge.fleet.work import Numbers, Work, on_host
from fedge.net.gather import Asks, Gathered, Patience, gather
from fedge.net.hub import Hub, Place, new_attempt
from fedge.net.log_file import note
from fedge.net.names import edge
from fedge.net.wire import NOTHING, Form, Message, is_number


class Cloud(Leader):
    """This asks its edges, or its clients where there are none."""

    def __init__(self, work: Work, hub: Hub, patience: Patience, clients: Patience | None = None) -> None:
        super().__init__(work, hub, patience)
        self._own = None if work.algorithm.has_edges else Cell(work, hub, 0, clients or patience)
        self._entries: Entries | None = None
        self._deal = jax.jit(lambda state, now: [(s.weights, s.mask) for s in work.algorithm.deal(state, now)])
        self._merge = jax.jit(self._merged)
        self._counted: dict[int, int] = {}  # cell → the last round in which its model counted

    def remember(self, place: Keeping) -> None:
        """Keep beside the checkpoints what a leader that goes on from one must know: whose work has counted."""
        correction = self.work.way.correction
        if self._own is not None:
            self._own.remember(place)
        elif correction is not None and correction.follows:
            self._entries = entries_of(self.work, place, self.hub.me, 1)

    def _counted_before(self, index: int) -> dict[int, int]:
        entry = None if self._entries is None else self._entries.before(index)
        if entry is not None:
            return from_table(entry.rows[TURNS][COUNTED], range(self.work.topology.cells))
        return {cell: number for cell, number in self._counted.items() if number < index}

    def one_round(self, state: State, index: int) -> State:
        cells, self._counted = range(self.work.topology.cells), self._counted_before(index)
        try:
            return self._round(state, index)
        finally:
            if self._entries is not None:
                self._entries.keep(index, {TURNS: {COUNTED: as_table(self._counted, cells)}})

    def _round(self, state: State, index: int) -> State:
        dealt, now = self._deal(state, self.work.now(index)), self.work.now(index)
        cells = {
            cell: Dealt(_row(n, weights), _row(n, mask) if mask else None)
            for stack, (weights, mask) in zip(self.work.stacks, dealt, strict=True)
            for n, cell in enumerate(stack.ids)
        }
        try:
            came, loss = self._at_edges(index, cells) if self._own is None else self._at_clients(index, cells[0], state)
        except NoQuorumError as problem:
            note("kept", f"round {index + 1} leaves the model as it was: {problem}", level=logging.WARNING,
                 round=index + 1)  # fmt: skip
            return state
        except DivergedError:
            self.loss = float("nan")
            return state
        self.loss = loss
        self._counted |= dict.fromkeys(came, index)
        if isinstance(state, Kept) and self._own is not None:
            state = state._replace(memory=state.memory._replace(control=_stacked(self._own.memory.row)))
        weight = np.where([cell in came for cell in range(len(cells))], np.asarray(now.cell_weight), 0)
        stacks = [
            {p: np.stack([came.get(cell, cells[cell].model)[p] for cell in stack.ids]) for p in stack.weights}
            for stack in self.work.stacks
        ]
        return self._merge(state, stacks, now._replace(cell_weight=jnp.asarray(weight / weight.sum())))

    def _merged(self, state: State, stacks: list[Any], now: Any) -> State:
        whole = tuple(Stack(s.ids, weights) for s, weights in zip(self.work.stacks, stacks, strict=True))
        return self.work.algorithm.merge(state, whole, now)

    def _at_clients(self, index: int, dealt: Dealt, state: State) -> tuple[dict[int, Numbers], float]:
        assert self._own is not None
        self._own.pulse = lambda part: self.pulse(index, part)
        if isinstance(state, Kept):
            self._own.memory.row = _row(0, state.memory.control)
        trained = self._own.global_round(index, dealt)
        self.client_seconds = trained.seconds
        return {0: trained.model}, trained.loss

    def _at_edges(self, index: int, cells: dict[int, Dealt]) -> tuple[dict[int, Numbers], float]:
        """Return the models of the cells that came, and their clients' loss."""
        names = {edge(cell): cell for cell in cells}
        attempt = new_attempt()
        places = {name: Place(name, index, attempt=attempt) for name in names}
        asks: Asks = {name: self._deal_to(cell, index, attempt, cells[cell]) for name, cell in names.items()}
        self.hub.expect({places[name]: self._kinds(cell) for name, cell in names.items()})
        refused = dict[int, bool]()

        def accept(name: Any, message: Message) -> str | None:
            self.hear(name.number, message.facts)
            if message.kind == ABSENT:
                refused[name.number] = message.facts.get("diverged") is True
                return brief(message.facts.get("reason"), 300)
            floats = [x for x in message.tensors.values() if np.issubdtype(x.dtype, np.floating)]
            finite = all(np.isfinite(x).all() for x in floats) and is_number(message.facts.get("loss"))
            refused[name.number] = not finite
            return None if finite else "its model holds numbers that are not finite"

        found = gather(self.hub, places, asks, self.patience, len(cells), accept, lambda part: self.pulse(index, part))
        return self._required(index, cells, found, refused)

    def _required(
        self, index: int, cells: dict[int, Dealt], found: Gathered, refused: dict[int, bool]
    ) -> tuple[dict[int, Numbers], float]:
        for name, reason in found.missing.items():
            without(self.hub, name, index, reason)
        if len(refused) == len(cells) and all(refused.values()):
            raise DivergedError("nothing finite came from any edge")
        if len(found.answers) < (enough := self.patience.enough(len(cells))):
            raise NoQuorumError(f"{len(found.answers)} of {len(cells)} edges answered and {enough} are needed")
        came = {
            name.number: self._arrived(name.number, cells[name.number], message, index)
            for name, message in sorted(found.answers.items())
        }
        weight = {cell: float(self.work.topology.cell_weight[cell]) for cell in came}
        losses = {name.number: float(message.facts["loss"]) for name, message in found.answers.items()}
        return came, sum(weight[cell] * losses[cell] for cell in came) / sum(weight.values())

    def _kinds(self, cell: int) -> dict[str, Form]:
        return {MERGED: self.work.form(cell, self.work.way.backhaul, client=False), ABSENT: NOTHING}

    def _deal_to(self, cell: int, index: int, attempt: int, dealt: Dealt) -> Message:
        masks = {path: mask.astype(bool) for path, mask in (dealt.mask or {}).items()}
        facts = {"seconds": 0.9 * self.patience.deadline, COUNTED: self._counted.get(cell, NEVER)}
        return Message(DEAL, self.hub.me, edge(cell), index, attempt=attempt, tensors=dealt.model, masks=masks,
                       facts=facts)  # fmt: skip

    def _arrived(self, cell: int, dealt: Dealt, message: Message, index: int) -> Numbers:
        """Return a cell's model as it has arrived in the cloud."""
        codec = self.work.way.backhaul
        if codec is None:
            return dict(message.tensors)
        like = {path: w for path, w in dealt.model.items() if path in self.work.task.trainable}
        moved = self.work.decode(Hop.BACKHAUL, codec, dict(message.tensors), like)
        rest = {path: w for path, w in message.tensors.items() if path in dealt.model}
        return rest | on_host({path: w + moved[path] for path, w in like.items()})


def _stacked(row: Numbers) -> Numbers:
    return {path: jnp.asarray(w)[None] for path, w in row.items()}


def _row(n: int, stacked: Any) -> Numbers:
    return {path: np.asarray(w[n]) for path, w in stacked.items()}
