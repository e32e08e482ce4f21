"""Make the pictures of report and board that the README and docs/report.md show.

    python scripts/screenshots.py

A comparison and a sweep are run, and one more run is under way while the board is looked at. It needs chromium, and
playwright (the extra `test`).
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
WINDOW = {"width": 1180, "height": 960}


def keep(page: Page, name: str) -> None:
    """Save what is seen, in as few colours as a page has."""
    shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    shot.quantize(128).save(IMAGES / name, optimize=True)


def main() -> None:
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as player:
        runs = Path(name) / "runs"
        study = runs / "unequal-devices"
        words = ["compare", "device_spread=1.0", "metrics=cells,clients", "--out", str(study)]
        subprocess.run([sys.executable, "-m", "fedge", *words], check=True, stdout=subprocess.DEVNULL)
        write_report(study)
        fedge.sweep("hierfavg", lr=[0.02, 0.1], seeds=3, rounds=10, out=runs / "rates")
        fedge.run(algorithm="hist", model="cnn", partition="dirichlet", rounds=10, out=runs / "hist-cnn")
        browser = player.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport=WINDOW)
        page.goto((study / "report.html").as_uri())
        page.wait_for_selector("#plot-curves path.line")
        keep(page, "report.png")

        words = ["run", "sdfeel", "rounds=500", "graph=ring", "--out", str(runs / "sdfeel-ring")]
        training = subprocess.Popen([sys.executable, "-m", "fedge", *words], stdout=subprocess.DEVNULL)
        board = subprocess.Popen([sys.executable, "-m", "fedge", "board", str(runs), "--port", "0"],
                                 stdout=subprocess.PIPE, text=True)  # fmt: skip
        try:
            assert board.stdout is not None
            page.goto(next(word for word in board.stdout.readline().split() if word.startswith("http")))
            page.wait_for_selector("[data-run=sdfeel-ring] .spark", timeout=300_000)
            page.wait_for_timeout(5_000)
            keep(page, "board.png")
        finally:
            for process in (training, board):
                process.send_signal(signal.SIGINT)
                process.wait()
        browser.close()


if __name__ == "__main__":
    main()
