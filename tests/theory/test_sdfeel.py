import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fedge.core.graph import edge_graph, mixing_matrix
from fedge.core.topology import Topology
from fedge.theory.sdfeel import (
    Setting,
    corollary1_fixed,
    corollary1_printed,
    corollary1_rate,
    disagreement_fixed,
    lemma2_printed,
    lemma5,
    lemma6,
    theorem1_fixed,
    theorem1_printed,
    v1_lemma8,
    v1_printed,
    v2_printed,
    v2_repaired,
)

settings = st.builds(
    Setting, tau1=st.integers(1, 10), tau2=st.integers(1, 5), q=st.floats(0, 0.95), s2=st.floats(0.01, 1),
    gap=st.floats(0, 10), smooth=st.floats(0.1, 10), sigma2=st.floats(0, 5), kappa2=st.floats(0, 5),
)  # fmt: skip
BASE = Setting(tau1=5, tau2=1, q=0.0, s2=0.02, gap=2.0, smooth=1.0, sigma2=1.0, kappa2=1.0)


def test_constants_at_the_papers_setting():
    """(5,1), q = 0: V1 is 366.7 as printed in Lemma 2 and 14.7 in Lemma 8 (25·2·44/6 and 2·44/6)."""
    assert v1_printed(BASE) == pytest.approx(25 * 2 * 44 / 6)
    assert v1_lemma8(BASE) == pytest.approx(2 * 44 / 6)
    # τ1 = 1, τ2 = 5: V2 is 0 as printed; the sum it stands for is ρ·τ(τ−1)/2 = 2·10.
    assert v2_printed(replace(BASE, tau1=1, tau2=5)) == 0
    assert v2_repaired(replace(BASE, tau1=1, tau2=5)) == pytest.approx(20)


def test_fixed_is_sgd_where_every_step_averages():
    """τ = 1 and q = 0: 2Δ/(ηK) + Lηs2σ² and nothing else."""
    found = theorem1_fixed(replace(BASE, tau1=1), 0.1, 100)
    assert found.valid
    assert found.value == pytest.approx(2 * 2 / (0.1 * 100) + 0.1 * 0.02)


@given(settings, st.floats(1e-4, 0.1), st.sampled_from(["tau1", "tau2", "q", "sigma2", "kappa2", "gap"]))
def test_bounds_grow_with_every_hardship(s, lr, field):
    """Rarer averaging (τ1, τ2), a sparser graph or fewer exchanges (q = ζ^α), more noise, less alike clients."""
    worse = replace(s, **{field: getattr(s, field) + (1 if field.startswith("tau") else 0.04)})
    assume(worse.q < 1)
    for theorem in (lambda s: theorem1_printed(s, lr, 1000, 50), lambda s: theorem1_fixed(s, lr, 1000)):
        assert theorem(worse).value >= theorem(s).value * (1 - 1e-12)
    assert v1_lemma8(worse) >= v1_lemma8(s) * (1 - 1e-12)
    assert v2_repaired(worse) >= v2_repaired(s) * (1 - 1e-12)


@given(settings, st.floats(0.05, 0.9), st.integers(1, 6))
def test_more_gossip_never_hurts(s, zeta, steps):
    few, many = (theorem1_fixed(replace(s, q=zeta**a), 0.01, 1000).value for a in (steps, steps + 1))
    assert many <= few * (1 + 1e-12)


def test_isolated_cells_have_no_bound_unless_nothing_drives_them_apart():
    assert math.isinf(theorem1_fixed(replace(BASE, q=1.0), 0.01, 100).value)
    assert not theorem1_fixed(replace(BASE, q=1.0), 0.01, 100).valid
    assert math.isinf(theorem1_printed(replace(BASE, q=1.0), 0.01, 100, 50).value)


def test_corollary_needs_c_cubed_iterations_as_printed():
    """C = 50 equal clients, V2 = 0 (τ1 = 1): the printed condition holds from K = C³ = 125,000 on."""
    s = replace(BASE, tau1=1, tau2=1)
    assert not corollary1_printed(s, 124_999, 50).valid
    assert corollary1_printed(s, 125_001, 50).valid
    assert corollary1_fixed(s, 51).valid


