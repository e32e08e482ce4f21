"""The paired rule behind every verdict is tried on numbers whose answers are known."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedge.studies import tables
from fedge.studies.curve import Curve
from fedge.studies.recipe import Claim, FigureRecipe
from fedge.studies.verdict import Word, holm, interval, settling_place, verdicts


def figure(**claim):
    return FigureRecipe(
        caption="", x="iteration", y=claim.pop("y", "global_loss"), set="s", points=2, series=[{"label": "a"}],
        claims=[{"says": "so", **claim}],
    )  # fmt: skip


def curve(label, ends, column="global_loss", variant="v"):
    """Make two evaluations, at iterations 5 and 10: 9 everywhere, then each seed's end."""
    ends = np.array(ends, float)
    table = {"iteration": np.array([[5.0, 10.0]] * len(ends)), "round": np.array([[1.0, 2.0]] * len(ends))}
    return Curve(variant, label, 1, 0.1, list(range(len(ends))), table | {column: np.stack([0 * ends + 9, ends], 1)})


def judge(claim, **series):
    (verdict,) = verdicts(figure(**claim), [curve(name, ends) for name, ends in series.items()])["v"]
    return verdict


BETTER = {"pairs": [("a", "b")]}


def test_the_interval_is_students():
    """1 … 5: mean 3, error √0.5; t(0.975, 4) = 2.776445, so 3 ± 1.963243; p of t = 4.2426 is 0.01324."""
    found = interval(np.arange(1.0, 6))
    assert found == pytest.approx((3, 3 - 1.963243, 3 + 1.963243, 0.0132356), abs=1e-6)
    assert interval(np.array([2.0])) == (2, -math.inf, math.inf, 1)
    assert interval(np.array([2.0, 2.0])) == (2, 2, 2, 0)


def test_pairs_decide_where_spreads_overlap():
    """The seeds spread by 4 and the difference is 0.1 on each: unpaired nothing is seen, paired it is certain."""
    seeds = np.arange(5.0)
    worse = seeds + 0.1 + 0.01 * np.array([1, -1, 0, 1, -1])
    assert judge(BETTER, a=seeds, b=worse).word is Word.CONFIRMED
    assert judge(BETTER, a=worse, b=seeds).word is Word.REFUTED
    assert judge(BETTER, a=seeds, b=worse[::-1]).word is Word.UNDECIDED


def test_five_of_five_seeds_may_still_be_undecided():
    """Differences 0.05, 0.1, 0.2, 0.5, 1.0: mean 0.37, error 0.1758, so the interval is 0.37 ± 0.488."""
    verdict = judge(BETTER, a=np.zeros(5), b=[0.05, 0.1, 0.2, 0.5, 1.0])
    (comparison,) = verdict.comparisons
    assert (verdict.word, comparison.agree, comparison.seeds) == (Word.UNDECIDED, 5, 5)
    assert comparison.found.p == pytest.approx(0.10309, abs=1e-5)


def test_better_is_less_loss_and_more_accuracy():
    low, high = np.full(3, 0.2), np.array([0.9, 0.91, 0.92])
    for column, word in (("global_loss", Word.REFUTED), ("accuracy", Word.CONFIRMED)):
        shown = [curve("a", high, column), curve("b", low, column)]
        assert verdicts(figure(y=column, **BETTER), shown)["v"][0].word is word


def test_two_seeds_decide_nothing_and_diverged_seeds_neither():
    assert judge(BETTER, a=[1, 1], b=[2, 2]).word is Word.UNDECIDED
    assert judge(BETTER, a=[1, 1, math.nan], b=[2, 2, 2]).word is Word.UNDECIDED
    assert judge(BETTER, a=[1, 1, 1], b=[math.nan] * 3).word is Word.CONFIRMED
    assert judge(BETTER, a=[math.nan] * 3, b=[1, 1, 1]).word is Word.REFUTED
    assert judge(BETTER, a=[math.nan] * 3, b=[math.nan] * 3).word is Word.UNDECIDED
    assert judge(BETTER, a=[1, math.nan, 1], b=[math.nan] * 3).word is Word.UNDECIDED


