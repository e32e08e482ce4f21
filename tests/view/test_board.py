"""The board lists what lies in a folder, whatever that is, and tells what is new."""

import http.client
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from fedge.cli import app
from fedge.errors import RunError
from fedge.runner import files
from fedge.view import board_runs
from fedge.view import page_data as page_module
from fedge.view import run_list as list_module
from fedge.view.board import hosts_of, listen
from fedge.view.board_runs import Listing
from fedge.view.page_data import page_data
from fedge.view.report import inert
from fedge.view.run_list import run_list
from tests.pages import NAMES, board_of, compare_once, copied, half_done

PATIENCE = 60  # seconds, on a machine that has other things to do


@pytest.fixture(scope="module")
def compared():
    return compare_once()


@pytest.fixture(scope="module")
def runs(compared, tmp_path_factory):
    folder = tmp_path_factory.mktemp("board")
    copied(compared / "hist", folder / "hist")
    copied(compared / "sdfeel", folder / "gone", state="running")  # nobody holds its lock
    copied(compared / "hierfavg", folder / "study/hierfavg")
    copied(compared / "fedavg", folder / "study/fedavg")
    (folder / "study/compare.json").write_bytes((compared / "compare.json").read_bytes())
    for name, content in {"garbage": "[" * 10_000, "half": '{"identity": "a', "list": "[]"}.items():
        (folder / name).mkdir()
        (folder / name / "run.json").write_text(content)
    (folder / "empty").mkdir()
    (folder / "elsewhere").symlink_to(compared)
    return folder


def get(address):
    with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
        return answer.read().decode()


def numbers(html):
    return json.loads(html.split('type="application/json">')[1].split("</script>")[0])


class Stream:
    """This reads server-sent events."""

    def __init__(self, address):
        parts = urlsplit(address)
        self._line = http.client.HTTPConnection(parts.netloc, timeout=PATIENCE)
        self._line.request("GET", f"{parts.path}?{parts.query}")
        self._answer = self._line.getresponse()
        assert self._answer.getheader("content-type").startswith("text/event-stream")

    def next(self):
        """Return the data of the next event; None at the end."""
        while line := self._answer.readline().decode():
            if line.startswith("data: "):
                return json.loads(line[6:])
        self._line.close()
        return None


def test_the_list_has_a_row_for_each_run_and_a_sentence_for_a_damaged_one(runs):
    rows = {row["name"]: row for row in Listing(runs).rows()}
    assert set(rows) == {"hist", "gone", "study/hierfavg", "study/fedavg", "garbage", "half", "list"}
    hist = rows["hist"]
    lines = [json.loads(line) for line in (runs / "hist/metrics.jsonl").read_text().splitlines()]
    assert hist["spark"] == [line["accuracy"] for line in lines]
    assert (hist["state"], hist["algorithm"], hist["value"]) == ("finished", "hist", lines[-1]["accuracy"])
    assert {"clients=6", "rounds=3", "device_spread=1.0"} <= set(hist["differs"])
    assert rows["gone"]["state"] == "lost"
    assert rows["study/fedavg"]["study"] == "study"
    for name in ("garbage", "half", "list"):
        assert rows[name]["state"] == "damaged"
        assert "damaged" in rows[name]["problem"]


HUGE = f'"accuracy": {10**400}, "simulated_seconds": {10**400}'  # no float holds them
ROW = '"iteration": 1, "accuracy": 0.5, "loss": 1, "simulated_seconds": 1, "bytes": {'


@pytest.mark.parametrize(
    ("name", "content", "state", "page"),
    [
        ("metrics.jsonl", None, "finished", "damaged"),  # a pipe: no row, and nobody waits for one
        ("metrics.jsonl", f'{{"round": Infinity, {ROW}}}}}\n', "damaged", "finished"),  # a page ends before it
        ("metrics.jsonl", f'{{"round": 1, {ROW}}}, {HUGE}}}\n', "finished", "finished"),
        ("metrics.jsonl", f'{{"round": 1, {ROW}"up": 1e308, "down": 1e308}}}}\n', "finished", "damaged"),
        ("ledger.json", '{"up": {"links": [1e308, 1e308]}}', "finished", "finished"),
        ("../sweep.json", '{"runs": 5}', "finished", "finished"),
    ],
    ids=["pipe", "infinite", "digits", "bytes", "links", "plan"],
)  # fmt: skip
def test_a_record_that_nobody_expects_harms_no_other(compared, tmp_path, name, content, state, page):
    copied(compared / "hist", tmp_path / "good/run")
    place = copied(compared / "hist", tmp_path / "odd/run")
    (place / name).unlink(missing_ok=True)
    os.mkfifo(place / name) if content is None else (place / name).write_text(content)
    rows = {row["name"]: row for row in Listing(tmp_path).rows()}
    assert (rows["good/run"]["state"], rows["good/run"]["value"] is None) == ("finished", False)
    assert rows["odd/run"]["state"] == state
    assert {line["name"] for line in run_list(tmp_path)} == {"good/run", "odd/run"}
    found = page_data(tmp_path)
    assert inert(found)
    assert [run["state"] for run in found["runs"]] == ["finished", page]