def test_corollary_is_the_theorem_at_its_rate():
    """Every term of the printed corollary from the printed theorem at η = (1/L)(K s2)^{-1/2}."""
    s, steps = replace(BASE, smooth=3.0, q=0.3), 10_000
    theorem = theorem1_printed(s, corollary1_rate(s, steps), steps, 50).terms
    corollary = corollary1_printed(s, steps, 50).terms
    assert corollary["O(√(s2/K))"] == pytest.approx(theorem["optimality gap"] + theorem["gradient noise"])
    for name in ("noise through disagreement", "unlike clients"):
        assert corollary[name] == pytest.approx(theorem[name])


def simulate(topology, mixing, alpha, tau1, tau2, lr, steps, curvature, centre, sigma2):
    """SD-FEEL on F_i = ½(w−c_i)ᵀH(w−c_i), H diagonal, Gaussian noise: exact first and second moments, no sampling.

    Returns the means over k of E‖∇F(u_k)‖² and of E‖W_k(I − A)‖²_m.
    """
    m, clients = topology.weight, topology.clients
    apart = np.eye(clients) - topology.cloud_operator
    weighted = np.diag(m)
    mean = np.zeros((len(curvature), clients))
    covariance = np.zeros((len(curvature), clients, clients))
    centre_mean = centre @ m
    gradients, spreads = [], []
    for k in range(1, steps + 1):
        u = mean @ m - centre_mean
        gradients.append(sum(h**2 * (u[i] ** 2 + m @ covariance[i] @ m) for i, h in enumerate(curvature)))
        spreads.append(sum(
            (mean[i] @ apart) @ weighted @ (mean[i] @ apart) + np.trace(apart @ weighted @ apart.T @ covariance[i])
            for i in range(len(curvature))
        ))  # fmt: skip
        if k % (tau1 * tau2) == 0:
            t = topology.gossip_operator(mixing, alpha)
        else:
            t = topology.edge_operator if k % tau1 == 0 else topology.identity
        for i, h in enumerate(curvature):
            mean[i] = ((1 - lr * h) * mean[i] + lr * h * centre[i]) @ t
            noise = lr**2 * sigma2 / len(curvature) * np.eye(clients)
            covariance[i] = t.T @ ((1 - lr * h) ** 2 * covariance[i] + noise) @ t
    return np.mean(gradients), np.mean(spreads)


@pytest.mark.parametrize("name", ["ring", "bipartite", "complete", "star", "path"])
@pytest.mark.parametrize(("tau1", "tau2", "alpha"), [(1, 1, 1), (5, 1, 1), (3, 2, 2), (2, 4, 1)])
@pytest.mark.parametrize("uneven", [False, True])
def test_fixed_bound_holds_on_quadratics(name, tau1, tau2, alpha, uneven):
    """Every constant is known: L = max h, κ² = Σ m_i‖H(c_i − c̄)‖², σ² as drawn, Δ = F(0) − F(c̄)."""
    rng = np.random.default_rng(3)
    cell = np.repeat(np.arange(6), 2)
    topology = Topology.of(cell, rng.integers(1, 9, 12) if uneven else np.ones(12))
    mixing, zeta = mixing_matrix(edge_graph(name, 6), topology.cell_weight)
    curvature, centre, sigma2, steps = np.array([0.2, 1.0]), rng.normal(0, 2, (2, 12)), 0.5, 240
    mean = centre @ topology.weight
    kappa2 = sum(topology.weight @ (h * (centre[i] - mean[i])) ** 2 for i, h in enumerate(curvature))
    gap = 0.5 * curvature @ mean**2
    q = zeta**alpha
    setting = Setting(tau1, tau2, q, float(topology.weight @ topology.weight), gap, 1.0, sigma2, kappa2)
    b = tau1 * tau2 - 1 + tau1 * tau2 * q / (1 - q)
    lr = 0.9 * min(1.0, 1 / (math.sqrt(8) * b) if b else 1.0)
    gradient, spread = simulate(topology, mixing, alpha, tau1, tau2, lr, steps, curvature, centre, sigma2)
    found = theorem1_fixed(setting, lr, steps)
    assert found.valid
    assert gradient <= found.value
    assert spread <= sum(disagreement_fixed(setting, lr).values()) + 1e-12


