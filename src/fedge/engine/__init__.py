"""Engines decide where the roles run. They know the contract, never an algorithm's name."""

from __future__ import annotations

from fedge.engine.base import Engine, Job
from fedge.engine.driver import Vectorised
from fedge.engine.reference import Reference
from fedge.engine.stacked import Stacked

ENGINES: dict[str, type[Engine]] = {"reference": Reference, "vectorised": Vectorised}

__all__ = ["ENGINES", "Engine", "Job", "Reference", "Stacked", "Vectorised"]
