"""HIST (Fang, Han, Brinton: Submodel Partitioning in Hierarchical Federated Learning, ICC 2024, and its report).

Every global round the cloud cuts the model into disjoint submodels x̄_j = p_j ⊙ x̄, Σ_j p_j = 1, one per cell (3, 7).

    x_i ← x_i − γ p_j ⊙ g_i                               every iteration (4)
    x_j ← (1/n_j) Σ_{i∈j} x_i                             at the edge every H, then back to its clients (5)
    x̄   ← Σ_j p_j ⊙ x_j                                   in the cloud every E: the union (6); then new masks

A mask keeps whole hidden units: each group of units is permuted at random and cut into N blocks, one per cell, whose
sizes differ by at most one. A cell is dealt its block *gathered* into a small dense model, which is the same function
as the masked full one (`tests/algorithms/test_hist.py`): its clients compute, hold and send 1/N. Where N does not
divide a group, the larger blocks go to the first cells if they are at most half of all blocks, otherwise to the last:
then few shapes differ, and groups that divide differently do not all favour the same cells.

Symbols: H = local_steps, E = local_steps × edge_rounds, N = submodels, γ = lr.

The paper has as many cells as submodels. Of D > N cells those with the same n = ⌊j·N/D⌋ train the same submodel n, and
the cloud averages them before it makes the union: x_n ← Σ_{j in n} x_j / |n|. With N = 1 this is HFedAvg.

What belongs to no unit:
- Biases added where the units' contributions meet (b2 of an MLP). The paper's (3) does not say who owns them;
  `out_bias` does: `owner` deals the entries to cells, evenly and at random each round, and others see 0; `shared` gives
  all a copy and averages; `none` drops them; `author` is what the authors' code does: the biases on both sides of
  the units are drawn anew each round, trained, and thrown away, so that the global ones stay as they were.
- Everything else (a ResNet's stem, residual stream, head): every cell trains a copy, averaged in the cloud with 1/N.

The union of N submodels is the *sum* of their contributions, so it is N times as confident as each; `rescale=mean`
makes it their mean when it is evaluated. Neither paper rescales.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from pydantic import Field

from fedge.core import tree
from fedge.core.contract import Algorithm, Cloud, Knobs, ModelDescription, Round, Stack
from fedge.core.keys import fold
from fedge.core.schedule import Schedule
from fedge.core.topology import Topology
from fedge.core.tree import Weights
from fedge.errors import ConfigError

OWNER, NONE, AUTHOR = "owner", "none", "author"  # and "shared", which needs no rule of its own
Order = dict[str, Array]  # a round's permutation of each group of units


def hist(
    knobs: Knobs, topology: Topology, model: ModelDescription, *,
    out_bias: Annotated[Literal["owner", "shared", "none", "author"], Field(
        description="who trains the biases that belong to no unit of hist"
    )] = "owner",
    rescale: Annotated[Literal["none", "mean"], Field(
        description="evaluate hist's union as the sum or as the mean of its submodels"
    )] = "none",
    submodels: Annotated[int | None, Field(
        ge=1, le=10**6, description="N: parts that hist cuts the model into; unless given, one for each cell"
    )] = None,
) -> Algorithm:  # fmt: skip
    topology, mode = topology.uniform_cells(), out_bias
    cells, parts = topology.cells, submodels or topology.cells
    if parts > cells:
        raise ConfigError(f"submodels={parts} is more than cells={cells}, so nobody would train some of them; "
                          f"give at most {cells}")  # fmt: skip
    anatomy, submodel = Anatomy.of(model, parts), np.arange(cells) * parts // cells

    def start(w: Weights) -> Weights:
        return w | {path: jnp.zeros_like(w[path]) for path in anatomy.meeting if mode == NONE}

    def deal(w: Weights, now: Round) -> tuple[Stack, ...]:
        order = anatomy.draw(now.key)
        stacks = []
        for ids in anatomy.stacks:
            own = np.flatnonzero((submodel >= ids[0]) & (submodel <= ids[-1]))  # the cells that train these
            weights = {path: anatomy.gather(path, x, order, ids) for path, x in w.items()}
            masks = anatomy.ownership(now.key, ids, mode)
            for path, mask in masks.items():
                masks[path] = mask.astype(w[path].dtype)
                weights[path] = weights[path] * masks[path]
            if mode == AUTHOR:
                weights |= anatomy.fresh_biases(now.key, ids, weights)
            if parts < cells:
                weights, masks = ({p: w[submodel[own] - ids[0]] for p, w in x.items()} for x in (weights, masks))
            stacks.append(Stack(tuple(own.tolist()), weights, masks or None))
        return tuple(stacks)

    def by_submodel(stack: Stack) -> Weights:
        """Return one model for each submodel of a stack of cells: the mean of those that trained it."""
        if parts == cells:
            return stack.weights
        n = submodel[list(stack.ids)]
        share = (n == np.arange(n[0], n[-1] + 1)[:, None]) / np.bincount(submodel)[n]  # submodels × cells
        return tree.weighted_sum(jnp.asarray(share), stack.weights)

    def merge(w: Weights, stacks: tuple[Stack, ...], now: Round) -> Weights:
        order, trained = anatomy.draw(now.key), [by_submodel(stack) for stack in stacks]
        union = {}
        for path, old in w.items():
            pieces = [weights[path] for weights in trained]
            if mode == AUTHOR and path in anatomy.biases:
                union[path] = old  # discarded
            elif path in anatomy.axis:
                union[path] = anatomy.scatter(path, pieces, order)
            elif path in anatomy.meeting and mode in (OWNER, NONE):
                union[path] = sum((piece.sum(0) for piece in pieces), start=jnp.zeros_like(old))  # non-owners hold 0
            else:
                whole = jnp.concatenate([stack.weights[path] for stack in stacks])
                union[path] = tree.weighted_sum(now.cell_weight, {path: whole})[path]
        return union

    def evaluated(w: Weights, _: Array) -> Weights:
        if rescale != "mean":
            return w
        dealt = anatomy.meeting if mode in (OWNER, NONE) else ()  # a bias that every cell has whole is its own mean
        return w | {path: w[path] / parts for path in (*anatomy.receiving, *dealt)}

    return Algorithm(
        name="hist",
        topology=topology,
        schedule=Schedule(knobs.local_steps, knobs.edge_rounds),
        start=start,
        deal=deal,
        merge=merge,
        evaluated=evaluated,
        operator=None,
        exchange=Cloud(),
        whole_models=False,
        stale_statistics=parts > 1,
        parts=tuple(submodel.tolist()) if parts < cells else None,
    )


def _sibling(path: str, name: str) -> str:
    return "/".join([*path.split("/")[:-1], name])


@dataclass(frozen=True)
class Anatomy:
    """This knows how a model comes apart into N pieces."""

    submodels: int
    units: dict[str, int]  # group → how many
    axis: dict[str, tuple[str, int]]  # path → (its group, the axis it is cut along)
    receiving: tuple[str, ...]  # paths of kernels that take units as inputs: where the submodels' contributions meet
    meeting: dict[str, tuple[int, ...]]  # path → shape of biases added there
    biases: frozenset[str]  # those, and the units' own, where a kernel stands beside them

    @classmethod
    def of(cls, model: ModelDescription, submodels: int) -> Anatomy:
        units: dict[str, int] = {}
        axis: dict[str, tuple[str, int]] = {}
        for path, names in model.axes.items():
            named = [(name, number) for number, name in enumerate(names) if name is not None]
            if len(named) > 1:
                raise ConfigError(
                    f"parameter '{path}' has units on {len(named)} axes, so its entries between two cells' units would "
                    "belong to nobody; name units on every second layer only"
                )
            for name, number in named:
                size = model.template[path].shape[number]
                if units.setdefault(name, size) != size:
                    raise ConfigError(f"units '{name}' are {units[name]} elsewhere but {size} in parameter '{path}'")
                axis[path] = (name, number)
        if not units:
            raise ConfigError(
                "hist cuts a model by its hidden units, but none of its parameters names any; annotate them, for "
                'instance nnx.Linear(…, kernel_metadata={"units": (None, "hidden")}, bias_metadata={"units": '
                '("hidden",)}) and kernel_metadata={"units": ("hidden", None)} on the layer that follows'
            )
        for name, size in units.items():
            if size < submodels:
                raise ConfigError(
                    f"{submodels} submodels cannot share the {size} units of '{name}'; give submodels={size} or less, "
                    "so that several cells train the same one"
                )
        receiving = tuple(p for p, (_, n) in axis.items() if n < len(model.template[p].shape) - 1)
        at = sorted(_sibling(p, "bias") for p in receiving)
        meeting = {p: tuple(model.template[p].shape) for p in at if p in model.trainable and p not in axis}
        own = {p for p in axis if p == _sibling(p, "bias") and _sibling(p, "kernel") in model.template}
        return cls(
            submodels,
            units,
            axis,
            receiving,
            meeting,
            frozenset(own | {p for p in meeting if _sibling(p, "kernel") in model.template}),
        )

    @property
    def stacks(self) -> tuple[tuple[int, ...], ...]:
        """List the submodels of equal shapes: neighbours, between whom no group's blocks change in size."""
        turns = {min(size % self.submodels, -size % self.submodels) for size in self.units.values()}  # see `before`
        return tuple(tuple(range(*span)) for span in pairwise(sorted({0, self.submodels} | turns)))

    def draw(self, key: Array) -> Order:
        names = enumerate(sorted(self.units))
        return {name: jax.random.permutation(fold(key, n), self.units[name]) for n, name in names}

    def before(self, name: str, submodel: int) -> int:
        """Count the units of a group that submodels with lower numbers own."""
        least, larger = divmod(self.units[name], self.submodels)  # units in a small block, blocks with one more
        if 2 * larger <= self.submodels:
            return submodel * least + min(submodel, larger)
        return submodel * least + max(0, submodel + larger - self.submodels)

    def block(self, name: str, order: Order, ids: tuple[int, ...]) -> Array:
        """Return, as submodels × units, which units of a group each of these submodels owns."""
        span = slice(self.before(name, ids[0]), self.before(name, ids[-1] + 1))
        return order[name][span].reshape(len(ids), -1)

    def gather(self, path: str, x: Array, order: Order, ids: tuple[int, ...]) -> Array:
        """Return, as submodels × …, the part of a parameter that each of these holds."""
        if path not in self.axis:
            return jnp.broadcast_to(x, (len(ids), *x.shape))
        name, axis = self.axis[path]
        return jnp.moveaxis(jnp.take(x, self.block(name, order, ids), axis), axis, 0)

    def scatter(self, path: str, parts: list[Array], order: Order) -> Array:
        """Undo `gather`: put all submodels' parts back in place."""
        name, axis = self.axis[path]
        pieces = []
        for part in parts:
            together = jnp.moveaxis(part, 0, axis)  # …, submodels, units of one, …
            pieces.append(together.reshape(*part.shape[1 : axis + 1], -1, *part.shape[axis + 2 :]))
        return jnp.take(jnp.concatenate(pieces, axis), jnp.argsort(order[name]), axis)

    def ownership(self, key: Array, ids: tuple[int, ...], mode: str) -> Weights:
        """Mark what is dealt out entry by entry: path → submodels × …, 1 where one owns an entry."""
        if mode not in (OWNER, NONE):
            return {}
        total = sum(math.prod(shape) for shape in self.meeting.values())
        first_key, second_key = jax.random.split(fold(key, len(self.units)))
        turn = jax.random.permutation(first_key, self.submodels)  # who goes first gets one more where it is uneven
        owner = turn[jax.random.permutation(second_key, total) % self.submodels]
        masks, first = {}, 0
        for path, shape in self.meeting.items():
            mine = owner[first : first + math.prod(shape)].reshape(shape)
            first += math.prod(shape)
            who = jnp.asarray(np.array(ids).reshape(-1, *[1] * len(shape)))
            masks[path] = (mine == who) & (mode == OWNER)
        return masks

    def fresh_biases(self, key: Array, ids: tuple[int, ...], weights: Weights) -> Weights:
        """Draw biases as PyTorch does for a layer of the submodel's size, anew for each."""
        drawn = {}
        for number, path in enumerate(sorted(self.biases)):
            kernel = weights[_sibling(path, "kernel")]
            bound = 1 / math.sqrt(math.prod(kernel.shape[1:-1]))
            keys = jnp.stack([fold(key, len(self.units) + 1 + number, n) for n in ids])
            shape, dtype = weights[path].shape[1:], weights[path].dtype
            drawn[path] = jax.vmap(lambda k, s=shape, d=dtype, b=bound: jax.random.uniform(k, s, d, -b, b))(keys)
        return drawn
