"""Make the pictures of report and board that the README and docs/report.md show.

    python scripts/screenshots.py [FOLDER]

A comparison and a sweep are run into a folder, unless they are there from before, and one more run is under way while
the board is looked at. It needs chromium, and playwright (the extra `test`).
"""

from __future__ import annotations

import io
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

import fedge
from fedge.view.report import write_report

IMAGES = Path(__file__).resolve().parents[1] / "docs/images"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
STUDY = "unequal-devices"
REPORT, BOARD = {"width": 1180, "height": 1320}, {"width": 1180, "height": 930}


def keep(page: Page, name: str) -> None:
    """Save what is seen, as small as it gets without losing a colour."""
    Image.open(io.BytesIO(page.screenshot())).convert("RGB").save(IMAGES / name, optimize=True)


def train(runs: Path) -> None:
    words = ["compare", "device_spread=1.0", "link_spread=0.5", "metrics=cells,clients", "--out", str(runs / STUDY)]
    subprocess.run([sys.executable, "-m", "fedge", *words], check=True, stdout=subprocess.DEVNULL)
    fedge.sweep("hierfavg", lr=[0.02, 0.05, 0.1], seeds=3, rounds=10, out=runs / "rates")
    split = {"model": "cnn", "cut": "pool2", "partition": "dirichlet", "clients": 20, "rounds": 8}
    fedge.run(algorithm="hiersfl", **split, out=runs / "hiersfl-cnn")


def look(page: Page, runs: Path) -> None:
    page.goto(write_report(runs / STUDY).resolve().as_uri())
    page.wait_for_selector("#plot-curves path.line")
    keep(page, "report.png")
    page.set_viewport_size(BOARD)
    with tempfile.TemporaryDirectory(dir=runs, prefix="sdfeel-ring-") as live:
        words = ["run", "sdfeel", "rounds=500", "graph=ring", "--out", live]
        training = subprocess.Popen([sys.executable, "-m", "fedge", *words], stdout=subprocess.DEVNULL)
        board = subprocess.Popen([sys.executable, "-m", "fedge", "board", str(runs), "--port", "0"],
                                 stdout=subprocess.PIPE, text=True)  # fmt: skip
        try:
            assert board.stdout is not None
            page.goto(next(word for word in board.stdout.readline().split() if word.startswith("http")))
            page.wait_for_selector(f"[data-run={Path(live).name}] .spark", timeout=300_000)
            page.wait_for_timeout(5_000)
            keep(page, "board.png")
        finally:
            for process in (training, board):
                process.send_signal(signal.SIGTERM)
                process.wait()


def main(folder: str | None = None) -> None:
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with tempfile.TemporaryDirectory() as other, sync_playwright() as player:
        runs = Path(folder or other) / "runs"
        if not runs.exists():
            train(runs)
        browser = player.chromium.launch(executable_path=chromium, args=FLAGS)
        look(browser.new_page(viewport=REPORT), runs)
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
