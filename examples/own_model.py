"""Your own model, here in Flax Linen, by its name.

    .venv/bin/python examples/own_model.py

From the command line, in the folder of this file, a run with this model is

    fedge run hierfavg model=own_model:build hidden=48

A function of (shape, outputs) returns a Linen module; one of (shape, outputs, rngs) would return an NNX module. What it
takes by keyword only is a key of the run.
"""

import sys
from pathlib import Path
from typing import Annotated

import numpy as np
from flax import linen
from pydantic import Field

import fedge


class Network(linen.Module):
    hidden: int
    outputs: int

    @linen.compact
    def __call__(self, x, train: bool):
        x = x.reshape(len(x), -1)
        x = linen.LayerNorm()(linen.Dense(self.hidden)(x))
        x = linen.Dropout(0.1, deterministic=not train)(linen.gelu(x))
        return linen.Dense(self.outputs)(x)


def build(shape, outputs, *, hidden: Annotated[int, Field(ge=1, le=10_000, description="hidden units")] = 32):
    return Network(hidden, outputs)


def disc(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw points of a plane; those near the middle are of class 1."""
    points = np.random.default_rng(seed).uniform(-1, 1, (count, 2)).astype(np.float32)
    return points, (np.hypot(*points.T) < 0.7).astype(int)


def main() -> None:
    sys.path.append(str(Path(__file__).parent))
    result = fedge.run(
        algorithm="hierfavg", dataset=fedge.Dataset.of(*disc(2000, seed=1), *disc(500, seed=2), name="disc"),
        model="own_model:build", hidden=48, clients=10, cells=2, partition="iid", rounds=25, batch=20, lr=0.3,
        momentum=0.9, eval_every=25,
    )  # fmt: skip
    print(f"{result.parameters} parameters: {', '.join(result.weights)}")
    print(f"{result.final['accuracy']:.1%} of the points are placed right; more in {result.out}")


if __name__ == "__main__":
    main()
