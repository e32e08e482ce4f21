"""Plain lines tell of progress: about ten where the number of rounds is known, one for each doubling where it is not.

Inside a round that takes long there is a line every half minute.
"""

import pytest

from fedge.view import course, progress
from fedge.view.numbers import duration
from fedge.view.progress import Ticker
from fedge.view.terminal import describe
from tests.helpers import small


def told(made, last, capsys, every=1):
    ticker = Ticker()
    ticker.ready(made, "runs/x")
    for done in range(every, last + 1, every):
        ticker.tested({"round": done, "accuracy": 0.5, "loss": 1.0}, made.config)
    return [line.split("  ")[0] for line in capsys.readouterr().err.splitlines()]


def test_lines_of_a_run_whose_length_is_known(capsys):
    lines = told(small(rounds=40), 40, capsys)
    assert lines[0] == "hierfavg: 40 rounds, run folder runs/x; compiling …"
    assert lines[1:] == [f"hierfavg: round {n}/40" for n in (1, *range(4, 41, 4))]
    assert told(small(rounds=40), 40, capsys, every=9)[1:] == [f"hierfavg: round {n}/40" for n in range(9, 40, 9)]


def test_lines_of_a_run_that_a_budget_ends(capsys):
    made = small(budget_seconds=1e6, straggle=1.0)
    lines = told(made, 40, capsys)
    assert lines[0] == "hierfavg: as many rounds as the budget covers, run folder runs/x; compiling …"
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
        ticker.tested({"round": number, "accuracy": 0.5, "loss": 1.0}, made.config)
    lines = [line.removeprefix("hierfavg: ") for line in capsys.readouterr().err.splitlines()]
    inside = ["6%, about 9 min left", "12%, about 9 min left"]  # 47 and 44 calls of 12 s
    assert [line for line in lines if "left" in line] == [f"round {n}: {text}" for n in (1, 2) for text in inside]


@pytest.mark.parametrize(("seconds", "said"), [(0.4, "0 s"), (119, "119 s"), (120, "2 min"), (9000, "2 h")])
def test_durations(seconds, said):
    assert duration(seconds) == said


@pytest.mark.parametrize("algorithm", ["fedavg", "hierfavg", "sdfeel"])
@pytest.mark.parametrize("width", [40, 80, 160])
def test_there_is_a_line_for_each_tier_within_the_terminal(algorithm, width, monkeypatch):
    """Ten rounds a second; the first five were compiled, so that they say nothing about the pace."""
    clock = [50.0]
    monkeypatch.setattr(course.time, "monotonic", lambda: clock[0])
    made = small(algorithm=algorithm, rounds=1000)
    going = course.Course(made)
    clock[0] += 3
    assert going.lines(width) == [f"{algorithm}  compiling … 3 s"]
    sent = {"edge_to_cloud": 3e6, "client_to_edge": 2e9}
    for done, now in ((5, 60), (505, 110)):
        clock[0] = now
        going.trained(done)
        going.tested({"round": done, "accuracy": 0.5, "loss": 1.0, "bytes": sent, "simulated_seconds": 1234.5})
    head, *tiers = going.lines(width)
    assert max(map(len, (head, *tiers))) <= width
    assert (f"{algorithm}  round 505/1,000" in head, "50 s left" in head) == (True, True)
    assert ("━" in head) == (width > 40)
    named = {"fedavg": ["cloud", "clients"], "hierfavg": ["cloud", "edges", "clients"], "sdfeel": ["edges", "clients"]}
    assert [line.split()[0] for line in tiers] == named[algorithm] + ["time"] * (width == 40)
    said = "\n".join(tiers)
    assert f"{made.job.steps_per_round * 10:,} steps/s" in said
    for words in ("accuracy 50.0%", "2 GB sent", "1,234 simulated s"):
        assert words in said
