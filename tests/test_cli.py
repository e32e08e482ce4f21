import contextlib
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from unittest import mock

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from fedge.algorithms import ALGORITHMS
from fedge.cli import COMMANDS, app, flush_output, main
from fedge.errors import RunError, StoppedError, brief
from fedge.experiment.config import Config, all_fields
from fedge.experiment.other_names import KEYS_OF
from tests.experiment.test_hostile import ANY_TEXT, HOSTILE

runner = CliRunner()
SMALL = ["rounds=2", "clients=6", "cells=2", "batch=5"]


def call(*words):
    return runner.invoke(app, list(words))


@pytest.fixture
def no_figures(monkeypatch):
    """Pictures that a test does not look at take longer than its run."""
    monkeypatch.setattr("fedge.cli.run.figures", lambda *_: [])


def test_json_is_exactly_one_object(tmp_path):
    done = call("run", "hierfavg", *SMALL, "--seed", "3", "--format", "json", "--out", str(tmp_path / "run"))
    assert done.exit_code == 0
    result = json.loads(done.stdout)
    assert result["config"]["seed"] == 3
    assert result["final"] == result["history"][-1]
    assert result["parameters"] == 238_510
    assert {f.name for f in (tmp_path / "run").iterdir()} >= {"curves.png", "curves.pdf", "labels.png", "topology.png"}


def test_text_draws_the_topology_and_names_the_folder(tmp_path, no_figures):
    done = call("run", "hierfavg", *SMALL, "--out", str(tmp_path / "run"))
    assert done.exit_code == 0
    for expected in ("cloud", "edge 1", "3 clients", "final", f"run folder: {tmp_path / 'run'}"):
        assert expected in done.stdout
    assert "round 2/2" in done.stderr


def test_no_pictures_where_none_are_wanted(tmp_path):
    done = call("run", "hierfavg", *SMALL, "--draw", "none", "--out", str(tmp_path / "run"))
    assert done.exit_code == 0, done.output
    assert "edge 1" not in done.stdout
    assert f"next: fedge plot {tmp_path / 'run'} --x seconds, or fedge run --resume" in done.stdout
    assert "compiling" in done.stderr
    names = {f.name for f in (tmp_path / "run").iterdir()}
    assert {n for n in names if n.endswith((".png", ".pdf"))} == set()
    assert "report.html" in names


def test_sdfeel_shows_its_graph_before_training(tmp_path):
    short = ["rounds=1", "local_steps=1", "clients=6", "cells=6"]
    done = call("run", "sdfeel", *short, "graph=ring", "gossip=2", "--out", str(tmp_path / "run"))
    assert done.exit_code == 0
    assert "6 edges, 6 links; ζ = 0.6, ζ^α = 0.36 (α = 2)\nsmallest entry of the mixing matrix P: " in done.stdout
    assert (tmp_path / "run/graph.png").stat().st_size > 5_000


def test_compare(tmp_path):
    done = call("compare", *SMALL, "--out", str(tmp_path / "both"), "--format", "json")
    assert done.exit_code == 0
    result = json.loads(done.stdout)
    own = [name for name, entry in ALGORITHMS.items() if entry.form_of is None]
    assert [r["algorithm"] for r in result["results"]] == own
    assert {"fedavg", "hierfavg", "hist", "hiersfl", "sdfeel"} <= set(own)
    assert (tmp_path / "both/curves.png").stat().st_size > 10_000


