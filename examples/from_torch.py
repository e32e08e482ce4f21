"""Weights from PyTorch: a small network that was trained elsewhere is trained on by clients.

    .venv/bin/python examples/from_torch.py

With PyTorch the file would come from

    module = nn.Sequential(nn.Linear(2, 48), nn.ReLU(), nn.Linear(48, 2))
    safetensors.torch.save_file(module.state_dict(), "net.safetensors")

PyTorch is not needed here, so the file is written by fedge in PyTorch's names and layouts.
"""

import numpy as np
from flax import nnx

import fedge

NAMES = {"first": "0", "last": "2"}  # nn.Sequential numbers its layers


class Network(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first, self.last = nnx.Linear(2, 48, rngs=rngs), nnx.Linear(48, 2, rngs=rngs)

    def __call__(self, x):
        return self.last(nnx.relu(self.first(x)))


def disc(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw points of a plane; those near the middle are of class 1."""
    points = np.random.default_rng(seed).uniform(-1, 1, (count, 2)).astype(np.float32)
    return points, (np.hypot(*points.T) < 0.7).astype(int)


def main() -> None:
    model = fedge.from_nnx(Network, input_shape=(2,), classes=2, name="48 hidden units")
    data = fedge.Dataset.of(*disc(2000, seed=1), *disc(500, seed=2), name="disc")
    keys = {"clients": 10, "cells": 2, "partition": "iid", "batch": 20, "lr": 0.3, "momentum": 0.9, "local_steps": 10}
    elsewhere = fedge.run(algorithm="fedavg", dataset=data, model=model, rounds=30, eval_every=30, **keys)
    fedge.save_weights("net.safetensors", fedge.weights_to_torch(elsewhere.weights, model, names=NAMES))

    theirs = fedge.load_weights("net.safetensors")
    print("the file holds", ", ".join(f"{name} {w.shape}" for name, w in theirs.items()))
    weights = fedge.weights_from_torch(theirs, model, names=NAMES)
    result = fedge.run(algorithm="hierfavg", dataset=data, model=model, init=weights, rounds=2, **keys)
    print(f"{result.history[0]['accuracy']:.1%} after the first round, {result.final['accuracy']:.1%} after the second")


if __name__ == "__main__":
    main()
