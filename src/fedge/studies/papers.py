"""This finds fedge's own papers: a wheel has their recipes and stored curves inside, a checkout beside `src`.

Results are written into a checkout, where they are kept; never into an installed package, but into the current folder.
"""

from __future__ import annotations

from pathlib import Path

PACKAGED = Path(__file__).parents[1] / "papers"
CHECKOUT = Path(__file__).parents[3] / "papers"
OWN = PACKAGED if PACKAGED.is_dir() else CHECKOUT


def results_of(home: Path) -> Path:
    """Return the folder that takes the results of a paper or of a user's recipe, unless another is asked for."""
    return Path("papers", home.name, "results") if home.parent == PACKAGED else home / "results"


def stored_of(home: Path) -> Path | None:
    """Return the folder of the curves that came with an installed package; None where they lie with the results."""
    return home / "results" if home.parent == PACKAGED else None
