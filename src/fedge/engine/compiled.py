"""Compiled programs, each kept for the shapes of what it is given."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import jax


class CompiledPrograms:
    def __init__(self) -> None:
        self.seconds = 0.0  # spent on compiling
        self._programs: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self._programs)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._programs.values())

    def get(
        self, name: str, function: Callable[..., Any], *operands: Any, check: Callable[[Any], None] | None = None,
        **options: Any,
    ) -> Any:  # fmt: skip
        """Compile `function` for operands of these shapes, once. A new program is kept unless `check` raises."""
        key = f"{name} {jax.tree.map(lambda x: (x.shape, x.dtype), operands)}"
        if key not in self._programs:
            began = time.perf_counter()
            program = jax.jit(function, **options).lower(*operands).compile()
            self.seconds += time.perf_counter() - began
            if check is not None:
                check(program)
            self._programs[key] = program
        return self._programs[key]
