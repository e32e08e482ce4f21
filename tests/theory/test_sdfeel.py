"""SD-FEEL's constants, Theorem 1, Corollary 1 and the remarks."""

import math
from dataclasses import replace

import networkx
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fedge.core.graph import edge_graph, mixing_matrix
from fedge.errors import ConfigError
from fedge.theory import sdfeel
from fedge.theory.sdfeel import (
    Setting,
    corollary1_fixed,
    corollary1_printed,
    corollary1_rate,
    disagreement_fixed,
    iterations_fixed,
    iterations_printed,
    theorem1_fixed,
    theorem1_printed,
    v1_lemma8,
    v1_printed,
    v2_printed,
    v2_repaired,
)
from fedge.theory.sdfeel_lemmas import lemma8

settings = st.builds(
    lambda kappa2, share, **rest: Setting(kappa2=kappa2, kappa2_mean=share * kappa2, **rest),
    tau1=st.integers(1, 10), tau2=st.integers(1, 5), q=st.floats(0, 0.95), s2=st.floats(0.01, 1),
    gap0=st.floats(0, 10), gap1=st.floats(0, 10), smooth=st.floats(0.1, 10), sigma2=st.floats(0, 5),
    kappa2=st.floats(0, 5), share=st.floats(0, 1),
)  # fmt: skip
BASE = Setting(tau1=5, tau2=1, q=0.0, s2=0.02, gap0=2.0, gap1=2.0, smooth=1.0, sigma2=1.0, kappa2=1.0, kappa2_mean=1.0)


def test_constants_at_the_papers_setting():
    """(5,1), q = 0: V1 is 366.7 as printed in Lemma 2 and 14.7 in Lemma 8 (25·2·44/6 and 2·44/6)."""
    assert v1_printed(BASE) == pytest.approx(25 * 2 * 44 / 6)
    assert v1_lemma8(BASE) == pytest.approx(2 * 44 / 6)
    # τ1 = 1, τ2 = 5: V2 is 0 as printed; the sum it stands for is ρ·τ(τ−1)/2 = 2·10.
    assert v2_printed(replace(BASE, tau1=1, tau2=5)) == 0
    assert v2_repaired(replace(BASE, tau1=1, tau2=5)) == pytest.approx(20)


def test_lambda_and_rho_sum_the_series_they_stand_for():
    """Λ = Σ_{i≥1} (q^{2i} + 2q^i + q^{i+1}/(1−q)) and ρ = 2 + Σ_{i≥1} q^i, at q = 1/2: 1/3 + 2 + 1 and 3."""
    powers = 0.5 ** np.arange(1, 60)
    assert sdfeel.big_lambda(0.5) == pytest.approx((powers**2 + 2 * powers + 0.5 * powers / 0.5).sum())
    assert sdfeel.big_lambda(0.5) == pytest.approx(10 / 3)
    assert sdfeel.rho(0.5) == pytest.approx(2 + powers.sum()) == pytest.approx(3)


def test_a_mean_over_clients_is_at_most_the_bound_on_every_client():
    with pytest.raises(ConfigError, match="kappa2_mean=2 is above kappa2=1"):
        replace(BASE, kappa2_mean=2.0)


def test_each_form_takes_its_own_gap_and_dissimilarity():
    """The paper's Δ is that of u_1 and its κ bounds every client; the repair needs u_0 and the mean over clients."""
    printed, fixed = theorem1_printed(BASE, 0.01, 100, 50), theorem1_fixed(BASE, 0.01, 100)
    for other in (replace(BASE, gap0=7.0), replace(BASE, kappa2_mean=0.5)):
        assert theorem1_printed(other, 0.01, 100, 50) == printed
        assert theorem1_fixed(other, 0.01, 100) != fixed
    for other in (replace(BASE, gap1=7.0), replace(BASE, kappa2=3.0)):
        assert theorem1_printed(other, 0.01, 100, 50) != printed
        assert theorem1_fixed(other, 0.01, 100) == fixed


BY_HAND = Setting(2, 2, 0.5, s2=0.5, gap0=3, gap1=4, smooth=2, sigma2=5, kappa2=7, kappa2_mean=6)


