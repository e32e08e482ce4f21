"""A second opinion that shares only the draws with the engines: its own model, weights, owners and averages.

Written from the definitions: m_i = |S_i|/|S|, a client trains on its own samples only, the edge's mean is over those
who took part, renormalised, and the cloud's is weighted by all the data in a cell.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedge.core.keys import Purpose, fold, permute
from fedge.core.sampling import SAMPLERS
from fedge.engine import ENGINES
from tests.helpers import distance, small, toy, train


def oracle(made, rounds):
    c, data, key = made.config, toy(), made.job.key
    samples, cell = made.partition.samples, made.partition.cell
    x = (data.x_train / 255 - 0.5) / 0.5

    @jax.jit
    def gradient(w, x, y):
        def loss(w):
            h = jax.nn.relu(x.reshape(len(x), -1) @ w["fc1/kernel"] + w["fc1/bias"])
            logits = h @ w["fc2/kernel"] + w["fc2/bias"]
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

        return jax.grad(loss)(w)

    @jax.jit
    def drawn(key, k, size):
        return SAMPLERS[c.sampler](key, k, 1, c.batch, size)[0]

    w = {p: np.asarray(v, np.float64) for p, v in made.model.initialise(fold(key, Purpose.INIT)).items()}
    for r in range(rounds):
        edges = [w] * c.cells
        for a in range(c.edge_rounds):
            number = r * c.edge_rounds + a
            averaged = []
            for d in range(c.cells):
                members = [i for i in range(c.clients) if cell[i] == d]
                if c.participation < 1:
                    count = max(1, int(np.floor(len(members) * c.participation + 0.5)))
                    draw = permute(fold(key, Purpose.PARTICIPATION, d), jnp.asarray(number), jnp.arange(count),
                                   jnp.asarray(len(members)))  # fmt: skip
                    members = [members[int(p)] for p in draw]
                results = []
                for i in members:
                    mine = edges[d]
                    for b in range(c.local_steps):
                        k, size = jnp.int32(number * c.local_steps + b), jnp.int32(len(samples[i]))
                        own = samples[i][np.asarray(drawn(fold(key, Purpose.BATCH, i), k, size))]
                        g = gradient(mine, x[own], data.y_train[own])
                        mine = {p: mine[p] - c.lr * np.asarray(g[p]) for p in mine}
                    results.append((len(samples[i]), mine))
                total = sum(n for n, _ in results)
                averaged.append({p: sum(n / total * m[p] for n, m in results) for p in w})
            edges = averaged
        held = np.array([sum(len(samples[i]) for i in range(c.clients) if cell[i] == d) for d in range(c.cells)])
        w = {p: sum(held[d] / held.sum() * edges[d][p] for d in range(c.cells)) for p in w}
    return w


@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_engines_agree_with_the_oracle(participation):
    with jax.enable_x64(True):
        made = small(dtype="float64", participation=participation, clients=8, seed=2)
        sizes = [len(s) for s in made.partition.samples]
        assert len(set(sizes)) > 3  # unequal, or the weights would not matter
        expected = oracle(made, 2)
        for engine in ENGINES:
            assert distance(train(made, 2, engine)[0], expected) < 1e-12, engine