def test_configuration_file_and_its_overrides(tmp_path, no_figures):
    file = tmp_path / "run.toml"
    file.write_text('algorithm = "fedavg"\nclients = 6\ncells = 3\nrounds = 1\nbatch = 5\nlocal_steps = 1\n')
    done = call("run", "--config", str(file), "--out", str(tmp_path / "a"), "--format", "json")
    assert json.loads(done.stdout)["config"]["cells"] == 3
    done = call("run", "hierfavg", "cells=2", "--config", str(file), "--out", str(tmp_path / "b"), "--format", "json")
    config = json.loads(done.stdout)["config"]
    assert (config["algorithm"], config["cells"], config["clients"]) == ("hierfavg", 2, 6)


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["run", "hierfavg", "clinets=3"], 2, "unknown key 'clinets'"),
        (["run", "hirfavg"], 2, "did you mean 'hierfavg'?"),
        (["run"], 2, "algorithm is missing"),
        (["run", "clients=3"], 2, "algorithm is missing"),
        (["run", "hierfavg", "cells=100"], 2, "cells=100 is more than clients=60"),
        (["run", "hierfavg", "seed=1", "--seed", "2"], 2, "seed is given twice"),
        (["run", "hierfavg", "--config", "none.toml"], 2, "cannot read the configuration none.toml"),
        (["run", "hierfavg", "clients=4000"], 2, "needs at least 8000 training samples"),
        (["run", "hierfavg", "--resume", "x"], 2, "give --resume DIR alone"),
        (["run", "--resume", "x", "resume=3"], 2, "unknown key 'resume'"),
        (["run", "--resume", "nowhere"], 4, "does not hold a run"),
        (["run", "hierfavg", "lr=inf"], 2, "lr=inf is not allowed; allowed: a number ≥ 1e-30 and ≤ 1e+30"),
        (["run", "clients=6", "hierfavg"], 2, "the algorithm goes first"),
        (["run", "fedavg", "algorithm=hierfavg"], 2, "the algorithm is given twice"),
        (["run", "fedavg", "--out", "/proc/nowhere/x"], 4, "choose another"),
        (["data", "partition", "--out", "/proc/nowhere/x.png"], 4, "cannot use /proc/nowhere"),
        (["compare", "fedavgg"], 2, "did you mean 'fedavg'?"),
        (["compare", "algorithm=fedavg"], 2, "name the algorithms"),
        (["keys", "lrr"], 2, "'lrr' is no key and no algorithm; `fedge keys` lists all keys; did you mean 'lr'?"),
        (["data", "get", "mnits"], 3, "did you mean 'mnist'?"),
        (["data", "partition", "clients=x"], 2, "clients=x is not allowed; allowed: an integer ≥ 1"),
        (["run", "fedavg", "--lr", "0.1"], 2, "--lr is no option but a key; write lr=0.1"),
        (["compare", "--local-steps=3"], 2, "write local_steps=3"),
        (["run", "fedavg", "--batch"], 2, "write batch=VALUE"),
        (["run", "fedavg", "--out"], 2, "--out needs a value after it; `fedge run --help` says which"),
        (["run", "fedavg", "--format", "yaml"], 2, "--format yaml is not allowed; allowed: text, json"),
        (["run", "fedavg", "--learning-rate", "0.1"], 2, "--learning-rate is no option but a key; write lr=0.1"),
        (
            ["run", "fedavg", "learning_rate=0.1"],
            2,
            "unknown key 'learning_rate' (`fedge keys` lists them all); did you mean 'lr'?",
        ),
        (["run", "fedavg", "Batch-Size=3"], 2, "did you mean 'batch'?"),
        (["run", "fedavg", "n_clients"], 2, "'n_clients' is not of the form key=value; did you mean 'clients'?"),
        (["keys", "local_epochs"], 2, "did you mean 'local_steps'?"),
        (["run", "fedavg", "data=nosuch.csv"], 3, "data=nosuch.csv is no file in "),
        (["board", "--port", "99999"], 2, "--port 99999 is not allowed; allowed: a number ≤ 65535"),
        (["board", "a", "b"], 2, "b is more than board takes; leave it out"),
        (["fly"], 2, "'fly' is no command; `fedge --help` lists them"),
        (["shwo"], 2, "'shwo' is no command; did you mean 'show'?"),
        (["plot"], 2, "RUN ... is missing; `fedge plot --help` says what it takes"),
        (["run", "fedavg", "--sed", "3"], 2, "--sed is no option here; did you mean --seed?"),
        (["run", "fedavg", "-lr", "0.1"], 2, "-lr is no option but a key; write lr=0.1"),
        (["run", "fedavg", "-format=json"], 2, "-format is no option here; did you mean --format?"),
        (["run", "fedavg", "-3"], 2, "-3 is no option here; `fedge run --help` lists them"),
        (["run", "sdfeel", "--alpha", "3"], 2, "write concentration=3 or gossip=3"),
        (["run", "hiersfl", "split=2"], 2, "did you mean 'cut' or 'partition'?"),
        (["run", "fedavg", "--seed", "x"], 2, "--seed x is not allowed; allowed: an integer"),
        (["hierfavg", "clients=6"], 2, "write fedge run hierfavg"),
        (["swep", "hierfavg", "lr=0.1,0.2"], 2, "'swep' is no command; did you mean 'sweep'?"),
        (["cost", "hierfavg"], 2, "hierfavg is an algorithm; write fedge cost run hierfavg"),
        (["theory", "hierfavg"], 2, "hierfavg is an algorithm; write fedge theory estimate hierfavg"),
        (["network", "hierfavg"], 2, "'hierfavg' is no command of fedge network; `fedge network --help` lists them"),
        (["run", "fedavg", "--out", ""], 2, "--out '' is no name of a folder"),
        (["compare", "--out", "a\0b"], 2, "is no name of a folder"),
        (["reproduce", "hist", "--out", " "], 2, "is no name of a folder"),
        (["data", "partition", "--out", "/"], 2, "--out / is no name of a file"),
        (["run", "fedavg", "--config", "/dev/zero"], 2, "cannot read the configuration /dev/zero"),
        (["run", "fedavg", "clients=\udcff"], 2, "clients=\\udcff is not allowed"),
        (["run", "\udcff=3"], 2, "unknown key '\\udcff'"),
        (["run", "fedavg", "devices=500"], 2, "devices=500 is too many for a machine with"),
        (["run", "fedavg", "devices=99999"], 2, "devices=99999 is too many"),
        (["reproduce", "hist", "--seeds", "9999999"], 2, "--seeds 9999999 is not allowed; allowed: a number ≤ 1000"),
        *(
            (["compare", f"{key}=3"], 2, f"unknown key '{key}'")
            for key in ("self", "out", "dataset", "optimiser", "algorithms", "listener", "resume", "config")
        ),
        *(
            ([*command, f"{key}=Custom"], 2, f"{key}=custom means an object passed in from Python; name one of: ")
            for command in (["run", "fedavg"], ["compare"], ["data", "partition"], ["cost", "cuts"])
            for key in ("model", "data", "optimizer")
        ),
    ],
)
def test_bad_input_gets_one_sentence_and_its_exit_code(words, code, sentence):
    done = call(*words)
    assert done.exit_code == code
    assert done.stdout == ""
    assert done.stderr.startswith("fedge: ")
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


