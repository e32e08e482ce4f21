"""CIFAR-10's Fig. 3b was run before each seed's values were kept; its claims are judged from means and deviations.

Two series are then unpaired: the interval of their difference is Welch's. The words are those of `studies/verdict.py`,
fewer than three seeds decide nothing, and † marks what does not survive Holm's correction over a variant's comparisons.
"""

import csv
import math

import pytest
from scipy.stats import t, ttest_ind_from_stats

from fedge.studies.recipe import read_recipe
from fedge.studies.reproduce import OWN
from fedge.studies.tables import number, table
from fedge.studies.verdict import FEWEST, LOWER_IS_BETTER, NEAR, holm

PAPER = OWN / "sdfeel"
PLACE = 10_000.0  # seconds
TITLES = {"printed": "as printed", "tuned": "tuned rate"}


def ends(variant, column):
    """Return (mean, standard deviation, seeds) of each series at its last evaluation within 10,000 s."""
    with (PAPER / "results/means/fig3b.csv").open(encoding="utf-8") as file:
        rows = [r for r in csv.DictReader(file) if r["variant"] == variant and float(r["simulated_seconds"]) <= PLACE]
    return {r["series"]: (float(r[column]), float(r[f"{column}_std"]), int(r["seeds"])) for r in rows}


def difference(a, b):
    """Return the mean of a − b, its interval and p, after Welch."""
    (x, s, n), (y, r, m) = a, b
    u, v = s * s / n, r * r / m
    freedom = (u + v) ** 2 / (u * u / (n - 1) + v * v / (m - 1))
    half = t.ppf(0.975, freedom) * math.sqrt(u + v)
    return x - y, x - y - half, x - y + half, ttest_ind_from_stats(*a, *b, equal_var=False).pvalue


def value(a, paper):
    """Return a series' mean, its interval, and the p of the paper's number."""
    mean, deviation, n = a
    error = deviation / math.sqrt(n)
    half = t.ppf(0.975, n - 1) * error
    return mean, mean - half, mean + half, 2 * t.sf(abs(mean - paper) / error, n - 1)


def judge(claim, variant, default):
    """Yield (text, word, p) for each comparison of a claim."""
    column = claim.column or default
    found = ends(variant, column)
    for a, b in claim.pairs:
        mean, low, high, p = difference(found[a], found[b])
        sign = -1 if column in LOWER_IS_BETTER else 1
        word = "undecided" if low <= 0 <= high else "confirmed" if sign * mean > 0 else "refuted"
        yield f"{a} − {b}: {interval(column, mean, low, high, sign=True)}", few(word, found[a], found[b]), p
    for name in claim.series if claim.paper is not None else ():
        mean, low, high, p = value(found[name], claim.paper)
        inside = claim.paper - NEAR < low and high < claim.paper + NEAR
        word = "confirmed" if inside else "undecided" if low <= claim.paper <= high else "refuted"
        yield f"{name}: {interval(column, mean, low, high)}", few(word, found[name]), p


def few(word, *series):
    return word if min(n for _, _, n in series) >= FEWEST else "undecided"


def interval(column, *numbers, sign=False):
    mean, low, high = (number(column, x, sign=sign) for x in numbers)
    return f"{mean}{(' points' if sign else ' %') if 'accuracy' in column else ''} [{low}, {high}]"


def text():
    figure = read_recipe(PAPER / "recipes.toml").figures["fig3b"]
    claims = [claim for claim in figure.claims if claim.levels_off is None]  # these runs end at 10,000 s
    columns = [["claim"], ["runs"], ["verdict"], ["measured"]]
    judged = {variant: [list(judge(claim, variant, figure.y)) for claim in claims] for variant in TITLES}
    survive = {v: iter(holm([p for each in found for _, _, p in each])) for v, found in judged.items()}
    for place, claim in enumerate(claims):
        for variant, title in TITLES.items():
            found = judged[variant][place]
            words, kept = [word for _, word, _ in found], [next(survive[variant]) for _ in found]
            word = "refuted" if "refuted" in words else "confirmed" if set(words) == {"confirmed"} else "undecided"
            behind = [k for k, own in zip(kept, words, strict=True) if own == word]
            firm = word == "undecided" or (any(behind) if word == "refuted" else all(behind))
            shown = "; ".join(what for what, _, _ in found)
            cells = [claim.says if variant == "printed" else "", title, f"**{word}**{'' if firm else ' †'}", shown]
            for column, cell in zip(columns, cells, strict=True):
                column.append(cell)
    return table(columns)


def test_the_verdicts_on_cifar10_are_those_of_the_means_that_were_kept():
    assert text() in (PAPER / "README.md").read_text(encoding="utf-8")


def test_an_unpaired_interval_by_hand():
    """1 ± 1 and 4 ± 1 of four seeds each: error √(1/4 + 1/4), 6 degrees of freedom, t = 2.4469."""
    mean, low, high, p = difference((1.0, 1.0, 4), (4.0, 1.0, 4))
    assert (mean, low, high) == pytest.approx((-3, -3 - 2.446912 * math.sqrt(0.5), -3 + 2.446912 * math.sqrt(0.5)))
    assert p == pytest.approx(2 * t.sf(3 / math.sqrt(0.5), 6))
