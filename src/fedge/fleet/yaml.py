"""Plain values are written as YAML; text with several lines as a block, all other text as JSON writes it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

BARE = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")
WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "none"}  # which YAML takes for something else


def yaml_of(value: Any, indent: int = 0) -> str:
    """Write mappings and lists one entry a line."""
    before = " " * indent
    if isinstance(value, Mapping):
        return "".join(f"{before}{_text(key)}:{_after(of, indent + 2)}" for key, of in value.items())
    return "".join(
        f"{before}- {yaml_of(of, indent + 2).lstrip() if _nests(of) else _plain(of, indent + 2)}" for of in value
    )


def _after(value: Any, indent: int) -> str:
    """Write what stands after a key."""
    return f"\n{yaml_of(value, indent)}" if _nests(value) else f" {_plain(value, indent)}"


def _nests(value: Any) -> bool:
    return isinstance(value, Mapping | Sequence) and not isinstance(value, str) and len(value) > 0


def _plain(value: Any, indent: int) -> str:
    if isinstance(value, str) and value.endswith("\n") and not value.startswith((" ", "\n")):
        lines = "".join(f"{' ' * indent}{line}\n" if line else "\n" for line in value[:-1].split("\n"))
        return f"|\n{lines}"
    return f"{_text(value) if isinstance(value, str) else json.dumps(value)}\n"


def _text(text: str) -> str:
    return text if BARE.fullmatch(text) and text.lower() not in WORDS else json.dumps(text, ensure_ascii=False)