WORDS = st.one_of(
    st.sampled_from(["--config", "--out", "--seed", "--format", "--lr", "--", "-", "=", "fedavg", "hist", "seed=1"]),
    st.builds("{}={}".format, st.sampled_from([*Config.model_fields, "self"]), HOSTILE.map(brief)),
    ANY_TEXT,
).filter(lambda word: not word.startswith(("--h", "--r", "--i", "--sh")))  # help, and what needs a run


@given(st.sampled_from([["run"], ["compare"], ["cost", "cuts"], ["data", "partition"]]), st.lists(WORDS, min_size=1))
def test_any_words_get_an_answer(command, words):
    """What would take time is cut short where it would begin: then the exit code is 4."""
    begin = mock.Mock(side_effect=RunError("far enough"))
    with contextlib.ExitStack() as stack:
        for room, name in (("runner.run", "ready"), ("studies.compare", "ready"), ("experiment.build", "cut_prices"),
                           ("experiment.build", "experiment")):  # fmt: skip
            stack.enter_context(mock.patch(f"fedge.{room}.{name}", begin))
        done = call(*command, *words)
    assert done.exit_code in (2, 3, 4), done.exception
    assert done.stdout == ""
    assert done.stderr.startswith("fedge: ")
    assert done.stderr.count("\n") == 1


