"""HIST's Corollary 1: from which T on it speaks, how large H and E may be, and Remark 1's two regimes."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.theory import hist

PAPER = hist.Setting([15] * 4, 40, 200, gap=2.3, smooth=1.0, sigma2=1.0, delta1=0.5, delta2=0.5, norm=1.0)
BY_HAND = hist.Setting([1, 2, 2], 2, 4, gap=13, smooth=2, sigma2=3, delta1=5, delta2=7, norm=11)  # Ñ = 2
many = st.lists(st.integers(1, 100), min_size=2, max_size=12)


@given(many, st.integers(1, 20), st.integers(1, 4), st.floats(0.1, 10))
def test_the_horizon_is_where_the_corollary_begins(sizes, local_steps, rounds, smooth):
    s = replace(PAPER, sizes=sizes, local_steps=local_steps, period=local_steps * rounds, smooth=smooth)
    steps = hist.smallest_horizon(s)
    for factor, holds in ((1 + 1e-9, True), (1 - 1e-9, False)):
        assert all(hist.condition12(s, hist.corollary1_rate(s, steps * factor)).values()) == holds


def test_the_papers_horizon_is_far_from_the_corollary():
    """N = 4, Ñ = 4/15, L = 1: T ≥ 1/(Ñγ²) with γ = 1/(32·200·√3) = 9.02e-5, 4.6e8; 50 global rounds are T = 10,000."""
    assert hist.smallest_horizon(PAPER) == pytest.approx(15 / 4 * (32 * 200) ** 2 * 3)


@given(many, st.integers(1, 10**12), st.floats(0.1, 10))
def test_largest_h_and_e_are_the_last_that_12_admits(sizes, steps, smooth):
    """H alone decides the parts with H in them, E the parts with E."""
    s = replace(PAPER, sizes=sizes, smooth=smooth)
    rate = hist.corollary1_rate(s, steps)
    for field, largest in (("local_steps", hist.largest_local_steps), ("period", hist.largest_period)):
        for factor, expected in ((1 - 1e-9, True), (1 + 1e-9, False)):
            other = {"local_steps": 1e-30, "period": 1e-30, field: largest(s, steps) * factor}
            assert all(hist.condition12(replace(s, **other), rate).values()) == expected


def test_largest_h_and_e_by_hand():
    """N = 3, L = 2. Ñ = 2, T = 648: ÑT = 1296, H ≤ min{6/√6, 2^1.5·√648/6 = 12}, E ≤ 36/2·min{1/4, 1/(32√2)}.

    n_j = 30, so Ñ = 0.1, and T = 8: the second part of H's rules, 0.1^1.5·√8/6 = 0.015 against 0.8^0.25/√6 = 0.39.
    """
    assert hist.largest_local_steps(BY_HAND, 648) == pytest.approx(6 / math.sqrt(6))
    assert hist.largest_period(BY_HAND, 648) == pytest.approx(18 / (32 * math.sqrt(2)))
    large = replace(BY_HAND, sizes=[30, 30, 30])
    assert hist.largest_local_steps(large, 8) == pytest.approx(math.sqrt(0.001 * 8) / 6)


@pytest.mark.parametrize(("cells", "first"), [(1020, False), (1021, True), (5000, True)])
def test_the_order_of_e_is_the_papers_from_1021_cells_on(cells, first):
    """N + 1 > 32√(N − 1) from N = 1021 on: 1022 against 1021.998; at 1020 it is 1021 against 1021.497."""
    s = replace(PAPER, sizes=[1] * cells)
    assert (hist.largest_period(s, 100) == math.sqrt(cells * 100) / (cells + 1)) == first


@given(many, st.integers(1, 10**9))
def test_remark_1_terms_are_those_of_the_corollary(sizes, steps):
    s = replace(PAPER, sizes=sizes)
    whole, orders = hist.corollary1_fixed(s, steps).terms, hist.remark1_terms(s, steps)
    assert orders["√(Ñ/T)"] == pytest.approx(whole["optimality gap"] + whole["gradient noise"])
    assert orders["1/√(ÑT)"] == pytest.approx(whole["unlike clients in a cell"])
    assert (orders["√(Ñ/T)"] > orders["1/√(ÑT)"]) == (s.inverse > hist.remark1_crossover(s))


def test_remark_1_by_hand():
    """BY_HAND: (4·13 + 50·2·3)√(2/T) = 352·0.1 at T = 200, 24·2·7/√400 = 16.8, equal at Ñ = 336/352."""
    assert list(hist.remark1_terms(BY_HAND, 200).values()) == pytest.approx([35.2, 16.8])
    assert hist.remark1_crossover(BY_HAND) == pytest.approx(336 / 352)
    assert hist.remark1_rate(BY_HAND, 200) == hist.corollary1_rate(BY_HAND, 200) == pytest.approx(0.05)
    assert hist.remark1_rate(replace(BY_HAND, sizes=[9, 9, 9]), 100) == pytest.approx(0.1)


def test_remark_1_small_cells_are_ruled_by_n_tilde_and_large_ones_not_by_t_alone():
    """One client in each of 400 cells: √(Ñ/T) rules, 20 times 1/√T. 4 cells of 400: what the print calls O(1/√T) has a
    constant that grows as Ñ^{-1/2} = 10, unlike in 4 cells of 4, where Ñ = 1; with `remark1_rate` it does not."""
    small, even, large = (replace(PAPER, sizes=[n] * cells) for n, cells in ((1, 400), (4, 4), (400, 4)))
    assert hist.remark1_terms(small, 1)["√(Ñ/T)"] == pytest.approx(20 * (4 * 2.3 + 50))
    assert hist.remark1_terms(small, 1)["1/√(ÑT)"] == pytest.approx(24 * 0.5 / 20)
    constants = [hist.remark1_terms(s, 1)["1/√(ÑT)"] for s in (even, large)]
    assert constants == pytest.approx([12, 120])
    mended = [hist.theorem1_fixed(s, hist.remark1_rate(s, 100), 100).terms for s in (even, large)]
    vanishing = [sum(list(terms.values())[:3]) for terms in mended]
    assert vanishing[1] <= vanishing[0]
