"""The network peers train the same model by the same step: 784-300-10 in NumPy, a step of SGD on ten samples.

Samples are drawn, for no accuracy is looked at: sizes and work are those of fedge's clients with `batch=10`.
"""

from __future__ import annotations

import numpy as np

SHAPES = {"fc1/kernel": (784, 300), "fc1/bias": (300,), "fc2/kernel": (300, 10), "fc2/bias": (10,)}
BATCH, LR = 10, 0.01


def start() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: (0.05 * rng.standard_normal(shape)).astype(np.float32) for name, shape in SHAPES.items()}


def step(weights: dict[str, np.ndarray], client: int, index: int) -> dict[str, np.ndarray]:
    """Return the weights after one step on a minibatch that client and round tell."""
    rng = np.random.default_rng([client, index])
    x, y = rng.random((BATCH, 784), np.float32), rng.integers(0, 10, BATCH)
    w1, b1, w2, b2 = (weights[name] for name in SHAPES)
    hidden = np.maximum(x @ w1 + b1, 0)
    logits = hidden @ w2 + b2
    share = np.exp(logits - logits.max(1, keepdims=True))
    error = share / share.sum(1, keepdims=True)
    error[np.arange(BATCH), y] -= 1
    error /= BATCH
    back = (error @ w2.T) * (hidden > 0)
    moves = (x.T @ back, back.sum(0), hidden.T @ error, error.sum(0))
    return {name: (w - LR * g).astype(np.float32) for (name, w), g in zip(weights.items(), moves, strict=True)}
