"""An algorithm that is not fedge's, as a user would write it: HierFAVG with Adam in the cloud."""

from dataclasses import replace
from typing import Annotated

import optax
from pydantic import Field

from fedge.algorithms.hierfavg import hierfavg


def fedadam(
    knobs, topology, model, *, server_rate: Annotated[float, Field(gt=0, le=1, description="Adam's step size")] = 0.01
):
    plain, optimiser = hierfavg(knobs, topology, model), optax.adam(server_rate)

    def start(w):
        return {"memory": optimiser.init(w), "weights": w}

    def merge(state, stacks, now):
        mean = plain.merge(state["weights"], stacks, now)
        towards = {path: w - mean[path] for path, w in state["weights"].items()}
        step, memory = optimiser.update(towards, state["memory"], state["weights"])
        return {"memory": memory, "weights": optax.apply_updates(state["weights"], step)}

    return replace(plain, start=start, merge=merge, operator=None,
                   deal=lambda state, now: plain.deal(state["weights"], now),
                   evaluated=lambda state, _: state["weights"])  # fmt: skip
