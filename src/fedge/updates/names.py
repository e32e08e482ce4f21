"""What the names of codecs and of rules have in common: numbers in them, and names of the user's own functions."""

from __future__ import annotations

from typing import TypeVar

from fedge.errors import ConfigError, brief
from fedge.plugins import call, find, is_name

NUMBER = r"((?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)"
T = TypeVar("T")


def own(key: str, text: str, kind: type[T], taken: frozenset[str]) -> T | None:
    """Call the function package.module:function, which makes one of this kind; None where `text` is no such name.

    A module that is named as one of `taken` is not looked for: what was meant is one of fedge's with a wrong number.
    """
    if not is_name(text) or text.partition(":")[0] in taken:
        return None
    made = call(f"{key}={brief(text)}", find(key, text, ()))
    if not isinstance(made, kind):
        raise ConfigError(
            f"{key}={brief(text)} returned a {type(made).__name__}; let it return a fedge.core.update.{kind.__name__}"
        )
    return made
