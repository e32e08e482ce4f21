"""SD-FEEL's lemmas: what fails in print, with the inequality it fails at, and what holds instead."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.core.graph import edge_graph, mixing_matrix
from fedge.core.topology import Topology
from fedge.theory.sdfeel import Setting
from fedge.theory.sdfeel_lemmas import (
    equation13,
    lemma1,
    lemma2,
    lemma3,
    lemma4,
    lemma5,
    lemma6,
    lemma7,
    lemma8,
    lemma9,
)
from tests.theory.quadratics import Quadratics

BASE = Setting(tau1=5, tau2=1, q=0.0, s2=0.02, gap0=2.0, gap1=2.0, smooth=1.0, sigma2=1.0, kappa2=1.0, kappa2_mean=1.0)
UNEQUAL = Topology.of([0, 0, 1, 1], [0.6, 0.1, 0.2, 0.1])


def algorithm1(topology, mixing, alpha, tau1, tau2, gradients, lr):
    """Algorithm 1 line by line, with a client's gradient given: no matrix over clients occurs."""
    models, m = [0.0] * topology.clients, topology.weight
    for k in range(1, len(gradients) + 1):
        models = [w - lr * g for w, g in zip(models, gradients[k - 1], strict=True)]
        if k % tau1 == 0:
            edges = [sum(m[i] * models[i] for i in own) / sum(m[i] for i in own) for own in topology.roster]
            for _ in range(alpha if k % (tau1 * tau2) == 0 else 0):
                edges = [sum(mixing[j, d] * edges[j] for j in range(len(edges))) for d in range(len(edges))]
            models = [edges[d] for d in topology.cell]
    return np.array(models)


def test_lemma_1_selects_the_operator_by_the_next_iteration():
    """Algorithm 1 with (2, 2) on a ring of four is (11) with T chosen by k + 1; chosen by k it is something else."""
    rng = np.random.default_rng(0)
    topology = Topology.of(np.repeat(np.arange(4), 2), rng.integers(1, 5, 8))
    mixing, _ = mixing_matrix(edge_graph("ring", 4), topology.cell_weight)
    gradients = rng.normal(size=(10, 8))
    operators = {"I": topology.identity, "H1": topology.edge_operator, "H2": topology.gossip_operator(mixing, 2)}
    ends = {}
    for fixed in (True, False):
        w = np.zeros(8)
        for k, g in enumerate(gradients):
            w = (w - 0.1 * g) @ operators[lemma1(2, 2, k, fixed=fixed)]
        ends[fixed] = w
    expected = algorithm1(topology, mixing, 2, 2, 2, gradients, 0.1)
    np.testing.assert_allclose(ends[True], expected, atol=1e-12)
    assert np.abs(ends[False] - expected).max() > 0.01
    assert [lemma1(2, 2, k, fixed=True) for k in range(4)] == ["I", "H1", "I", "H2"]
    assert lemma1(2, 2, 0, fixed=False) == "H2"


@pytest.mark.parametrize("name", ["ring", "bipartite", "complete", "star", "path"])
@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("alpha", [1, 3])
def test_lemmas_3_4_and_7_hold_for_the_weighted_mixing_matrix(name, uneven, alpha):
    """And, where cells and clients are equal, in the unweighted norm as printed. A star's P has a negative entry."""
    rng = np.random.default_rng(1)
    topology = Topology.of(np.repeat(np.arange(5), 3), rng.integers(1, 9, 15) if uneven else np.ones(15))
    mixing, zeta = mixing_matrix(edge_graph(name, 5), topology.cell_weight)
    gossip = topology.gossip_operator(mixing, alpha)
    assert all(lemma3(topology, mixing, alpha).values())
    for operator in (topology.identity, topology.edge_operator, gossip):
        assert all(lemma4(topology, operator).values())
    for fixed in (True, False)[: 1 if uneven else 2]:
        assert lemma7(topology, topology.edge_operator, fixed=fixed) == pytest.approx(1)
        for power in (1, 2):
            assert lemma7(topology, gossip, power, fixed=fixed) == pytest.approx(zeta ** (alpha * power), abs=1e-9)
    assert (mixing.min() < 0) == (name == "star") or uneven