def test_terms_by_hand():
    """τ = 4, q = ½: Λ = 10/3, ρ = 3, drift = 4·1·5/6 + 1·5/6 = 25/6; V1 = 16(10/3 + 12.5) = 760/3.

    V2 = 16(10/3 + 1) = 208/3. η = 0.1, K = 10, C = 2, L = 2.

    Fixed: c = 4, A_σ = 3/2 + 4/3 = 17/6, A_κ = 3·7/6 + 12 + 16 = 31.5, B = 49.
    """
    assert v1_printed(BY_HAND) == pytest.approx(760 / 3)
    assert v2_printed(BY_HAND) == pytest.approx(208 / 3)
    assert v1_lemma8(BY_HAND) == pytest.approx(160 / 3 + 12.5)
    assert v2_repaired(BY_HAND) == pytest.approx(160 / 3 + 3 * (4 + 1))
    printed = theorem1_printed(BY_HAND, 0.1, 10, 2)
    assert list(printed.terms.values()) == pytest.approx([8, 0.5, 0.08 * 760 / 3 * 5, 0.08 * (760 + 104) / 3 * 7])
    assert not printed.valid
    fixed = theorem1_fixed(BY_HAND, 0.1, 10)
    assert list(fixed.terms.values()) == pytest.approx([6, 0.5, 4 * 0.04 * 5 * 17 / 6, 4 * 0.08 * 6 * 31.5])
    assert fixed.conditions == {"η ≤ 1/L": True, "8η²L²(τ−1+c)² ≤ 1": False}


def test_fixed_is_sgd_where_every_step_averages():
    """Remark 3, first half: τ = 1, q = 0 leave 2Δ/(ηK) + Lηs2σ², SGD's bound, in print too; but (15) is η ≤ 1/(LC)."""
    s = replace(BASE, tau1=1)
    fixed, printed = theorem1_fixed(s, 0.1, 100), theorem1_printed(s, 0.1, 100, 50)
    assert fixed.valid
    assert fixed.value == pytest.approx(2 * 2 / (0.1 * 100) + 0.1 * 0.02)
    assert printed.value == pytest.approx(fixed.value)
    assert not printed.valid
    assert theorem1_printed(s, 0.02, 100, 50).valid
    assert theorem1_fixed(s, 1.0, 100).valid


@given(settings, st.floats(1e-4, 0.1), st.sampled_from(["tau1", "tau2", "q", "sigma2", "kappa2", "gap0", "gap1"]))
def test_bounds_grow_with_every_hardship(s, lr, field):
    """Remark 1 (τ1, τ2), Remark 2 with its sign mended (q = ζ^α), more noise, less alike clients, a worse start."""
    worse = replace(s, **{field: getattr(s, field) + (1 if field.startswith("tau") else 0.04)})
    assume(worse.q < 1)
    if field == "kappa2":
        worse = replace(worse, kappa2_mean=s.kappa2_mean + 0.04)
    for theorem in (lambda s: theorem1_printed(s, lr, 1000, 50), lambda s: theorem1_fixed(s, lr, 1000)):
        assert theorem(worse).value >= theorem(s).value * (1 - 1e-12)
    assert v1_lemma8(worse) >= v1_lemma8(s) * (1 - 1e-12)
    assert v2_repaired(worse) >= v2_repaired(s) * (1 - 1e-12)


def test_remark_1_is_strict():
    """From (1,1), longer periods raise the printed bound; a bound that forgot τ1 or τ2 would stay."""
    values = [
        theorem1_printed(replace(BASE, tau1=a, tau2=b), 1e-3, 1000, 50).value for a, b in ((1, 1), (2, 1), (1, 2))
    ]
    assert values[0] < min(values[1:])


@pytest.mark.parametrize("tau", [(1, 1), (5, 1), (5, 5)])
def test_remark_2_has_the_wrong_sign(tau):
    """The print says that the bound decreases with ζ^α: it grows, over the paper's ζ = 0, 1/3, 0.6 and as ζ^α → 1."""
    s = replace(BASE, tau1=tau[0], tau2=tau[1])
    values = [theorem1_printed(replace(s, q=q), 1e-3, 1000, 50).value for q in (0, 1 / 3, 0.6, 0.9)]
    assert values == sorted(values)
    assert values[0] < values[-1]


