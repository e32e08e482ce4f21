"""An edge without a cloud keeps its model after each round, with what it sent its neighbours in it.

A neighbour that comes back may be one round behind; it is then sent what it missed, whoever was killed when.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedge.errors import RunError
from fedge.runner import checkpoint, files
from fedge.runner.checkpoint import DamagedError

if TYPE_CHECKING:
    from fedge.fleet.gossip import GossipEdge

FILE, OWN, SENT = "edge.safetensors", "own", "sent"


@dataclass(frozen=True)
class Kept:
    """This is the folder in which an edge keeps its model; `identity` says of which run."""

    folder: Path
    identity: str

    def save(self, node: GossipEdge, done: int) -> None:
        """Write the state after a round; a reader finds this one or the one before."""
        arrays: dict[str, Any] = {f"{OWN}/{path}": w for path, w in node.model.items()}
        for step, model in enumerate(node.sent.get(done - 1, [])):
            arrays |= {f"{SENT}/{step}/{path}": w for path, w in model.items()}
        notes = {"round": done, "identity": self.identity, "loss": node.loss}
        checkpoint.save_arrays(self.folder / FILE, arrays, notes)

    def restore(self, node: GossipEdge) -> int:
        """Take up what was saved, if anything was; return the rounds that are done."""
        files.make_folder(self.folder)
        if not (self.folder / FILE).exists():
            return 0
        arrays, notes, _ = checkpoint.read_arrays(self.folder / FILE)
        if notes.get("identity") != self.identity:
            raise RunError(f"{self.folder / FILE} belongs to another run or another edge; remove it")
        own = {path: arrays.get(f"{OWN}/{path}") for path in node.model}
        if any(w is None or w.shape != node.model[path].shape for path, w in own.items()):
            raise DamagedError(f"{self.folder / FILE} holds another model")
        done, steps = int(notes["round"]), sum(name.startswith(SENT) for name in arrays) // len(own)
        sent = [{path: np.asarray(arrays[f"{SENT}/{step}/{path}"]) for path in own} for step in range(steps)]
        node.model, node.sent, node.loss = dict(own), {done - 1: sent}, notes["loss"]
        return done
