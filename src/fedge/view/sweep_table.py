"""The table of a sweep for people: on a terminal, and in LaTeX for a paper."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rich.table import Table
from rich.text import Text

from fedge.studies.interval import Interval
from fedge.studies.sweep_table import Line
from fedge.view.numbers import is_share, shown, words
from fedge.view.tables import table

HEADS = {"loss": "test loss", "simulated_seconds": "simulated s", "bytes": "sent MB", "target_round": "target: round",
         "target_seconds": "target: s", "target_bytes": "target: MB"}  # fmt: skip
LEFT_OUT = ("iteration", "train_loss", "consensus")  # of the text; the CSV has every column
SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"} | {
    c: "\\" + c for c in "&%$#_{}"
}


def cells_of(lines: Sequence[Line]) -> list[list[str]]:
    """Write the table as words, its heads first: the setting, the seeds, and each number with its interval."""
    keys = list(dict.fromkeys(key for line in lines for key in line.setting))
    names = [n for n in dict.fromkeys(n for line in lines for n in line.columns) if n not in LEFT_OUT]
    names = sorted(names, key=lambda name: name != lines[0].main)
    heads = [*keys, "seeds", *map(_head, names)]
    targets = any(line.reached is not None for line in lines)
    rows = [heads + ["at target"] * targets]
    for line in lines:
        found = [_cell(line, name) for name in names]
        at = [f"{line.reached or 0} of {line.seeds}"] * targets
        rows.append([*(str(line.setting.get(key, "")) for key in keys), str(line.seeds), *found, *at])
    return rows


def _head(name: str) -> str:
    return HEADS.get(name, f"{words(name)} %" if is_share(name) else words(name))


def _cell(line: Line, name: str) -> str:
    if name not in line.columns:
        return ""
    found = line.columns[name]
    if found is None:
        return f"{line.diverged} of {line.seeds} diverged" if line.diverged and name == line.main else "–"
    return interval_text(name, found)


def interval_text(name: str, found: Interval) -> str:
    """Write mean ± half the width of the interval; the mean alone where one seed, or all alike, leave nothing else."""
    if "bytes" in name:
        return _joined(found, 1e-6, lambda x: f"{x:,.0f}")
    if is_share(name):
        return _joined(found, 100, lambda x: f"{x:.1f}")
    if "seconds" in name:
        return _joined(found, 1, lambda x: f"{x:,.1f}")
    return _joined(found, 1, lambda x: f"{x:.1f}" if "round" in name else shown(x, 3))


def _joined(found: Interval, scale: float, write: Callable[[float], str]) -> str:
    mean = write(scale * found.mean)
    alone = not math.isfinite(found.half) or found.half <= 1e-12 * abs(found.mean)
    return mean if alone else f"{mean} ± {write(scale * found.half)}"


def text_table(lines: Sequence[Line], width: int) -> Table | Text:
    """Return the table for a terminal of so many columns."""
    heads, *rows = cells_of(lines)
    return table(width, heads, rows, left=len(lines[0].setting), caption=caption(lines))


def caption(lines: Sequence[Line]) -> str | None:
    several = any(line.seeds > 1 for line in lines)
    return "± half of the 95 % confidence interval of the mean over seeds (Student's t)" if several else None


def latex_of(lines: Sequence[Line]) -> str:
    """Write the table for LaTeX; it needs the package booktabs."""
    heads, *rows = cells_of(lines)
    keys = len(lines[0].setting)
    said = [f"% {caption(lines)}".replace("±", "plus or minus")] if caption(lines) else []
    return "\n".join([
        *said,
        rf"\begin{{tabular}}{{{'l' * keys}{'r' * (len(heads) - keys)}}}",
        r"\toprule",
        _latex_row(heads),
        r"\midrule",
        *map(_latex_row, rows),
        r"\bottomrule",
        r"\end{tabular}",
        "",
    ])  # fmt: skip


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(_latex(cell) for cell in cells) + r" \\"


def _latex(cell: str) -> str:
    escaped = "".join(SPECIAL.get(c, c) for c in cell)
    return escaped.replace("±", r"$\pm$").replace("–", "--")
