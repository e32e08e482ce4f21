"""A table is drawn where the terminal has room for it; elsewhere each row is a block with a line for each value."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

BORDER = 3  # characters around a column


def table(
    width: int, heads: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1, caption: str | None = None
) -> Table | Text:
    """Return what is to be printed on so many columns: the first `left` columns are words, the others numbers."""
    columns = list(zip(heads, *rows, strict=True))
    least = [max([*map(len, cells), *map(len, head.split())], default=0) for head, *cells in columns]
    spare = width - (1 + sum(least) + BORDER * len(heads))
    if spare < 0:
        return Text("\n".join([blocks(heads, rows), *([caption] if caption else [])]))
    drawn = Table(caption=caption, caption_justify="left")
    for number, (head, size) in enumerate(zip(heads, least, strict=True)):
        more = max(len(head) - size, 0)  # so that the head is one line, if there is room
        more = more if more <= spare else 0
        spare -= more
        drawn.add_column(head, justify="left" if number < left else "right", width=size + more)
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
