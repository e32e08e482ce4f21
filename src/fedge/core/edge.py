"""An edge folds what its clients send into one model, and where there is no cloud it mixes it with its neighbours'.

    w_d ← Σ_{i∈d} share_i·w_i             the mean: a running sum, however many clients there are
    w_d ← combine(shares, w_1, w_2, …)    by a rule: every model is kept until all are there
    w_d ← P[d,d]·w_d + Σ_j P[j,d]·w_j     the exchange with neighbours j, α times

The vectorised engine adds up whole cells at once and on several devices; it must agree with what stands here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedge.core.tree import Weights
from fedge.core.update import Rule


class Aggregate(NamedTuple):
    """An aggregate takes models one at a time: `close(add(… add(empty(start), share, model) …), start)`.

    Two that were filled apart are one after `join`, so that an edge of edges, or a collective, may do the adding.
    """

    empty: Callable[[Weights], Any]
    add: Callable[[Any, float, Weights], Any]
    join: Callable[[Any, Any], Any]
    close: Callable[[Any, Weights], Weights]


def aggregate_of(rule: Rule | None) -> Aggregate:
    """Return how an edge with this rule folds its clients' models; without one it takes their mean."""
    if rule is None:
        return MEAN
    combine = jax.jit(rule.combine)

    def close(kept: tuple[tuple[float, Weights], ...], start: Weights) -> Weights:
        dtype = next(iter(start.values())).dtype
        models = {path: jnp.stack([jnp.asarray(model[path]) for _, model in kept]) for path in start}
        shares = jnp.asarray([share for share, _ in kept], dtype)
        return combine(shares, models, {path: jnp.asarray(w) for path, w in start.items()})

    return Aggregate(
        empty=lambda start: (),
        add=lambda kept, share, model: (*kept, (share, model)),
        join=lambda some, others: (*some, *others),
        close=close,
    )


MEAN = Aggregate(
    empty=lambda start: {path: 0 * w for path, w in start.items()},
    add=lambda total, share, model: {path: t + share * model[path] for path, t in total.items()},
    join=lambda some, others: {path: w + others[path] for path, w in some.items()},
    close=lambda total, start: total,
)


def mix(own: Weights, neighbours: Mapping[int, Weights], shares: Mapping[int, float], edge: int) -> Weights:
    """Make one exchange at an edge: `shares` is its column of P, `neighbours` what came over its links."""
    mixed = {path: shares[edge] * w for path, w in own.items()}
    for neighbour in sorted(neighbours):
        mixed = {path: w + shares[neighbour] * neighbours[neighbour][path] for path, w in mixed.items()}
    return mixed
