"""Real processes are asked to stop in every way, and killed: a run goes on to the bits of one that was left alone."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from safetensors.numpy import load_file

COMMAND = [sys.executable, "-m", "fedge", "run"]
KEYS = ["hierfavg", "clients=8", "rounds=4000", "local_steps=2", "edge_rounds=1", "batch=5", "eval_every=100",
        "checkpoint_every=200", "devices=2"]  # fmt: skip


# The command, as soon as a file is there: processes that have imported everything start within milliseconds.
AT_ONCE = """
import pathlib, sys, time
import fedge.cli.run
from fedge.__main__ import main

fedge.cli.run.figures = lambda *_: []
gate = pathlib.Path(sys.argv.pop(1))
gate.with_name(sys.argv.pop(1)).touch()
while not gate.exists():
    time.sleep(0.001)
main()
"""

# The command, which says with a file that it hears signals from now on: it is about to import everything.
HEARING = """
import pathlib, sys
from fedge.__main__ import main
from fedge.runner import signals

def install(before=signals.install, told=pathlib.Path(sys.argv.pop(1))):
    request = before()
    told.touch()
    return request

signals.install = install
main()
"""


@pytest.fixture
def begin():
    """Start a process; whatever a test leaves running is ended.

    A shell tells what it begins in the background to ignore Ctrl-C, nohup to ignore a hang-up, and a process that
    ignores one hands that on.
    """
    before = {signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
              signal.SIGHUP: signal.signal(signal.SIGHUP, signal.SIG_DFL)}  # fmt: skip
    started = []
    home = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}  # what is compiled here runs long
    home["MPLBACKEND"] = "nonsense"  # which must not end a run when its figures are drawn

    def start(*words, command=COMMAND, env=home, **options):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen([*command, *words], env=env, **pipes, **options))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()
    for number, handler in before.items():
        signal.signal(number, handler)


def wait_for(condition, process, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)


def rows(folder):
    path = folder / "metrics.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


def about(folder):
    return json.loads((folder / "run.json").read_text())


def end(process, seconds=120):
    out, complaint = process.communicate(timeout=seconds)
    assert "Traceback" not in complaint
    return process.returncode, out, complaint


def test_a_run_that_was_stopped_in_every_way_is_the_run_that_was_not(tmp_path, begin):
    """Resumed by two processes at once, at last: one goes on, the other is refused."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    untouched = begin(*KEYS, "--out", str(whole), "--format", "json")
    _, expected, _ = end(untouched)
    words = [*KEYS, "--out", str(cut)]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
        before, process = rows(cut), begin(*words)
        wait_for(lambda before=before: rows(cut) > before and about(cut)["state"] == "running", process)
        process.send_signal(number)
        code, _, complaint = end(process)
        state = about(cut)["state"]
        if number == signal.SIGKILL:
            assert (code, state) == (-9, "running")
        else:
            assert (code, state) == (128 + number, "stopped"), complaint
            assert "stopping at the next safe point; the same again leaves at once" in complaint
            assert f"of 4000; continue with: fedge run --resume {cut}" in complaint
        words = ["--resume", str(cut)]
    gate, names = tmp_path / "gate", ("ready 1", "ready 2")
    pair = [begin(str(gate), name, "run", *words, "--format", "json", command=[sys.executable, "-c", AT_ONCE])
            for name in names]  # fmt: skip
    for name, process in zip(names, pair, strict=True):
        wait_for((tmp_path / name).exists, process)
    gate.touch()
    (code, found, _), refused = sorted(end(process) for process in pair)
    assert code == 0
    assert refused == (4, "", f"fedge: another process is writing to {cut}; wait for it, or stop it first\n")
    assert json.loads(found)["history"] == json.loads(expected)["history"]
    assert (cut / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    one, two = (load_file(folder / "weights.safetensors") for folder in (whole, cut))
    assert all((one[path] == two[path]).all() for path in one)


def test_a_second_signal_leaves_at_once_and_the_first_does_during_the_start(tmp_path, begin):
    """A global round of 10⁶ steps would take minutes; importing JAX takes two seconds."""
    long = begin(*KEYS[:1], "rounds=2", "local_steps=1000000", "edge_rounds=1", "--out", str(tmp_path / "long"))
    starting = begin(str(tmp_path / "told"), "run", *KEYS, "--out", str(tmp_path / "starting"),
                     command=[sys.executable, "-c", HEARING])  # fmt: skip
    wait_for((tmp_path / "told").exists, starting)
    starting.send_signal(signal.SIGINT)
    code, out, complaint = end(starting)
    assert (code, out, complaint) == (130, "", "fedge: stopped\n")
    wait_for(lambda: (tmp_path / "long/metrics.jsonl").exists(), long)
    time.sleep(2)  # the round has begun, which nothing outside tells
    long.send_signal(signal.SIGINT)
    assert "fedge: stopping at the next safe point; the same again leaves at once\n" in long.stderr
    assert long.poll() is None
    long.send_signal(signal.SIGINT)
    code, _, complaint = end(long)
    assert code == 130
    assert complaint.endswith("fedge: left at once\n")


COLLECTING = """
import gc, os, signal, time
from fedge.runner import signals

signals.install().started = True

def once(phase, counts):
    gc.callbacks.remove(once)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.01)

gc.callbacks.append(once)
try:
    gc.collect()
    time.sleep(0.5)
except signals.Leave as wish:
    print(wish.exit_code)
"""


def test_a_signal_while_memory_is_collected_is_not_dropped(begin):
    """Python drops what is raised there, and prints a traceback; JAX has a callback there in every process."""
    code, out, complaint = end(begin(command=[sys.executable, "-c", COLLECTING]), 30)
    assert (code, out, complaint) == (0, "143\n", "")


def test_a_full_disk_is_one_sentence_and_the_last_state_stays(tmp_path, begin):
    """Files may grow to 400 kB here, which metrics never need and a checkpoint does."""
    limited = [
        "import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000)); "
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    ]
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": ""}  # whose files would be cut short too
    command = [sys.executable, "-c", *limited, *COMMAND[1:]]
    process = begin(*KEYS, "--out", str(tmp_path / "full"), command=command, env=environment)
    code, _, complaint = end(process)
    assert code == 4
    last = complaint.splitlines()[-1]
    assert last.startswith("fedge: cannot use ")
    assert "checkpoint.safetensors" in last
    assert about(tmp_path / "full")["state"] == "failed"
    assert not list((tmp_path / "full").glob(".*.part"))


def test_nothing_claims_that_a_run_without_checkpoints_can_go_on(tmp_path, begin):
    process = begin(*KEYS[:-2], "checkpoint_every=0", "devices=2", "--out", str(tmp_path / "x"))
    wait_for(lambda: rows(tmp_path / "x") >= 1, process)
    process.send_signal(signal.SIGINT)
    code, _, complaint = end(process)
    assert code == 130
    assert "with checkpoint_every=0 no state was saved, so it cannot be continued" in complaint
    assert "--resume" not in complaint
