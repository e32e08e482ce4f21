"""The numbers of a row are written for people here."""

from __future__ import annotations

from fedge.runner.rows import Row


def words(name: str) -> str:
    """Write the name of a column for people to read."""
    return name.replace("_", " ")


def is_share(name: str) -> bool:
    """Tell whether people read a metric of this name in percent."""
    return "accurac" in name or "f1" in name


def shown(number: float, digits: int) -> str:
    return format(number, f".{digits}f" if abs(number) < 1e6 else ".3g")


def metric_text(row: Row, name: str, digits: int = 4) -> str:
    """Write one number of a row. Where it is none although the loss is one, it is not defined: R² of equal targets."""
    value = row.get(name)
    if value is None:
        return "diverged" if row.get("loss") is None else "undefined"
    return f"{value:.1%}" if is_share(name) else shown(value, digits)


def duration(seconds: float) -> str:
    """Say about how long something takes."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def on_request(row: Row) -> str:
    """Write what `metrics` asked for: macro-F1, and how well cells and clients are served."""
    said = [f"macro-F1 {metric_text(row, 'macro_f1')}"] if "macro_f1" in row else []
    for key in row:
        if key.startswith("cell_"):
            said.append(f"cells' {words(key.removeprefix('cell_'))} on own training samples: {_range(key, row[key])}")
        if key.startswith("worst_tenth_"):
            name = key.removeprefix("worst_tenth_")
            mean, worst = metric_text(row, f"client_{name}"), metric_text(row, key)
            said.append(f"clients' {words(name)} on own training samples: mean {mean}, worst tenth {worst}")
    return "; ".join(said)


def _range(name: str, values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    ends = sorted({min(known), max(known)}) if known else []
    return " to ".join(f"{x:.1%}" if is_share(name) else shown(x, 4) for x in ends) or "undefined"
