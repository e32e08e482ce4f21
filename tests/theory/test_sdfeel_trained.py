"""SD-FEEL's bounds against training of which everything is known: where the repaired hold and the printed fail."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fedge.core.graph import edge_graph, mixing_matrix
from fedge.core.topology import Topology
from fedge.theory.sdfeel import (
    Setting,
    corollary1_printed,
    corollary1_rate,
    disagreement_fixed,
    theorem1_fixed,
    theorem1_printed,
    v2_printed,
    v2_repaired,
)
from fedge.theory.sdfeel_lemmas import lemma2, lemma6, lemma8, lemma9
from tests.theory.quadratics import Quadratics

BASE = Setting(tau1=5, tau2=1, q=0.0, s2=0.02, gap0=2.0, gap1=2.0, smooth=1.0, sigma2=1.0, kappa2=1.0, kappa2_mean=1.0)
CASES = pytest.mark.parametrize(("tau1", "tau2", "alpha"), [(1, 1, 1), (5, 1, 1), (3, 2, 2), (2, 4, 1)])
GRAPHS = pytest.mark.parametrize("name", ["ring", "bipartite", "complete", "star", "path"])


def problem(name: str, uneven: bool) -> tuple[Quadratics, np.ndarray, float]:
    rng = np.random.default_rng(3)
    topology = Topology.of(np.repeat(np.arange(6), 2), rng.integers(1, 9, 12) if uneven else np.ones(12))
    mixing, zeta = mixing_matrix(edge_graph(name, 6), topology.cell_weight)
    return Quadratics(topology, np.array([0.2, 1.0]), rng.normal(0, 2, (2, 12)), 0.5), mixing, zeta


@GRAPHS
@CASES
@pytest.mark.parametrize("uneven", [False, True])
def test_the_repaired_bounds_hold_on_quadratics(name, tau1, tau2, alpha, uneven):
    """Theorem 1 and Lemmas 2, 6, 8 and 9, fixed, with every constant known and no sampling.

    With its s2 Lemma 8 would fail at (5,1) on the complete graph of equal cells. The other printed forms would pass
    here: what refutes them is in `test_sdfeel_lemmas`.
    """
    quadratics, mixing, zeta = problem(name, uneven)
    s = quadratics.setting(tau1, tau2, zeta**alpha)
    b = s.tau - 1 + s.tau * s.q / (1 - s.q)
    lr = 0.9 * min(1.0, 1 / (math.sqrt(8) * b) if b else 1.0)
    found = quadratics.train(mixing, alpha, tau1, tau2, lr, 240)
    whole = theorem1_fixed(s, lr, 240)
    assert whole.valid
    assert found.gradient2 <= whole.value
    assert found.apart <= sum(disagreement_fixed(s, lr).values()) + 1e-12
    assert found.apart <= lemma2(s, lr, found.own2, fixed=True).value + 1e-12
    assert found.common2 <= lemma6(s, found.own2, fixed=True).value
    assert found.t1 <= lemma8(s, lr, fixed=True).value + 1e-12
    assert found.t2 <= lemma9(s, lr, found.own2, fixed=True).value + 1e-12
    assert found.apart <= found.t1 + found.t2 + 1e-12


@pytest.mark.parametrize(
    ("name", "tau1", "tau2"), [("ring", 2, 2), ("complete", 5, 1), ("complete", 1, 5), ("star", 1, 1)]
)
def test_the_repaired_theorem_holds_where_drift_moves_the_mean(name, tau1, tau2):
    """F_i = ½h_i(w − c_i)² with h = 1 or 0.02, from the optimum, no noise: Δ = 0, and u leaves all the same.

    SGD's bound, without L²D̄, would be 0 here; κ² is the largest weighted mean at a model u that was reached.
    """
    topology = Topology.of(np.repeat(np.arange(6), 2), np.random.default_rng(0).integers(1, 9, 12))
    mixing, q = mixing_matrix(edge_graph(name, 6), topology.cell_weight)
    m, h = topology.weight, np.where(np.arange(12) % 4 < 2, 1.0, 0.02)
    centre = np.where(h == 1, 1.0, -1.0)
    best, tau = m @ (h * centre) / (m @ h), tau1 * tau2
    lr = 0.9 / math.sqrt(8) / (tau - 1 + tau * q / (1 - q))
    w, gradients, unlike, apart = np.full(12, best), [], [], []
    for k in range(1, 301):
        u = m @ w
        whole = m @ h * (u - best)
        gradients.append(whole**2)
        unlike.append(m @ (h * (u - centre) - whole) ** 2)
        apart.append(m @ (w - u) ** 2)
        inside = topology.edge_operator if k % tau1 == 0 else topology.identity
        w = (w - lr * h * (w - centre)) @ (topology.gossip_operator(mixing, 1) if k % tau == 0 else inside)
    s = replace(
        BASE, tau1=tau1, tau2=tau2, q=q, s2=m @ m, gap0=0.0, sigma2=0.0, kappa2=max(unlike), kappa2_mean=max(unlike)
    )
    whole = theorem1_fixed(s, lr, 300)
    assert whole.valid
    assert 1e-7 < np.mean(gradients) <= whole.value
    assert np.mean(apart) <= sum(disagreement_fixed(s, lr).values())


@GRAPHS
@CASES
def test_the_printed_theorem_and_lemma_2_hold_in_ordinary_cases(name, tau1, tau2, alpha):
    """Equal clients, the largest step of (15): these 20 cases do not show that both fail, as the hill below does."""
    quadratics, mixing, zeta = problem(name, uneven=False)
    s = quadratics.setting(tau1, tau2, zeta**alpha)
    v2 = v2_printed(s)
    lr = 0.999 * 2 / (12 + math.sqrt(144 + 8 * v2))  # 1 − 12η − 2η²V2 = 0
    found = quadratics.train(mixing, alpha, tau1, tau2, lr, 240)
    printed = theorem1_printed(replace(s, gap1=found.gap1), lr, 240, 12)
    assert printed.valid
    assert found.after <= printed.value
    assert found.apart <= lemma2(s, lr, found.own2, fixed=False).value + 1e-12


def test_the_printed_theorem_fails_for_unequal_cells_with_the_papers_mixing():
    """Two clients, m = (.8, .2), F_i = ½(w ∓ 1)², P = ½11ᵀ by (6), τ1 = τ2 = 1: ζ = 0, V1 = V2 = 0, so (16) is 2Δ/(ηK).

    But every gossip takes the plain mean, so training settles at 0 and not at 0.6: ‖∇F‖² tends to 0.36.
    """
    two = Quadratics(Topology.of([0, 1], [0.8, 0.2]), np.array([1.0]), np.array([[1.0, -1.0]]), 0.0)
    mixing, zeta = mixing_matrix(edge_graph("complete", 2), np.full(2, 0.5))
    found = two.train(mixing, 1, 1, 1, 0.4, 200)
    printed = theorem1_printed(two.setting(1, 1, zeta, found.gap1), 0.4, 200, 2)
    assert printed.valid
    assert printed.value < 0.01 < 0.35 < found.after
    weighted, zeta = mixing_matrix(edge_graph("complete", 2), two.topology.cell_weight)
    s = two.setting(1, 1, zeta)
    assert two.train(weighted, 1, 1, 1, 0.4, 200).gradient2 <= theorem1_fixed(s, 0.4, 200).value


def split_by_a_hill(
    lr: float, period: int, distance: float, rounds: int = 1
) -> tuple[Setting, float, float, float, float]:
    """Train F_{1,2} = F ± w, one client per cell, τ1 = 1, τ2 = `period`, all edges averaged by gossip: q = 0, κ = 1.

    F has a hilltop at 0 and valleys at `distance` R to the right, with slopes ±1, and to the left, with slopes ±½, so
    L = 1, F* = −R²/4. One client runs right and the other, later, left: meanwhile the mean stands on a slope of R/2.
    Returns the setting, means of ‖∇F(u)‖² over k = 1..K and 0..K−1, the disagreement, and J.
    """

    def slope(w: np.ndarray) -> np.ndarray:
        right = np.where(w < distance / 2, -w, w - distance)
        return np.where(w >= 0, right, np.where(w > -distance / 2, -w / 2, (w + distance) / 2))

    w, pull = np.zeros(2), np.array([-1.0, 1.0])
    squares, apart, own2 = [0.0], [], []
    for k in range(1, rounds * period + 1):
        apart.append(w.var())
        own2.append(((slope(w) - pull) ** 2).mean())
        w = w - lr * (slope(w) - pull)
        if k % period == 0:
            w = np.full(2, w.mean())
        squares.append(float(slope(w.mean()) ** 2))
    top = distance**2 / 4
    s = Setting(1, period, 0.0, s2=0.5, gap0=top, gap1=top, smooth=1, sigma2=0, kappa2=1, kappa2_mean=1)
    return s, float(np.mean(squares[1:])), float(np.mean(squares[:-1])), float(np.mean(apart)), float(np.mean(own2))


def test_the_printed_theorem_and_lemma_2_fail_for_equal_clients_too():
    """S5 has consequences: V2 = 0 for τ1 = 1 and ζ^α = 0, so (15) admits η = 1/(LC) = ½ for any τ2, here 80.

    Disagreement then grows as 1.5^t and not as V1's τ⁴. With V2 as repaired (15) would be −3160 and Lemma 2 holds.
    """
    s, after, _, apart, own2 = split_by_a_hill(0.5, 80, 1e5)
    printed = theorem1_printed(s, 0.5, 80, 2)
    assert printed.valid
    assert printed.value < after / 3
    assert lemma2(s, 0.5, own2, fixed=False).value < apart / 3
    assert apart <= lemma2(s, 0.5, own2, fixed=True).value
    assert not theorem1_fixed(s, 0.5, 80).valid
    assert 1 - 2 * 0.5 - 2 * 0.25 * v2_repaired(s) == -3160


def test_the_printed_corollary_fails_for_equal_clients_too():
    """The same at the corollary's own rate, K = τ2 = 4000: η = √(2/4000)."""
    s, after, *_ = split_by_a_hill(corollary1_rate(replace(BASE, s2=0.5), 4000), 4000, 1e7)
    printed = corollary1_printed(s, 4000, 2)
    assert printed.valid
    assert printed.value < after / 3


@pytest.mark.parametrize("period", [2, 10, 80])
def test_the_repaired_theorem_holds_on_the_hill(period):
    """The same clients at the largest step that the repair admits, over 20 rounds, near the top and far from it."""
    lr = 1 / (math.sqrt(8) * (period - 1))
    for distance in (1e5, 5.0):
        s, _, before, apart, _ = split_by_a_hill(lr * (1 - 1e-12), period, distance, rounds=20)
        whole = theorem1_fixed(s, lr * (1 - 1e-12), 20 * period)
        assert whole.valid
        assert before <= whole.value
        assert apart <= sum(disagreement_fixed(s, lr).values())
