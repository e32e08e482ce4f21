"""Two nodes that meet compare what they run; a difference is named on both sides, and nothing begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fedge._version import __version__
from fedge.errors import FleetError, brief
from fedge.experiment.build import Experiment
from fedge.net.names import Name
from fedge.net.wire import Facts
from fedge.runner import identity

VERSION, CONFIG, OBJECTS = "fedge", "config", "objects"
FREE = (*identity.LENGTH, *identity.LAYOUT, "eval_every", "checkpoint_every", "train_eval", "metrics")
"""Keys that only the cloud reads may differ from node to node."""


def greeting(made: Experiment, objects: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a node says of itself when it dials; `objects` are the digests of what is its user's own."""
    free = set(FREE) - ({"checkpoint_every"} if made.job.algorithm.way.keeps else set())  # how long one remembers
    own = {key: value for key, value in made.config.model_dump().items() if key not in free}
    return {VERSION: __version__, CONFIG: own, OBJECTS: dict(objects)}


def vet(mine: Mapping[str, Any], belongs: Callable[[Name], str | None]) -> Callable[[tuple[Name, ...], Facts], Facts]:
    """Return what decides who may join a node: `belongs` says why a name has no business there."""

    def decide(names: tuple[Name, ...], said: Facts) -> Facts:
        for name in names:
            if (why := belongs(name)) is not None:
                raise FleetError(why)
        if said.get(VERSION) != mine[VERSION]:
            raise FleetError(f"{names[0].words} runs fedge {brief(said.get(VERSION))} and this node {mine[VERSION]}; "
                             "install the same version on both")  # fmt: skip
        config = said.get(CONFIG)
        if not isinstance(config, dict) or config != mine[CONFIG]:
            shown = identity.differences(mine[CONFIG], config if isinstance(config, dict) else {})
            raise FleetError(f"{names[0].words} has other keys than this node ({brief(shown, 300)}); give both the "
                             "same")  # fmt: skip
        if said.get(OBJECTS) != mine[OBJECTS]:
            raise FleetError(f"{names[0].words} has other files or functions of its own than this node; give both the "
                             "same")  # fmt: skip
        return {VERSION: __version__}

    return decide


def only(*allowed: Name, where: str) -> Callable[[Name], str | None]:
    """Let only these nodes join."""
    known = frozenset(allowed)

    def belongs(name: Name) -> str | None:
        return None if name in known else f"{name.words} does not belong to {where}"

    return belongs
