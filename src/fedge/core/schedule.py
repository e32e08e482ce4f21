"""A schedule says when models are averaged: k counts completed local iterations, from 1."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """A global round makes `edge_rounds` (τ2, E/H) edge averages, each after `local_steps` (τ1, H) steps."""

    local_steps: int
    edge_rounds: int

    @property
    def period(self) -> int:
        """Count the iterations of a global round: τ = τ1·τ2 (HIST's E)."""
        return self.local_steps * self.edge_rounds

    def is_edge(self, k: int) -> bool:
        return k % self.local_steps == 0

    def is_global(self, k: int) -> bool:
        return k % self.period == 0
