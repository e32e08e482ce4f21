"""What a plan still takes is reckoned from what rounds cost; worked by hand."""

import math
from dataclasses import dataclass, field

import pytest

from fedge.studies.ahead import Ahead, Runner, goal_of, race_ahead
from fedge.studies.race import Standing, race
from fedge.view.plan_progress import PlanTicker


def test_the_goal_is_where_the_best_was_or_will_be():
    runners = [Runner(1, 10, 0.5), Runner(1, 6, 0.2), Runner(1, 1, 0.05)]
    assert goal_of(runners, 7.0) == 7
    assert goal_of(runners, math.inf) == 20  # at its pace; the third one's says nothing yet
    assert goal_of(runners[2:], math.inf) is None


@pytest.mark.parametrize(
    ("progress", "steps"),
    [
        # four settings at cost 10, 3 steps a unit each, goal 40: up to 20 all, then two of them up to 40
        (0.5, 3 * (4 * 10 + 2 * 20)),
        # nobody is sure yet: after 10 · 2 of 40 the best is taken to be, so half go all the same
        (0.0, 3 * (4 * 10 + 2 * 20)),
    ],
)
def test_half_go_after_each_lap(progress, steps):
    assert race_ahead([Runner(3, 10, progress)] * 4, 20, 40) == steps
    assert race_ahead([Runner(3, 0, progress)] * 4, 5, 5) == 3 * 4 * 5
    assert race_ahead([Runner(3, 10, progress)], 20, 5) == 0  # it is beyond it
    assert race_ahead([], 1, 2) == 0


def test_nobody_goes_before_a_quarter_of_the_way():
    """Laps to 1, 2, 4 and 8 of a goal of 8: four settings until 2, two until 4, one to the end."""
    assert race_ahead([Runner(1, 0, 0.0)] * 4, 1, 8) == 4 * 2 + 2 * 2 + 1 * 4


@dataclass
class Steady:
    """On this track each setting makes its own part of the way with each round, and a round costs and takes 1."""

    paces: dict
    slack: float
    done: dict = field(default_factory=dict)
    guesses: list = field(default_factory=list)

    def price(self, name, rounds):
        return float(rounds)

    def step(self, name):
        return 1

    def allowed(self, name, rounds):
        return True

    def family(self, name):
        return name[0]

    def progress(self, name):
        return self.done.get(name, 0) / self.paces[name]

    def train(self, name, rounds):
        self.done[name] = end = min(rounds, self.paces[name])
        return Standing(end, self.progress(name), end if end == self.paces[name] else None)

    def lap(self, cost, alive, best):
        there = {self.family(name) for name in self.done if self.progress(name) == 1}
        runners = [Runner(1.0, self.done.get(n, 0), self.progress(n), self.family(n)) for n in alive]
        if (goal := goal_of(runners, best)) is not None:
            likely = race_ahead(runners, cost, goal, slack=self.slack, there=there)
            self.guesses.append((sum(self.done.values()), likely))

    def text(self, cost):
        return str(cost)


@pytest.mark.parametrize("slack", [1.0, 2.0])
@pytest.mark.parametrize("families", ["a", "ab", "abcde"])
def test_at_a_constant_pace_the_estimate_is_what_the_race_takes(families, slack):
    """The families are unlike: without their families most would be dropped; two of five are not there by the slack."""
    best = {"a": 64, "b": 72, "c": 79, "d": 130, "e": 150}  # rounds to the target
    paces = {f"{family}{n}": best[family] + 7 * n for family in families for n in range(6)}
    track = Steady(paces, slack)
    race(list(paces), track, slack=slack)
    whole = sum(track.done.values())
    assert len(track.guesses) >= 3
    assert [then + likely for then, likely in track.guesses] == pytest.approx([whole] * len(track.guesses))


def test_the_time_left_is_that_of_the_whole_plan(capsys, monkeypatch):
    """Ten new settings take 3 s each for 10 steps; trained again, 100 steps take 10 s."""
    clock, ticker = [50.0], PlanTicker()
    monkeypatch.setattr("fedge.view.plan_progress.time.monotonic", lambda: clock[0])
    ticker("lap 1", 0, 10, 0, Ahead(None, 10_000, 10, 0))
    for done in range(1, 11):
        clock[0] += 3
        ticker("lap 1", done, 10, 10 * done, Ahead(None, 10_000 - 10 * done, 10 - done, 10 * done))
    ticker("lap 2", 0, 5, 100, Ahead(800, 9_900, 0, 100))
    clock[0] += 10
    ticker("lap 2", 1, 5, 200, Ahead(700, 9_800, 0, 200))
    clock[0] += 10
    ticker("lap 2", 2, 5, 300, Ahead(600, 9_700, 0, 300))
    ticker("lap 3", 0, 2, 300, Ahead(600, 9_700, 2, 300))
    assert capsys.readouterr().err.splitlines() == [
        "lap 1 (0 client steps so far)",
        "lap 1: 5 of 10; about 15 s left of this lap",  # what of it is compiling nobody knows yet
        "lap 1: 10 of 10; about 0 s left of this lap",
        "lap 2 (100 client steps so far; about 4 min left)",  # 0.3 s a step
        "lap 2: 2 of 5; about 60 s left, 16 min at most",  # 0.1 s a step
        "lap 3 (300 client steps so far; about 64 s left, 16 min at most)",  # and 2 s for each of two new ones
    ]
