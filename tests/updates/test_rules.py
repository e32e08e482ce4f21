"""Rules against a plain numpy form, which is handed the same models and shares; and the laws that they all keep."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.errors import ConfigError
from fedge.updates.rules import rule_of

TIGHT = {"atol": 1e-12, "rtol": 0}
EVERY = ("median", "trimmed:0.2", "krum:1", "multikrum:1:3", "geometric", "clip:1.5")
SHAPES = {"a": (2, 3), "b": (4,)}
N = 7
COMBINE = {name: jax.jit(rule_of(name).combine) for name in EVERY}  # one program for each shape and dtype


def given_models(seed=0, n=N, absent=()):
    rng = np.random.default_rng(seed)
    shares = rng.uniform(0.5, 2, n) * ~np.isin(np.arange(n), absent)
    models = {path: rng.normal(size=(n, *shape)) for path, shape in SHAPES.items()}
    began = {path: rng.normal(size=shape) / 4 for path, shape in SHAPES.items()}
    return shares / shares.sum(), models, began


def flat(models):
    """Join all paths: one row for each sender."""
    return np.concatenate([models[path].reshape(-1, np.prod(shape)) for path, shape in SHAPES.items()], 1)


def plain_median(shares, rows, began):
    return np.median(rows, 0)


def plain_trimmed(shares, rows, began):
    b, w = len(rows) // 5, np.zeros(rows.shape[1])
    for c in range(rows.shape[1]):
        kept = np.argsort(rows[:, c])[b : len(rows) - b]
        w[c] = (shares[kept] * rows[kept, c]).sum() / shares[kept].sum()
    return w


def plain_krum(shares, rows, began, f=1, best=1):
    """Go through all sets of n − f − 2 others: a score is the least sum of squared distances to one."""
    n = len(rows)
    square = lambda i, j: ((rows[i] - rows[j]) ** 2).sum()  # noqa: E731
    others = lambda i: [j for j in range(n) if j != i]  # noqa: E731
    score = [min(sum(square(i, j) for j in near) for near in itertools.combinations(others(i), n - f - 2))
             for i in range(n)]  # fmt: skip
    return rows[np.argsort(score)[:best]].mean(0)


def plain_multikrum(shares, rows, began):
    return plain_krum(shares, rows, began, best=3)


def plain_geometric(shares, rows, began):
    v = began
    for _ in range(8):
        beta = [share / max(1e-6, np.linalg.norm(v - row)) for share, row in zip(shares, rows, strict=True)]
        v = sum(b * row for b, row in zip(beta, rows, strict=True)) / sum(beta)
    return v


def plain_clip(shares, rows, began):
    return began + sum(
        s * (r - began) * min(1, 1.5 / np.linalg.norm(r - began)) for s, r in zip(shares, rows, strict=True)
    )


PLAIN = dict(
    zip(EVERY, (plain_median, plain_trimmed, plain_krum, plain_multikrum, plain_geometric, plain_clip), strict=True)
)


def combined(name, shares, models, began):
    w = COMBINE[name](shares, models, began)
    assert jax.tree.map(np.shape, w) == jax.tree.map(np.shape, began)
    return flat({path: np.asarray(x)[None] for path, x in w.items()})[0]


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("absent", [(), (2,), (0, 6)])
def test_a_rule_is_its_equation_over_those_that_are_there(name, absent):
    """Seven senders, six, five; what is in the rows of the others makes no difference, not even NaN."""
    shares, models, began = given_models(1, absent=absent)
    there = shares > 0
    expected = PLAIN[name](shares[there], flat(models)[there], flat({p: w[None] for p, w in began.items()})[0])
    with jax.enable_x64(True):
        for filler in (0.0, 1e6, np.nan, np.inf):
            for w in models.values():
                w[~there] = filler
            np.testing.assert_allclose(combined(name, shares, models, began), expected, **TIGHT)


@pytest.mark.parametrize("name", EVERY)
def test_cells_are_combined_each_by_itself_and_in_float32(name):
    """Under vmap, with another number of senders in each cell, a rule says what it says of one cell alone."""
    cells = [jax.tree.map(np.float32, given_models(n, absent=range(n))) for n in range(3)]
    stacked = jax.tree.map(lambda *w: np.stack(w), *cells)
    together = jax.jit(jax.vmap(rule_of(name).combine))(*stacked)
    for n, (shares, models, began) in enumerate(cells):
        there = shares > 0
        expected = PLAIN[name](shares[there], flat(models)[there], flat({p: w[None] for p, w in began.items()})[0])
        actual = flat(jax.tree.map(np.asarray, together))[n]
        assert actual.dtype == np.float32
        np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-6)


@given(
    st.sampled_from(EVERY), st.integers(0, 10**6), st.permutations(range(N)), st.sets(st.integers(0, N - 1), max_size=2)
)
@settings(max_examples=60)
def test_the_order_of_senders_makes_no_difference(name, seed, order, absent):
    shares, models, began = given_models(seed, absent=list(absent))
    order = np.asarray(order)
    with jax.enable_x64(True):
        moved = combined(name, shares[order], {path: w[order] for path, w in models.items()}, began)
        np.testing.assert_allclose(moved, combined(name, shares, models, began), rtol=0, atol=1e-9)


@given(st.lists(st.sampled_from([-1.0, 0.0, 0.5, 2.0]), min_size=N * 10, max_size=N * 10), st.permutations(range(N)))
@settings(max_examples=30)
def test_ties_do_not_depend_on_the_order_in_rules_by_coordinate(values, order):
    """Krum's scores may tie, and then the first sender is taken; of the others no one is preferred."""
    shares, _, began = given_models(3, absent=[5])
    rows, order = np.reshape(values, (N, 10)), np.asarray(order)
    models = {"a": rows[:, :6].reshape(N, 2, 3), "b": rows[:, 6:]}
    with jax.enable_x64(True):
        for name in ("median", "trimmed:0.2", "geometric", "clip:1.5"):
            moved = combined(name, shares[order], {path: w[order] for path, w in models.items()}, began)
            np.testing.assert_allclose(moved, combined(name, shares, models, began), rtol=0, atol=1e-9)


