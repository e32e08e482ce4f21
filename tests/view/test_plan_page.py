"""A plan's page has its question, its race and its answer, whatever of them is there; the board lists plans."""

import json
import shutil
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from fedge.cli import app
from fedge.errors import StoppedError
from fedge.runner import files
from fedge.studies.answer import Answer
from fedge.studies.planner import saying_how_to_go_on
from fedge.view.board_plans import Plans, plan_row
from fedge.view.board_runs import Listing
from fedge.view.page_data import page_data
from fedge.view.plan_page import _total
from fedge.view.plan_words import ask, command, sentences
from fedge.view.report import inert, write_report
from tests.pages import compare_once
from tests.plans import ENDS, answer_of, plan_folder


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return plan_folder(tmp_path_factory.mktemp("plans") / "mine", compare_once())


@pytest.fixture
def plan(original, tmp_path):
    return shutil.copytree(original, tmp_path / "runs/mine")


def test_a_page_of_a_plan(plan):
    page = page_data(plan)
    own, answer = page["plan"], json.loads((plan / "answer.json").read_text())
    assert (page["kind"], own["state"], own["problem"]) == ("plan", "finished", None)
    assert page["says"].startswith("Which algorithm, with which keys, reaches accuracy 90.0% in the fewest simulated ")
    assert "Nobody but the clients may see their inputs. HierFAVG with lr=0.1 is recommended: it takes " in page["says"]
    assert page["says"].endswith("2 of 2 fresh seeds got there.")
    assert page["command"] == "fedge plan target=0.9 lr=0.02,0.05,0.1,0.2"
    assert page["begun"] == "2026-11-19T10:00:00+00:00"
    assert [group["name"] for group in page["groups"]] == ["hierfavg lr=0.1", "hierfavg lr=0.2"]  # the best one first
    assert [run["label"] for run in page["runs"]][:2] == ["hierfavg lr=0.1 seed=0"] * 2  # both are copies of one run
    assert own["answer"] == answer
    assert own["target"] == {"metric": "accuracy", "title": "accuracy", "share": True, "value": 0.9, "higher": True}
    race = {one["name"]: one["columns"] for one in own["race"]}
    assert list(race) == list(ENDS)
    assert race["hierfavg lr=0.2"]["accuracy"] == pytest.approx([0.61, 0.71, 0.81])
    assert race["hierfavg lr=0.2"]["bytes"] == [1000, 2000, 3000]
    assert own["csv"] == (plan / "settings.csv").read_text()
    assert set(own["remarks"]) == {"how sure", "not tried", "bottleneck", "other rates", "it shows"}
    assert "left out 1: it shows inputs" in own["remarks"]["not tried"][0]
    assert write_report(plan).read_text().count("<script") == 2


def test_a_plan_that_is_being_made_has_a_page_and_a_row(plan):
    (plan / "answer.json").unlink()
    with (plan / "trials.jsonl").open("a") as file:
        file.write('{"name": "half wri')
    listing = Listing(plan.parent)
    with files.locked(plan):
        (row,) = [row for row in listing.rows() if row["algorithm"] == "plan"]
        page = listing.data(["mine"])
    assert (row["name"], row["state"], row["metric"]) == ("mine", "running", "accuracy")
    assert row["value"] == pytest.approx(0.83)
    assert row["differs"] == ["target=0.9", "lr=0.02,0.05,0.1,0.2"]
    assert row["spark"] == sorted(row["spark"])
    assert (page["plan"]["state"], page["plan"]["answer"]) == ("running", None)
    assert "So far 4 settings trained with 120 client steps; the search goes on." in page["says"]
    finals = [row for row in listing.rows() if row["algorithm"] != "plan"]
    assert {row["study"] for row in finals} == {"mine"}
    stopped = page_data(plan)
    assert stopped["plan"]["state"] == "stopped"
    assert f"there is no answer yet, and fedge plan --resume {plan} goes on." in stopped["says"]
    (plan / "trials.jsonl").write_text('{"name": "a", "steps": 1, "rows": []}\n')
    assert "So far 1 setting trained with 1 client step; " in page_data(plan)["says"]


def test_a_plan_that_is_watched_while_it_ends_is_finished(plan):
    """A board may look after each file of the answer is written; whatever it has seen by then, the end is the end."""
    whole = {name: (plan / name).read_bytes() for name in ("answer.json", "settings.csv")}
    for order in (["settings.csv", "answer.json"], ["answer.json", "settings.csv"]):
        for name in whole:
            (plan / name).unlink()
        board, states = Plans(plan.parent), []
        for name in order:
            (plan / name).write_bytes(whole[name])
            board.read(lambda path: path.exists(), str)
            states.append(board.rows[plan]["state"])
        assert states == (["stopped", "finished"] if order[0] == "settings.csv" else ["finished"] * 2)
        assert page_data(plan)["plan"]["csv"] == whole["settings.csv"].decode()
    before = board.look(plan, lambda path: path.exists())
    (plan / "settings.csv").unlink()
    assert board.look(plan, lambda path: path.exists()) != before


def test_an_answer_is_reckoned_once_and_written_last(tmp_path, monkeypatch):
    """On a network of a file reckoning it takes seconds."""
    found, written, asked = answer_of(tmp_path, {"a": [4, 5]}), [], []
    monkeypatch.setattr(Answer, "_recommendation", lambda self: asked.append(self))
    monkeypatch.setattr(files, "write_bytes", lambda path, content: written.append(path.name))
    found.write()
    assert found.to_json() is found.to_json()
    assert (written, len(asked)) == (["settings.csv", "answer.json"], 1)


