"""Tables are written as CSV, for programs and for spreadsheets."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet computes what begins so


def csv_text(lines: Iterable[Sequence[Any]]) -> str:
    """Write lines of cells; None is an empty cell, and text that would be a formula gets an apostrophe in front."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for line in lines:
        writer.writerow([f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) else cell for cell in line])
    return text.getvalue()
