"""A run leaves these files behind.

    run.json                        what was run, when, by which command, on what: seed, code, versions, hardware,
                                    layout; the identity that other files must carry; its state (running, stopped,
                                    failed, diverged, finished) and, at the end, digests of the other files
    config.json                     the resolved configuration
    setting.json                    what the run is made of, to be drawn: cells, labels, graph, cut (`setting.py`)
    metrics.jsonl                   one line per evaluated round
    checkpoint.safetensors          the state after a round, to resume from, and the one before it
    checkpoint.previous.safetensors
    weights.safetensors             the final model
    ledger.json                     bytes per link, and who waited for whom, up to `round`: the last checkpoint
    result.json                     the object that `--format json` prints

A folder holds a run from the moment that run.json is there. Whatever is read was either written by this run, or is
refused.
"""

from __future__ import annotations

import contextlib
import logging
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fedge.core.contract import State
from fedge.core.tree import Weights
from fedge.errors import FedgeError, RunError
from fedge.runner import checkpoint, files
from fedge.runner.checkpoint import DamagedError, Notes
from fedge.runner.environment import environment, now
from fedge.runner.identity import differences, digest_of, identity
from fedge.runner.rows import NUMBERS, Row, read_rows, regular_and_last, row_of
from fedge.runner.sources import UPDATES, require_same

RUN, CONFIG, METRICS = "run.json", "config.json", "metrics.jsonl"
SETTING = "setting.json"
WEIGHTS, LEDGER, RESULT = "weights.safetensors", "ledger.json", "result.json"
RUNNING, STOPPED, FAILED, DIVERGED, FINISHED = "running", "stopped", "failed", "diverged", "finished"
log = logging.getLogger(__name__)


class Progress(NamedTuple):
    """This says how far a run has come."""

    state: State
    done: int
    rows: list[Row]


class Silent:
    """This keeps no record, for a process that does not lead."""

    folder = None

    def __init__(self, followed: Record | None = None) -> None:
        self._followed = followed  # what another process resumes

    def restore(self, start: State) -> Progress:
        return Progress(start, 0, []) if self._followed is None else _restore_from(self._followed, start)[0]

    @property
    def config(self) -> dict[str, Any] | None:
        return None if self._followed is None else self._followed.config

    def stored_result(self) -> dict[str, Any] | None:
        return None if self._followed is None else self._followed.stored_result()

    def go_on(self, config: Mapping[str, Any], rows: list[Row], setting: Mapping[str, Any]) -> None: ...
    def row(self, row: Row) -> None: ...
    def save(self, state: State, done: int) -> None: ...
    def account(self, ledger: dict[str, Any]) -> None: ...
    def mark(self, state: str) -> None: ...
    def finish(self, weights: Weights, ledger: dict[str, Any], result: dict[str, Any], state: str) -> None: ...


