"""A page shows what the records of a folder hold, whatever that is."""

import json
import re

import pytest

from fedge.errors import RunError
from fedge.runner import files
from fedge.runner.record import command
from fedge.view.page_data import page_data
from fedge.view.report import inert, write_report
from tests.pages import KEYS, NAMES, compare_once, copied

NASTY = "</script><script>document.title='taken'</script>"


@pytest.fixture(scope="module")
def compared():
    return compare_once()


def test_a_page_holds_what_the_records_hold(compared):
    page = page_data(compared)
    assert page["kind"] == "comparison"
    assert page["differing"] == ["algorithm"]
    assert [run["label"] for run in page["runs"]] == NAMES
    assert [metric["name"] for metric in page["metrics"]][:2] == ["accuracy", "loss"]
    for run in page["runs"]:
        rows = [json.loads(line) for line in (compared / run["name"] / "metrics.jsonl").read_text().splitlines()]
        assert run["state"] == "finished"
        assert run["columns"]["accuracy"] == [row["accuracy"] for row in rows]
        assert run["columns"]["bytes"] == [sum(row["bytes"].values()) for row in rows]
        assert run["lists"]["client_accuracies"]["last"] == rows[-1]["client_accuracies"]
        assert {tier: sent[-1] for tier, sent in run["tiers"].items()} == rows[-1]["bytes"]
        assert {tier: found["total"] for tier, found in run["traffic"].items()} == rows[-1]["bytes"]
        assert run["counted"] == rows[-1]["round"]
        assert {change["key"] for change in run["changed"]} == {*KEYS, "device_spread", "metrics"}
    _, plain, hist, split, gossip = (run["setting"] for run in page["runs"])
    assert sum(hist["held"]["each_edge"]) < 2 * plain["held"]["model"] == 2 * plain["held"]["each_edge"][0]
    assert split["cut"]["client_parameters"] + split["cut"]["edge_parameters"] == split["model"]["parameters"]
    assert gossip["graph"]["edges"] == 3
    assert len(gossip["labels"]["share"]) == KEYS["clients"]
    assert [sum(share) for share in gossip["labels"]["share"]] == pytest.approx([1] * 6)


def test_runs_that_differ_in_their_seed_only_have_a_mean_and_an_interval(compared, tmp_path):
    for seed in range(3):
        place = copied(compared / "hist", tmp_path / f"seed={seed}")
        about = json.loads((place / "run.json").read_text())
        about["config"]["seed"] = seed
        (place / "run.json").write_text(json.dumps(about))
        lines = (place / "metrics.jsonl").read_text().splitlines()
        rows = [json.loads(line) | {"accuracy": 0.5 + 0.1 * seed} for line in lines]
        (place / "metrics.jsonl").write_text("".join(files.line(row) for row in rows))
    page = page_data(tmp_path)
    (group,) = page["groups"]
    assert (page["kind"], group["runs"]) == ("sweep", [0, 1, 2])
    assert group["columns"]["accuracy"]["mean"] == pytest.approx([0.6] * 3)
    # s = 0.1, t = 4.302653 for 2 degrees of freedom and 95 %: 4.302653 × 0.1/√3
    assert group["columns"]["accuracy"]["high"] == pytest.approx([0.6 + 0.2484138] * 3)


def test_a_report_is_one_file_that_asks_for_nothing(compared):
    text = write_report(compared).read_text()
    assert not re.search(r"""(?:src|href)=["'](?!data:)|url\((?!["']?data:)|@import""", text.split('id="data"')[0])
    assert "default-src 'none'" in text
    assert json.loads(re.search(r'id="data" type="application/json">(.*?)</script>', text, re.DOTALL)[1])["runs"]


def test_a_report_of_a_hundred_rounds_is_less_than_two_megabytes(compared, tmp_path):
    for name in NAMES:
        place = copied(compared / name, tmp_path / name)
        row = json.loads((place / "metrics.jsonl").read_text().splitlines()[-1])
        row |= {"client_accuracies": [1 / 3] * 400, "cell_accuracies": [1 / 3] * 50}
        (place / "metrics.jsonl").write_text("".join(files.line(row | {"round": n}) for n in range(1, 101)))
    assert write_report(tmp_path).stat().st_size < 2e6


def test_text_of_a_record_stays_text(compared, tmp_path):
    place = copied(compared / "hist", tmp_path / "nasty", command=f"fedge run {NASTY}", processor=NASTY)
    about = json.loads((place / "run.json").read_text())
    about["config"] |= {"data": NASTY, NASTY: NASTY}
    (place / "run.json").write_text(json.dumps(about))
    text = write_report(place).read_text()
    assert "<script>document.title" not in text
    assert text.count("<script") == 2
    assert inert("</script>&\u2028") == '"\\u003c/script\\u003e\\u0026\\u2028"'


def test_the_command_to_repeat_is_what_was_typed(monkeypatch):
    for program, ours in {"/usr/bin/fedge": True, "/x/fedge/__main__.py": True, "/x/pytest/__main__.py": False}.items():
        monkeypatch.setattr("sys.argv", [program, "run", "hist", "data=my file.csv"])
        assert command() == ("fedge run hist 'data=my file.csv'" if ours else None)


def test_a_page_shows_what_is_left_of_a_damaged_run(compared, tmp_path):
    for name in ("cut", "gone", "garbage", "old"):
        copied(compared / "sdfeel", tmp_path / name)
    lines = (tmp_path / "cut/metrics.jsonl").read_bytes()
    (tmp_path / "cut/metrics.jsonl").write_bytes(lines[:-30])
    for name in ("setting.json", "ledger.json", "result.json", "metrics.jsonl"):
        (tmp_path / "gone" / name).unlink()
        (tmp_path / "cut" / name).write_text('{"topology": 3') if name != "metrics.jsonl" else None
    (tmp_path / "garbage/run.json").write_text("[" * 10_000)
    ledger = json.loads((tmp_path / "old/ledger.json").read_text())
    ledger.pop("round")  # which ledgers did not always have
    (tmp_path / "old/ledger.json").write_text(json.dumps(ledger))
    runs = {run["name"]: run for run in page_data(tmp_path)["runs"]}
    assert runs["cut"]["columns"]["round"] == [1, 2]
    assert runs["gone"]["columns"] == {}
    assert runs["gone"]["setting"] is None
    assert runs["old"]["counted"] is None
    assert runs["old"]["traffic"]["edge_to_edge"]["total"] == ledger["edge_to_edge"]["total"]
    assert runs["garbage"]["state"] == "damaged"
    assert "is damaged" in runs["garbage"]["problem"]
    with pytest.raises(RunError, match="is damaged"):
        page_data(tmp_path / "garbage")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match="does not hold a run"):
        page_data(tmp_path / "empty")
