"""Plans that nobody has to train: settings that were at the target when a test says so, and folders of such plans."""

import json

from fedge.runner import files
from fedge.runner.identity import digest_of
from fedge.studies.answer import Answer, Final
from fedge.studies.choices import Choices
from fedge.studies.question import Question
from fedge.studies.trials import Energy, Trial
from tests.helpers import small
from tests.pages import copied

ENDS = {"hierfavg lr=0.1": [4, 5], "hierfavg lr=0.2": [4, None], "hierfavg lr=0.05": [], "hierfavg lr=0.02": None}


def trial_of(**keys):
    made = small(**{"target": 0.9, "rounds": 9} | keys)
    return Trial({"rounds": 9}, made, Energy(2.0, 0.5), 0)


def spread(seed, there=None):
    """Make a setting whose clock differs from seed to seed; one that raced was at the target after `there` rounds."""
    trial = trial_of(algorithm="hierfavg", device_spread=1.0, seed=seed)
    trial.keys["algorithm"] = "hierfavg"
    row = {"iteration": 0, "accuracy": 0.95, "loss": 0.1, "simulated_seconds": 1.0, "bytes": {}}
    trial.rows = [] if there is None else [row | {"round": there}]
    return trial


def answer_of(tmp_path, ends):
    """Make an answer from a race in which settings were there after 2, 3, … rounds, and these ends of their finals."""
    trials = {name: spread(0, 2 + n) for n, name in enumerate(ends)}
    finals = [Final(name, seed, "", 9, end, spread(seed)) for name in ends for seed, end in enumerate(ends[name], 1)]
    return Answer(tmp_path, Question(), Choices({"hierfavg": {}}, {}), trials, {}, {}, finals, 0.1, 0, False)


def plan_folder(place, compared):
    """Write the folder of a plan in which three settings reached the target and one did not; two ran in finals."""
    place.mkdir(parents=True)
    found = answer_of(place, {name: ends or [] for name, ends in ENDS.items()})
    found.trials["hierfavg lr=0.02"].rows[:] = []
    found.fate["hierfavg lr=0.02"] = "diverged"
    found.refused["hiersfl cut=0"] = "it shows inputs, which exclude=inputs rules out"
    found.write()
    files.write_json(place / "plan.json", {"question": {"target": 0.9, "lr": [0.02, 0.05, 0.1, 0.2]},
                                           "begun": "2026-11-19T10:00:00+00:00"})  # fmt: skip
    for number, name in enumerate(ENDS):
        rows = [{"round": r, "iteration": 2 * r, "accuracy": 0.5 + 0.1 * r + 0.01 * number, "loss": 1.0 / r,
                 "simulated_seconds": 2.0 * r, "bytes": {"client_to_edge": 1000 * r}} for r in (1, 2, 3)]  # fmt: skip
        files.append(place / "trials.jsonl", json.dumps({"name": name, "steps": 30, "rows": rows}) + "\n")
    for final in found.finals:
        copied(compared / "hierfavg", place / f"runs/{digest_of(final.name)[:8]}_seed={final.seed}")
    return place
