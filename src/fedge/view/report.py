"""`report.html` is one file that holds a page and its numbers; it opens offline, and nothing in it asks for more."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from fedge.runner import files
from fedge.view.page_data import page_data

REPORT = "report.html"
ASSETS = "fedge.view.page"
SCRIPTS = ("base", "axes", "figure", "lines", "maps", "network", "tables", "plan", "page")  # in this order


def write_report(folder: str | Path) -> Path:
    """Write the report of a run, a comparison, a sweep or a plan into its folder, and return where it lies."""
    path = Path(folder) / REPORT
    files.write_bytes(path, page(page_data(folder)).encode())
    return path


def page(data: dict[str, Any], live: str = "") -> str:
    """Return a page that shows these numbers; `live` names the stream that it is to follow."""
    return document(f"{data['name']} · fedge", data | {"live": live}, SCRIPTS)


def document(title: str, data: dict[str, Any], scripts: Sequence[str]) -> str:
    """Return an HTML file with everything in it: style, numbers, and the scripts that show them."""
    parts = {
        "title": escape(title),
        "style": asset("page.css"),
        "script": "\n".join(asset(f"{name}.js") for name in scripts),
        "data": inert(data),
    }
    text = asset("page.html")
    for name, part in parts.items():
        text = text.replace(f"<!-- {name} -->", part, 1)
    return text


def inert(value: Any) -> str:
    """Write JSON that an HTML parser finds no tag in, whatever text it holds."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def asset(name: str) -> str:
    return resources.files(ASSETS).joinpath(name).read_text(encoding="utf-8")
