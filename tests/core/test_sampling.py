import jax.numpy as jnp
import numpy as np
import pytest

from fedge.core.keys import root
from fedge.core.sampling import SAMPLERS, drawn_participants, epoch, participants


@pytest.mark.parametrize(("size", "batch"), [(12, 4), (10, 4), (3, 7), (1, 2)])
def test_epoch_visits_each_sample_once_per_pass(size, batch):
    steps = 3 * size
    drawn = np.asarray(epoch(root(0), jnp.int32(0), steps, batch, jnp.int32(size))).reshape(-1)
    for start in range(0, len(drawn) - size + 1, size):
        assert sorted(drawn[start : start + size]) == list(range(size))


def test_epochs_are_shuffled_anew():
    drawn = np.asarray(epoch(root(0), jnp.int32(0), 4, 50, jnp.int32(50)))
    assert len({tuple(row) for row in drawn}) == 4


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_sampler_is_a_function_of_key_and_iteration(name):
    """Drawing iterations 0–9 at once or from 6 on gives the same samples at 6."""
    sampler = SAMPLERS[name]
    at_once = sampler(root(2), jnp.int32(0), 10, 5, jnp.int32(17))
    later = sampler(root(2), jnp.int32(6), 4, 5, jnp.int32(17))
    np.testing.assert_array_equal(at_once[6:], later)
    assert at_once.min() >= 0
    assert at_once.max() < 17


@pytest.mark.parametrize(("n", "fraction", "expected"), [(10, 1.0, 10), (10, 0.25, 3), (10, 0.01, 1), (1, 0.5, 1)])
def test_participants(n, fraction, expected):
    assert participants(n, fraction) == expected


def test_participants_change_from_round_to_round_and_all_come_in():
    roster = np.array([4, 9, 11], np.int32)
    drawn = [tuple(drawn_participants(root(0), 2, number, roster, 0.34)) for number in range(40)]
    assert {len(d) for d in drawn} == {1}
    assert {i for d in drawn for i in d} == {4, 9, 11}
    assert drawn_participants(root(0), 2, 0, roster, 1.0) is roster
