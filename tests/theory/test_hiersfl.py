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
def test_constants_of_the_spec(taus, values):
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
    assert hiersfl.lemma23(s, 0.1).value == pytest.approx(0.01 * 100 * 1)
    printed, fixed = (hiersfl.lemma4(s, 0.1, 1.0, 1.0, fixed=f) for f in (False, True))
    assert printed.value > fixed.value


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("cut", [0, 2, 4])
def test_the_fixed_bound_holds_on_quadratics(seed, cut):
    """f_i = ½Σ_l L(w_l − c_il)², exact gradients; coordinates below the cut averaged every τ1, above it every step.

    G_l² is taken as the largest squared gradient seen in layer l.
    """
    rng = np.random.default_rng(seed)
    clients, layers, tau1, tau2, rounds, smooth = 6, 4, 3, 2, 40, 0.8
    centre, x = rng.normal(size=(clients, layers)), 2 * rng.normal(size=layers)
    lr = 1 / (2 * smooth * tau1 * tau2)
    seen, worst = [], np.zeros(layers)
    gap = smooth / 2 * ((x - centre) ** 2).sum(1).mean() - smooth / 2 * ((centre.mean(0) - centre) ** 2).sum(1).mean()
    for _ in range(rounds):
        seen.append(smooth**2 * ((x - centre.mean(0)) ** 2).sum())
        w = np.tile(x, (clients, 1))
        for k in range(tau1 * tau2):
            gradient = smooth * (w - centre)
            worst = np.maximum(worst, (gradient**2).max(0))
            w = w - lr * gradient
            w[:, cut:] = w[:, cut:].mean(0)
            if (k + 1) % tau1 == 0:
                w = np.tile(w.mean(0), (clients, 1))
        x = w[0]
    s = hiersfl.Setting(tau1, tau2, worst.tolist(), [0.0] * layers, cut, gap, smooth)
    for whole in (hiersfl.theorem1_fixed(s, lr, rounds), hiersfl.theorem1_small_steps(s, lr, rounds, clients)):
        assert whole.valid
        assert np.mean(seen) <= whole.value