@dataclass
class Record:
    """This is the folder of one run, open for writing. Make one with `begin` or `reopen`, and hold its lock."""

    folder: Path
    about: dict[str, Any]  # what run.json says
    lines: list[str] = field(default_factory=list)  # of metrics.jsonl

    @property
    def identity(self) -> str:
        return str(self.about["identity"])

    @property
    def config(self) -> dict[str, Any]:
        return dict(self.about["config"])

    def restore(self, start: State) -> Progress:
        """Read the newest state that was saved and the rows up to it; nothing is written before `go_on`."""
        progress, self.lines = _restore_from(self, start)
        if not progress.done and read_rows(self.folder / METRICS):
            if self.config["checkpoint_every"] == 0:
                raise RunError(f"{self.folder} was run with checkpoint_every=0, so there is no state to go on from; "
                               "start a new run")  # fmt: skip
            if self.about.get("state") != DIVERGED:
                log.warning("no state of a round is saved in %s: beginning again at its first round", self.folder)
        return progress

    def go_on(self, config: Mapping[str, Any], rows: list[Row], setting: Mapping[str, Any]) -> None:
        """Train from what was restored, maybe for longer than was asked for at first; only these rows stay."""
        if config != self.config:
            (self.folder / CONFIG).unlink(missing_ok=True)  # made again from run.json if this is cut short
        self.note(config=dict(config), state=RUNNING, reached=None)
        if not (self.folder / CONFIG).exists():
            files.write_json(self.folder / CONFIG, dict(config))
        files.write_bytes(self.folder / SETTING, files.line(setting).encode())
        self.lines = [files.line(row) for row in rows]
        files.write_bytes(self.folder / METRICS, "".join(self.lines).encode())

    def row(self, row: Row) -> None:
        self.lines.append(files.line(row))
        files.append(self.folder / METRICS, self.lines[-1])

    def save(self, state: State, done: int) -> None:
        numbered = [(row_of(line, self.folder / METRICS)["round"], line) for line in self.lines]
        regular, last = regular_and_last(numbered, self.config["eval_every"])
        checkpoint.save(self.folder, state, Notes(done, self.identity, digest_of(*regular), digest_of(*last)))

    def account(self, ledger: dict[str, Any]) -> None:
        """Write down what each link carried so far, and who waited for whom."""
        files.write_json(self.folder / LEDGER, ledger)

    def note(self, **facts: Any) -> None:
        """Write facts into run.json."""
        self.about |= facts
        files.write_json(self.folder / RUN, self.about)

    def go_on_otherwise(self, changed: list[str], layout: Mapping[str, int]) -> None:
        """Remember what has changed since the run was begun; run.json says so once the run goes on."""
        before = self.about.get("continued")
        now_with = environment(int(self.about["seed"])) | {"begun": now(), "changed": changed, "layout": dict(layout)}
        self.about["continued"] = [*(before if isinstance(before, list) else []), now_with]

    def mark(self, state: str) -> None:
        """Say how the run ended; a full disk or a lost folder must not hide why it did."""
        if self.about.get("state") == RUNNING:  # and not a run that was over, and could only not be read
            with contextlib.suppress(OSError):
                self.note(state=state, ended=now())

    def finish(self, weights: Weights, ledger: dict[str, Any], result: dict[str, Any], state: str) -> None:
        saved = checkpoint.save_arrays(self.folder / WEIGHTS, weights, {"identity": self.identity})
        self.account(ledger)
        files.write_json(self.folder / RESULT, result)
        digests = {name: file_digest(self.folder / name) for name in (CONFIG, SETTING, METRICS, LEDGER, RESULT)}
        self.note(state=state, ended=now(), reached=result["reached"], digests=digests | {WEIGHTS: saved})

    def stored_result(self) -> dict[str, Any] | None:
        """Return what result.json holds, where the run has ended by itself; None where it must be finished (again)."""
        complete = all((self.folder / name).exists() for name in (WEIGHTS, LEDGER, RESULT))
        if self.about.get("state") not in (FINISHED, DIVERGED) or not complete:
            return None
        stored = files.read_json(self.folder / RESULT)
        if file_digest(self.folder / RESULT) != self.about["digests"].get(RESULT):
            raise RunError(f"{self.folder / RESULT} is not as it was written: its checksum does not hold; restore "
                           "it, or delete it to have it made again")  # fmt: skip
        kinds: dict[str, Any] = {"wall_seconds": NUMBERS, "compile_seconds": NUMBERS, "parameters": int,
                                 "client_steps_per_second": NUMBERS}  # fmt: skip
        return stored if all(isinstance(stored.get(key), kind) for key, kind in kinds.items()) else None


def command() -> str | None:
    """Return what was typed, where fedge itself was; `python -m fedge` has its __main__.py for a name."""
    program = Path(sys.argv[0])
    ours = program.name == "fedge" or (program.name, program.parent.name) == ("__main__.py", "fedge")
    return shlex.join(["fedge", *sys.argv[1:]]) if ours else None


def begin(folder: Path, config: Mapping[str, Any], objects: Mapping[str, Any], **facts: Any) -> Record:
    """Write what is known before the first round; the folder is `claim`ed and locked."""
    made_by = environment(int(config["seed"]))
    about = {
        "identity": identity(config, objects, made_by["code"]),
        "state": RUNNING,
        "begun": now(),
        "command": command(),
        **made_by,
        **facts,
        "objects": dict(objects),
        "config": dict(config),
    }
    record = Record(folder, about)
    record.note()
    files.write_json(folder / CONFIG, dict(config))
    return record


def holds_run(folder: Path) -> bool:
    """Say whether a run can be resumed, be it from its start."""
    return (folder / RUN).exists()


def resumable(folder: Path) -> bool:
    """Say whether resuming a run loses none of what it wrote: it has a checkpoint, or nothing yet to lose."""
    return holds_run(folder) and ((folder / checkpoint.NEWEST).exists() or not (folder / METRICS).exists())


