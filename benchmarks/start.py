"""Measure how long fedge takes to start, beside how long it took at another commit.

    python benchmarks/start.py 856fc51 > benchmarks/results/DATE-start.md

Each command is a process of its own, started in turn for this checkout, for a worktree of the other commit and for a
Python that does nothing; medians and ranges of 15 such turns, bytecode being there already.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPEATS = 15
ROOT = Path(__file__).resolve().parents[1]
COMMANDS = {
    "python -c 'import fedge'": ["-c", "import fedge"],
    "fedge --help": ["-m", "fedge", "--help"],
    "fedge run --help": ["-m", "fedge", "run", "--help"],
    "python -c 'import fedge; fedge.run'": ["-c", "import fedge; fedge.run"],
}
NOTHING = ["-c", "pass"]


def start(words: list[str], source: Path) -> float:
    """Return the seconds that a process takes from start to end."""
    began = time.perf_counter()
    subprocess.run([sys.executable, *words], env=os.environ | {"PYTHONPATH": str(source)}, check=True,
                   stdout=subprocess.DEVNULL)  # fmt: skip
    return time.perf_counter() - began


def measure(words: list[str], sources: list[Path]) -> list[list[float]]:
    """Return the seconds of each turn: with each of these sources, then of a Python that does nothing."""
    for source in sources:
        start(words, source)
    turns = [[*(start(words, source) for source in sources), start(NOTHING, sources[0])] for _ in range(REPEATS)]
    return [list(column) for column in zip(*turns, strict=True)]


def text(seconds: list[float]) -> str:
    return f"{statistics.median(seconds) * 1e3:.0f} ({min(seconds) * 1e3:.0f} to {max(seconds) * 1e3:.0f})"


def main(commit: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder) / "other"
        subprocess.run(["git", "-C", str(ROOT), "worktree", "add", "--quiet", "--detach", str(other), commit],
                       check=True)  # fmt: skip
        try:
            print(f"# Starting fedge, now and at {commit}\n")
            print(f"{os.cpu_count()} CPU cores, Python {sys.version.split()[0]}. Milliseconds, medians (ranges) of "
                  f"{REPEATS} turns.\n")  # fmt: skip
            print(f"| command | at {commit} | now | now by then | a Python that does nothing |\n|---|---|---|---|---|")
            for name, words in COMMANDS.items():
                before, after, nothing = measure(words, [other / "src", ROOT / "src"])
                share = statistics.median(after) / statistics.median(before)
                print(f"| `{name}` | {text(before)} | {text(after)} | {share:.2f} | {text(nothing)} |", flush=True)
        finally:
            subprocess.run(["git", "-C", str(ROOT), "worktree", "remove", "--force", str(other)], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
