"""Run FedAvg in FedJAX: the same run as fedge's.

    python fedjax_sim.py mlp|cnn FILE.npz [--backend jit|pmap]     prints one JSON object

FedJAX's own federated_averaging, optimisers and Haiku model wrapper; only the dataset of a client's batches is ours.
"jit", its default, runs one client after the other in one process and leaves the threads to XLA; "pmap" runs two
clients at a time on two CPU devices. A round is one call of the algorithm, ended by waiting for its result. FedAvg
there reports no training loss.
"""

import os
import sys
import time
from collections.abc import Iterator

BACKEND = sys.argv[4] if sys.argv[3:4] == ["--backend"] else "jit"
if BACKEND == "pmap":
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"

import fedjax
import haiku as hk
import jax
import numpy as np

from common import LR, Workload, read, report

NAMES = {"kernel": "w", "bias": "b"}  # of fedge and of Haiku


class Batches(fedjax.ClientDataset):
    """These are a client's batches of one round, in the given order."""

    def __init__(self, raw_examples: dict[str, np.ndarray], indices: np.ndarray) -> None:
        super().__init__(raw_examples)
        self.indices = indices

    def __len__(self) -> int:
        return self.indices.size

    def shuffle_repeat_batch(self, hparams: object = None, **_: object) -> Iterator[dict[str, np.ndarray]]:
        return ({key: value[index] for key, value in self.raw_examples.items()} for index in self.indices)


def model(name: str) -> fedjax.Model:
    def forward(batch: dict[str, jax.Array]) -> jax.Array:
        x = batch["x"]
        if name == "mlp":
            return hk.Linear(10, name="fc2")(jax.nn.relu(hk.Linear(300, name="fc1")(hk.Flatten()(x))))
        for layer, channels in (("conv1", 10), ("conv2", 20)):
            x = hk.Conv2D(channels, 5, padding="VALID", name=layer)(x)
            x = jax.nn.relu(hk.max_pool(x, (2, 2, 1), (2, 2, 1), "VALID"))
        return hk.Linear(10, name="fc2")(jax.nn.relu(hk.Linear(50, name="fc1")(hk.Flatten()(x))))

    def loss(batch: dict[str, jax.Array], logits: jax.Array) -> jax.Array:
        return fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], logits)

    sample = {"x": np.zeros((1, 28, 28, 1), np.float32), "y": np.zeros(1, np.int32)}
    return fedjax.create_model_from_haiku(hk.transform(forward), sample, loss)


def start(work: Workload) -> dict[str, dict[str, np.ndarray]]:
    layers: dict[str, dict[str, np.ndarray]] = {}
    for path, value in work.start.items():
        layer, kind = path.split("/")
        layers.setdefault(layer, {})[NAMES[kind]] = jax.numpy.asarray(value)
    return layers


def main() -> None:
    work = read()
    work.require_equal_weights()  # FedJAX weighs by the number of samples
    fedjax.set_for_each_client_backend(BACKEND)
    if BACKEND == "pmap":
        jax.config.update("jax_pmap_no_rank_reduction", False)  # FedJAX expects pmap's shards as they were until 2024
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        fedjax.model_grad(model(work.name)), fedjax.optimizers.sgd(LR), fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(batch_size=work.indices.shape[-1]),
    )  # fmt: skip
    state, seconds = algorithm.init(start(work)), []
    keys, examples = jax.random.split(jax.random.PRNGKey(0), work.clients), {"x": work.x, "y": work.y}
    for r in range(work.rounds):
        began = time.perf_counter()
        clients = [(i, Batches(examples, work.indices[i, r]), keys[i]) for i in range(work.clients)]
        state, _ = algorithm.apply(state, clients)
        jax.block_until_ready(state.params)
        seconds.append(time.perf_counter() - began)
    final = {f"{layer}/{kind}": value[name] for layer, value in state.params.items() for kind, name in NAMES.items()}
    report(work, seconds, final, None, "fedjax", "jax", "dm-haiku")


if __name__ == "__main__":
    main()