def test_remark_2_many_exchanges_reach_the_plain_mean_of_equal_cells():
    """Ring of six, α = 50: ζ^α = 0.6⁵⁰ ≈ 8e-12. For unequal cells the paper's P still reaches the plain mean of the
    edges, which is not u; the weighted one reaches u."""
    ring = edge_graph("ring", 6)
    cell_weight = np.arange(1, 7) / 21
    paper, weighted = (mixing_matrix(ring, w)[0] for w in (np.full(6, 1 / 6), cell_weight))
    np.testing.assert_allclose(np.linalg.matrix_power(paper, 50), np.full((6, 6), 1 / 6), atol=1e-11)
    reached = np.linalg.matrix_power(weighted, 300)
    np.testing.assert_allclose(reached, np.outer(cell_weight, np.ones(6)), atol=1e-11)


def test_remark_2_the_partially_connected_graph_of_fig_2_is_one_of_seven():
    """Of the 112 connected graphs with six nodes seven have ζ = 1/3; one of them is regular, and has the fewest links:
    K₃,₃, a hexagon with its three long diagonals."""
    six = [g for g in networkx.graph_atlas_g() if len(g) == 6 and networkx.is_connected(g)]
    third = [g for g in six if abs(mixing_matrix(g, np.full(6, 1 / 6))[1] - 1 / 3) < 1e-9]
    assert (len(six), len(third)) == (112, 7)
    regular = [g for g in third if len({degree for _, degree in g.degree}) == 1]
    assert [networkx.is_isomorphic(g, networkx.complete_bipartite_graph(3, 3)) for g in regular] == [True]
    assert sorted(g.number_of_edges() for g in third) == [9, 10, 11, 11, 12, 12, 13]


@given(settings, st.floats(0.05, 0.9), st.integers(1, 6))
def test_more_gossip_never_hurts(s, zeta, steps):
    few, many = (theorem1_fixed(replace(s, q=zeta**a), 0.01, 1000).value for a in (steps, steps + 1))
    assert many <= few * (1 + 1e-12)


def test_isolated_cells_have_no_bound_unless_nothing_drives_them_apart():
    assert math.isinf(theorem1_fixed(replace(BASE, q=1.0), 0.01, 100).value)
    assert not theorem1_fixed(replace(BASE, q=1.0), 0.01, 100).valid
    assert math.isinf(theorem1_printed(replace(BASE, q=1.0), 0.01, 100, 50).value)
    alike = replace(BASE, q=1.0, sigma2=0.0, kappa2=0.0, kappa2_mean=0.0)
    assert theorem1_fixed(alike, 0.01, 100).value == theorem1_printed(alike, 0.01, 100, 50).value == pytest.approx(4)


def test_corollary_needs_c_cubed_iterations_as_printed():
    """C = 50 equal clients, V2 = 0 (τ1 = 1): the printed condition holds from K = C³ = 125,000 on."""
    s = replace(BASE, tau1=1, tau2=1)
    assert not corollary1_printed(s, 124_999, 50).valid
    assert corollary1_printed(s, 125_001, 50).valid
    assert corollary1_fixed(s, 51).valid
    assert iterations_printed(s, 0.1, 50)["condition"] == 125_000
    assert iterations_fixed(s, 0.1)["condition"] == 50


def test_corollary_is_the_theorem_at_its_rate():
    """Every term of the printed corollary from the printed theorem at η = (1/L)(K s2)^{-1/2}."""
    s, steps = replace(BASE, smooth=3.0, q=0.3), 10_000
    theorem = theorem1_printed(s, corollary1_rate(s, steps), steps, 50).terms
    corollary = corollary1_printed(s, steps, 50).terms
    assert corollary["O(√(s2/K))"] == pytest.approx(theorem["optimality gap"] + theorem["gradient noise"])
    for name in ("noise through disagreement", "unlike clients"):
        assert corollary[name] == pytest.approx(theorem[name])


def test_iterations_by_hand():
    """s2 = ¼, L = Δ = 1, σ² = 2, κ = 0, τ = 2, q = 0: Λ = 0, V1 = 4·2·5/6 = 20/3, (17) is 2/√K + (320/3)/K ≤ ε = 1.

    √K = (2 + √(4 + 1280/3))/2 = 11.376, K = 129.4. (15) with C = 4, V2 = 4: 8/√K + 32/K ≤ 1, √K = 4 + √48, K = 119.4.
    Fixed: A_σ = ½, D̄ = 2η²σ², so 2/√K + 16/K ≤ 1, √K = 1 + √17, K = 26.2; and B = 1, K ≥ 8/s2 = 32.
    """
    s = Setting(2, 1, 0.0, s2=0.25, gap0=1, gap1=1, smooth=1, sigma2=2, kappa2=0, kappa2_mean=0)
    assert iterations_printed(s, 1.0, 4) == {"accuracy": 130, "condition": 120}
    assert iterations_fixed(s, 1.0) == {"accuracy": 27, "condition": 32}
    assert math.isinf(iterations_fixed(replace(s, q=1.0), 1.0)["accuracy"])


