"""What the papers' READMEs say outside their generated tables of what was run is made again from what was kept.

Of runs that were made before each seed's curve was kept there are means and deviations (SD-FEEL's Fig. 3b on CIFAR-10)
or each seed's last values (HierSFL on MNIST). Where there are means only, series are unpaired: the interval of their
difference is Welch's. Words are those of `studies/verdict.py`, and so is †.
"""

import csv
import json
import math

import numpy as np
import pytest
from scipy.stats import t, ttest_ind_from_stats

from fedge.studies import tables
from fedge.studies.curve import Curve, names_of
from fedge.studies.interval import interval as students
from fedge.studies.recipe import read_recipe
from fedge.studies.reproduce import OWN, figures_of
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


def readme(paper):
    return " ".join((OWN / paper / "README.md").read_text(encoding="utf-8").split())


def test_the_verdicts_on_cifar10_are_those_of_the_means_that_were_kept():
    assert text() in (PAPER / "README.md").read_text(encoding="utf-8")


def test_an_unpaired_interval_by_hand():
    """1 ± 1 and 4 ± 1 of four seeds each: error √(1/4 + 1/4), 6 degrees of freedom, t = 2.4469."""
    mean, low, high, p = difference((1.0, 1.0, 4), (4.0, 1.0, 4))
    assert (mean, low, high) == pytest.approx((-3, -3 - 2.446912 * math.sqrt(0.5), -3 + 2.446912 * math.sqrt(0.5)))
    assert p == pytest.approx(2 * t.sf(3 / math.sqrt(0.5), 6))


def last_values(name):
    """Return series and claims of HierSFL's older runs, from each seed's last values."""
    recipe = read_recipe(OWN / "hiersfl/recipes.toml")
    kept = json.loads((OWN / f"hiersfl/results/means/{name}.json").read_text(encoding="utf-8"))["series"]
    curves = [
        Curve(s["variant"], s["series"], 10, s["lr"], list(range(s["seeds"])), {
            column: np.array([[x] for x in s.get(f"{column}_each", [s.get(column)] * s["seeds"])], float)
            for column in ("round", "iteration", "accuracy", "global_loss")
        }) for s in kept
    ]  # fmt: skip
    return tables.text_of(recipe, recipe.figures[name], curves)


@pytest.mark.parametrize("name", ["mnist51_iterations", "mnist55_iterations"])
def test_the_tables_of_hiersfls_older_runs_are_those_of_the_last_values_that_were_kept(name):
    assert last_values(name) in (OWN / "hiersfl/README.md").read_text(encoding="utf-8")


def curves(figure, variant):
    (place,) = figures_of(figure)
    own = [c for c in place.curves() if c.variant == variant]
    return dict(zip(names_of(own), own, strict=True))


def signed(column, values):
    found = students(values)
    return interval(column, *found[:3], sign=True)


def test_what_is_said_of_sdfeel_at_the_rate_that_the_tuning_seeds_nearly_chose():
    """τ1 = 5 of Fig. 4b is SD-FEEL (5,1) of Fig. 3a at the rate 0.1, on the same seeds."""
    other, three = curves("sdfeel/fig4b", "tuned")["τ1 = 5"], curves("sdfeel/fig3a", "tuned")
    hierfavg, chosen = three["HierFAVG (5,10)"], three["SD-FEEL (5,1)"]
    assert (other.lr, chosen.lr) == (0.1, 0.3)
    assert other.seeds == hierfavg.seeds
    assert other.columns["iteration"][0, -1] == chosen.columns["iteration"][0, -1] == 1440
    gaps = {c: other.columns[c][:, -1] - hierfavg.columns[c][:, -1] for c in ("global_loss", "accuracy")}
    accuracy = students(other.columns["accuracy"][:, -1])
    apart = np.ptp(chosen.columns["accuracy"][:, -1])
    said = (
        f"reported seeds differ by up to {100 * apart:.1f} points",
        f"{signed('global_loss', gaps['global_loss'])} in loss and {signed('accuracy', gaps['accuracy'])}",
        f"ends with {interval('accuracy', *accuracy[:3])}",
    )
    for words in said:
        assert words in readme("sdfeel"), words
    assert abs(accuracy.mean - 0.9661) < NEAR


def to_target(curve, target=0.75):
    """Return each seed's simulated seconds and iterations at the first evaluation at or above the target."""
    there = [int(np.flatnonzero(accuracy >= target)[0]) for accuracy in curve.columns["accuracy"]]
    return [np.array([x[n] for x, n in zip(curve.columns[c], there, strict=True)])
            for c in ("simulated_seconds", "iteration")]  # fmt: skip


def hists_time_and_work():
    """Return a table of the seconds, and of the local steps in whole models' work, that both take to 75 %."""
    titles = ("figure", "N", "HIST, s", "HFedAvg, s", "difference",
              "HIST, whole models' steps", "HFedAvg", "difference")  # fmt: skip
    columns = [[title] for title in titles]
    words, ps = [], []
    for figure in ("fig2a", "fig2b"):
        found = curves(f"hist/{figure}", "printed")
        for cells in (2, 3, 4, 5):
            (seconds, steps), (plain_seconds, plain_steps) = (
                to_target(found[f"{name}, N = {cells}"]) for name in ("HIST", "HFedAvg")
            )
            row = [f"{figure[3:-1]} ({figure[-1]})", str(cells)]
            for a, b in ((seconds, plain_seconds), (steps / cells, plain_steps)):
                gap = students(a - b)
                words.append("confirmed" if gap.high < 0 else "undecided" if gap.low <= 0 else "refuted")
                ps.append(gap.p)
                shown = [f"{x:+,.0f}".replace("-", "−") for x in gap[:3]]
                row += [f"{a.mean():,.0f}", f"{b.mean():,.0f}", f"{shown[0]} [{shown[1]}, {shown[2]}]"]
            for column, cell in zip(columns, row, strict=True):
                column.append(cell)
    return table(columns), words, holm(ps)


def test_what_is_said_of_the_time_and_the_work_that_hist_takes():
    """The paper's conclusion: "much faster with less training costs"."""
    text, words, survive = hists_time_and_work()
    assert text in (OWN / "hist/README.md").read_text(encoding="utf-8")
    assert set(words) == {"confirmed"}
    assert all(survive)
