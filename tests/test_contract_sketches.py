"""Can the contract carry HIST and HierSFL? Sketches of both, run on both engines.

They are here so that the contract is settled by the two algorithms that strain it: HIST deals cells models of different
shapes, HierSFL exchanges inside every step. `docs/decisions/0001-contract.md` tells the story.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedge.core import tree
from fedge.core.contract import Algorithm, Cells, Cloud
from fedge.core.schedule import Schedule
from fedge.cost.ledger import Ledger
from tests.helpers import assert_mean_preserved, by_operator, distance, small, train


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def with_algorithm(made, algorithm):
    return replace(made, job=replace(made.job, algorithm=algorithm))


# HierSFL: the server half lives at the edge and is stepped every iteration by the cell's mean gradient


def hiersfl(knobs, topology, model, cut: str | None) -> Algorithm:
    """T_k for the client half as in HierFAVG; for the server half H1 at every iteration. Uniform weights."""
    topology, schedule = topology.uniform(), Schedule(knobs.local_steps, knobs.edge_rounds)
    stages = model.stages
    on_client = () if cut is None else stages[: stages.index(cut) + 1]

    def at_edge(path: str) -> bool:
        return model.stage_of(path) not in on_client

    def operator(k, path):
        if schedule.is_global(k):
            return topology.cloud_operator
        return topology.edge_operator if schedule.is_edge(k) or at_edge(path) else topology.identity

    return Algorithm(
        name="hiersfl",
        topology=topology,
        schedule=schedule,
        start=lambda w: w,
        deal=lambda w, now: (Cells(tuple(range(topology.cells)), tree.repeat(w, topology.cells)),),
        merge=lambda w, cells, now: tree.weighted_sum(now.cell_weight, cells[0].weights),
        evaluated=lambda w, _: w,
        operator=operator,
        exchange=Cloud(),
        shared=at_edge,
    )


@pytest.mark.parametrize("engine", ["reference", "vectorised"])
@pytest.mark.parametrize("cut", [None, "hidden", "output"])
def test_hiersfl_is_its_operator_at_every_cut(engine, cut):
    made = small(dtype="float64", clients=8)
    made = with_algorithm(made, hiersfl(made.config, made.topology, made.model, cut))
    assert_mean_preserved(made.job.algorithm, "fc2/kernel")
    assert distance(train(made, engine=engine)[0], by_operator(made)) < 1e-12


@pytest.mark.parametrize("cut", ["pool1", "fc1"])
def test_hiersfl_engines_agree_on_the_cnn_with_partial_participation(cut):
    made = small(dtype="float64", model="cnn", clients=8, participation=0.5, momentum=0.9)
    made = with_algorithm(made, hiersfl(made.config, made.topology, made.model, cut))
    assert distance(train(made, engine="reference")[0], train(made, engine="vectorised")[0]) < 1e-12


def test_hiersfl_with_one_local_step_does_not_depend_on_the_cut():
    made = small(dtype="float64", local_steps=1, edge_rounds=4)
    models = [
        train(with_algorithm(made, hiersfl(made.config, made.topology, made.model, cut)))[0]
        for cut in (None, "hidden", "output")
    ]
    assert max(distance(models[0], m) for m in models[1:]) < 1e-12


# HIST: each round the hidden units are cut into disjoint blocks, one compact submodel per cell


def hist(knobs, topology, model) -> Algorithm:
    """Compact submodels by unit axes; entries that belong to no unit go to one owner each, by a mask."""
    topology, schedule, cells = topology.uniform_cells(), Schedule(knobs.local_steps, knobs.edge_rounds), topology.cells
    unit_axis = {p: axes.index("hidden") for p, axes in model.axes.items() if "hidden" in axes}
    units = model.template["fc1/bias"].shape[0]
    blocks = [len(b) for b in np.array_split(np.arange(units), cells)]  # sizes differ where N does not divide
    starts = np.cumsum([0, *blocks])
    shapes = sorted(set(blocks))

    def cut(now):
        order = jax.random.permutation(now.key, units)
        return order, lambda n: jax.random.permutation(jax.random.fold_in(now.key, 1), n) % cells  # owners of the rest

    def deal(w, now):
        order, owners = cut(now)
        batches = []
        for size in shapes:
            ids = tuple(d for d in range(cells) if blocks[d] == size)
            own = jnp.stack([jax.lax.dynamic_slice_in_dim(order, int(starts[d]), size) for d in ids])
            weights, mask = {}, {}
            for path, x in w.items():
                if path in unit_axis:
                    axis = unit_axis[path]
                    weights[path] = jax.vmap(lambda u, x=x, axis=axis: jnp.take(x, u, axis))(own)
                    mask[path] = jnp.ones_like(weights[path])
                else:
                    mask[path] = (owners(x.size).reshape(x.shape) == jnp.array(ids)[:, None]).astype(x.dtype)
                    weights[path] = x * mask[path]
            batches.append(Cells(ids, weights, mask))
        return tuple(batches)

    def merge(w, batches, now):
        order, _ = cut(now)
        whole = {path: jnp.zeros_like(x) for path, x in w.items()}
        for cells_ in batches:
            for n, d in enumerate(cells_.ids):
                own = jax.lax.dynamic_slice_in_dim(order, int(starts[d]), blocks[d])
                for path, x in cells_.weights.items():
                    if path in unit_axis:
                        at = (slice(None),) * unit_axis[path] + (own,)
                        whole[path] = whole[path].at[at].set(x[n])
                    else:
                        whole[path] = whole[path] + x[n] * cells_.mask[path][n]
        return whole

    return Algorithm(
        name="hist", topology=topology, schedule=schedule, start=lambda w: w, deal=deal, merge=merge,
        evaluated=lambda w, _: w, operator=None, exchange=Cloud(),
    )  # fmt: skip


@pytest.mark.parametrize(("cells", "batches"), [(1, 1), (4, 1), (7, 2)])  # 300 units: 300; 75 each; 43 and 42
def test_hist_compact_cells_of_different_shapes(cells, batches):
    made = small(dtype="float64", clients=8, cells=cells)
    made = with_algorithm(made, hist(made.config, made.topology, made.model))
    naive, fast = (train(made, engine=e)[0] for e in ("reference", "vectorised"))
    assert distance(naive, fast) < 1e-12
    from fedge.core.contract import Round
    from fedge.core.keys import root

    now = Round(jnp.int32(0), root(3), jnp.asarray(made.job.algorithm.topology.cell_weight))
    dealt = made.job.algorithm.deal(made.start, now)
    assert len(dealt) == batches
    assert distance(made.job.algorithm.merge(made.start, dealt, now), made.start) == 0
    held = sum(c.weights["fc1/kernel"].size for c in dealt)
    assert held == made.start["fc1/kernel"].size  # disjoint and complete


def test_hist_with_one_cell_is_fedavg():
    """SPEC §1, identity 4, with equal clients so that both have uniform weights."""
    keys = {"dtype": "float64", "clients": 6, "cells": 1, "partition": "iid", "edge_rounds": 1}
    made = small(**keys)
    ours = train(with_algorithm(made, hist(made.config, made.topology, made.model)))[0]
    assert distance(ours, train(small(algorithm="fedavg", **keys))[0]) < 1e-12


@pytest.mark.parametrize("engine", ["reference", "vectorised"])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_masked_coordinates_do_not_move(engine, optimizer):
    """Whatever the optimiser would do to them: each cell moves only the output biases it owns."""
    made = small(dtype="float64", clients=8, cells=4, optimizer=optimizer, lr=0.05, weight_decay=0.1)
    algorithm = hist(made.config, made.topology, made.model)
    from fedge.core.contract import Round
    from fedge.core.keys import Purpose, fold
    from fedge.engine import ENGINES

    made = with_algorithm(made, algorithm)
    machine = ENGINES[engine](made.job)
    now = Round(jnp.int32(0), fold(made.job.key, Purpose.ALGORITHM, 0), jnp.asarray(algorithm.topology.cell_weight))
    dealt = algorithm.deal(made.start, now)[0]
    if engine == "vectorised":
        trained, _ = machine._independent(dealt, jnp.int32(0), machine._inputs)
        after, mask = np.asarray(trained["fc2/bias"]), np.asarray(dealt.mask["fc2/bias"])
    else:
        rows = [
            machine._edge_round({p: w[d] for p, w in dealt.weights.items()}, {p: w[d] for p, w in dealt.mask.items()},
                                d, 0, 0)[0]["fc2/bias"] for d in range(4)
        ]  # fmt: skip
        after, mask = np.stack(rows), np.asarray(dealt.mask["fc2/bias"])
    assert (mask.sum(0) == 1).all()
    assert (after[mask == 0] == 0).all()
    assert (after[mask == 1] != np.asarray(dealt.weights["fc2/bias"])[mask == 1]).all()


@pytest.mark.parametrize("cells", [1, 4, 7])
def test_the_ledger_counts_what_a_cell_owns(cells):
    """Disjoint and complete: the cells' models add up to one model, round after round, masked entries not counted."""
    made = small(dtype="float64", clients=8, cells=cells)
    ledger = Ledger(hist(made.config, made.topology, made.model), made.start, made.job.key)
    for index in (0, 1):
        assert ledger.cell_bytes(index).sum() == 8 * made.model.parameters
