"""A correction of clients' gradients is chosen here, and what it asks of an algorithm."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from fedge.core.contract import Algorithm, Cloud, ModelDescription
from fedge.errors import ConfigError
from fedge.updates.mtgc import MTGC
from fedge.updates.scaffold import SCAFFOLD

CORRECTIONS = {"scaffold": SCAFFOLD, "mtgc": MTGC}


def corrected(
    algorithm: Algorithm, model: ModelDescription, *,
    correction: Annotated[Literal["none", "scaffold", "mtgc"], Field(
        description="of clients' gradients, by what they remember: of one tier (scaffold) or two (mtgc)"
    )] = "none",
) -> Algorithm:  # fmt: skip
    if correction == "none":
        return algorithm
    if algorithm.shared is not None:
        raise ConfigError(
            f"correction={correction} is not for {algorithm.name}: what its edges hold follows the mean gradient "
            "already, and a client has no update of it to learn from; leave correction out"
        )
    if not algorithm.whole_models:
        raise ConfigError(
            f"correction={correction} is not for {algorithm.name}, whose clients get another part of the model each "
            "round, so that what one remembers is of other weights; leave correction out"
        )
    if correction == "mtgc" and not isinstance(algorithm.exchange, Cloud):
        raise ConfigError(
            f"correction=mtgc is for edges under a cloud, which {algorithm.name} has not; take correction=scaffold"
        )
    return replace(algorithm, way=replace(algorithm.way, correction=CORRECTIONS[correction]))