def test_lemmas_3_4_and_7_fail_as_printed_for_unequal_cells():
    """S3: m = (.6, .1, .2, .1) in two cells, P = ½11ᵀ, the paper's for any two: H2·m ≠ m and ‖H1 − A‖ = 1.233.

    H2·m is half of (6/7, 1/7, 2/3, 1/3). ζ = 0, yet ‖H2 − A‖ is not 0, in neither norm.
    """
    mixing, zeta = mixing_matrix(edge_graph("complete", 2), np.full(2, 0.5))
    np.testing.assert_allclose(mixing, np.full((2, 2), 0.5), atol=1e-12)
    gossip = UNEQUAL.gossip_operator(mixing, 1)
    np.testing.assert_allclose(gossip @ UNEQUAL.weight, [3 / 7, 1 / 14, 1 / 3, 1 / 6])
    assert [name for name, holds in lemma3(UNEQUAL, mixing, 1).items() if not holds] == ["H2m = m"]
    assert lemma4(UNEQUAL, gossip) == {"TA = A": False, "AT = A": True}
    assert lemma7(UNEQUAL, UNEQUAL.edge_operator, fixed=False) == pytest.approx(1.233, abs=1e-3)
    assert lemma7(UNEQUAL, UNEQUAL.edge_operator, fixed=True) == pytest.approx(1)
    assert zeta == pytest.approx(0, abs=1e-12)
    assert min(lemma7(UNEQUAL, gossip, fixed=fixed) for fixed in (True, False)) > 0.1


def test_lemma_3_does_not_ask_for_eigenvalues_below_one_of_isolated_cells():
    """α = 0 is H1, with the eigenvalue 1 once for each cell: "no greater than 1" is all that holds there."""
    found = lemma3(UNEQUAL, np.eye(2), 0)
    assert not found.pop("all but one are below 1")
    assert all(found.values())


def test_the_printed_lemma_5_fails_where_clients_differ():
    """S1: F_{1,2} = ½(w ∓ 1)², w_i = u = 0, η = 0.1, no noise: F(u) stays, the print has it fall by 0.05·0.8 = 0.04."""
    s = replace(BASE, s2=0.5, sigma2=0.0)
    printed, fixed = (lemma5(s, 0.1, 0.0, 1.0, 0.0, clients=2, fixed=f).value for f in (False, True))
    assert printed == pytest.approx(-0.04)
    assert printed < 0 <= fixed
    assert equation13(s, 0.1, 0.0, 1.0, 0.0, 2).value == pytest.approx(-0.04)


def test_equation_13_underrates_the_noise_of_unequal_clients():
    """F_i = ½w² and w_i = u = 0, so κ = 0: F(u⁺) − F(u) = ½η²σ²Σm_i² = 0.0041 for m = (.9, .1), η = 0.1, σ = 1.

    (13) allows ½η²σ²/C = 0.0025; Lemma 5 is exact.
    """
    s = replace(BASE, s2=0.82, kappa2=0.0, kappa2_mean=0.0)
    assert equation13(s, 0.1, 0.0, 0.0, 0.0, 2).value == pytest.approx(0.0025)
    assert lemma5(s, 0.1, 0.0, 0.0, 0.0, 2, fixed=False).value == pytest.approx(0.0041)
    assert equation13(replace(s, s2=0.5), 0.1, 0, 0, 0, 2) == lemma5(replace(s, s2=0.5), 0.1, 0, 0, 0, 2, fixed=False)


