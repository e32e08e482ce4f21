"""This finds what takes longest on each tier of a network when everybody there does the same at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedge.cost.clock import timed_bits
from fedge.cost.network_clock import NetworkClock, Stage
from fedge.cost.path import Span


class Bottleneck(NamedTuple):
    tier: str
    seconds: float  # until the last one is done
    span: Span  # what the last one spends most of it on


def bottlenecks(clock: NetworkClock) -> list[Bottleneck]:
    """Return the bottleneck of each tier: an edge round's steps, everybody's models up and down, and between edges."""
    ledger, network = clock.ledger, clock.network
    algorithm, own = ledger.algorithm, ledger.client_bytes(0)
    up, down = (timed_bits(ledger, clock.unbilled, size, client=True) for size in (own.up, own.down))
    share = np.broadcast_to(clock.work, up.shape) * (1.0 if ledger.cut is None else ledger.cut.client_work)
    other = "edge" if algorithm.has_edges else "cloud"
    found = [
        _of_cells(clock, f"{algorithm.schedule.local_steps} local steps", 0 * up, share, 0 * up),
        _of_cells(clock, f"model, client → {other}", 0 * up, 0 * share, up),
        _of_cells(clock, f"model, {other} → client", down, 0 * share, 0 * up),
    ]
    if ledger.cut is not None:
        one = np.full_like(up, 8.0)
        found.append(_of_cells(clock, "activations, client → edge", 0 * up, 0 * share, ledger.cut.up * one))
        found.append(_of_cells(clock, "gradients, edge → client", ledger.cut.down * one, 0 * share, 0 * up))
    far = ledger.edge_bytes(0)
    if algorithm.gossip is not None:
        bits = timed_bits(ledger, clock.unbilled, ledger.cell_bytes(0))
        takes = {link: float(bits[link[0]]) / rate for link, rate in (network.links or {}).items()}
        if takes:
            (a, b), seconds = max(takes.items(), key=lambda item: item[1])
            names = f"link {network.edges[a].name} → {network.edges[b].name}"
            found.append(Bottleneck("model, edge → edge", seconds, Span(names, "sends", seconds)))
    elif algorithm.has_edges:
        for way, size, name in (("up", far.up, "edge → cloud"), ("down", far.down, "cloud → edge")):
            end, spans = clock.with_cloud(clock.start, timed_bits(ledger, clock.unbilled, size), way)
            found.append(Bottleneck(f"model, {name}", float(end.max()), spans[int(end.argmax())]))
    return found


def _of_cells(clock: NetworkClock, tier: str, down: np.ndarray, share: np.ndarray, up: np.ndarray) -> Bottleneck:
    """Let all clients of each cell do this at once, all of them being on, and return what the slowest cell comes to."""
    worst: Bottleneck | None = None
    steps = clock.ledger.algorithm.schedule.local_steps
    for d, members in enumerate(clock.ledger.algorithm.topology.roster):
        ones = np.ones(len(members))
        stage = Stage(down[d] * ones, steps * share[d] * clock.step.client[members], up[d] * ones)
        outcome = clock.stage(members, 0.0, stage)
        if worst is None or outcome.seconds > worst.seconds:
            worst = Bottleneck(tier, outcome.seconds, max(outcome.spans, key=lambda span: span.seconds))
    assert worst is not None
    return worst
