"""What a large fleet holds over many rounds: python benchmarks/fleet_memory.py [CLIENTS EDGES ROUNDS]

A fleet of processes with mutual TLS trains the 1 MB model, and the memory of each of its processes is read while it
does; after the first fifth of the rounds, which warm up, the slope of each against rounds should be 0.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

CLIENTS, EDGES, ROUNDS = 200, 10, 50
EACH = 20  # clients in a process
PAUSE = 1.0  # seconds between two looks


def write_fleet(folder: Path, clients: int, edges: int, rounds: int) -> Path:
    file = folder / "fleet.toml"
    file.write_text(
        f'[run]\nalgorithm = "hierfavg"\nclients = {clients}\ncells = {edges}\nrounds = {rounds}\nlocal_steps = 1\n'
        f"edge_rounds = 1\ncheckpoint_every = 10\n[fleet]\nport = 7600\nper_process = {EACH}\n"
    )
    return file


def resident(pid: int) -> float | None:
    """Return the MB that a process holds, itself and its share of what it shares."""
    try:
        rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    return next((int(row.split()[1]) / 1000 for row in rows if row.startswith("Pss:")), None)


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


def main() -> None:
    clients, edges, rounds = map(int, sys.argv[1:4]) if sys.argv[1:] else (CLIENTS, EDGES, ROUNDS)
    roles, looks, seconds = measure(clients, edges, rounds)
    print(f"{clients} clients in {-(-clients // EACH)} processes, {edges} edges, {rounds} rounds of 1 MB models in "
          f"{seconds:.0f} s, {len(roles)} processes\n")  # fmt: skip
    print(
        "| role | processes | MB at the end | MB more per 50 rounds after warm-up, least to most |\n|---|---|---|---|"
    )
    for role in ("cloud", "edge", "client"):
        pids = [pid for pid, own in roles.items() if own == role and pid in looks]
        ends, slopes = [], []
        for pid in pids:
            after = np.array([look for look in looks[pid] if look[0] > rounds / 5])
            ends.append(after[-1, 1])
            slopes.append(50 * np.polyfit(after[:, 0], after[:, 1], 1)[0])
        print(
            f"| {role} | {len(pids)} | {min(ends):.0f} to {max(ends):.0f} | {min(slopes):+.2f} to {max(slopes):+.2f} |"
        )


if __name__ == "__main__":
    main()
