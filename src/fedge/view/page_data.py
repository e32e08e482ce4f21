"""The numbers of a page: what a report or the board shows of a folder, read from the records in it.

`page_data(folder)` returns plain values only. Whatever a record holds is text of somebody's: it is checked for its kind
here, cut to what a page has room for, and shown as text by the page.

    format, kind, name, says        kind is run, comparison, sweep, plan or selection; `says` is what was run, in words
    command, begun, ended           what to type to repeat it, and when it was made
    metrics                         columns that can be drawn, the main one first: name, title, share, falls, edges
    differing                       keys in which the runs differ
    runs                            name, algorithm, seed, state, problem; `apart` (its values of the differing keys);
                                    `columns` (one number per evaluated round),
                                    `tiers` (bytes so far), `lists` (edges, cells, clients: one line per round, or the
                                    last), config, changed, setting, traffic, waiting, result, made_with
    groups                          runs that differ in their seed only: mean and 95 % interval of each column
    plan                            of a plan only: see `plan_page.py`; its runs are the finals
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from fedge.algorithms import ALGORITHMS
from fedge.errors import FedgeError, RunError, brief
from fedge.experiment.config import Config
from fedge.runner import files
from fedge.runner.identity import digest_of
from fedge.runner.inspect import state_of
from fedge.runner.record import LEDGER, METRICS, RESULT, RUN, SETTING, read_about
from fedge.runner.rows import NUMBERS, Row, read_rows, row_of, tested
from fedge.studies.interval import reach
from fedge.studies.stored_plan import COMPARISON, PLANNED, plan_in
from fedge.view.numbers import is_share, words
from fedge.view.plan_page import plan_page
from fedge.view.prose import repeat_command, says

FORMAT = 1
AXES = ("round", "iteration", "simulated_seconds", "bytes")
POINTS = 1_000  # evaluated rounds of a run on a page; of more, some are left out
SHOWN = 64  # edges or cells with a curve each
MOST = 400  # clients told one by one
READ = 2**23  # bytes of a ledger or a setting that a page reads
DEPTH = 3  # folders below the one that is asked for


def page_data(folder: str | Path) -> dict[str, Any]:
    """Return all that a page shows of a run, a comparison, a sweep or a plan."""
    folder = Path(folder)
    places = runs_in(folder)
    if (folder / PLANNED).is_file():
        return _of_plan(folder, places)
    if not places:
        raise RunError(f"{folder} does not hold a run; give the folder of a run, a comparison or a sweep")
    kind = "run" if places == [folder] else "comparison" if (folder / COMPARISON).exists() else "sweep"
    return selection(places, kind, folder)


def selection(places: Sequence[Path], kind: str, folder: Path) -> dict[str, Any]:
    """Return what a page shows of these runs, named by where they lie in a folder."""
    runs = [run_data(place, folder) for place in places]
    if len(runs) == 1 and kind != "plan" and runs[0]["problem"] is not None:
        raise RunError(runs[0]["problem"])
    differing = keys_that_differ(runs)
    name_apart(runs, differing)
    return {
        "format": FORMAT,
        "kind": kind,
        "name": folder.resolve().name,
        "says": says(kind, runs, differing),
        "command": repeat_command(kind, runs),
        "begun": min((r["begun"] for r in runs if r["begun"]), default=None),
        "ended": max((r["ended"] for r in runs if r["ended"]), default=None),
        "metrics": metrics_of(runs),
        "differing": differing,
        "runs": runs,
        "groups": groups_of(runs),
    }


def _of_plan(folder: Path, places: Sequence[Path]) -> dict[str, Any]:
    """Return what a page shows of a plan: its finals, named by their settings, and beside them the plan itself."""
    own = plan_page(folder)
    found = selection(places, "plan", folder)
    names = {digest_of(one["name"])[:8]: one["name"] for one in own["race"]}
    for run in found["runs"]:
        setting = names.get(Path(run["name"]).name.partition("_")[0])
        if setting is not None:
            run |= {"group": setting, "label": f"{setting} seed={run['seed']}"}
    pick = ((own["answer"] or {}).get("recommended") or {}).get("name")
    found["runs"].sort(key=lambda run: run["group"] != pick)
    return found | {key: own[key] for key in ("says", "command")} | {
        "begun": own["begun"] or found["begun"], "groups": groups_of(found["runs"]), "plan": own,
    }  # fmt: skip


def runs_in(folder: Path, depth: int = DEPTH) -> list[Path]:
    """List the run folders in a folder, in their order; links lead elsewhere and are left alone."""
    try:
        if os.path.exists(os.path.join(folder, RUN)):  # a Path for each would take longer than the look
            return [folder]
        entries = os.scandir(folder) if depth else ()
        below = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        plan = plan_in(folder)
    except OSError:
        return []
    runs = _read(plan).get("runs") if plan else None
    planned = {name: place for place, name in enumerate(runs)} if isinstance(runs, dict) else {}
    below.sort(key=lambda name: planned.get(name, len(planned)))
    return [run for name in below for run in runs_in(folder / name, depth - 1)]


# One run


def run_data(folder: Path, root: Path) -> dict[str, Any]:
    """Return what a page shows of one run; where its record is damaged, the sentence that says so."""
    name = str(folder.relative_to(root)) if folder != root else folder.resolve().name
    problem, about, rows = None, dict[str, Any](), list[Row]()
    found = {"setting": None, "traffic": None, "waiting": None, "counted": None, **_history([], folder / METRICS)}
    try:
        about = read_about(folder)
        found |= {"setting": _read(folder / SETTING) or None, **_ledger(folder / LEDGER)}
        rows = [row_of(line, folder / METRICS) for _, line in read_rows(folder / METRICS)]
        found |= _history(rows, folder / METRICS)
    except Exception as wrong:  # whatever a record of somebody's holds, the others have a page
        problem = damage(folder, wrong)
    config, result = about.get("config", {}), _read(folder / RESULT)
    algorithm = str(config.get("algorithm", "unknown"))
    return {
        "name": name,
        "label": name,
        "algorithm": algorithm,
        "seed": config.get("seed"),
        "state": "damaged" if problem else state_of(folder, about),
        "problem": problem,
        "rounds": config.get("rounds"),
        "begun": _text(about.get("begun")),
        "ended": _text(about.get("ended")),
        "command": _text(about.get("command")),
        "config": {str(key): value for key, value in config.items()},
        "changed": changed_keys(config),
        "made_with": {
            key: about.get(key)
            for key in ("versions", "platform", "processor", "devices", "backend", "layout", "code", "identity")
        },
        "continued": about.get("continued") or [],
        "main": tested(rows[-1])[0] if rows else None,
        "reached": about.get("reached") if isinstance(about.get("reached"), dict) else None,
        "result": {key: result.get(key) for key in ("wall_seconds", "compile_seconds", "client_steps_per_second")},
        **found,
    }


def damage(folder: Path, problem: Exception) -> str:
    """Say in one sentence why the record of a run cannot be shown."""
    if isinstance(problem, FedgeError):
        return str(problem)
    return f"{folder} is damaged ({type(problem).__name__}: {brief(problem)}); restore it"


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _read(path: Path) -> dict[str, Any]:
    """Read a file that a page can do without; nothing where it is not there, not whole or too large for a page."""
    try:
        return files.read_json(path) if path.is_file() and path.stat().st_size <= READ else {}
    except (RunError, OSError):
        return {}


def changed_keys(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """List the keys of a configuration that differ from the algorithm's defaults, where these are known."""
    defaults = defaults_for(config)
    found = []
    for key, value in config.items():
        if key == "algorithm" or (key in defaults and value == defaults[key]) or value is None:
            continue
        found.append({"key": key, "value": value, "default": defaults.get(key)})
    return found


