"""Say what of a client's data others see, in plain words: an option that ships raw inputs is fast for that reason."""

from __future__ import annotations

from collections.abc import Mapping

from fedge.core.contract import Algorithm, Direct, Gossip
from fedge.errors import ConfigError, unknown

KINDS = ("inputs", "activations", "labels", "updates")


def exposure(algorithm: Algorithm, stages: tuple[str, ...]) -> dict[str, str]:
    """Return what is seen → who sees it. Updates let others infer things about data too, more as cells get smaller."""
    on_client = algorithm.client_stages
    found: dict[str, str] = {}
    if on_client is not None and on_client != stages:
        found["inputs" if not on_client else "activations"] = "the client's edge"
        found["labels"] = "the client's edge"
    match algorithm.exchange:
        case Direct():
            found["updates"] = "the cloud, client by client"
        case Gossip():
            found["updates"] = "the client's edge, client by client; its neighbours, as means of cells"
        case _:
            found["updates"] = "the client's edge, client by client; the cloud, as means of cells"
    return found


def excluded(words: str) -> frozenset[str]:
    """Read `exclude=inputs,labels`: what nobody may see; `none` rules nothing out."""
    kinds = [word.strip() for word in words.split(",") if word.strip() not in ("", "none")]
    for kind in kinds:
        if kind not in KINDS[:3]:
            if kind == "updates":
                raise ConfigError("exclude=updates leaves nothing to plan: every algorithm sends them; leave it out")
            raise ConfigError(unknown("kind of exposure", kind, (*KINDS[:3], "none")))
    return frozenset(kinds)


def in_words(found: Mapping[str, str]) -> str:
    return "; ".join(f"{what} to {who}" for what, who in found.items())
