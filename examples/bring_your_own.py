"""Your own model and your own data: any NNX module, any arrays.

    .venv/bin/python examples/bring_your_own.py

A tanh network on two interleaved spirals, spread over 12 clients in 3 cells.
"""

import numpy as np
from flax import nnx

import fedge


class Network(nnx.Module):
    """Nothing here knows about federated learning."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(2, 64, rngs=rngs)
        self.second = nnx.Linear(64, 64, rngs=rngs)
        self.last = nnx.Linear(64, 2, rngs=rngs)

    def __call__(self, x):
        return self.last(nnx.tanh(self.second(nnx.tanh(self.first(x)))))


def spirals(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, count)
    angle = rng.uniform(0.5, 2 * np.pi, count)
    turned = angle + np.pi * label
    points = np.stack([angle * np.cos(turned), angle * np.sin(turned)], axis=1) / (2 * np.pi)
    return (points + rng.normal(0, 0.02, points.shape)).astype(np.float32), label


def main() -> None:
    data = fedge.Dataset.of(*spirals(2400, seed=1), *spirals(600, seed=2), name="spirals")
    model = fedge.from_nnx(Network, input_shape=(2,), classes=2, name="tanh network")
    results = fedge.compare(
        ["fedavg", "hierfavg"], dataset=data, model=model, clients=12, cells=3, partition="dirichlet", rounds=40,
        local_steps=5, edge_rounds=4, batch=32, lr=0.3, momentum=0.9, eval_every=10,
    )  # fmt: skip
    for name, result in results.items():
        print(f"{name}: {result.final['accuracy']:.1%} on the spirals, {result.parameters} parameters, in {result.out}")


if __name__ == "__main__":
    main()
