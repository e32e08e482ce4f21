"""A layer may have several forms that compute the same; a program that is only counted is traced in the plain one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_PLAIN: ContextVar[bool] = ContextVar("plain", default=False)


@contextmanager
def plain() -> Iterator[None]:
    """Trace layers as their definitions say, whatever would be the fastest form on this machine."""
    token = _PLAIN.set(True)
    try:
        yield
    finally:
        _PLAIN.reset(token)


def is_plain() -> bool:
    """Say whether layers are traced in their plain form."""
    return _PLAIN.get()