@pytest.mark.parametrize(("known", "best"), [({"higher_is_better": False}, 0.8), ({}, 0.8)])
def test_the_best_so_far_of_a_metric_that_falls_or_rises(plan, known, best):
    """The first test is on the wrong side of the target: an accuracy that falls behind it is no loss."""
    (plan / "answer.json").unlink()
    rows = [{"round": r, "simulated_seconds": r, "accuracy": 0.99 - 0.1 * r, "error": 1.1 - 0.1 * r} for r in (1, 2, 3)]
    (plan / "trials.jsonl").write_text(json.dumps({"name": "a", "steps": 3, "rows": rows}) + "\n")
    for metric, most in [("accuracy", 0.89), ("error", best)]:
        rises = {"higher_is_better": True} if known and metric == "accuracy" else known
        question = {"target": 0.5, "target_metric": metric}
        (plan / "plan.json").write_text(json.dumps({"question": question} | rises))
        assert plan_row(plan, "mine")["value"] == pytest.approx(most)


@pytest.mark.parametrize(
    ("name", "content", "state"),
    [
        ("plan.json", '{"question": {"target": "nan"}}', "finished"),
        ("plan.json", '{"question": {"target": "inf", "target_metric": "loss"}}', "finished"),
        ("answer.json", "[" * 10_000, "damaged"),
        ("answer.json", '{"recommended": {"name": 3}}', "damaged"),
        ("plan.json", "{", None),
        ("plan.json", '{"question": 5, "begun": [1]}', "finished"),
        ("trials.jsonl", '{"name": [], "steps": 1, "rows": [{"bytes": {"up": 1e308, "x": 1e308}}]}\n5\n', "finished"),
        ("trials.jsonl", '{"name": "x", "steps": 1, "rows": [{"round": "1", "accuracy": {"a": "b"}}]}\n', "finished"),
    ],
)  # fmt: skip
def test_a_plan_that_somebody_has_changed_harms_no_other(plan, name, content, state):
    (plan / name).write_text(content)
    listing = Listing(plan.parent)
    rows = {row["name"]: row for row in listing.rows()}
    assert rows["mine"]["state"] == (state or "damaged")
    assert (rows["mine"]["problem"] is not None) == (state != "finished")
    assert len(rows) == 5  # its finals are listed all the same
    if state is not None:
        assert inert(listing.data(["mine"]))


def test_a_line_cut_within_a_character_harms_no_other_line(plan):
    with (plan / "trials.jsonl").open("ab") as file:
        file.write('{"name": "é'.encode()[:-1])
    assert len(page_data(plan)["plan"]["race"]) == 4


@pytest.mark.parametrize(("name", "state"), [("answer.json", "damaged"), ("trials.jsonl", "finished")])
def test_a_file_too_large_for_a_page_is_a_sentence(plan, monkeypatch, name, state):
    size = (plan / name).stat().st_size
    other = (plan / {"answer.json": "trials.jsonl", "trials.jsonl": "answer.json"}[name]).stat().st_size
    with (plan / name).open("a") as file:
        file.write(" " * other)
    monkeypatch.setattr("fedge.view.plan_page.READ", other)
    page = page_data(plan)["plan"]
    assert page["state"] == state
    assert page["problem"] == f"{plan / name} has {size + other:,} bytes, more than the {other:,} that a page reads"


def test_a_page_keeps_six_digits_and_whole_numbers():
    assert [_total(x) for x in (1 / 3, 123456789, {"up": 0.1, "down": 0.2})] == [0.333333, 123456789, 0.3]
    assert repr(_total(7.0)) == "7"  # a page is full of them


def test_a_look_changes_with_a_plans_files(plan):
    listing = Listing(plan.parent)
    before = listing.look(["mine"])
    files.append(plan / "trials.jsonl", "{}\n")
    again = Listing(plan.parent)
    assert again.look(["mine"]) != before


def test_a_plan_that_is_stopped_leaves_its_page(plan, monkeypatch):
    def stopped(*_, **__):
        with saying_how_to_go_on(plan):
            raise StoppedError("", signal=15)

    (plan / "answer.json").unlink()
    monkeypatch.setattr("fedge.studies.planner.plan", stopped)
    done = CliRunner().invoke(app, ["plan", "--resume", str(plan)])
    assert (done.exit_code, f"stopped; continue with: fedge plan --resume {plan}" in done.stderr) == (143, True)
    assert "So far 4 settings trained" in (plan / "report.html").read_text()


def test_a_plan_on_objects_from_python_has_no_command(plan):
    """The command would train a built-in model on built-in data."""
    found = answer_of(plan, {"a": [4, 5], "b": []})
    found = replace(found, passed_in=("data", "model"), budget_spent=True)
    found.write()
    planned = json.loads((plan / "plan.json").read_text()) | {"passed_in": ["data", "model"]}
    (plan / "plan.json").write_text(json.dumps(planned))
    page = page_data(plan)
    assert page["command"] is None
    assert page["plan"]["answer"]["recommended"]["command"] is None
    said = sentences(found.to_json())
    assert said[:3] == [
        "recommended: a", "", "to run it: only Python can: the data set and the model were passed in from there",
    ]  # fmt: skip
    assert "(of 1,000,000; the race ended because its next lap did not fit into its two thirds)" in "".join(said)
    assert "the model was passed in" in "".join(sentences(replace(found, passed_in=("model",)).to_json()))


def test_a_question_in_words():
    asked = {"target": "30", "target_metric": "perplexity", "minimise": "bytes", "deadline": 60, "client_memory": 5e6,
             "exclude": "none", "downlink": True}  # fmt: skip
    assert ask(asked, "perplexity") == (
        "Which algorithm, with which keys, reaches perplexity 30 with the fewest bytes sent? It may take 60 "
        "simulated seconds at most. A client has 5 MB."
    )
    assert command(asked).endswith("exclude=none downlink=true")
