"""A stream that cannot write a character gets the nearest ones that it can: pictures in ASCII, names for Greek letters.

Python asks here whenever it encodes (`errors="fedge"`), so whatever is printed need not know the terminal.
"""

from __future__ import annotations

import codecs
import unicodedata

ERRORS = "fedge"
BARS = dict(zip("▁▂▃▄▅▆▇█", ".:-=+*#@", strict=True))
LINES = {"─": "-", "━": "=", "│": "|", "┃": "|", "═": "=", "║": "|", "■": "#", "·": ".", "•": "*", "╸": "=", "╺": "-"}
WORDS = {
    "…": "...", "–": "-", "—": "-", "−": "-", "×": "x", "±": "+-", "≥": ">=", "≤": "<=", "→": "->", "←": "<-",
    "↔": "<->", "√": "sqrt", "Σ": "sum", "∇": "grad", "∞": "inf", "≈": "~", "∈": "in", "‖": "||", "′": "'", "’": "'",
    "“": '"', "”": '"', "„": '"',
}  # fmt: skip


def nearest(character: str) -> str:
    """Return ASCII for a character: of the same width where it is part of a picture."""
    for table in (BARS, LINES, WORDS):
        if character in table:
            return table[character]
    name = unicodedata.name(character, "")
    if name.startswith("BOX DRAWINGS"):
        return "+"  # a corner or a crossing
    if name.startswith("GREEK "):
        return name.rpartition(" LETTER ")[2].split()[0].lower() or "?"
    plain = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    return plain or "?"


def _answer(problem: UnicodeError) -> tuple[str, int]:
    if not isinstance(problem, UnicodeEncodeError):
        raise problem
    return "".join(map(nearest, problem.object[problem.start : problem.end])), problem.end


def register() -> None:
    codecs.register_error(ERRORS, _answer)