def test_an_error_that_nobody_expects_is_a_row_and_ends_no_list(compared, tmp_path, monkeypatch):
    for name in ("good", "odd"):
        copied(compared / "hist", tmp_path / name, seed=1 if name == "good" else 2)
    for module in (board_runs, page_module, list_module):
        about = module.read_about if hasattr(module, "read_about") else module.summary
        word = "read_about" if hasattr(module, "read_about") else "summary"
        monkeypatch.setattr(module, word, lambda folder, about=about: about(folder) if folder.name == "good" else 1 / 0)
    said = f"{tmp_path / 'odd'} is damaged (ZeroDivisionError: division by zero); restore it"
    for found in (Listing(tmp_path).rows(), run_list(tmp_path), page_data(tmp_path)["runs"]):
        assert {line["name"]: (line["state"], line["problem"]) for line in found} == {
            "good": ("finished", None), "odd": ("damaged", said),
        }  # fmt: skip


def test_a_stream_outlives_an_error_that_nobody_expects(compared, tmp_path, monkeypatch):
    """The first look fails, the second one finds the run."""
    copied(compared / "hist", tmp_path / "run")
    looks = []

    def look(self, names):
        looks.append(names)
        return len(looks) if len(looks) > 1 else 1 / 0

    monkeypatch.setattr(Listing, "look", look)
    with board_of(tmp_path) as address:
        stream = Stream(f"{address}/page/events?of=run")
        assert stream.next()["runs"][0]["name"] == "run"
    while stream.next() is not None:
        pass


def test_a_long_run_is_sampled_and_a_line_that_is_being_written_is_left_out(compared, tmp_path):
    place = copied(compared / "hist", tmp_path / "long")
    row = json.loads((place / "metrics.jsonl").read_text().splitlines()[0])
    lines = [files.line(row | {"round": n, "accuracy": n / 5000}) for n in range(1, 5001)]
    (place / "metrics.jsonl").write_text("".join(lines) + lines[-1][:30])
    assert (place / "metrics.jsonl").stat().st_size > board_runs.WHOLE  # so only its end is read
    (found,) = Listing(tmp_path).rows()
    assert found["value"] == 1.0
    assert found["round"] == 5000
    assert len(found["spark"]) == board_runs.POINTS
    assert found["spark"] == sorted(found["spark"])


def test_no_file_is_looked_at_more_often_than_once_a_second(compared, tmp_path, monkeypatch):
    place, (second, _) = half_done(compared / "hist", tmp_path / "run")
    now, looked = [100.0], []
    monkeypatch.setattr(board_runs.time, "monotonic", lambda: now[0])
    listing = Listing(tmp_path)
    read = type(listing)._read
    monkeypatch.setattr(type(listing), "_read", lambda *given: looked.append(now[0]) or read(*given))
    assert listing.rows()[0]["round"] == 1
    files.append(place / "metrics.jsonl", second)
    now[0] += 0.75
    before = listing.look(["run"])
    assert listing.rows()[0]["round"] == 1
    now[0] += 0.5
    assert listing.rows()[0]["round"] == 2
    assert listing.look(["run"]) != before
    now[0] += 5
    listing.rows()
    assert looked == [100.0, 101.25]  # not again: nothing has changed


def test_the_newest_runs_are_there_before_all_have_been_read(compared, tmp_path, monkeypatch):
    for number in range(5):
        place = copied(compared / "hist", tmp_path / f"run-{number}", begun=f"2026-11-1{number}")
        os.utime(place / "run.json", (number, number))
    monkeypatch.setattr(board_runs, "FIRST", 2)
    listing, seen = Listing(tmp_path), []
    read = type(listing)._read

    def watched(self, run, look):
        seen.append([row["name"] for row in self.latest()] if self._some.is_set() else None)
        return read(self, run, look)

    monkeypatch.setattr(type(listing), "_read", watched)
    assert [row["name"] for row in listing.rows()] == [f"run-{number}" for number in (4, 3, 2, 1, 0)]
    assert seen == [None, None, *[["run-4", "run-3"]] * 3]