@given(st.integers(0, 10**6), st.integers(1, 6), st.floats(0.001, 1), st.booleans())
def test_lemmas_5_and_6_hold_on_quadratics(seed, clients, lr, alike):
    """F_i = ½(w − c_i)ᵀH(w − c_i), exact gradients: ∇F_i − ∇F is H(c̄ − c_i) at any model; L = 1 ≥ H.

    Fixed they hold; as printed where clients are alike (κ = 0).
    """
    rng = np.random.default_rng(seed)
    m, h = rng.dirichlet(np.ones(clients)), rng.uniform(0, 1, 3)
    centre, w = rng.normal(size=(3, 1 if alike else clients)), rng.normal(size=(3, clients))
    centre = np.broadcast_to(centre, w.shape)
    mean, u = centre @ m, w @ m
    own, whole = h[:, None] * (w - centre), h[:, None] * (w - mean[:, None])
    after = u - lr * own @ m
    fall = 0.5 * h @ ((after - mean) ** 2 - (u - mean) ** 2)
    unlike = ((own - whole) ** 2).sum(0)
    s = replace(BASE, s2=float(m @ m), sigma2=0.0, kappa2=float(unlike.max()), kappa2_mean=float(m @ unlike))
    gradient2, own2, apart = float((h**2) @ (u - mean) ** 2), m @ (own**2).sum(0), m @ ((w.T - u) ** 2).sum(1)
    for fixed in (True, False)[: 2 if alike else 1]:
        assert fall <= lemma5(s, lr, gradient2, own2, apart, clients, fixed=fixed).value + 1e-12
        assert m @ (whole**2).sum(0) <= lemma6(s, own2, fixed=fixed).value * (1 + 1e-12)


def test_the_printed_lemma_6_drops_a_cross_term():
    """S2: F_{1,2} = 2w ∓ cos w at w = ∓π/2, m = (½, ½), κ = 1, J = 1: Σ m_i‖∇F(w_i)‖² is 4, the print allows 1.5."""
    s = replace(BASE, s2=0.5)
    own = 2 + np.array([1.0, -1.0]) * np.sin([-np.pi / 2, np.pi / 2])  # ∇F_i(w_i); ∇F = 2 everywhere
    j = (0.5 * own**2).sum()
    printed, fixed = (lemma6(s, j, fixed=f).value for f in (False, True))
    assert printed == pytest.approx(1.5)
    assert printed < 4 <= fixed


def test_lemma_6_needs_a_bound_on_every_client():
    """Six clients in pairs; ∇F = 1, and pair p has ∇F_i = 1 ± sin w within π of 2πp, 1 elsewhere: at any one model two
    clients of six differ, so the mean is 1/3, κ = 1. With w_i = 2πp ∓ π/2, J = 0 and Σ m_i‖∇F(w_i)‖² = 1.

    The weighted mean in place of κ² would allow 2/3.
    """
    pair, sign = np.repeat(np.arange(3), 2), np.tile([1.0, -1.0], 3)

    def unlike(w):
        return sign * np.where(np.abs(w - 2 * np.pi * pair) <= np.pi, np.sin(w), 0.0)

    at = np.array([unlike(w) ** 2 for w in np.linspace(-4, 16, 2001)])
    s = replace(BASE, s2=1 / 6, kappa2=float(at.max()), kappa2_mean=float(at.mean(1).max()))
    own = 1 + unlike(2 * np.pi * pair - sign * np.pi / 2)
    np.testing.assert_allclose(own, 0, atol=1e-12)
    assert lemma6(replace(s, kappa2=s.kappa2_mean), 0.0, fixed=True).value == pytest.approx(2 / 3, rel=1e-4)
    assert lemma6(s, 0.0, fixed=True).value == pytest.approx(2, rel=1e-4)


