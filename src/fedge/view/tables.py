"""A table is drawn where the terminal has room for it; elsewhere each row is a block with a line for each value."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

BORDER = 3  # characters around a column
LEAST = 8  # of a word in the last column, which may be broken into lines


def table(
    console: Console, heads: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1, caption: str | None = None,
    breaks: int | None = None,
) -> Table | Text:  # fmt: skip
    """Return what is to be printed: the first `left` columns are words, the others numbers.

    The column `breaks` may be broken into lines.
    """
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(heads)
    needed = 1
    for number, (head, cells) in enumerate(zip(heads, columns, strict=True)):
        longest = min(max(map(len, cells), default=0), LEAST) if number == breaks else max(map(len, cells), default=0)
        needed += BORDER + max(longest, *map(len, head.split() or [""]))
    if needed > console.width:
        return Text("\n".join([blocks(heads, rows), *([caption] if caption else [])]))
    drawn = Table(caption=caption, caption_justify="left")
    for number, head in enumerate(heads):
        drawn.add_column(head, justify="left" if number < left else "right", no_wrap=number != breaks, overflow="fold")
    for row in rows:
        drawn.add_row(*map(Text, row))
    return drawn


def blocks(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write each row as its first value and, below it, a line for each of the others; empty ones are left out."""
    width, lines = max(map(len, heads[1:]), default=0), []
    for row in rows:
        lines.append(row[0])
        lines += [f"  {head:{width}}  {cell}" for head, cell in zip(heads[1:], row[1:], strict=True) if cell]
    return "\n".join(lines)
