"""Draw a network as measured in the terminal: who belongs to whom, and how fast everything is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from fedge.cost.bottlenecks import Bottleneck
from fedge.cost.network import Both, Client, Edge, Network, Processor
from fedge.view.prose import size

UNITS = ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s"))


def network_lines(network: Network) -> str:
    """Draw the tree from the cloud down to clients, those alike in one line."""
    shared = "" if math.isinf(network.backhaul.up) else f"backhaul {both(network.backhaul)}, shared by all edges"
    lines = [f"{network.name}: {len(network.clients):,} clients in {len(network.edges):,} cells", "", "cloud"]
    lines += [f"│ {shared}"] if shared else []
    for d, edge in enumerate(network.edges):
        last = d == len(network.edges) - 1
        stem = " " if last else "│"
        own = [client for client in network.clients if client.cell == d]
        lines.append(f"{'└' if last else '├'}─ {', '.join([edge.name, *_of_edge(edge, len(own))])}")
        groups = _alike(own)
        for n, group in enumerate(groups):
            lines.append(f"{stem}  {'└' if n == len(groups) - 1 else '├'}─ {_of_clients(group)}")
    if network.links:
        lines += ["", "between edges"]
        for (a, b), rate in network.links.items():
            if a < b:
                back = network.links[b, a]
                other = "" if back == rate else f", back {speed(back)}"
                lines.append(f"   {network.edges[a].name} – {network.edges[b].name}: {speed(rate)}{other}")
    return "\n".join(lines)


def bottleneck_lines(found: Sequence[Bottleneck], what: str) -> str:
    lines = [f"when everybody does the same at once, with {what}:", f"{'':28}{'seconds':>12}   longest"]
    for tier, seconds, span in found:
        part = f" ({span.seconds / seconds:.0%})" if 0 < span.seconds < 0.995 * seconds else ""
        lines.append(f"{tier:28}{seconds:>12,.4g}   {span.who} {span.does}{part}" if seconds else f"{tier:28}{0:>12}")
    return "\n".join(lines)


def speed(rate: float) -> str:
    if math.isinf(rate):
        return "endless"
    unit, name = next((unit for unit in UNITS if rate >= unit[0]), UNITS[-1])
    return f"{rate / unit:.4g} {name}"


def both(rates: Both) -> str:
    return speed(rates.up) if rates.up == rates.down else f"{speed(rates.up)} up and {speed(rates.down)} down"


def _of_edge(edge: Edge, clients: int) -> list[str]:
    said = []
    if not math.isinf(edge.shared.up):
        said.append(f"whose {clients:,} clients share {both(edge.shared)}")
    if not math.isinf(edge.line.up):
        said.append(f"line to the cloud {both(edge.line)}")
    if not math.isinf(edge.to_cloud.up):
        said.append(f"to the cloud {both(edge.to_cloud)}")
    return [*said, *_of_device(edge.processor, edge.memory)]


def _of_clients(group: Sequence[Client]) -> str:
    first = group[0]
    name = first.name if len(group) == 1 else f"{len(group):,} × {first.name} … {group[-1].name}"
    said = [name, both(first.rate), *_of_device(first.processor, first.memory)]
    if not math.isinf(first.to_cloud.up):
        said.insert(2, f"to the cloud {both(first.to_cloud)}")
    return ", ".join(said if first.on is None else [*said, f"on {first.on.share:.0%} of the time"])


def _of_device(processor: Processor, memory: float) -> list[str]:
    said = [] if processor.hz is None else [f"{processor.hz / 1e9:.3g} GHz"]
    if processor.step_seconds is not None:
        said.append(f"a step in {processor.step_seconds:.4g} s")
    return said if math.isinf(memory) else [*said, size(memory)]


def _alike(clients: Sequence[Client]) -> list[list[Client]]:
    """Put clients together that differ by name only."""
    groups: dict[Client, list[Client]] = {}
    for client in clients:
        groups.setdefault(replace(client, name=""), []).append(client)
    return list(groups.values())
