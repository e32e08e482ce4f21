import jax.numpy as jnp
import numpy as np
import pytest

from fedge.core import sampling
from fedge.core.keys import Purpose, fold, permute, root
from fedge.core.sampling import SAMPLERS, draw_participants, epoch, participants


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
    roster = [np.array([4, 9, 11], np.int32)]
    drawn = [tuple(own) for (own,) in draw_participants(root(0), roster, range(40), 0.34)]
    assert {len(d) for d in drawn} == {1}
    assert {i for d in drawn for i in d} == {4, 9, 11}
    assert draw_participants(root(0), roster, [0], 1.0)[0][0] is roster[0]


def test_participants_are_drawn_by_few_compiled_programs(monkeypatch):
    """As one by one from the definition; but a draw that is not compiled takes 8 ms, and there are a thousand here."""
    traced = []
    monkeypatch.setattr(sampling, "permute", lambda *arguments: (traced.append(1), permute(*arguments))[1])
    ends = np.cumsum([5, 6, 9, 6, 17])
    roster = np.split(np.random.default_rng(0).permutation(43).astype(np.int32), ends[:-1])
    drawn = draw_participants(root(3), roster, range(7, 207), 0.5)
    assert len(traced) <= 3  # of cells with up to 4, 8 and 16 participants
    for number in (7, 120, 206):
        for d, own in enumerate(roster):
            key, ranks = fold(root(3), Purpose.PARTICIPATION, d), jnp.arange(participants(len(own), 0.5))
            expected = own[np.asarray(permute(key, jnp.int32(number), ranks, jnp.int32(len(own))))]
            np.testing.assert_array_equal(drawn[number - 7][d], expected)