def test_processes_without_an_output_or_a_platform(tmp_path):
    """At once, for each takes seconds to start: output closed, output full and no τ to write, no such platform, and a
    setting that JAX refuses while it is imported."""
    fedge = [sys.executable, "-m", "fedge.cli"]
    narrow, nonsense = os.environ | {"PYTHONIOENCODING": "ascii"}, os.environ | {"JAX_PLATFORMS": "nonsense"}
    perhaps = os.environ | {"JAX_ENABLE_X64": "maybe"}
    with open("/dev/full", "w") as full:
        started = [
            subprocess.Popen(words, stdout=out, stderr=subprocess.PIPE, text=True, env=env)
            for words, out, env in (
                (["sh", "-c", 'exec "$@" >&-', "sh", *fedge, "keys"], None, None),
                ([*fedge, "keys"], full, narrow),
                ([*fedge, "run", "fedavg", "--out", str(tmp_path / "run")], subprocess.PIPE, nonsense),
                ([sys.executable, "-m", "fedge", "keys"], subprocess.PIPE, perhaps),
                ([*fedge, "run", "fedavg", "--lr", "0.1"], subprocess.PIPE, perhaps),
            )
        ]
    said = [process.communicate(timeout=60)[1] for process in started]
    assert [process.returncode for process in started] == [4, 4, 2, 2, 2]
    assert said[0] == "fedge: standard output is closed; send it to a file, or to /dev/null\n"
    assert "No space left on device" in said[1]
    assert "JAX cannot start" in said[2]
    assert "JAX_PLATFORMS=nonsense" in said[2]
    assert "cannot start (invalid truth value 'maybe' for environment 'JAX_ENABLE_X64')" in said[3]
    assert said[4] == said[3]
    assert [text.count("\n") for text in said] == [1, 1, 1, 1, 1]
    assert not (tmp_path / "run").exists()