def test_the_printed_lemma_5_fails_where_clients_differ():
    """S1: F_{1,2} = ½(w ∓ 1)², w_i = u = 0, η = 0.1, no noise: F(u) stays, the print has it fall by 0.05·0.8."""
    s = replace(BASE, s2=0.5, sigma2=0.0, kappa2=1.0)
    printed, fixed = (lemma5(s, 0.1, 0.0, 1.0, 0.0, clients=2, fixed=f).value for f in (False, True))
    assert printed == pytest.approx(-0.04)
    assert printed < 0 <= fixed


@given(st.integers(0, 10**6), st.integers(1, 6), st.floats(0.001, 1))
def test_the_fixed_lemmas_5_and_6_hold_on_quadratics(seed, clients, lr):
    """F_i = ½(w − c_i)ᵀH(w − c_i), exact gradients: ∇F_i − ∇F is H(c̄ − c_i) at any model; L = 1 ≥ H."""
    rng = np.random.default_rng(seed)
    m, h = rng.dirichlet(np.ones(clients)), rng.uniform(0, 1, 3)
    centre, w = rng.normal(size=(3, clients)), rng.normal(size=(3, clients))
    mean, u = centre @ m, w @ m
    own, whole = h[:, None] * (w - centre), h[:, None] * (w - mean[:, None])
    after = u - lr * own @ m
    fall = 0.5 * h @ ((after - mean) ** 2 - (u - mean) ** 2)
    unlike = ((own - whole) ** 2).sum(0)
    s = replace(BASE, s2=float(m @ m), sigma2=0.0, kappa2=float(m @ unlike))
    gradient2, own2, apart = float((h**2) @ (u - mean) ** 2), m @ (own**2).sum(0), m @ ((w.T - u) ** 2).sum(1)
    assert fall <= lemma5(s, lr, gradient2, own2, apart, clients, fixed=True).value + 1e-12
    s = replace(s, kappa2=float(unlike.max()))
    assert m @ (whole**2).sum(0) <= lemma6(s, own2, fixed=True).value * (1 + 1e-12)


def test_lemma_2_as_printed():
    """(τ1, τ2) = (5, 1), q = 0: Λ = 0, ρ = 2; V1 = 25·2·(4·11/6) = 366.7, V2 = 25·2·4/5 = 40."""
    s = Setting(5, 1, 0.0, s2=0.5, gap=1, smooth=1, sigma2=2, kappa2=3)
    terms = lemma2_printed(s, 0.1, 7).terms
    assert list(terms.values()) == pytest.approx([0.02 * 1100 / 3 * 2, 0.02 * (1100 / 3 + 20) * 3, 0.02 * 40 * 7])


def test_the_printed_lemma_6_drops_a_cross_term():
    """S2: F_{1,2} = 2w ∓ cos w at w = ∓π/2, m = (½, ½), κ = 1, J = 1: Σ m_i‖∇F(w_i)‖² is 4, the print allows 1.5."""
    s = replace(BASE, s2=0.5, kappa2=1.0)
    own = 2 + np.array([1.0, -1.0]) * np.sin([-np.pi / 2, np.pi / 2])  # ∇F_i(w_i); ∇F = 2 everywhere
    j = (0.5 * own**2).sum()
    printed, fixed = (lemma6(s, j, fixed=f).value for f in (False, True))
    assert printed == pytest.approx(1.5)
    assert printed < 4 <= fixed


def test_the_papers_operator_loses_the_mean_for_unequal_cells():
    """S3: m = (.6, .1, .2, .1) in two cells with P = ½11ᵀ: H2·m ≠ m and ‖H1 − A‖ = 1.233, not 1."""
    topology = Topology.of([0, 0, 1, 1], [0.6, 0.1, 0.2, 0.1])
    m = topology.weight
    mixed = topology.gossip_operator(np.full((2, 2), 0.5), 1) @ m
    np.testing.assert_allclose(mixed, [0.43, 0.07, 0.33, 0.17], atol=5e-3)
    assert np.linalg.norm(topology.edge_operator - topology.cloud_operator, 2) == pytest.approx(1.233, abs=1e-3)
