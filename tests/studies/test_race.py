"""A race on curves that are known: who wins, what is trained for it, and who is never dropped."""

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.studies.race import BudgetSpentError, Standing, race


@dataclass
class Curve:
    """Progress after r rounds is 1.1 · (1 − e^(−speed · r)), and a round costs `cost`."""

    cost: float
    speed: float
    family: str = "a"
    every: int = 1
    rounds: int = 10**6

    def progress(self, rounds):
        return 1.1 * (1 - math.exp(-self.speed * rounds))

    @property
    def needs(self):
        """The first test at which progress is 1."""
        exact = -math.log(1 - 1 / 1.1) / self.speed
        return math.ceil(exact / self.every - 1e-9) * self.every

    @property
    def total(self):
        return self.needs * self.cost


@dataclass
class Known:
    """This is a track on which everything is known."""

    curves: dict
    budget: float = math.inf
    done: dict = field(default_factory=dict)
    laps: list = field(default_factory=list)

    def price(self, name, rounds):
        return self.curves[name].cost * rounds

    def step(self, name):
        return self.curves[name].every

    def allowed(self, name, rounds):
        return rounds <= self.curves[name].rounds

    def family(self, name):
        return self.curves[name].family

    def lap(self, cost, alive, best):
        self.laps.append((cost, len(alive)))

    def text(self, cost):
        return f"{cost:g} coins"

    def train(self, name, rounds):
        curve = self.curves[name]
        end = min(rounds, curve.needs)
        if self.trained + end - self.done.get(name, 0) > self.budget:
            raise BudgetSpentError
        self.done[name] = end
        return Standing(end, curve.progress(end), end if end == curve.needs else None)

    @property
    def trained(self):
        return sum(self.done.values())


@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.005, 0.5)), min_size=1, max_size=20))
def test_the_winner_of_curves_that_do_not_cross_is_the_cheapest(numbers):
    """Of these curves the one ahead at a cost stays ahead at all: speed / cost decides, but for whole rounds."""
    curves = {str(n): Curve(*pair) for n, pair in enumerate(numbers)}
    track = Known(curves)
    result = race(list(curves), track)
    cheapest = min(curve.total for curve in curves.values())
    winner = min((n for n, s in result.standing.items() if s.reached), key=lambda n: curves[n].total)
    whole_rounds = curves[winner].cost + max(curve.cost for curve in curves.values() if curve.total == cheapest)
    assert result.best == curves[winner].total <= cheapest + whole_rounds
    first = sorted(curve.cost for curve in curves.values())[len(curves) // 4]
    assert all(
        track.price(name, n) <= max(first, 2 * result.best) for name, n in track.done.items()
    )  # a lap's doubling
    assert set(result.fate) == set(curves)


def test_nobody_trains_beyond_the_winner_and_most_train_less():
    curves = {str(n): Curve(1.0, 0.02 * 1.2**-n) for n in range(32)}
    track = Known(curves)
    result = race(list(curves), track)
    assert result.best == curves["0"].total
    assert track.done["0"] == curves["0"].needs
    grid = sum(curve.needs for curve in curves.values())
    assert track.trained < grid / 20  # halving, and no further than the winner: 32 curves, the last 280 times as slow


def test_one_whose_first_round_costs_much_is_not_judged_before_it():
    """`late` is there after its second round, of which one costs as much as many laps; others are far by then."""
    curves = {str(n): Curve(1.0, 0.02) for n in range(8)} | {"late": Curve(30.0, 3.0)}
    result = race(list(curves), Known(curves))
    assert result.best == curves["late"].total == 30


def test_the_best_of_each_family_may_take_some_more():
    curves = {"quick": Curve(1.0, 0.1), "slow": Curve(1.0, 0.06, "b"), "slower": Curve(1.0, 0.03, "b")}
    assert race(list(curves), Known(curves)).standing["slow"].reached is None
    result = race(list(curves), Known(curves), slack=2.0)
    assert result.standing["slow"].reached == curves["slow"].needs
    assert result.standing["slower"].reached is None
    assert result.fate["slower"] != "reached the target"


def test_a_budget_ends_a_race():
    curves = {str(n): Curve(1.0, 0.01) for n in range(4)}
    track = Known(curves, budget=50)
    result = race(list(curves), track)
    assert result.spent
    assert 0 < track.trained <= 50
    assert set(result.fate.values()) == {"not finished: the race's budget was too small for another lap"}


def test_rounds_that_are_not_allowed_are_not_trained():
    curves = {"short": Curve(1.0, 0.01, rounds=40), "also": Curve(2.0, 0.01, rounds=7, every=3)}
    track = Known(curves)
    result = race(list(curves), track)
    assert track.done == {"short": 40, "also": 6}
    assert set(result.fate.values()) == {"was not there at its last round"}


def test_one_that_must_beat_a_known_cost_stops_there():
    curves = {"near": Curve(1.0, 0.02)}
    track = Known(curves)
    assert race(["near"], track, best=20.0).standing["near"].reached is None
    assert track.done["near"] == 20
    assert track.laps[-1][1] == 1


@pytest.mark.parametrize("names", [["a", "b", "c"], ["c", "a", "b"]])
def test_the_order_of_names_does_not_matter(names):
    curves = {"a": Curve(1.0, 0.02), "b": Curve(1.5, 0.05), "c": Curve(0.7, 0.011)}
    assert race(names, Known(curves)).best == curves["b"].total