def claim(folder: Path, plan: str = RUN) -> None:
    """Make a folder for a run, or for a study whose first file is `plan`; one that holds something is left alone."""
    if (folder / plan).exists():
        raise RunError(f"{folder} already holds a run; continue it with --resume {folder} or choose another --out")
    try:
        files.make_folder(folder)
        if not all(files.is_leftover(entry) for entry in folder.iterdir()):
            raise RunError(f"{folder} is not empty; choose another --out")
    except OSError as problem:
        raise RunError(f"cannot write to {folder}: {problem.strerror}; choose another --out") from None


def reopen(folder: Path) -> Record:
    """Open the record of a run that was begun; changed files are refused."""
    if folder.is_dir() and {entry.name for entry in folder.iterdir()} == {files.LOCK}:
        raise RunError(f"{folder} holds no run yet: none has begun there; start one with --out {folder}")
    about = read_about(folder)
    config = about["config"]
    if (folder / CONFIG).exists():
        given = files.read_json(folder / CONFIG)
        if given != config:
            raise RunError(
                f"{folder / CONFIG} was changed since the run began ({differences(config, given)[:300]}); undo that "
                f"or start a new run; to go on for longer write --resume {folder} rounds=N"
            )
    else:
        files.write_json(folder / CONFIG, config)
    if identity(config, about["objects"], about["code"]) != about["identity"]:
        raise RunError(f"{folder / RUN} was changed since the run was begun: its identity does not hold; undo that")
    return Record(folder, about)


def read_about(folder: Path) -> dict[str, Any]:
    """Read what run.json says, with the entries that every run has."""
    about = {"digests": {}} | files.read_json(folder / RUN)
    kinds = {"identity": str, "config": dict, "objects": dict, "code": str, "versions": dict, "layout": dict,
             "seed": int, "digests": dict}  # fmt: skip
    if missing := [key for key, kind in kinds.items() if not isinstance(about.get(key), kind)]:
        raise RunError(f"{folder / RUN} lacks {missing[0]}; it was not written by this version of fedge, or changed")
    if any(type(number) is not int or number < 0 for number in about["layout"].values()):
        raise RunError(f"{folder / RUN} is damaged (its layout is no numbers of devices and clients); restore it")
    return about


def changes(record: Record, objects: Mapping[str, Any]) -> list[str]:
    """Name what has changed since a run was begun, for people to be told; refuse what makes it another run."""
    now, then = environment(int(record.about["seed"])), record.about
    changed = [key for key in ("code", "versions", "processor", "backend") if then.get(key) != now[key]]
    for key in ("algorithm", *UPDATES):
        if then["objects"].get(key) != objects.get(key):
            name = then["config"].get(key)
            raise RunError(f"the file that {name} stands in has changed since {record.folder} was begun; restore it")
    same_jax = then["versions"].get("jax") == now["versions"]["jax"]
    require_same(record.folder, then["objects"], objects, same_jax=same_jax)
    return changed


def _restore_from(record: Record, start: State) -> tuple[Progress, list[str]]:
    """Read the newest checkpoint that is whole, where a run is to go on, and the lines of its metrics up to there."""
    folder = record.folder
    lines = read_rows(folder / METRICS)
    problems: list[FedgeError] = []
    for name in (checkpoint.NEWEST, checkpoint.BEFORE):
        if not (folder / name).exists():
            continue
        try:
            state, notes = checkpoint.load(folder / name, start)
        except DamagedError as problem:
            problems.append(problem)
            continue
        if notes.identity != record.identity:
            raise RunError(f"{folder / name} belongs to another run (seed, data, keys or version differ); remove it")
        regular, last = regular_and_last([n for n in lines if n[0] <= notes.round], record.config["eval_every"])
        if digest_of(*regular) != notes.metrics or digest_of(*last) not in (notes.last, digest_of()):
            raise RunError(f"{folder / METRICS} is not as it was written up to round {notes.round}; restore it")
        if problems:
            log.warning("%s; going on from the one before it, after round %d", problems[0], notes.round)
        own = [*regular, *last]
        return Progress(state, notes.round, [row_of(line, folder / METRICS) for line in own]), own
    if problems:
        raise RunError(f"{problems[0]}; no other checkpoint is there, so the run cannot be continued") from None
    return Progress(start, 0, []), []


def file_digest(path: Path) -> str:
    return digest_of(files.read_bytes(path))
