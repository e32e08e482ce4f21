"""Measure how long a report takes to write and to show, and a board of 1,000 runs.

    python benchmarks/report.py > benchmarks/results/DATE-report.md

Five algorithms run for two rounds on built-in data, with the metrics of each cell and client, and their rows are
repeated until they are 100. Their report is written seven times. Then a board is started on 1,000 copies of the runs,
and a browser (chromium, by playwright) opens it as soon as it says its address, and again. First paint is what the
browser says, from the moment it was sent there.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

import fedge
from fedge.view.board_runs import Listing
from fedge.view.report import write_report

ROUNDS, REPEATS, RUNS = 100, 7, 1_000
RECORD = ("run.json", "config.json", "setting.json", "metrics.jsonl", "ledger.json", "result.json")
PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
]


def seconds(work: Any, *given: Any) -> float:
    began = time.perf_counter()
    work(*given)
    return time.perf_counter() - began


def listed(folder: Path) -> float:
    """Return the seconds of CPU time that it takes to list runs that nobody has looked at before."""
    began = time.process_time()
    rows = Listing(folder).rows()
    assert len(rows) == RUNS
    return time.process_time() - began


def lengthen(path: Path) -> None:
    """Repeat the rows of a run, each with a round, costs and an accuracy of its own."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    with path.open("w") as file:
        for number in range(1, ROUNDS + 1):
            row = dict(rows[number % len(rows)])
            costs = {"simulated_seconds": number * 1.7, "bytes": {tier: number * n for tier, n in row["bytes"].items()}}
            file.write(json.dumps(row | {"round": number, "accuracy": 1 - 1 / (1 + number), **costs}) + "\n")


def many(study: Path, folder: Path) -> None:
    """Copy the runs of a study again and again, each with a seed of its own."""
    runs = sorted(path for path in study.iterdir() if path.is_dir())
    for number in range(RUNS):
        source, place = runs[number % len(runs)], folder / f"run-{number:04d}"
        place.mkdir(parents=True)
        for name in RECORD:
            shutil.copy(source / name, place / name)
        about = json.loads((place / "run.json").read_text())
        about["config"]["seed"] = number
        (place / "run.json").write_text(json.dumps(about))


def paints(browser: Browser, address: str, last: str) -> tuple[float, float]:
    """Return the milliseconds until something is painted, and until what is last is there."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(address)
    page.wait_for_selector(last, state="attached")
    whole = page.evaluate("performance.now()")
    found = page.evaluate(PAINT)
    page.close()
    return found, whole


def board(browser: Browser, folder: Path) -> list[tuple[float, float]]:
    """Start a board and open it: before it has read anything, and again; then a page of one run."""
    words = [sys.executable, "-m", "fedge", "board", str(folder), "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        address = next(word for word in server.stdout.readline().split() if word.startswith("http"))
        try:
            listed = [paints(browser, address, f"tbody tr:nth-child({RUNS})") for _ in range(2)]
            return [*listed, paints(browser, f"{address}page?of=run-0002", "#plot-labels svg")]
        finally:
            server.terminate()


def main() -> None:
    load = os.getloadavg()[0]
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as player:
        study = Path(name) / "study"
        fedge.compare(rounds=2, metrics="cells,clients", device_spread=1.0, out=study)
        for path in study.glob("*/metrics.jsonl"):
            lengthen(path)
        took = [seconds(write_report, study) for _ in range(REPEATS)]
        size = (study / "report.html").stat().st_size
        many(study, Path(name) / "many")
        listing = statistics.median(listed(Path(name) / "many") for _ in range(REPEATS))
        browser = player.chromium.launch(executable_path=chromium, args=FLAGS)
        shown = paints(browser, (study / "report.html").as_uri(), "#plot-labels svg")
        cold, warm, page = board(browser, Path(name) / "many")
        version = browser.version
        browser.close()
    print(f"# A report of {ROUNDS} rounds and five algorithms, and a board of {RUNS:,} runs\n")
    print(f"{os.cpu_count()} CPU cores with a load of {load:.0f} from others, Python {sys.version.split()[0]}, "
          f"Chromium {version}.\n")  # fmt: skip
    print("| | |\n|---|---|")
    print(f"| report written, the first time | {took[0]:.2f} s |")
    print(f"| report written, median of {REPEATS} (range) | {statistics.median(took):.2f} s "
          f"({min(took):.2f} to {max(took):.2f}) |")  # fmt: skip
    print(f"| its size | {size / 1e6:.2f} MB |")
    print(f"| {RUNS:,} runs listed for the first time, CPU time, median of {REPEATS} | {listing:.2f} s |")
    for what, (first, whole) in {
        "report opened from the disk": shown,
        f"board of {RUNS:,} runs that has just been started": cold,
        "the same board opened again": warm,
        "a run's page on that board": page,
    }.items():
        print(f"| {what}: first paint; all there | {first / 1e3:.2f} s; {whole / 1e3:.2f} s |")
    print("\nMade by `python benchmarks/report.py`.")


if __name__ == "__main__":
    main()