@given(st.integers(0, 10**6), st.sets(st.integers(0, N - 1), max_size=6))
@settings(max_examples=60)
def test_each_coordinate_lies_between_the_least_and_the_greatest(seed, absent):
    """And a minority, whatever it sends, does not bring the median or the trimmed mean outside of the others' range."""
    shares, models, began = given_models(seed, absent=list(absent))
    there = np.flatnonzero(shares)
    liars = there[: (len(there) - 1) // 2]
    with jax.enable_x64(True):
        for name, lying in (("median", liars), ("trimmed:0.2", there[: len(there) // 5])):
            honest = flat(models)[np.setdiff1d(there, lying)]
            for lie in (1e30, -1e30, np.inf, -np.inf, np.nan):
                said = {path: w.copy() for path, w in models.items()}
                for w in said.values():
                    w[lying] = lie
                actual = combined(name, shares, said, began)
                assert (honest.min(0) - 1e-12 <= actual).all()
                assert (actual <= honest.max(0) + 1e-12).all()


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("lie", [1e30, np.inf, np.nan])
def test_one_attacker_of_seven_moves_nothing_far(name, lie):
    """The mean would be at 10²⁹ or nowhere; every rule stays among the others' models, within their norm."""
    shares, models, began = given_models(4)
    for w in models.values():
        w[3] = lie
    others = np.delete(flat(models), 3, 0)
    with jax.enable_x64(True):
        actual = combined(name, shares, models, began)
    assert np.linalg.norm(actual) <= np.linalg.norm(others, axis=1).max()


@pytest.mark.parametrize("name", ["geometric", "clip:1.5"])
@pytest.mark.parametrize("lie", [np.inf, np.nan])
def test_who_sends_what_is_no_number_does_not_count_where_shares_do(name, lie):
    """One such number is enough, and the others' shares sum to 1 again."""
    shares, models, began = given_models(7)
    models["b"][3, 1] = lie
    others = np.delete(np.arange(N), 3)
    rest = {path: w[None] for path, w in began.items()}
    expected = PLAIN[name](shares[others] / shares[others].sum(), flat(models)[others], flat(rest)[0])
    with jax.enable_x64(True):
        np.testing.assert_allclose(combined(name, shares, models, began), expected, **TIGHT)


@pytest.mark.parametrize("name", EVERY)
def test_equal_models_are_what_they_agree_on(name):
    shares, _, began = given_models(5)
    agreed = {path: w * (0.5 if name.startswith("clip") else 3) for path, w in began.items()}
    models = {path: np.repeat(w[None], N, 0) for path, w in agreed.items()}
    with jax.enable_x64(True):
        w = COMBINE[name](shares, models, began)
    for path in w:
        np.testing.assert_allclose(w[path], agreed[path], **TIGHT)


@pytest.mark.parametrize("precise", [False, True])
def test_the_trimmed_mean_drops_as_many_as_the_typed_fraction_says(precise):
    """⌊0.29·100⌋ is 29, though 0.29·100 is 28.999999999999996: with 28 the -1000 in the 29th place would be seen."""
    values = np.r_[np.full(29, -1e3), np.arange(71)].astype(np.float64 if precise else np.float32)[:, None]
    with jax.enable_x64(precise):
        left = jax.jit(rule_of("trimmed:0.29").combine)(jnp.full(100, 0.01), {"w": values}, {"w": values[0]})["w"]
    np.testing.assert_allclose(left, np.arange(42).mean(), rtol=1e-6)


def test_the_geometric_median_is_near_after_its_steps():
    """Of 20 models with 3 attackers far away, the sum of distances is within 10⁻³ of what 2,000 steps come to."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(20, 30))
    rows[:3] += 1e6
    cost = lambda v: np.linalg.norm(rows - v, axis=1).sum() - 3 * np.linalg.norm(rows[0])  # noqa: E731
    exact = np.zeros(30)
    for _ in range(2000):
        beta = 1 / np.linalg.norm(rows - exact, axis=1)
        exact = beta @ rows / beta.sum()
    with jax.enable_x64(True):
        w = rule_of("geometric").combine(jnp.full(20, 0.05), {"w": jnp.asarray(rows)}, {"w": jnp.zeros(30)})["w"]
    assert cost(np.asarray(w)) - cost(exact) <= 1e-3 * np.linalg.norm(rows[3:] - exact, axis=1).sum()


def test_clipping_leaves_updates_within_the_bound_to_the_mean():
    shares, models, began = given_models(6)
    with jax.enable_x64(True):
        w = rule_of("clip:1e6").combine(*jax.tree.map(jnp.asarray, (shares, models, began)))
    for path in w:
        np.testing.assert_allclose(w[path], np.tensordot(shares, models[path], 1), **TIGHT)


LEAST = {"krum:0": 3, "krum:1": 5, "krum:2": 7, "multikrum:1:4": 5, "multikrum:1:6": 7}


@pytest.mark.parametrize(("name", "least"), LEAST.items())
def test_krum_says_how_many_senders_it_needs(name, least):
    made = rule_of(name)
    assert made.refusal(least) is None
    assert made.refusal(least - 1) == (
        f"{name} needs at least {least} senders and there are {least - 1}; take fewer attackers or more senders"
    )
    assert rule_of("median").refusal(1) is None


def test_a_rule_that_is_the_mean_is_none():
    assert [rule_of(name) for name in ("mean", "trimmed:0", "trimmed:0.0")] == [None] * 3


@pytest.mark.parametrize("name", EVERY)
def test_a_rule_has_the_name_it_is_called_by(name):
    assert rule_of(name).name == name


@pytest.mark.parametrize(("name", "reason"), [
    ("medain", r"rule=medain is no rule; allowed: mean, median, .*; did you mean 'median'\?"),
    ("trimmed", "is no rule"),
    ("trimmed:0.5", "rule=trimmed:0.5: trimmed by a fraction 0.5 at each end; give at least 0 and less than 0.5"),
    ("trimmed:-0.1", "is no rule"),
    ("krum", "is no rule"),
    ("krum:1.5", "is no rule"),
    ("multikrum:1:0", "krum with 1 attackers and a mean of 0; give at least 0 and at least 1"),
    ("clip:0", "clipping updates to a norm of 0.0; give a finite number greater than 0"),
    ("clip:1e999", "clipping updates to a norm of inf"),
])  # fmt: skip
def test_a_rule_that_cannot_be_is_refused_in_a_sentence(name, reason):
    with pytest.raises(ConfigError, match=reason):
        rule_of(name)
