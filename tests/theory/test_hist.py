"""HIST's bounds: what the print gets wrong, what the repair gives, and that it holds where everything is known."""

import math
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.theory import hist

PAPER = hist.Setting([15] * 4, 40, 200, gap=2.3, smooth=1.0, sigma2=1.0, delta1=0.5, delta2=0.5, norm=1.0)


def test_the_paper_experiments_lie_outside_condition_12():
    assert hist.largest_rate(PAPER) == pytest.approx(9.0e-5, rel=0.01)
    assert not hist.theorem1_fixed(PAPER, 0.01, 10_000).valid
    inside = hist.theorem1_fixed(PAPER, hist.largest_rate(PAPER), 10_000)
    assert inside.valid
    assert inside.conditions.keys() == hist.condition12(PAPER, 1.0).keys()


def test_the_printed_corollary_grows_with_the_horizon():
    """H1: 4Δ/γ instead of 4Δ/(γT)."""
    printed, fixed = ([f(PAPER, t).terms["optimality gap"] for t in (100, 10_000)]
                      for f in (hist.corollary1_printed, hist.corollary1_fixed))  # fmt: skip
    assert printed[1] == pytest.approx(10 * printed[0])
    assert fixed[1] == pytest.approx(fixed[0] / 10)


@pytest.mark.parametrize(("rate", "found"), [(1 / (32 * 200 * math.sqrt(2)), 1.533), (0.05, 2.0)])
def test_the_counterexample_to_fact_1(rate, found):
    """H2: N = d = 3, f_j = Σ_k sin(x_k − 2πj/3), from (π/6)·1, E = 200: within a round the mask average of
    Σ_j‖p_j ⊙ (∇f_j − ∇f)(x̂)‖² exceeds δ1² = 1.5, and never (N−1)δ1² = 3."""

    def gradient(x):
        return np.stack([np.cos(x - 2 * np.pi * j / 3) for j in range(3)])

    seen = np.zeros(200)  # after each step, averaged over masks
    for owner in permutations(range(3)):  # coordinate k belongs to cell owner[k]
        x = np.full(3, np.pi / 6)
        for t in range(200):
            each = gradient(x)
            x = x - rate * np.array([each[owner[k], k] for k in range(3)])
            apart = gradient(x) - gradient(x).mean(0)
            seen[t] += sum(apart[owner[k], k] ** 2 for k in range(3)) / 6
            assert (apart**2).sum() / 3 == pytest.approx(1.5)
    assert seen.max() == pytest.approx(found, abs=5e-4)
    three = replace(PAPER, sizes=[20, 20, 20], delta1=1.5)  # lemma 1 has 1.5 γ times what it takes for the mask average
    printed, fixed = (hist.lemma1(three, 1, 0, 0, 0, fixed=f).terms["unlike cells"] / 1.5 for f in (False, True))
    assert printed < seen.max() <= fixed


def test_print_and_repair_agree_on_unlike_cells_for_two_cells():
    two = replace(PAPER, sizes=[30, 30])
    terms = [b.terms["unlike cells"] for b in (hist.theorem1_printed(two, 1e-5), hist.theorem1_fixed(two, 1e-5, 100))]
    assert terms[0] == terms[1]


@given(lr=st.floats(1e-7, 8e-5), steps=st.integers(1, 10**6))
def test_the_simplified_bound_is_the_looser_one(lr, steps):
    """Inside (12) every term of (22) is at most its simplified form."""
    loose, tight = hist.theorem1_fixed(PAPER, lr, steps), hist.theorem1_unsimplified(PAPER, lr, steps)
    assert loose.valid
    assert tight.valid
    for name, term in tight.terms.items():
        assert term <= loose.terms[name] * (1 + 1e-12)


@given(cells=st.integers(2, 8), more=st.integers(1, 5))
def test_more_cells_or_a_longer_period_never_lower_the_bound(cells, more):
    few, many = (replace(PAPER, sizes=[10] * n) for n in (cells, cells + more))
    assert hist.theorem1_fixed(few, 1e-5, 1000).value <= hist.theorem1_fixed(many, 1e-5, 1000).value
    assert hist.largest_rate(many) <= hist.largest_rate(few)
    longer = replace(PAPER, period=PAPER.period + more)
    assert hist.theorem1_unsimplified(PAPER, 1e-5, 1000).value <= hist.theorem1_unsimplified(longer, 1e-5, 1000).value


