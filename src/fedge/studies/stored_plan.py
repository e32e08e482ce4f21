"""A study's plan says which runs it makes and with which keys; each run has a folder of its own below the study's.

The plan is written before the first run and bears a checksum, so that a study that was stopped goes on as it was
begun, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedge.errors import RunError, StoppedError
from fedge.runner import files, record
from fedge.runner.identity import canonical, digest_of
from fedge.runner.result import Result
from fedge.runner.run import run

Plan = dict[str, dict[str, Any]]  # folder of a run, below the study's → the keys of that run
COMPARISON, SWEEP = "compare.json", "sweep.json"
PLANNED = "plan.json"  # holds the question of `fedge plan`, whose runs are not known beforehand
RUNS = "runs"  # the folder of their runs, the finals
NAMES = {COMPARISON: "comparison", SWEEP: "sweep"}
COMMANDS = {COMPARISON: "compare", SWEEP: "sweep", PLANNED: "plan"}


def plan_in(folder: Path) -> Path | None:
    """Return where the plan of the study in a folder lies; None where the folder holds none."""
    return next((folder / name for name in NAMES if (folder / name).exists()), None)


def write_plan(path: Path, plan: Plan) -> None:
    files.write_json(path, {"runs": plan, "sha256": digest_of(canonical(plan))})


def read_plan(path: Path) -> Plan:
    """Read a plan as it was written; a name that is not that of a folder here could lead out of the study's."""
    stored, study = files.read_json(path), NAMES[path.name]
    plan = stored.get("runs")
    if not isinstance(plan, dict) or not plan:
        raise RunError(f"{path} is damaged (it names no runs); restore it")
    for name, chosen in plan.items():
        if name.startswith(".") or Path(name).name != name or not isinstance(chosen, dict):
            raise RunError(f"{path} is damaged ('{name}' with its keys is no run of an algorithm); restore it")
    if stored.get("sha256") != digest_of(canonical(plan)):
        raise RunError(f"{path} was changed since the {study} was begun: its checksum does not hold; undo that")
    return plan


def resume_command(folder: Path) -> str:
    """Write what to type to go on with the study, or the run, in a folder."""
    command = next((COMMANDS[name] for name in COMMANDS if (folder / name).exists()), "run")
    return f"fedge {command} --resume {folder}"


def make_run(place: Path, chosen: dict[str, Any], **given: Any) -> Result:
    """Begin the run that has this place in a study, or go on with it."""
    if place.is_symlink():
        raise RunError(f"{place} is a link to another place; a study writes into its own folder only")
    where = {"resume": place} if record.holds_run(place) else {"config": chosen, "out": place}
    return run(**where, **given)


@contextmanager
def saying_how_to_go_on(folder: Path) -> Iterator[None]:
    """Let what a run says when it is stopped end with the command for the whole study."""
    try:
        yield
    except StoppedError as problem:
        raise problem.continued_by(resume_command(folder)) from None