@given(settings, st.floats(0.01, 10), st.integers(1, 60))
def test_iterations_are_the_least_that_do(s, epsilon, clients):
    """At K the corollary is at most ε and its condition holds; at K − 1 one of them does not."""
    for needed, corollary in (
        (iterations_printed(s, epsilon, clients), lambda k: corollary1_printed(s, k, clients)),
        (iterations_fixed(s, epsilon), lambda k: corollary1_fixed(s, k)),
    ):
        assert corollary(needed["accuracy"]).value <= epsilon * (1 + 1e-9)
        assert corollary(needed["condition"] + 1).valid
        if needed["accuracy"] > 1:
            assert corollary(needed["accuracy"] - 1).value > epsilon * (1 - 1e-9)
        if needed["condition"] > 2:
            assert not corollary(needed["condition"] - 2).valid


def test_corollary_1_takes_of_the_order_of_one_over_epsilon_squared_iterations():
    """K ε² → ((2LΔ + σ²)² s2) = 0.5: (2·2 + 1)²·0.02, printed and fixed; at ε = 1e-9 within a thousandth."""
    s = replace(BASE, tau1=2)
    for needed in (iterations_printed(s, 1e-9, 50), iterations_fixed(s, 1e-9)):
        assert needed["accuracy"] * 1e-18 == pytest.approx(0.5, rel=1e-3)


# Remark 3: the comparison with Castiglia, Das, Patterson for IID clients.


def test_remark_3_printed_condition_admits_smaller_steps_than_the_earlier_work():
    """C = 50, τ = 1, q = 0: (15) asks for ηL ≤ 1/50, the earlier bound for ηL + 16η²L² ≤ 1, ηL ≤ (√65−1)/32 = 0.22."""
    s, largest = replace(BASE, tau1=1), (math.sqrt(65) - 1) / 32
    assert all(sdfeel.remark3_condition(s, 0.9999 * largest).values())
    assert not any(sdfeel.remark3_condition(s, 1.0001 * largest).values())
    assert not any(sdfeel.condition15(s, 0.9999 * largest, 50).values())
    assert not any(sdfeel.remark3_condition(replace(s, q=1.0), 1e-9).values())


def test_remark_3_condition_by_hand():
    """q = ½: Γ = 2/3 + 4 + 2 = 20/3 = Λ/q. τ = 2: ηL + 8·4·(20/3)η²L² is 0.05 + 0.5333 at ηL = 0.05, 1.2 at 0.07125…"""
    s = replace(BASE, tau1=2, q=0.5)
    edge = (-1 + math.sqrt(1 + 4 * 640 / 3)) / (2 * 640 / 3)
    assert all(sdfeel.remark3_condition(s, edge * (1 - 1e-9)).values())
    assert not any(sdfeel.remark3_condition(s, edge * (1 + 1e-9)).values())
    assert sdfeel.big_lambda(0.5) / 0.5 == pytest.approx(20 / 3)


@given(settings, st.floats(1e-5, 1))
def test_remark_3_without_the_factor_c_every_step_of_the_earlier_work_is_admitted(s, lr):
    """Λ = qΓ and Γ ≥ 2 give 2V2 ≤ 2τ²(qΓ + 2) ≤ 4τ²Γ, half of the earlier 8τ²Γ; only the factor C stands against it."""
    if all(sdfeel.remark3_condition(s, lr).values()):
        assert all(sdfeel.condition15(s, lr, 1).values())


@given(settings, st.floats(1e-4, 0.1))
def test_for_iid_clients_the_repair_is_never_the_looser_one(s, lr):
    """κ = 0: 4A_σ ≤ 2V1, even with the smaller V1 of Lemma 8; A_σ is linear in τ where V1 is quadratic."""
    s = replace(s, kappa2=0.0, kappa2_mean=0.0, gap1=s.gap0)
    assert theorem1_fixed(s, lr, 1000).value <= theorem1_printed(s, lr, 1000, 50).value * (1 + 1e-12)
    assert disagreement_fixed(s, lr)["noise"] <= lemma8(s, lr, fixed=True).terms["noise"] * (1 + 1e-12)