def test_within_a_margin():
    near, b = np.array([0.01, -0.01, 0.02, 0.0, 0.01]), np.zeros(5)
    within = BETTER | {"within": 0.1}
    assert judge(within, a=near, b=b).word is Word.CONFIRMED
    assert judge(within, a=near + 0.2, b=b).word is Word.REFUTED
    assert judge(within, a=near + 0.1, b=b).word is Word.UNDECIDED
    # The largest of the two one-sided p: t = (0.1 − 0.006)/0.0051 = 18.43 with 4 degrees of freedom.
    assert judge(within, a=near, b=b).comparisons[0].found.p == pytest.approx(2.55e-5, rel=0.02)


def test_a_papers_number():
    claim = {"series": ["a"], "paper": 0.9, "y": "accuracy"}

    def word(ends):
        return verdicts(figure(**claim), [curve("a", ends, "accuracy")])["v"][0].word

    assert word([0.899, 0.901, 0.9, 0.9]) is Word.CONFIRMED
    assert word([0.5, 0.99, 0.8, 0.99]) is Word.UNDECIDED  # the number lies in the interval, and so does much else
    assert word([0.7, 0.71, 0.72]) is Word.REFUTED
    # 0.9 ± 0.000816 over four seeds: a point away is t = 0.01/0.000408 = 24.495, one-sided with 3 degrees of freedom.
    (verdict,) = verdicts(figure(**claim), [curve("a", [0.899, 0.901, 0.9, 0.9], "accuracy")])["v"]
    assert verdict.comparisons[0].found.p == pytest.approx(stats.t.sf(24.4949, 3), rel=1e-5)


def test_where_a_curve_levels_off():
    """From 10 to 0: within 5 % of the change is below 0.5, which the fourth value is first to stay."""
    x = np.arange(6.0)
    assert settling_place(x, np.array([10, 0.4, 2, 0.5, 0.1, 0.0])) == 3
    assert settling_place(x, np.zeros(6)) == 0
    assert settling_place(x, np.array([10, 9, 8, 7, 6, 5.0])) == 5
    shown = [curve("a", [1, 1, 1])]
    (early,) = verdicts(figure(series=["a"], levels_off=9.0), shown)["v"]
    (late,) = verdicts(figure(series=["a"], levels_off=2.0), shown)["v"]
    assert (early.word, late.word) == (Word.CONFIRMED, Word.REFUTED)
    assert "still changing at the end" in late.comparisons[0].what


def test_where_curves_level_off_is_a_comparison_like_others():
    """Seeds settle at 10, 10 and 5: 8.33 ± 1.67, whose interval reaches far, so nothing is said, and its p is 1; four
    curves are told one by one, since the question is of each."""
    settle = [[9, 1], [9, 1], [9, 9.0]]
    shown = [Curve("v", name, 1, 0.1, [0, 1, 2], {
        "iteration": np.array([[5.0, 10.0]] * 3), "round": np.array([[1.0, 2.0]] * 3), "global_loss": np.array(settle)
    }) for name in "abcd"]  # fmt: skip
    (verdict,) = verdicts(figure(series=list("abcd"), levels_off=8.0), shown)["v"]
    assert (verdict.word, verdict.comparisons[0].found.p) == (Word.UNDECIDED, 1.0)
    assert tables.evidence(verdict, "iteration").count("8.333 [1.162, 15.5], 2 of 3 seeds agree") == 4


def test_a_place_on_the_axis_is_the_last_evaluation_there():
    verdict = judge(BETTER | {"at": [9.0, 10.0]}, a=[1, 1, 1.1], b=[2, 2, 2])
    assert [c.found.mean for c in verdict.comparisons] == pytest.approx([0, -0.9666667])
    assert verdict.word is Word.UNDECIDED


def test_a_load_that_was_not_reached_counts_as_all_of_it():
    """a reaches 0.5 at its second evaluation, load 2; b never does: its load is at least 4."""
    show = FigureRecipe(caption="", x="cells", y="load", target=0.5, runs_of="r",
                        claims=[{"says": "so", "pairs": [("a", "b")]}])  # fmt: skip
    load = np.array([[1.0, 2.0, 4.0]] * 3)
    a, b = (
        Curve("v", n, 1, 0.1, [0, 1, 2], {"client_load": load, "round": load, "accuracy": np.array([row] * 3)})
        for n, row in (("a", [0.1, 0.6, 0.4]), ("b", [0.1, 0.2, 0.4]))
    )
    (verdict,) = verdicts(show, [a, b])["v"]
    assert verdict.word is Word.CONFIRMED
    assert verdict.comparisons[0].found.mean == -2


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_against_its_definition(ps):
    """The k-th smallest survives if it and all smaller ones are at most 5 %/(n − k + 1)."""
    survives = holm(ps)
    for p, kept in zip(ps, survives, strict=True):
        smaller = sorted(q for q in ps if q <= p)
        expected = all(q <= 0.05 / (len(ps) - k) + 1e-15 for k, q in enumerate(sorted(ps)[: len(smaller)]))
        if abs(p * len(ps) - 0.05) > 1e-9:
            assert kept == expected


