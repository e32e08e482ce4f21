"""A fleet that runs, as its nodes say they are doing: a line for each, then the bytes of each tier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedge.net.fleet import Fleet
from fedge.net.status import Status, facts_of
from fedge.view.numbers import metric_text, words
from fedge.view.prose import size

Answers = Mapping[str, Status | str]  # label of a node → how it is doing, or why it did not answer


def status_text(fleet: Fleet, answers: Answers) -> str:
    """Write what people read."""
    width = max(map(len, answers))
    lines = [f"fleet '{fleet.name}': {sum(isinstance(a, Status) for a in answers.values())} of {len(answers)} answer"]
    for label, found in answers.items():
        lines.append(f"  {label:{width}}  {found if isinstance(found, str) else _line(found)}")
    total: dict[str, tuple[int, int]] = {}
    for found in answers.values():
        for tier, (payload, framing) in (found.bytes if isinstance(found, Status) else {}).items():
            before = total.get(tier, (0, 0))
            total[tier] = before[0] + payload, before[1] + framing
    lines += [f"  {words(tier)}: {size(p)} of tensors, {size(f)} of framing" for tier, (p, f) in total.items()]
    return "\n".join(lines)


def _line(found: Status) -> str:
    said = [f"round {found.round}{'' if found.rounds is None else f'/{found.rounds}'}", _connected(found)]
    if found.seconds is not None:
        said.append(f"{found.seconds:.2f} s a round")
    if found.missing:
        said.append(f"{found.missing} answers missing")
    said += [f"{words(name)} {metric_text({name: value}, name)}" for name, value in found.scores.items()]
    return ", ".join(filter(None, said))


def _connected(found: Status) -> str:
    counts: dict[str, int] = {}
    for name in found.connected:
        counts[name.role] = counts.get(name.role, 0) + 1
    return (
        " and ".join(f"{n} {role}{'s' * (n != 1)} connected" for role, n in sorted(counts.items()))
        or "nobody connected"
    )


def status_json(answers: Answers) -> dict[str, Any]:
    """Return the same for programs."""
    return {
        label: {"problem": found} if isinstance(found, str) else facts_of(found) for label, found in answers.items()
    }
