"""One suite goes over every algorithm: its verbs agree with its mathematics, on every engine."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedge.algorithms import ALGORITHMS
from fedge.core import tree
from fedge.core.contract import Round
from fedge.core.keys import root
from fedge.engine import ENGINES
from tests.helpers import by_operator, distance, small, train

everyone = pytest.mark.parametrize("name", ALGORITHMS)


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@everyone
def test_verbs_are_the_operator(name):
    """deal → train → merge equals W ← (W − ηG)·T_k with the stated matrices."""
    made = small(algorithm=name, dtype="float64")
    if made.job.algorithm.operator is None:
        pytest.skip("states no matrix; its own tests hold it against a masked reference")
    expected = by_operator(made)
    for engine in ("reference", "vectorised"):
        assert distance(train(made, engine=engine)[0], expected) < 1e-12


@everyone
def test_nothing_trained_nothing_changed(name):
    """merge after deal with no step in between gives back the state, and every cell is dealt exactly once."""
    made = small(algorithm=name, dtype="float64")
    algorithm = made.job.algorithm
    cell_weight = jnp.asarray(algorithm.topology.cell_weight)
    now = Round(jnp.int32(0), root(0), cell_weight, jax.tree.map(jnp.asarray, algorithm.constants))
    state = made.start
    dealt = algorithm.deal(state, now)
    assert sorted(d for cells in dealt for d in cells.ids) == list(range(algorithm.topology.cells))
    after = algorithm.merge(state, dealt, now)
    assert distance(algorithm.evaluated(after, cell_weight), algorithm.evaluated(state, cell_weight)) < 1e-15


@everyone
def test_inputs_are_not_changed(name):
    """A round leaves the state it was given as it was, so it can be kept, saved or trained again."""
    made = small(algorithm=name, dtype="float64")
    for engine in ENGINES.values():
        state = made.start
        before = {p: np.array(w) for p, w in state.items()}
        machine = engine(made.job)
        once, _ = machine.round(state, 0)
        again, _ = machine.round(state, 0)
        assert all((np.asarray(state[p]) == before[p]).all() for p in before)
        assert all((np.asarray(once[p]) == np.asarray(again[p])).all() for p in once)
        assert distance(once, state) > 1e-4


def test_a_server_optimiser_fits():
    """A state may be any pytree: here the cloud steps by Adam, whose memory (with a scalar) lives between rounds."""
    optimiser = optax.adam(0.1)

    def start(w):
        return {"memory": optimiser.init(w), "weights": w}

    def merge(state, stacks, now):
        mean = tree.weighted_sum(now.cell_weight, stacks[0].weights)
        towards = {path: w - mean[path] for path, w in state["weights"].items()}
        step, memory = optimiser.update(towards, state["memory"], state["weights"])
        return {"memory": memory, "weights": optax.apply_updates(state["weights"], step)}

    made = small(algorithm="hierfavg", dtype="float64")
    plain = made.job.algorithm
    stepping = replace(plain, name="fedadam", start=start, merge=merge, operator=None,
                       deal=lambda state, now: plain.deal(state["weights"], now),
                       evaluated=lambda state, _: state["weights"])  # fmt: skip
    made = replace(made, job=replace(made.job, algorithm=stepping))
    naive, fast = (machine(made.job).rounds(made.start, 0, 3)[0] for machine in ENGINES.values())
    for one, other in zip(jax.tree.leaves(naive), jax.tree.leaves(fast), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)
    count = fast["memory"][0].count
    assert (count.shape, int(count)) == ((), 3)
    assert distance(stepping.evaluated(fast, None), train(small(dtype="float64"), 3)[0]) > 1e-2


@everyone
def test_a_round_is_one_period_of_iterations(name):
    """Histories of different algorithms line up: a global round is local_steps × edge_rounds iterations for all."""
    assert small(algorithm=name, local_steps=3, edge_rounds=4).job.algorithm.schedule.period == 12