def whole(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Add the keys that came later than the record: what was run then is today's default."""
    return {**defaults_for(config), **config} if config else config


def defaults_for(config: Mapping[str, Any]) -> Mapping[str, Any]:
    name = config.get("algorithm")
    return defaults_of(name) if isinstance(name, str) and name in ALGORITHMS else {}


@cache
def defaults_of(algorithm: str) -> Mapping[str, Any]:
    return Config.of({"algorithm": algorithm}).model_dump()


def _history(rows: list[Row], path: Path) -> dict[str, Any]:
    """Turn rows into columns: a number for each row, None where a row has none."""
    kept = rows if len(rows) <= POINTS else [rows[n] for n in np.linspace(0, len(rows) - 1, POINTS).round().astype(int)]
    columns: dict[str, list[float | None]] = {}
    lists: dict[str, Any] = {}
    names = dict.fromkeys(key for row in kept for key in row)
    for name in names:
        values = [row.get(name) for row in kept]
        if name == "bytes":
            columns[name] = [_total(row["bytes"].values(), path) for row in kept]
        elif any(isinstance(value, list) for value in values):
            if (found := _list_column(values, of_clients=name.startswith("client_"))) is not None:
                lists[name] = found
        elif all(value is None or is_number(value) for value in values):
            columns[name] = values
    tiers = {t: [_float(row["bytes"].get(t)) for row in kept] for t in (kept[-1]["bytes"] if kept else {})}
    return {"rows": len(rows), "columns": columns, "tiers": tiers, "lists": lists}


def is_number(value: Any) -> bool:
    try:
        return isinstance(value, NUMBERS) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer of hundreds of digits
        return False


def _total(values: Iterable[Any], path: Path) -> float:
    """Add bytes up; each of them may be a number while their sum is none."""
    if not is_number(total := sum(value for value in values if is_number(value))):
        raise RunError(f"{path} is damaged (its bytes add up to no finite number); restore it")
    return float(total)


def _list_column(values: list[Any], *, of_clients: bool) -> dict[str, Any] | None:
    """Return lists of numbers of edges, cells or clients: in every row where they are few, and in the last one."""
    lists = [v if _is_list(v) else None for v in values]
    last = next((v for v in reversed(lists) if v is not None), None)
    numbers = [x for x in last or [] if x is not None]
    if last is None or not numbers:
        return None
    width = len(last)
    each = lists if width <= SHOWN and not of_clients else None
    shown = last if width <= MOST else _plain(np.quantile(numbers, np.linspace(0, 1, MOST)))
    return {"count": width, "each": each, "last": shown, "sorted": width > MOST}


def _float(value: Any) -> float:
    return float(value) if is_number(value) else 0.0


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and all(x is None or is_number(x) for x in value)


def _ledger(path: Path) -> dict[str, Any]:
    """Sum up what each link carried: one by one where a page has room, else the least, the middle and the most."""
    stored = _read(path)
    traffic: dict[str, Any] = {}
    pairs = stored.get("edge_to_edge_links")
    for tier, found in stored.items():
        links = found.get("links") if isinstance(found, dict) else None
        if not isinstance(links, list) or not links or not all(map(is_number, [*links, sum(links)])):
            continue
        traffic[tier] = {
            "total": sum(links),
            "links": len(links),
            "least": min(links),
            "middle": _float(np.median(links)),
            "most": max(links),
            "each": links if len(links) <= MOST else None,
            "pairs": pairs if tier == "edge_to_edge" and len(links) <= MOST else None,
        }
    waiting, counted = stored.get("waiting"), stored.get("round")
    return {
        "traffic": traffic or None,
        "waiting": waiting if isinstance(waiting, dict) else None,
        "counted": counted if is_number(counted) else None,
    }


# Several runs


def keys_that_differ(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name the keys in which runs differ, the algorithm first and the seed last.

    A key that only some algorithms have is named where runs of one algorithm differ in it: else it differs with that.
    """
    configs = [whole(run["config"]) for run in runs if run["config"]]
    keys = dict.fromkeys(key for config in configs for key in config)
    of_one: dict[str, list[Mapping[str, Any]]] = {}
    for config in configs:
        of_one.setdefault(str(config.get("algorithm")), []).append(config)

    def differs(key: str) -> bool:
        sets = [configs] if all(key in config for config in configs) else list(of_one.values())
        values = [[config[key] for config in some if key in config] for some in sets]
        return any(a != b for each in values for a, b in pairwise(each))

    return sorted(filter(differs, keys), key=lambda key: (key != "algorithm", key == "seed"))


def name_apart(runs: Sequence[dict[str, Any]], differing: Sequence[str]) -> None:
    """Give each run a label by what sets it apart, and a group by that without its seed."""
    for run in runs:
        config = whole(run["config"])
        run["apart"] = {key: config[key] for key in differing if key in config}
        said = {key: str(value) if key == "algorithm" else f"{key}={value}" for key, value in run["apart"].items()}
        without = [text for key, text in said.items() if key != "seed"]
        run["label"] = " ".join(said.values()) if len(runs) > 1 and said else run["name"]
        run["group"] = (" ".join(without) or run["algorithm"]) if run["config"] else run["name"]
    labels = [run["label"] for run in runs]
    for run in runs:
        if labels.count(run["label"]) > 1:
            run["label"] = f"{run['label']} ({run['name']})"


def metrics_of(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """List the columns that can be drawn against an axis, the main one first."""
    first = next((run["main"] for run in runs if run["main"]), None)
    names = dict.fromkeys([first, "loss"] if first else [])
    names |= dict.fromkeys(name for run in runs for name in run["columns"] if name not in AXES)
    falls = {name for run in runs for name in _falling(run["setting"])}
    return [
        {
            "name": name,
            "title": "test loss" if name == "loss" else words(name),
            "share": is_share(name),
            "falls": name in falls or "loss" in name or name in ("objective", "consensus"),
        }
        for name in names
        if any(name in run["columns"] for run in runs)
    ]


def _falling(setting: Any) -> list[str]:
    found = setting.get("falls") if isinstance(setting, dict) else None
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def groups_of(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Gather runs that differ in their seed only, with the mean and the 95 % interval of what they share."""
    found: dict[str, list[int]] = {}
    for place, run in enumerate(runs):
        found.setdefault(run["group"], []).append(place)
    return [
        {"name": name, "runs": places, "columns": _bands([runs[n]["columns"] for n in places])}
        for name, places in found.items()
    ]


def _bands(tables: Sequence[Mapping[str, Sequence[float | None]]]) -> dict[str, Any]:
    """Return mean, low and high of every column over seeds, at the rounds that all of them have."""
    if len(tables) < 2 or not all("round" in table for table in tables):
        return {}
    places = [{number: n for n, number in enumerate(table["round"])} for table in tables]
    shared = [number for number in tables[0]["round"] if all(number in own for own in places)]
    count = len(tables)
    wide = reach(count)
    bands = {}
    for name in tables[0]:
        if all(name in table for table in tables):
            values = np.array(
                [[table[name][own[n]] for n in shared] for table, own in zip(tables, places, strict=True)]
            )
            values = values.astype(float)  # None becomes nan
            mean, half = values.mean(0), wide * values.std(0, ddof=1)
            bands[name] = {"mean": _plain(mean), "low": _plain(mean - half), "high": _plain(mean + half)}
    return bands


def _plain(values: Any) -> list[float | None]:
    return [float(value) if math.isfinite(value) else None for value in values]
