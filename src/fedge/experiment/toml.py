"""Plain values are written as TOML, which Python can read and not write."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any


def rows(table: Mapping[str, Any]) -> str:
    """Write the rows of a table; what is None is left out."""
    return "".join(f"{_key(key)} = {_value(value)}\n" for key, value in table.items() if value is not None)


def _key(key: str) -> str:
    """Write a key, in quotes where it is not a bare word."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key)


def _value(value: Any) -> str:
    """Write a value of TOML, which for text, numbers and lists is as in JSON."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(key)} = {_value(of)}" for key, of in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    plain = value if isinstance(value, str | int | float) else str(value)
    return json.dumps(plain, ensure_ascii=False).replace("\x7f", "\\u007f")
