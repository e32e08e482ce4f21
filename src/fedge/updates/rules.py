"""Rules are chosen by their names, for the edges and for the cloud."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from fedge.core.contract import Algorithm, Direct, ModelDescription, Round, Stack
from fedge.core.tree import Weights
from fedge.core.update import Rule
from fedge.errors import ConfigError, brief, suggestion
from fedge.updates.clipping import clipping
from fedge.updates.geometric import geometric
from fedge.updates.krum import krum
from fedge.updates.median import median
from fedge.updates.names import NUMBER, own
from fedge.updates.trimmed import trimmed

NAMES = ["mean", "median", "trimmed:0.2", "krum:1", "multikrum:1:3", "geometric", "clip:1.0"]
ALLOWED = (
    "mean, median, trimmed:F with a fraction F dropped at each end, krum:F with F attackers, multikrum:F:M with the "
    "mean of the best M, geometric, clip:B with the greatest norm B of an update, or package.module:function with one "
    "of your own"
)


def rule_of(text: str, key: str = "rule") -> Rule | None:
    """Return the rule of this name, or None for the weighted mean; `key` asks for it."""
    if text == "mean":
        return None
    try:
        if text == "median":
            return median()
        if text == "geometric":
            return geometric()
        if found := re.fullmatch(f"trimmed:{NUMBER}", text, re.ASCII):
            return trimmed(float(found[1]))
        if found := re.fullmatch(f"clip:{NUMBER}", text, re.ASCII):
            return clipping(float(found[1]))
        if found := re.fullmatch(r"krum:(\d{1,9})", text, re.ASCII):
            return krum(int(found[1]))
        if found := re.fullmatch(r"multikrum:(\d{1,9}):(\d{1,9})", text, re.ASCII):
            return krum(int(found[1]), int(found[2]))
    except ConfigError as problem:
        raise ConfigError(f"{key}={brief(text)}: {problem}") from None
    if made := own(key, text, Rule, frozenset(name.partition(":")[0] for name in NAMES)):
        return made
    raise ConfigError(f"{key}={brief(text)} is no rule; allowed: {ALLOWED}{suggestion(text, NAMES)}")


def combined(
    algorithm: Algorithm, model: ModelDescription, *,
    edge_rule: Annotated[str, Field(examples=NAMES, description="how an edge combines its clients' models")] = "mean",
    cloud_rule: Annotated[str, Field(examples=NAMES, description="how the cloud combines what it gets")] = "mean",
) -> Algorithm:  # fmt: skip
    edge, cloud = rule_of(edge_rule, "edge_rule"), rule_of(cloud_rule, "cloud_rule")
    name, sizes = algorithm.name, [len(own) for own in algorithm.topology.roster]
    if isinstance(algorithm.exchange, Direct):
        if edge is not None:
            raise ConfigError(f"edge_rule={edge_rule} has no meaning for {name}, which has no edges; take cloud_rule")
        return _at_edges(algorithm, cloud, "cloud_rule", min(sizes))
    if edge is not None and algorithm.shared is not None:
        raise ConfigError(
            f"edge_rule={edge_rule} is not for {name}: the half that its edges hold is one model, stepped by the "
            "mean gradient, so that clients send no updates of it to choose from; leave edge_rule out"
        )
    if cloud is not None and not algorithm.cloud_mean:
        raise ConfigError(
            f"cloud_rule={cloud_rule} is not for {name}, whose cells' models are not averaged in a cloud; leave it out"
        )
    if cloud is not None:
        _refuse(cloud, "cloud_rule", algorithm.topology.cells, "the cloud gets a model from each of")
        algorithm = _in_cloud(algorithm, cloud)
    return _at_edges(algorithm, edge, "edge_rule", min(sizes))


def _at_edges(algorithm: Algorithm, rule: Rule | None, key: str, clients: int) -> Algorithm:
    if rule is None:
        return algorithm
    _refuse(rule, key, clients, "the smallest cell has")
    return replace(algorithm, way=replace(algorithm.way, edge_rule=rule))


def _in_cloud(algorithm: Algorithm, rule: Rule) -> Algorithm:
    """Let the cloud combine the cells' models by a rule where it took their mean."""

    def merge(w: Weights, stacks: tuple[Stack, ...], now: Round) -> Weights:
        return rule.combine(now.cell_weight, stacks[0].weights, w)

    return replace(algorithm, merge=merge, operator=None, stale_statistics=True)


def _refuse(rule: Rule, key: str, senders: int, where: str) -> None:
    if why := rule.refusal(senders):
        raise ConfigError(f"{key}={rule.name} cannot work where {where} {senders}: {why}")