def test_help_and_words_that_cannot_be_read_need_no_jax():
    """A process of its own calls them; importing JAX takes seconds."""
    own = {"theory": ["estimate"], "fleet": ["init", "emit", "status", "cloud", "edge", "client", "monitor", "up"]}
    groups = [[name, *one, "--help"] for name, below in own.items() for one in ([], *([each] for each in below))]
    words = [*([name, "--help"] for name in COMMANDS), *groups, ["board", "--port", "x"], ["swep", "hierfavg"]]
    code = f"""
import sys
from typer.testing import CliRunner
from fedge.cli import app
for words in {words}:
    assert CliRunner().invoke(app, words).exit_code == (0 if words[-1] == "--help" else 2), words
    assert not {{"jax", "flax", "optax", "scipy", "matplotlib"}} & sys.modules.keys(), words
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_platform_that_jax_knows_and_this_machine_lacks(monkeypatch):
    """JAX answers with an assertion where it has no plug-in for it, as for `cuda` beside the plain jaxlib."""
    monkeypatch.setattr("jax.default_backend", mock.Mock(side_effect=AssertionError))
    done = call("run", "fedavg", *SMALL)
    assert done.exit_code == 2
    assert done.stderr.startswith("fedge: JAX cannot start (no such platform here)")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("problem", "code", "said"),
    [(OSError(28, "full"), 4, "fedge: cannot write to standard output: full\n"), (BrokenPipeError(), 1, "")],
)
def test_help_that_finds_no_room(monkeypatch, capsys, problem, code, said):
    """Help and version are printed outside of what turns errors into sentences; so is a sentence that finds no room."""
    monkeypatch.setattr("fedge.cli.app", mock.Mock(side_effect=problem))
    monkeypatch.setattr("logging.basicConfig", mock.Mock())
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == code
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    "setting",
    [partial(jax.threefry_partitionable, False), jax.disable_jit, partial(jax.numpy_dtype_promotion, "strict")],
)
def test_settings_of_jax_that_give_other_results_are_refused(setting):
    """With the first, the same seed drew other batches without a word; the others were tracebacks."""
    with setting():
        done = call("run", "fedavg", *SMALL)
    assert done.exit_code == 2
    assert "fedge: JAX's setting jax_" in done.stderr
    assert done.stderr.count("\n") == 1


def test_whoever_stops_reading_has_read_what_was_wanted(monkeypatch, capsys):
    with monkeypatch.context() as patch:
        patch.setattr(os, "dup2", lambda new, old: None)
        patch.setattr(sys, "stdout", mock.Mock(flush=mock.Mock(side_effect=BrokenPipeError)))
        assert flush_output(0) == 1
    assert capsys.readouterr().err == ""


def test_a_wrong_key_is_found_before_data_is_loaded(monkeypatch):
    def touched(*args):
        raise AssertionError("data was loaded")

    monkeypatch.setattr("fedge.experiment.build.load_data", touched)
    for wrong in (["model=cn"], ["clients=100000"], ["partition=one_class", "clients=5", "cells=2"], ["cells=90"]):
        assert call("run", "hierfavg", "data=mnist", *wrong).exit_code == 2


def test_a_fleet_that_is_stopped_goes_on_as_a_fleet(monkeypatch, tmp_path):
    pytest.importorskip("cryptography")

    def stopped(fleet, *, listener, **given):
        listener.folder = tmp_path / "run"
        raise StoppedError("stopped after round 3 of 5; continue with: fedge run --resume run", 15)

    monkeypatch.setattr("fedge.fleet.up.up", stopped)
    example = str(Path(__file__).parents[1] / "examples/fleet.toml")
    answer = call("fleet", "up", example)
    assert answer.exit_code == 143
    assert answer.stderr.strip().endswith(
        f"stopped after round 3 of 5; continue with: fedge fleet up {example} --resume {tmp_path / 'run'}"
    )


def test_a_folder_in_which_no_run_has_begun_is_not_resumed(tmp_path):
    answer = call("run", "--resume", str(tmp_path))
    assert (answer.exit_code, answer.stderr) == (
        4, f"fedge: {tmp_path} holds no run yet: none has begun there; start one with --out {tmp_path}\n",
    )  # fmt: skip


def test_data_commands(tmp_path):
    listed = call("data", "list")
    assert "fashion-mini" in listed.stdout
    assert "not here yet: fedge data get cifar10" in listed.stdout
    assert "6,000 + 1,000 images, checksums verified (built in)" in call("data", "get", "fashion-mini").stdout
    picture = tmp_path / "labels.png"
    shown = call("data", "partition", "partition=one_class", "clients=20", "--out", str(picture))
    assert shown.exit_code == 0
    assert picture.stat().st_size > 5_000


def test_keys_and_version():
    assert "  local_steps=5 " in call("keys").stdout
    one = call("keys", "prox").stdout
    for said in (
        "holds clients back",
        "a number ≥ 0",
        "default  0; fedprox: 0.01",
        "any algorithm's updates (proximal)",
    ):
        assert said in one
    assert call("keys", "graph").stdout.endswith("read by  sdfeel\n")
    listed = {key["name"]: key for key in json.loads(call("keys", "fedprox", "--format", "json").stdout)}
    assert listed["prox"]["default"] == 0.01
    assert listed["lr"] == json.loads(call("keys", "lr", "--format", "json").stdout)
    assert listed["lr"]["type"] == "number"
    assert "graph" not in listed
    assert listed.keys() == Config.of({"algorithm": "fedprox"}).model_dump().keys() - {"algorithm"}
    assert call("--version").stdout.startswith("fedge ")


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("fedge comp", ["compare"]),
        ("fedge run hier", ["hierfavg", "hiersfl", "hiersfl_v2"]),
        ("fedge run hierfavg local", ["local_steps="]),
        ("fedge compare partition=d", ["partition=dirichlet", "partition=drawn"]),
        ("fedge keys local", ["local_steps"]),
    ],
)
def test_the_shell_completes_commands_algorithms_and_keys(typed, offered, monkeypatch):
    words = {"_FEDGE_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    for name, value in words.items():
        monkeypatch.setenv(name, value)
    assert runner.invoke(app, prog_name="fedge").stdout.split() == offered


def test_each_name_that_is_used_elsewhere_leads_to_a_key_and_is_none_itself():
    keys = all_fields()
    for other, meant in KEYS_OF.items():
        assert keys.keys() >= set(meant)
        assert other not in keys