@pytest.mark.parametrize("local_steps", [1, 4])
@pytest.mark.parametrize("seed", range(4))
def test_lemma_3_and_theorem_1_hold_on_quadratics(local_steps, seed):
    """f_i(x) = ½L‖x − c_i‖², exact gradients (σ = 0): δ1, δ2 are constants, and every quantity is computed exactly."""
    rng = np.random.default_rng(seed)
    cells, clients, size, rounds = 3, 4, 6, 30
    period = 2 * local_steps
    centre = rng.normal(size=(cells, clients, size))
    smooth, start = 0.7, rng.normal(size=size)
    mean_cell, mean = centre.mean(1), centre.mean((0, 1))
    delta1 = smooth**2 * ((mean_cell - mean) ** 2).sum(1).mean()
    delta2 = smooth**2 * ((centre - mean_cell[:, None]) ** 2).sum(2).max(1).mean()

    def value(x):
        return smooth / 2 * ((x - centre) ** 2).sum(2).mean()

    s = hist.Setting([clients] * cells, local_steps, period, value(start) - value(mean), smooth, 0.0, delta1, delta2, 0)
    lr = 0.999 * hist.largest_rate(s)
    x, norms, gradients, spread = start, [], [], []
    for _ in range(rounds):
        owner = rng.permutation(np.arange(size) % cells)
        masks = owner == np.arange(cells)[:, None]
        norms.append((x**2).sum())
        models = np.repeat((masks * x)[:, None], clients, 1)
        for k in range(period):
            union = (masks * models.mean(1)).sum(0)
            gradients.append(smooth**2 * ((union - mean) ** 2).sum())
            spread.append(((models - models.mean(1, keepdims=True)) ** 2).sum(2).mean(1).sum())
            models = models - lr * masks[:, None] * smooth * (models - centre)
            if (k + 1) % local_steps == 0:
                models = np.repeat(models.mean(1, keepdims=True), clients, 1)
        x = (masks * models[:, 0]).sum(0)
    s = replace(s, norm=float(np.mean(norms)))
    assert np.mean(spread) <= hist.lemma3(s, lr).value
    whole = hist.theorem1_fixed(s, lr, rounds * period)
    assert whole.valid
    assert np.mean(gradients) <= whole.value


BY_HAND = hist.Setting([1, 2, 2], 2, 4, gap=13, smooth=2, sigma2=3, delta1=5, delta2=7, norm=11)  # Ñ = 2


@pytest.mark.parametrize(
    ("bound", "terms"),
    [
        (hist.theorem1_printed(BY_HAND, 0.01), [5200, 6, 3.36, 60, 2112]),
        (hist.theorem1_fixed(BY_HAND, 0.01, 100), [52, 6, 3.36, 120, 2112]),
        # (2 + 0.72 + 11.52)·0.12; 24e-4·3·4·4·7; (6 + 16.5888)·2·5
        (hist.theorem1_unsimplified(BY_HAND, 0.01, 100), [52, 1.7088, 0.8064, 225.888, 2112]),
        (hist.lemma1(BY_HAND, 0.01, 1, 2, 3, fixed=True), [-0.005, 6e-4, 0.15, 0.12, 0.18]),
        (hist.lemma1(BY_HAND, 0.01, 1, 2, 3, fixed=False), [-0.005, 6e-4, 0.075, 0.12, 0.18]),
        (hist.lemma2(BY_HAND, 0.01, 1, 3, fixed=True), [1, 0.5184, 6.912, 0.0576, 88]),
        (hist.lemma2(BY_HAND, 0.01, 1, 3, fixed=False), [1, 0.5184, 3.456, 0.0576, 88]),
        (hist.lemma3(BY_HAND, 0.01), [0.0027, 0.0252]),
    ],
)
def test_terms_by_hand(bound, terms):
    """SPEC §6 with N = 3, H = 2, E = 4, γ = 0.01, L = 2, σ² = 3, δ1² = 5, δ2² = 7, X = 11, Δ = 13, T = 100."""
    assert list(bound.terms.values()) == pytest.approx(terms)
    assert bound.value == pytest.approx(sum(terms))
