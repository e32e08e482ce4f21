"""Robust rules in ByzFL: the same models as fedge's rules combine.

    python byzfl_rules.py write FILE.npz      in fedge's environment: models, and what fedge makes of them
    python byzfl_rules.py FILE.npz            in ByzFL's (byzfl.txt): prints one JSON object, rule → largest difference

All in float64, with equal shares, since ByzFL has no others, and updates from a model of zeros, from which ByzFL's
geometric median and clipping begin. ByzFL's Krum takes the n − f − 1 nearest and not the paper's n − f − 2, and its
multi-Krum the best n − f, so both are asked for one attacker more than fedge's are.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version

import numpy as np

N, SIZE, ATTACKERS = 15, 1000, 3
RULES = ("median", "trimmed:0.2", "krum:3", "multikrum:3:11", "geometric", "clip:20.0")


def write(path: str) -> None:
    """Write 12 models near each other and 3 far away, and what each rule of fedge makes of them."""
    import jax
    import jax.numpy as jnp

    from fedge.updates.rules import rule_of

    rng = np.random.default_rng(15)
    models = rng.normal(size=(N, SIZE))
    models[:ATTACKERS] = 10 * rng.normal(size=(ATTACKERS, SIZE)) + 5
    made = {}
    with jax.enable_x64(True):
        shares, began = jnp.full(N, 1 / N), jnp.zeros(SIZE)
        halves = lambda w: {"a": w[..., : SIZE // 3], "b": w[..., SIZE // 3 :]}  # noqa: E731
        for name in RULES:
            w = rule_of(name).combine(shares, halves(jnp.asarray(models)), halves(began))
            made[name] = np.concatenate([w["a"], w["b"]])
    np.savez(path, models=models, **made)


def compare(path: str) -> None:
    import byzfl

    file = np.load(path)
    theirs = {
        "median": byzfl.Median(),
        "trimmed:0.2": byzfl.TrMean(f=3),
        "krum:3": byzfl.Krum(f=4),
        "multikrum:3:11": byzfl.MultiKrum(f=4),
        "geometric": byzfl.GeometricMedian(nu=1e-6, T=8),
        "clip:20.0": byzfl.CenteredClipping(L=1, tau=20.0),
    }
    apart = {name: float(np.abs(made(file["models"]) - file[name]).max()) for name, made in theirs.items()}
    print(json.dumps({"largest_difference": apart, "versions": {p: version(p) for p in ("byzfl", "torch", "numpy")}}))


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2])
    else:
        compare(sys.argv[1])
