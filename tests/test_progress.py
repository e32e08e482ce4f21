"""Plain lines tell of progress: about ten where the number of rounds is known, one for each doubling where it is not.

Inside a round that takes long there is a line every half minute.
"""

import pytest

from fedge.view import progress
from fedge.view.progress import Ticker, duration
from fedge.view.terminal import describe
from tests.helpers import small


def told(made, last, capsys, every=1):
    ticker = Ticker()
    ticker.ready(made, "runs/x")
    for done in range(every, last + 1, every):
        ticker.round({"round": done, "accuracy": 0.5, "loss": 1.0}, made.config)
    return [line.split("  ")[0] for line in capsys.readouterr().err.splitlines()]


def test_lines_of_a_run_whose_length_is_known(capsys):
    lines = told(small(rounds=40), 40, capsys)
    assert lines[0] == "hierfavg: 40 rounds, run folder runs/x"
    assert lines[1:] == [f"hierfavg: round {n}/40" for n in (1, *range(4, 41, 4))]
    assert told(small(rounds=40), 40, capsys, every=9)[1:] == [f"hierfavg: round {n}/40" for n in range(9, 40, 9)]


def test_lines_of_a_run_that_a_budget_ends(capsys):
    made = small(budget_seconds=1e6, straggle=1.0)
    lines = told(made, 40, capsys)
    assert lines[0] == "hierfavg: as many rounds as the budget covers, run folder runs/x"
    assert lines[1:] == [f"hierfavg: round {n}" for n in (1, 2, 4, 8, 16, 32)]
    assert told(made, 40, capsys, every=7)[1:] == [f"hierfavg: round {n}" for n in (7, 14, 28)]
    assert "None" not in describe(made)


def test_lines_inside_a_round_that_takes_long(capsys, monkeypatch):
    """A call each 12 s, 50 to a round: a line after every third call, and none soon after a round's own line."""
    made, ticker, clock = small(rounds=2), Ticker(), [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    ticker.ready(made, "runs/x")
    for number in (1, 2):
        for call in range(1, 9):
            clock[0] += 12
            ticker.part(number, call / 50, made.config)
        ticker.round({"round": number, "accuracy": 0.5, "loss": 1.0}, made.config)
    lines = [line.removeprefix("hierfavg: ") for line in capsys.readouterr().err.splitlines()]
    inside = ["6%, about 9 min left", "12%, about 9 min left"]  # 47 and 44 calls of 12 s
    assert [line for line in lines if "left" in line] == [f"round {n}: {text}" for n in (1, 2) for text in inside]


@pytest.mark.parametrize(("seconds", "said"), [(0.4, "0 s"), (119, "119 s"), (120, "2 min"), (9000, "2 h")])
def test_durations(seconds, said):
    assert duration(seconds) == said
