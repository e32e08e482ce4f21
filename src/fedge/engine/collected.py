"""An edge round in which an edge needs all its clients' models at once, or clients have a memory.

A rule such as the median cannot be summed up as models come in, and what a client learned is known only when it is
done: so every client's model is kept until its edge has all of them. That takes as many models as clients train in an
edge round, which is said before a run.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedge.core import tree
from fedge.core.client import Update
from fedge.core.tree import Weights
from fedge.core.update import Memory, Rule
from fedge.engine.inputs import INPUT_SPECS, Cells, Inputs, Slots, cell_grid, own_samples
from fedge.engine.mesh import BY_DEVICE, REPLICATED

if TYPE_CHECKING:
    from fedge.engine.round import TracedRound


def train_collected(
    traced: TracedRound, n: int, cells: Cells, memory: Memory, number: Array, inputs: Inputs
) -> tuple[Weights, Array, Memory]:
    """Make one edge round of stack `n`; return its cells' models after it, their losses, and the memory."""
    way, chunk, first = traced.algorithm.way, traced.chunk_of(n), number * traced.algorithm.schedule.local_steps
    slots = traced.slots(n, number, inputs, pad_to=traced.mesh.size * chunk)
    before = memory._replace(control={})
    rows: Memory = jax.tree.map(lambda m: m[slots.client], before)
    run = jax.shard_map(
        partial(_each_on_device, traced, chunk),
        mesh=traced.mesh,
        in_specs=(REPLICATED, REPLICATED, BY_DEVICE, BY_DEVICE, REPLICATED, INPUT_SPECS),
        out_specs=BY_DEVICE,
        check_vma=False,
    )
    updates: Update = run(cells, memory.control, rows, slots, first, inputs)
    count, real = len(traced.stacks[n]), sum(traced.active(n))
    grid, share = cell_grid(traced.active(n), slots.share)
    combined = combine_cells(way.edge_rule, share, {p: w[grid] for p, w in updates.weights.items()}, cells.weights)
    losses = jax.ops.segment_sum(slots.share * updates.loss, slots.cell, count)
    after = updates.memory
    if way.correction is not None:
        moved = {p: combined[p] - cells.weights[p] for p in memory.control}
        work = traced.algorithm.schedule.local_steps * inputs.lr
        per_client = {p: w[slots.cell] for p, w in moved.items()}
        shift = jax.vmap(way.correction.after_edge, (0, 0, None))(after.shift, per_client, work)
        after = after._replace(shift=shift)
        part = inputs.weight[slots.client] / inputs.cell_weight[slots.cell] * (jnp.arange(len(slots.cell)) < real)
        change = {
            p: jax.ops.segment_sum(jnp.einsum("k,k...->k...", part, w - rows.shift[p]), slots.cell, count)
            for p, w in shift.items()
        }
        control = jax.vmap(way.correction.cell_after_edge)(memory.control, change)
        memory = memory._replace(control=control)
    # Slots beyond the real ones repeat the last client, and so write the same rows once more.
    written = jax.tree.map(lambda all_, own: all_.at[slots.client].set(own), before, after._replace(control={}))
    return combined, losses, written._replace(control=memory.control)


def _each_on_device(
    traced: TracedRound, chunk: int, cells: Cells, control: Weights, rows: Memory, slots: Slots, first: Array,
    inputs: Inputs,
) -> Update:  # fmt: skip
    """Train this device's share of the slots, a chunk at a time; return each client's update."""
    inputs = own_samples(inputs)

    def client(turn: tuple[Slots, Memory]) -> Update:
        slot, memory = turn
        own: Cells = jax.tree.map(lambda w: w[slot.cell], cells)
        own_control = {path: w[slot.cell] for path, w in control.items()}
        return traced.train_client(own, own_control, memory, slot.client, first, inputs)

    updates: Update = lax.map(client, (slots, rows), batch_size=chunk if chunk > 1 else None)
    return updates


def combine_cells(rule: Rule | None, share: Array, models: Weights, began: Weights) -> Weights:
    """Combine the models of each cell's clients (cells × clients × …) into the cell's own, one cell after the other."""

    def combine(cell: tuple[Array, Weights, Weights]) -> Weights:
        share, models, began = cell
        return tree.weighted_sum(share, models) if rule is None else rule.combine(share, models, began)

    return lax.map(combine, (share, models, began))
