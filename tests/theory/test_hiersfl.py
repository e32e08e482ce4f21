"""HierSFL's bounds: constants, what the print gets wrong, and that the repair holds on quadratics."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.theory import hiersfl

ONE = hiersfl.Setting(1, 1, [1.0], [0.0], cut=1, gap=math.sqrt(2) - 1, smooth=1.0)
taus = st.integers(1, 12)


@given(taus, taus)
def test_constants_are_the_mean_squares(tau1, tau2):
    """C = (τ−1)(2τ−1)/6, and both are (1/τ)Σ(aτ1 ± b)²."""
    a, b = np.arange(tau2)[:, None] * tau1, np.arange(tau1)[None]
    tau = tau1 * tau2
    assert hiersfl.constant_c(tau1, tau2) == pytest.approx((tau - 1) * (2 * tau - 1) / 6)
    assert hiersfl.constant_c(tau1, tau2) == pytest.approx(((a + b) ** 2).mean())
    assert hiersfl.constant_d(tau1, tau2) == pytest.approx(((a - b) ** 2).mean())


@pytest.mark.parametrize(("taus", "values"), [((5, 1), (6, 6)), ((5, 2), (28.5, 8.5)), ((5, 5), (196, 116))])
def test_constants_by_hand(taus, values):
    assert (hiersfl.constant_c(*taus), hiersfl.constant_d(*taus)) == pytest.approx(values)


def test_the_printed_bound_can_be_negative():
    """F1: f = √(1 + w²), η = 0.1, K = 100 from w = 1; the mean squared gradient is positive all the same."""
    printed, fixed = hiersfl.theorem1_printed(ONE, 0.1, 100), hiersfl.theorem1_fixed(ONE, 0.1, 100)
    assert printed.value == pytest.approx(-0.82, abs=0.005)
    w, seen = 1.0, []
    for _ in range(100):
        gradient = w / math.sqrt(1 + w * w)
        seen.append(gradient**2)
        w -= 0.1 * gradient
    assert printed.value < 0 < np.mean(seen) <= fixed.value


@given(tau1=taus, tau2=taus, cut=st.integers(0, 3))
def test_the_fixed_bound_does_not_depend_on_the_cut(tau1, tau2, cut):
    """F2; the printed one grows with it wherever D > 0."""
    s = hiersfl.Setting(tau1, tau2, [1.0, 2.0, 0.5], [0.1, 0.2, 0.3], 0, gap=1.0, smooth=1.0)
    lower, here = s, replace(s, cut=cut)
    assert hiersfl.theorem1_fixed(lower, 0.01, 10).terms == hiersfl.theorem1_fixed(here, 0.01, 10).terms
    printed = [hiersfl.theorem1_printed(x, 0.01, 10).value for x in (lower, here)]
    assert (printed[1] > printed[0]) == (cut > 0 and hiersfl.constant_d(tau1, tau2) > 0)


@given(tau1=taus, tau2=taus, more=st.integers(1, 4))
def test_monotone(tau1, tau2, more):
    """At a given number of iterations, longer rounds never tighten the fixed bound; more rounds always do."""
    s = hiersfl.Setting(tau1, tau2, [1.0], [1.0], 1, gap=1.0, smooth=1.0)
    for longer in (replace(s, tau1=tau1 + more), replace(s, tau2=tau2 + more)):
        values = [hiersfl.theorem1_fixed(x, 0.01, 1000 / x.tau).value for x in (s, longer)]
        assert values[0] <= values[1] * (1 + 1e-12)
    assert hiersfl.theorem1_fixed(s, 0.01, 20).value < hiersfl.theorem1_fixed(s, 0.01, 10).value


def test_the_condition_of_small_steps():
    s = replace(ONE, tau1=5, tau2=2)
    assert hiersfl.theorem1_small_steps(s, 0.05, 10, 4).valid
    assert not hiersfl.theorem1_small_steps(s, 0.051, 10, 4).valid
    printed, fixed = (hiersfl.lemma4(s, 0.1, 1.0, 1.0, fixed=f) for f in (False, True))
    assert printed.value > fixed.value


TWO = hiersfl.Setting(2, 3, [1.0, 2.0, 4.0], [0.5, 0.25, 3.0], cut=1, gap=5.0, smooth=2.0)


def test_terms_by_hand():
    """τ = 6, η = 0.1, L = 2, K = 10; G²: 1 below the cut and 6 above, σ²: 0.5 and 3.25; Γ = 10.75, Γ_c = 1.5.

    C = 4·2·5/6 + 1·3/6 + 2·2·1/2 = 55/6 = 5·11/6, D = 55/6 − 4 = 31/6. In Lemma 4, ½L²η³τ = 0.012.
    """
    two, three = hiersfl.lemma2(TWO, 0.1, 7.0), hiersfl.lemma3(TWO, 0.1, 7.0)
    assert list(two.terms.values()) == pytest.approx([0.01 * 6 * 7, 0.01 * 36 * 0.5])
    assert list(three.terms.values()) == pytest.approx([0.01 * 6 * 7, 0.01 * 36 * 3.25])
    assert list(hiersfl.lemma1(TWO, -3.0, 4.0, 0.5).terms.values()) == [-3, 4, 0.5]
    four = hiersfl.lemma4(TWO, 0.1, 2.0, 3.0, fixed=False)
    assert list(four.terms.values()) == pytest.approx([-0.6, -0.15, 0.012 * 55 / 6 * 10.75, 0.012 * 31 / 6 * 1.5])
    printed = hiersfl.theorem1_printed(TWO, 0.1, 10)
    expected = [10 / 6, 0.04 * 55 / 6 * 10.75, 1.2 * 10.75, -7, 0.04 * 31 / 6 * 1.5]
    assert list(printed.terms.values()) == pytest.approx(expected)
    assert list(hiersfl.theorem1_fixed(TWO, 0.1, 10).terms.values()) == pytest.approx(expected[:3])
    small = hiersfl.theorem1_small_steps(TWO, 0.1, 10, 4)
    assert list(small.terms.values()) == pytest.approx([*expected[:2], 0.4 * 3.75 / 4])


def test_lemmas_2_and_3_together_move_by_gamma():
    """With τΣG_l² for the gradients their sum is (17), η²τ²Γ, for every cut."""
    for cut in range(4):
        s = replace(TWO, cut=cut)
        halves = [
            hiersfl.lemma2(s, 0.1, 6 * sum(s.gradients[:cut])),
            hiersfl.lemma3(s, 0.1, 6 * sum(s.gradients[cut:])),
        ]
        assert sum(half.value for half in halves) == pytest.approx(0.01 * 36 * 10.75)


def test_the_printed_theorem_is_its_lemmas_with_the_gradients_taken_for_their_bound():
    """(35): lemma 4 with the mean gradients' square put to G² (erratum F1), movement by lemmas 2 and 3, into lemma 1.

    Divided by ητ/2 it is (34) without 2Δ/(ητK). With 0 for the mean gradients, all that may be said, and without
    D it is the fixed bound.
    """
    move = [hiersfl.lemma2(TWO, 0.1, 6 * 1.0).value, hiersfl.lemma3(TWO, 0.1, 6 * 6.0).value]
    printed = hiersfl.theorem1_printed(TWO, 0.1, 10)
    for fixed, means, left in ((False, 6 * 7.0, printed), (True, 0.0, hiersfl.theorem1_fixed(TWO, 0.1, 10))):
        step = hiersfl.lemma1(TWO, hiersfl.lemma4(TWO, 0.1, 0.0, means, fixed=fixed).value, *move)
        assert step.value / 0.3 == pytest.approx(left.value - left.terms["optimality gap"])


def test_noise_is_not_added_independently_over_time():
    """F3: step (b) of Lemma 2 has E‖Σ_t g̃_t‖² = E‖Σ_t ∇f_t‖² + E‖Σ_t ξ_t‖²; later gradients depend on earlier noise.

    f = −½w² from w = 0, two steps, η = ½, σ² = 1: g̃_0 = ξ_0, w_1 = −½ξ_0, g̃_1 = ½ξ_0 + ξ_1, so E(g̃_0 + g̃_1)² = 9/4 + 1;
    step (b) says 1/4 + 2. Jensen's inequality, Lemma 2 itself: 2·(E g_1² = 1/4) + 4 is enough.
    """
    s = hiersfl.Setting(2, 1, [1.0], [1.0], cut=1, gap=0.0, smooth=1.0)
    left, step_b = 9 / 4 + 1, 1 / 4 + 2
    assert step_b < left <= hiersfl.lemma2(s, 0.5, 1 / 4).value / 0.5**2 == 4.5


def train(cut: int, seed: int, rounds: int) -> tuple[hiersfl.Setting, float, dict[str, np.ndarray]]:
    """Train in exact moments: six clients in two cells, f_i = ½Σ_l L(w_l − c_il)², noise of variance σ_l².

    Layers below `cut` are averaged in a cell every τ1 = 3 steps, those above at every step; τ2 = 2. What is returned
    is by layer: of the first round what the lemmas speak of, of every round E(∂_l f(x^κ))². G_l² is the largest second
    moment of a client's gradient seen in layer l.
    """
    rng = np.random.default_rng(seed)
    clients, layers, smooth, variance = 6, 4, 0.8, np.array([0.3, 0.0, 1.0, 0.5])
    cell = np.arange(clients) // 3
    inside, everyone = (cell[:, None] == cell) / 3, np.full((clients, clients), 1 / clients)
    centre, start = rng.normal(size=(layers, clients)), 2 * rng.normal(size=layers)
    best, lr = centre.mean(1), 1 / (2 * smooth * 6)
    mean, covariance = np.tile(start[:, None], clients), np.zeros((layers, clients, clients))
    worst, found = np.zeros(layers), {"own2": np.zeros(layers), "means": np.zeros(layers)}
    seen = []
    for k in range(6 * rounds):
        if k % 6 == 0:
            seen.append(smooth**2 * ((mean[:, 0] - best) ** 2 + covariance[:, 0, 0]))
        gradient = smooth * (mean - centre)
        second = gradient**2 + smooth**2 * np.diagonal(covariance, axis1=1, axis2=2)
        worst = np.maximum(worst, second.max(1))
        if k < 6:
            found["own2"] += second.mean(1)
            found["means"] += gradient.mean(1) ** 2 + smooth**2 * covariance.mean((1, 2))
        mean = mean - lr * gradient
        covariance = (1 - lr * smooth) ** 2 * covariance + lr**2 * variance[:, None, None] * np.eye(clients)
        for layer in range(layers):
            edge = inside if layer >= cut or (k + 1) % 3 == 0 else np.eye(clients)
            average = everyone if (k + 1) % 6 == 0 else edge
            mean[layer] = average @ mean[layer]
            covariance[layer] = average @ covariance[layer] @ average
        if k == 5:
            new, spread = mean[:, 0], covariance[:, 0, 0]
            found["move2"] = (new - start) ** 2 + spread
            found["fall"] = smooth / 2 * ((new - best) ** 2 + spread - (start - best) ** 2)
            found["inner"] = smooth * (start - best) * (new - start)
    found["gradient2"] = np.array(seen)
    gap = smooth / 2 * ((start - best) ** 2).sum()
    return hiersfl.Setting(3, 2, worst.tolist(), variance.tolist(), cut, gap, smooth), lr, found


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("cut", [0, 2, 4])
def test_the_lemmas_and_the_fixed_bounds_hold_on_quadratics(seed, cut):
    """Lemma 1 is exact where f = ½L‖·‖². At cuts 0 and 4 Lemmas 2 and 3 exchanged would fail: one of them allows 0.
    Lemma 4 without its deviation would always fail."""
    s, lr, found = train(cut, seed, rounds=40)
    client, server = found["move2"][:cut].sum(), found["move2"][cut:].sum()
    assert client <= hiersfl.lemma2(s, lr, found["own2"][:cut].sum()).value
    assert server <= hiersfl.lemma3(s, lr, found["own2"][cut:].sum()).value
    assert found["fall"].sum() == pytest.approx(hiersfl.lemma1(s, found["inner"].sum(), client, server).value)
    for fixed in (True, False):
        four = hiersfl.lemma4(s, lr, found["gradient2"][0].sum(), found["means"].sum(), fixed=fixed)
        assert four.terms["descent"] + four.terms["mean gradients"] < found["inner"].sum() <= four.value
    seen = found["gradient2"].sum(1).mean()
    for whole in (hiersfl.theorem1_fixed(s, lr, 40), hiersfl.theorem1_small_steps(s, lr, 40, 6)):
        assert whole.valid
        assert seen <= whole.value
