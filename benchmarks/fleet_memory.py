"""What a large fleet holds over many rounds: python benchmarks/fleet_memory.py [CLIENTS EDGES ROUNDS]

A fleet of processes with mutual TLS trains the 1 MB model, and the memory of each of its processes is read four times a
second: the anonymous pages that it holds (RssAnon), which are all but its programs' files. It goes up and down with the
messages that are on their way, so a round counts with the least that was seen in it, and the slope after the first
third of the rounds, which warm up, is the median of the slopes between any two rounds (Theil and Sen): one that holds
back a few models now and then is not taken for one that grows. Beside it stands how the process that grew most held
memory in the four quarters of those rounds: one that grows to what it needs and stays there is told from a leak.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

CLIENTS, EDGES, ROUNDS = 200, 10, 150
EACH = 20  # clients in a process
PAUSE = 0.25  # seconds between two looks


def write_fleet(folder: Path, clients: int, edges: int, rounds: int) -> Path:
    file = folder / "fleet.toml"
    file.write_text(
        f'[run]\nalgorithm = "hierfavg"\nclients = {clients}\ncells = {edges}\nrounds = {rounds}\nlocal_steps = 1\n'
        f"edge_rounds = 1\ncheckpoint_every = 10\n[fleet]\nport = 7600\nper_process = {EACH}\n"
    )
    return file


def resident(pid: int) -> float | None:
    """Return the MB of anonymous memory that a process holds."""
    try:
        rows = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(row.split()[1]) * 1.024e-3 for row in rows if row.startswith("RssAnon:")), None)


def those_below(parent: int) -> dict[int, str]:
    """Return a process and its children, each with the role that it plays."""
    found = {parent: "cloud"}
    for entry in Path(f"/proc/{parent}/task").glob("*/children"):
        for word in entry.read_text().split():
            words = Path(f"/proc/{word}/cmdline").read_bytes().decode().split("\0")
            found[int(word)] = words[words.index("fleet") + 1]
    return found


def rounds_done(metrics: Path) -> int:
    rows = metrics.read_text().splitlines() if metrics.exists() else []
    return json.loads(rows[-1])["round"] if rows else 0


def measure(clients: int, edges: int, rounds: int) -> tuple[dict[int, str], dict[int, list[tuple[int, float]]], float]:
    """Return who there is, (round, MB) of each at every look, and the seconds from the first round to the last."""
    with tempfile.TemporaryDirectory() as folder:
        file, out = write_fleet(Path(folder), clients, edges, rounds), Path(folder) / "run"
        words = [sys.executable, "-m", "fedge", "fleet", "up", str(file), "--out", str(out)]
        fleet = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        roles, looks, first = dict[int, str](), dict[int, list[tuple[int, float]]](), 0.0
        while fleet.poll() is None:
            done = rounds_done(out / "metrics.jsonl")
            first = first or (time.perf_counter() if done else 0.0)
            roles |= those_below(fleet.pid) if not roles or not done else {}
            for pid in roles:
                held = resident(pid)
                if done and held is not None:
                    looks.setdefault(pid, []).append((done, held))
            time.sleep(PAUSE)
        said, problems = fleet.communicate()
        if fleet.returncode:
            raise SystemExit(problems)
        print(said, file=sys.stderr)
        return roles, looks, time.perf_counter() - first


def least(looks: list[tuple[int, float]], after: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rounds after a warm-up, and the least that was held in each."""
    found: dict[int, float] = {}
    for number, held in looks:
        if number > after:
            found[number] = min(held, found.get(number, held))
    return np.array(list(found)), np.array(list(found.values()))


def slope(rounds: np.ndarray, held: np.ndarray) -> float:
    """Return the median of the slopes between any two rounds."""
    first, second = np.triu_indices(len(rounds), 1)
    return float(np.median((held[second] - held[first]) / (rounds[second] - rounds[first])))


def course(held: np.ndarray) -> str:
    """Return the medians of a course's quarters."""
    return ", ".join(f"{np.median(quarter):.1f}" for quarter in np.array_split(held, 4))


def main() -> None:
    clients, edges, rounds = map(int, sys.argv[1:4]) if sys.argv[1:] else (CLIENTS, EDGES, ROUNDS)
    roles, looks, seconds = measure(clients, edges, rounds)
    print(f"{clients} clients in {-(-clients // EACH)} processes, {edges} edges, {rounds} rounds of 1 MB models in "
          f"{seconds:.0f} s, {len(roles)} processes\n")  # fmt: skip
    print("| role | processes | MB more per 50 rounds, least to most | MB of the one that grew most, by quarters |")
    print("|---|---|---|---|")
    for role in ("cloud", "edge", "client"):
        floors = [least(looks[pid], rounds // 3) for pid, own in roles.items() if own == role and pid in looks]
        found = sorted((50 * slope(*each), course(each[1])) for each in floors)
        (low, _), (high, most) = found[0], found[-1]
        print(f"| {role} | {len(found)} | {low:+.2f} to {high:+.2f} | {most} |")


if __name__ == "__main__":
    main()
