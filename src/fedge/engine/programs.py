"""Compiled programs, each kept for the shapes of what it is given."""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax


class Programs:
    def __init__(self) -> None:
        self.seconds = 0.0  # spent on compiling
        self._made: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self._made)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._made.values())

    def get(
        self, name: str, function: Callable[..., Any], *operands: Any, may_stay: Callable[[Any], bool] | None = None,
        **options: Any,
    ) -> Any:  # fmt: skip
        """`function` compiled for operands of these shapes, once; None where it may not stay."""
        key = f"{name} {jax.tree.map(lambda x: (x.shape, x.dtype), operands)}"
        if key not in self._made:
            began = time.perf_counter()
            program = jax.jit(function, **options).lower(*operands).compile()
            _tidy()
            self.seconds += time.perf_counter() - began
            if may_stay is not None and not may_stay(program):
                return None
            self._made[key] = program
        return self._made[key]


def _tidy() -> None:
    """What the compiler no longer needs goes back to the system, where the C library keeps it for itself (glibc)."""
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
