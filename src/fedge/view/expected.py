"""Write what a run would cost for people to read: what it takes, what it needs, and who sets its pace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedge.view.numbers import shown
from fedge.view.prose import size

TIERS = {
    "client_to_edge": "client → edge", "edge_to_client": "edge → client", "labels_to_edge": "labels → edge",
    "edge_to_cloud": "edge → cloud", "cloud_to_edge": "cloud → edge", "edge_to_edge": "edge → edge",
    "client_to_cloud": "client → cloud", "cloud_to_client": "cloud → client",
}  # fmt: skip
PARTS = {
    "models": "models", "gradient": "gradient", "optimiser": "optimiser", "remembered": "corrections, codecs, masks",
    "samples": "samples", "activations": "activations of a batch", "process": "process",
}  # fmt: skip
SHOWN = 5  # of the critical path


def cost_lines(found: Mapping[str, Any]) -> str:
    cells = f" in {found['cells']:,} cells" if found["cells"] else ""
    parts, model = ("round", "run"), f"{found['model']}, {found['parameters']:,} parameters"
    lines = [
        f"{found['algorithm']}: {model}; {found['clients']:,} clients{cells}",
        _line("", "a global round", f"{found['rounds']:,} rounds"),
        _line("simulated seconds", *(shown(found["seconds"][part], 3) for part in parts)),
        *(_line(f"sent, {TIERS.get(tier, tier)}", *(size(found["bytes"][part].get(tier, 0)) for part in parts),
                f"a link: {_range(found['links'][tier])} a round") for tier in found["bytes"]["run"]),
        _line("multiply-adds", *(f"{n:.3g}" for n in (_of_round(found), found["multiply_adds"]["run"]))),
        "",
        *(_memory(who, found[f"{who}_memory"]) for who in ("client", "edge") if found[f"{who}_memory"]),
        "",
        *_path(found),
    ]  # fmt: skip
    return "\n".join(line.rstrip() for line in lines)


def _line(*words: str) -> str:
    name, round_, run, *more = words
    return f"{name:<30}{round_:>16}{run:>16}   {'  '.join(more)}"


def _of_round(found: Mapping[str, Any]) -> float:
    return float(found["multiply_adds"]["clients_round"] + found["multiply_adds"]["edges_round"])


def _range(spread: Mapping[str, float]) -> str:
    ends = dict.fromkeys(size(spread[end]) for end in ("least", "most"))
    return " to ".join(ends)


def _memory(who: str, held: Mapping[str, int]) -> str:
    parts = sorted(((held[part], name) for part, name in PARTS.items() if held[part]), reverse=True)
    each = ", ".join(f"{name} {size(part)}" for part, name in parts)
    return f"{'an' if who == 'edge' else 'a'} {who} holds up to {size(held['total'])}: {each}"


def _path(found: Mapping[str, Any]) -> list[str]:
    """Say what the seconds are spent on, along the chain of those who were waited for."""
    whole = sum(span["seconds"] for span in found["path"])
    if not whole:
        return ["nobody's pace is known: there are too many clients to follow each"]
    lines = ["what the time goes to, along the chain of those who are waited for:"]
    for span in found["path"][:SHOWN]:
        lines.append(f"  {span['seconds'] / whole:>4.0%}  {span['who']} {span['does']}")
    left = found["path"][SHOWN:]
    if left:
        lines.append(f"  {sum(span['seconds'] for span in left) / whole:>4.0%}  {len(left)} others")
    if found["rounds_followed"] > 1:
        set_by = sorted(found["round_set_by"].items(), key=lambda item: -item[1])
        first = ", ".join(f"{who} ({count:,})" for who, count in set_by[:3])
        lines.append(f"what most of a round's time goes to, in {found['rounds_followed']:,} rounds: {first}")
    return lines
