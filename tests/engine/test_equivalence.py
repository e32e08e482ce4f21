"""reference = vectorised, for small models × partitions × samplers and a narrow ResNet-18: 1e-5, in float64 1e-12."""

from contextlib import nullcontext
from itertools import product

import jax
import pytest

from fedge.core.sampling import SAMPLERS
from fedge.data import PARTITIONS
from fedge.engine import ENGINES
from tests.helpers import distance, small, train

SIZES = {
    "mlp": {},
    "cnn": {"batch": 3},
    # In float32 a rounding difference can flip the sign of a ReLU's input, and the gradient jumps: with lr 0.01 the
    # engines differ by 5e-5 here, with a smooth activation in ReLU's place by 2e-7. Hence the small rate. ResNet-18 has
    # 700,000 such inputs in a batch of five: over 8 draws its float32 gradient is 1.4e-6 to 2.4e-6 from float64's, with
    # Winograd's convolutions as with patches, but 7e-3 to 8e-3 where one sign flips (once with Winograd, twice with
    # patches), and 1.7e-6 again where signs are held. So in float32 its depth is a lottery, and float64 tests it.
    "shallow": {"clients": 4, "cells": 2, "local_steps": 1, "batch": 5, "lr": 0.001},
    "narrow": {"clients": 2, "cells": 2, "local_steps": 1, "batch": 5, "lr": 0.001},
}

ALL = tuple(PARTITIONS)
MLP = [("mlp", ALL, *rest) for rest in product(SAMPLERS, ("float32", "float64"))]
# What is drawn does not concern the model, nor who holds it, and its depth only once.
OTHERS = [("cnn", ALL, "epoch", "float32"), ("cnn", ALL, "iid", "float64"),
          ("shallow", ("one_class",), "epoch", "float64"), ("shallow", ("dirichlet",), "epoch", "float32"),
          ("narrow", ("iid",), "iid", "float64")]  # fmt: skip


@pytest.mark.parametrize(("model", "partitions", "sampler", "dtype"), MLP + OTHERS)
def test_engines_agree(model, partitions, sampler, dtype):
    """Partitions of one shape are trained by one compiled program, as in a sweep."""
    machines = {}
    for partition in partitions:
        keys = SIZES[model] | {"model": model, "partition": partition, "sampler": sampler, "dtype": dtype}
        rounds = 1 if model in ("shallow", "narrow") else 2
        with jax.enable_x64(True) if dtype == "float64" else nullcontext():
            made = small(**keys)
            (naive, losses), (fast, same) = (train(made, rounds, name, machines) for name in ENGINES)
            assert {str(naive[p].dtype) for p in naive} == {dtype}
            assert distance(naive, fast) < (1e-5 if dtype == "float32" else 1e-12), partition
            assert losses == pytest.approx(same, rel=1e-5 if dtype == "float32" else 1e-12), partition
            trainable = made.model.trainable
            moved = {p: w for p, w in naive.items() if p in trainable}
            before = {p: w for p, w in made.evaluated(made.start).items() if p in trainable}
            assert distance(moved, before) > 1e-4, partition
    assert len(machines) <= 4  # `drawn` has another number of samples
