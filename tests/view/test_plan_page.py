"""A plan's page has its question, its race and its answer, whatever of them is there; the board lists plans."""

import json
import shutil

import pytest

from fedge.runner import files
from fedge.view.board_runs import Listing
from fedge.view.page_data import page_data
from fedge.view.plan_words import ask, command
from fedge.view.report import inert, write_report
from tests.pages import compare_once
from tests.plans import ENDS, plan_folder


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
    assert own["target"] == {"metric": "accuracy", "title": "accuracy", "share": True, "value": 0.9}
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
    assert row["differs"] == ["target=0.9", "lr=[0.02, 0.05, 0.1, 0.2]"]
    assert row["spark"] == sorted(row["spark"])
    assert (page["plan"]["state"], page["plan"]["answer"]) == ("running", None)
    assert "4 settings have trained so far, with 120 client steps; the search goes on." in page["says"]
    finals = [row for row in listing.rows() if row["algorithm"] != "plan"]
    assert {row["study"] for row in finals} == {"mine"}
    assert page_data(plan)["plan"]["state"] == "stopped"


@pytest.mark.parametrize(
    ("name", "content", "state"),
    [
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


def test_a_look_changes_with_a_plans_files(plan):
    listing = Listing(plan.parent)
    before = listing.look(["mine"])
    files.append(plan / "trials.jsonl", "{}\n")
    again = Listing(plan.parent)
    assert again.look(["mine"]) != before


def test_a_question_in_words():
    asked = {"target": "30", "target_metric": "perplexity", "minimise": "bytes", "deadline": 60, "client_memory": 5e6,
             "exclude": "none", "downlink": True}  # fmt: skip
    assert ask(asked, "perplexity") == (
        "Which algorithm, with which keys, reaches perplexity 30 with the fewest bytes sent? It may take 60 "
        "simulated seconds at most. A client has 5 MB."
    )
    assert command(asked).endswith("exclude=none downlink=true")
    assert command({"data": "custom"}) is None