def test_the_printed_lemma_8_has_squared_weights_where_weights_belong():
    """κ = 0, τ1 = 2, q = 0, C equal clients: every second model is one noisy step away, T1 = η²σ²(1 − 1/C) in the mean.

    As printed 2η²(1/C)·2·(1·5/6)σ² = (10/3)η²σ²/C, less from C = 5 on. A run with C = 12 finds T1 = 11/12 η²σ².
    """
    cells = Topology.of(np.repeat(np.arange(6), 2), np.ones(12))
    mixing, _ = mixing_matrix(edge_graph("complete", 6), cells.cell_weight)
    flat = Quadratics(cells, np.array([1.0]), np.zeros((1, 12)), 3.0)
    found = flat.train(mixing, 1, 2, 1, 0.1, 20).t1
    s = flat.setting(2, 1, 0.0)
    assert found == pytest.approx(0.01 * 3 * 11 / 12)
    printed, fixed = (lemma8(s, 0.1, fixed=f).value for f in (False, True))
    assert printed == pytest.approx(0.01 * 3 * 10 / 3 / 12)
    assert printed < found <= fixed


def test_the_printed_lemma_9_forgets_the_steps_between_edge_rounds():
    """V2 = 0 for τ1 = 1 and q = 0, so the print says T2 = 0; two cells that pull apart for τ2 = 5 rounds disagree.

    F_{1,2} = ½(w ∓ 1)², one client per cell, η = 0.1, so ∇F(w_i) = w_i ≠ 0 from the second step on.
    """
    cells = Topology.of([0, 1], [1, 1])
    two = Quadratics(cells, np.array([1.0]), np.array([[1.0, -1.0]]), 0.0)
    found = two.train(np.full((2, 2), 0.5), 1, 1, 5, 0.1, 20)
    s = two.setting(1, 5, 0.0)
    assert lemma9(s, 0.1, found.own2, fixed=False).value == 0 < found.t2
    assert found.t2 <= lemma9(s, 0.1, found.own2, fixed=True).value


def test_lemmas_2_8_and_9_by_hand():
    """(τ1, τ2) = (5, 1), q = 0: Λ = 0, ρ = 2, drift 4·11/6 = 22/3. V1 = 25·2·22/3 in Lemma 2 and 44/3 in Lemma 8;
    V2 = 25·2·4/5 = 40, repaired 2·5·4/2 = 20. η = 0.1, s2 = ½, σ² = 2, κ² = 3, J = 7."""
    s = replace(BASE, s2=0.5, sigma2=2.0, kappa2=3.0)
    printed, fixed = (list(lemma2(s, 0.1, 7, fixed=f).terms.values()) for f in (False, True))
    assert printed == pytest.approx([0.02 * 1100 / 3 * 2, 0.02 * (1100 / 3 + 20) * 3, 0.02 * 40 * 7])
    assert fixed == pytest.approx([0.02 * 44 / 3 * 2, 0.02 * (44 / 3 + 40) * 3, 0.02 * 40 * 7])
    eight = [list(lemma8(s, 0.1, fixed=f).terms.values()) for f in (False, True)]
    assert eight == [
        pytest.approx([0.02 * 22 / 3 * 2, 0.02 * 22 / 3 * 3]),
        pytest.approx([0.02 * 44 / 3 * 2, 0.02 * 44]),
    ]
    nine = [list(lemma9(s, 0.1, 7, fixed=f).terms.values()) for f in (False, True)]
    assert nine == [pytest.approx([0.02 * 40 * 1.5, 0.02 * 40 * 7]), pytest.approx([0.02 * 20 * 6, 0.02 * 20 * 14])]


def test_lemma_5_by_hand():
    """η = 0.1, L = 2, ‖∇F‖² = 3, J = 5, D = 7, s2 = ½, σ² = 2, κ² = 1 in the mean and 9 at most, C = 2."""
    s = replace(BASE, smooth=2.0, s2=0.5, sigma2=2.0, kappa2=9.0)
    printed, fixed = (list(lemma5(s, 0.1, 3.0, 5.0, 7.0, 2, fixed=f).terms.values()) for f in (False, True))
    assert printed == pytest.approx([-0.15, -0.05 * 0.6 * 5, 0.05 * 4 * 7, 0.01])
    assert fixed == pytest.approx([-0.15, -0.05 * 0.8 * 5, 0.1 * 4 * 7, 0.01, 0.1])