def test_pages_are_of_listed_runs_and_of_nothing_else(runs):
    with board_of(runs) as address:
        assert {row["name"] for row in numbers(get(address))["rows"]} >= {"hist", "study/fedavg", "garbage"}
        assert numbers(get(f"{address}/page?of=hist"))["runs"][0]["algorithm"] == "hist"
        assert numbers(get(f"{address}/page?of=study"))["kind"] == "comparison"
        both = numbers(get(f"{address}/page?of=study&of=hist&of=garbage"))
        assert [run["algorithm"] for run in both["runs"]] == ["fedavg", "hierfavg", "hist", "unknown"]
        assert both["command"] is None
        for name in ("..", "../..", "/etc", "elsewhere", "hist/../../", "empty", "%00", "garbage", ""):
            with pytest.raises(urllib.error.HTTPError) as refused:
                get(f"{address}/page?of={name}")
            assert refused.value.code == 404
            refused.value.close()
        with pytest.raises(urllib.error.HTTPError, match="403") as refused:
            get(urllib.request.Request(address, headers={"Host": "elsewhere.example"}))
        refused.value.close()
        with pytest.raises(urllib.error.HTTPError, match="405") as refused:
            get(urllib.request.Request(address, data=b"write"))
        refused.value.close()


def test_streams_tell_what_is_new_and_end_with_the_board(compared, tmp_path):
    place, (second, third) = half_done(compared / "hist", tmp_path / "run")
    with files.locked(place), board_of(tmp_path) as address:
        rows, page = Stream(f"{address}/events"), Stream(f"{address}/page/events?of=run")
        assert rows.next()["rows"][0]["state"] == "running"
        assert page.next()["runs"][0]["columns"]["round"] == [1]
        files.append(place / "metrics.jsonl", second)
        assert page.next()["runs"][0]["columns"]["round"] == [1, 2]
        assert rows.next()["rows"][0]["round"] == 2
        copied(compared / "sdfeel", tmp_path / "another")
        assert [row["name"] for row in rows.next()["rows"]] == ["another"]
        files.append(place / "metrics.jsonl", third)
        assert page.next()["runs"][0]["columns"]["round"] == [1, 2, 3]
    while rows.next() is not None:
        pass
    assert page.next() is None


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="signals of POSIX")
def test_a_signal_ends_a_board_that_somebody_looks_at(runs):
    words = [sys.executable, "-m", "fedge", "board", str(runs), "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=os.environ | {"JAX_PLATFORMS": "cpu"}) as board:  # fmt: skip
        address = next(word for word in board.stdout.readline().split() if word.startswith("http"))
        stream = Stream(f"{address}events")
        assert stream.next()["rows"]
        board.send_signal(signal.SIGTERM)
        assert stream.next() is None
        said = board.communicate(timeout=PATIENCE)[1]
        assert board.returncode == 0
    assert "Traceback" not in said


def test_what_cannot_be_served_is_one_sentence(runs, tmp_path):
    def call(*words):
        done = CliRunner().invoke(app, ["board", *map(str, words)])
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
        return done.exit_code, done.stderr

    with listen("127.0.0.1", 0) as taken:
        code, said = call(runs, "--port", taken.getsockname()[1])
    assert code == 4
    assert "in use; give another with --port" in said
    assert call(tmp_path / "nowhere") == (4, f"fedge: {tmp_path / 'nowhere'} is no folder; give one that holds runs\n")
    code, said = call(runs, "--port", 70_000)
    assert code == 2
    assert "65535" in said
    code, said = call(runs, "--host", "no such host")
    assert code == 2
    assert "no address of this machine" in said


def test_a_board_for_others_is_called_by_any_name():
    assert "localhost" in hosts_of("127.0.0.1")
    assert hosts_of("0.0.0.0") is None


def test_a_folder_that_is_itself_a_run_or_a_study_is_listed(compared):
    assert [row["name"] for row in Listing(compared / "hist").rows()] == ["hist"]
    listing = Listing(compared)
    assert {row["name"] for row in listing.rows()} == set(NAMES)
    assert listing.data(["compared"])["kind"] == "comparison"
    with pytest.raises(RunError, match="no run is called"):
        listing.data(["../compared"])
