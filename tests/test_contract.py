"""One suite goes over every algorithm: its verbs agree with its mathematics, on every engine."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedge.algorithms import ALGORITHMS
from fedge.core.contract import Round
from fedge.core.keys import root
from fedge.core.update import PLAIN as PLAIN_WAY
from fedge.engine import ENGINES
from fedge.errors import ConfigError
from tests.helpers import PLAIN, by_operator, distance, small, train

everyone = pytest.mark.parametrize("name", [*ALGORITHMS, "tests.own:fedadam"])


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@everyone
def test_verbs_are_the_operator(name):
    """deal → train → merge equals W ← (W − ηG)·T_k with the stated matrices."""
    made = small(algorithm=name, dtype="float64")
    if made.job.algorithm.operator is None or made.job.algorithm.way != PLAIN_WAY:
        pytest.skip("no matrix says what it does; its own tests hold it against a reference")
    expected = by_operator(made)
    for engine in ("reference", "vectorised"):
        assert distance(train(made, engine=engine)[0], expected) < 1e-12


@pytest.mark.parametrize("name", PLAIN)
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


@pytest.mark.parametrize("name", [*PLAIN, "mtgc", "tests.own:fedadam"])
def test_inputs_are_not_changed(name):
    """A round leaves the state it was given as it was, so it can be kept, saved or trained again."""
    made = small(algorithm=name, dtype="float64")
    for engine in ENGINES.values():
        state = made.start
        before = jax.tree.map(np.array, state)
        machine = engine(made.job)
        once, _ = machine.round(state, 0)
        again, _ = machine.round(state, 0)
        jax.tree.map(np.testing.assert_array_equal, state, before)
        jax.tree.map(np.testing.assert_array_equal, once, again)
        assert (
            max(float(np.abs(a - b).max()) for a, b in zip(*map(jax.tree.leaves, (once, before)), strict=True)) > 1e-4
        )


def test_an_algorithm_of_ones_own_that_returns_nothing():
    with pytest.raises(ConfigError, match="own:forgetful returned NoneType; it must return an Algorithm"):
        small(algorithm="tests.own:forgetful")


def test_an_algorithm_of_ones_own_fits():
    """A state may be any pytree: here the cloud steps by Adam, whose memory (with a scalar) lives between rounds."""
    made = small(algorithm="tests.own:fedadam", dtype="float64", server_rate=0.1)
    naive, fast = (machine(made.job).rounds(made.start, 0, 3)[0] for machine in ENGINES.values())
    for one, other in zip(jax.tree.leaves(naive), jax.tree.leaves(fast), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)
    count = fast["memory"][0].count
    assert (count.shape, int(count)) == ((), 3)
    assert distance(made.evaluated(fast), train(small(dtype="float64"), 3)[0]) > 1e-2


@everyone
def test_a_round_is_one_period_of_iterations(name):
    """Histories of different algorithms line up: a global round is local_steps × edge_rounds iterations for all."""
    assert small(algorithm=name, local_steps=3, edge_rounds=4).job.algorithm.schedule.period == 12