def test_words_that_do_not_survive_many_comparisons_are_marked():
    """p ≈ 0.03 alone confirms; beside a second comparison that says nothing it must be below 0.025."""
    a, b = np.zeros(5), np.array([0.1, 0.5, 0.3, 0.9, 0.2])
    both = FigureRecipe(
        caption="", x="iteration", y="global_loss", set="s", points=2, series=[{"label": "a"}],
        claims=[{"says": "one", "pairs": [("a", "b")]}, {"says": "two", "pairs": [("a", "c")]}],
    )  # fmt: skip
    alone = judge(BETTER, a=a, b=b)
    first, second = verdicts(both, [curve("a", a), curve("b", b), curve("c", np.array([1, -1, 1, -1, 0.0]))])["v"]
    assert 0.025 < alone.comparisons[0].found.p < 0.05
    assert (alone.word, alone.survives) == (Word.CONFIRMED, True)
    assert (first.word, first.survives) == (Word.CONFIRMED, False)
    assert second.word is Word.UNDECIDED


def test_a_comparison_that_two_claims_rest_on_counts_once():
    """p ≈ 0.03, twice the same: it would have to be below 0.025 if it were two."""
    claims = [{"says": says, "pairs": [("a", "b")]} for says in ("one", "the same")]
    twice = FigureRecipe(
        caption="", x="iteration", y="global_loss", set="s", points=2, series=[{"label": "a"}], claims=claims
    )
    first, second = verdicts(twice, [curve("a", np.zeros(5)), curve("b", [0.1, 0.5, 0.3, 0.9, 0.2])])["v"]
    assert 0.025 < first.comparisons[0].found.p < 0.05
    assert first.survives
    assert second.survives


def test_a_seed_that_diverged_does_not_spoil_what_others_say():
    """Its claim is undecided with p = 1; a NaN among the p would leave nothing that survives."""
    claims = [{"says": "a value", "series": ["a"], "paper": 1.0}, {"says": "a pair", "pairs": [("b", "c")]}]
    show = FigureRecipe(
        caption="", x="iteration", y="global_loss", set="s", points=2, series=[{"label": "a"}], claims=claims
    )
    curves = [curve("a", [1, 2, math.nan]), curve("b", [0, 0.01, 0.02]), curve("c", [1, 1.01, 1.03])]
    value, pair = verdicts(show, curves)["v"]
    assert (value.word, value.comparisons[0].found.p) == (Word.UNDECIDED, 1.0)
    assert (pair.word, pair.survives) == (Word.CONFIRMED, True)


def test_what_a_table_says():
    claim = Claim(says="so", pairs=[("a", "b")])
    verdict = judge(BETTER, a=np.zeros(3), b=[0.1, 0.11, 0.12])
    assert verdict.claim == claim
    # 0.11 ± 4.302653·0.01/√3 = 0.11 ± 0.02484
    assert tables.evidence(verdict, "global_loss") == "a − b: −0.110 [−0.135, −0.085], 3 of 3 seeds agree"


def test_a_readme_takes_a_figures_text(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text("a\n<!-- f -->\nold\n\n<!-- end of f -->\nb\n")
    assert tables.put(readme, "f", r"new \1 |")
    assert readme.read_text() == "a\n<!-- f -->\nnew \\1 |\n<!-- end of f -->\nb\n"
    assert tables.text_in(readme.read_text(), "f") == r"new \1 |"
    assert not tables.put(readme, "g", "")
    readme.write_text("<!-- f -->\n")
    with pytest.raises(Exception, match=r"README.md must have one '<!-- f -->' and after it one '<!-- end of f -->'"):
        tables.put(readme, "f", "")
