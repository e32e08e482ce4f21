"""A probe measures, at one model w, the numbers that convergence theories assume to be bounded.

| here | what is measured at w | the papers' |
|---|---|---|
| loss | F(w) = Σ_i m_i F_i(w), F_i the mean over client i's samples | Δ = F(w_0) − F*, and F* ≥ 0 for usual losses |
| gradient2 | ‖∇F(w)‖² | what the theorems bound, as a mean over iterations |
| apart, apart_most | Σ_i m_i ‖∇F_i − ∇F‖², max_i ‖∇F_i − ∇F‖² | κ² (SD-FEEL) |
| cells_apart | Σ_d m̃_d ‖∇f_d − ∇F‖², f_d the mean over cell d | δ1² (HIST) |
| within_cells | Σ_i m_i ‖∇F_i − ∇f_d(i)‖² | δ2² (HIST) |
| noise_most | max_i E‖g_i − ∇F_i‖², g_i a minibatch's gradient | σ² (SD-FEEL, HIST) |
| layers | max_i of ‖∇_l F_i‖² and of E‖g_i,l − ∇_l F_i‖², layer by layer | G_l², σ_l² (HierSFL) |
| curvature | max_i |λ|(∇²F_i), over `CURVED` clients | L |
| norm2 | ‖w‖² | X (HIST) |

Gradients are exact: over all samples of a client. So is the variance of one sample's gradient where a client has at
most `SAMPLES`; else it is an unbiased estimate from as many. A minibatch's is that divided by its size, as of samples
drawn independently. Power iterations approach the curvature from below.

Shape legend: C clients, D cells, L layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from fedge.core import forms, tree
from fedge.core.client import Data, Samples, Task
from fedge.core.keys import Purpose, fold, permute
from fedge.core.topology import Topology
from fedge.core.tree import Weights

CHUNK = 50  # samples whose gradient is taken at once
SAMPLES = 100  # of a client, for the variance of its gradients
SAMPLES_AT_ONCE = 10  # each with a gradient of its own
CURVED = 4  # clients whose curvature is found
TURNS = 60  # power iterations at most
SETTLED = 1e-3  # relative change of the curvature at which they end


@dataclass(frozen=True)
class Measured:
    loss: float
    gradient2: float
    apart: float
    apart_most: float
    cells_apart: float
    within_cells: float
    noise_most: float
    noise_error: float  # standard error of noise_most, from the samples drawn; 0 where all were looked at
    layer_gradient2: tuple[float, ...]
    layer_noise: tuple[float, ...]
    curvature: float
    curvature_error: float  # ‖Hv − λv‖: an eigenvalue lies so close
    norm2: float


class Spread(NamedTuple):
    """This is what one client's gradient tells, beside the whole's and its cell's."""

    apart: Array
    from_cell: Array
    gradient2: Array  # L
    noise: Array  # L
    error: Array


class Probe:
    """This measures models of one job: its programs are compiled once."""

    def __init__(
        self,
        task: Task,
        data: Data,
        topology: Topology,
        layer_of: Callable[[str], str],
        layers: Sequence[str],
        key: Array,
    ) -> None:
        self._task, self._topology = task, topology
        self._data = Data(*(jnp.asarray(part) for part in data))
        self._layers, self._layer_of, self._key = tuple(layers), layer_of, key
        most = np.linspace(0, topology.clients - 1, min(CURVED, topology.clients)).astype(np.int32)
        self._curved = jnp.asarray(np.unique(most))
        self._cell = jnp.asarray(topology.cell)
        self._share = jnp.asarray(topology.weight, task.dtype)  # m
        self._cell_weight = jnp.asarray(topology.cell_weight, task.dtype)  # m̃
        self._means = jax.jit(self._all_means)
        self._spreads = jax.jit(self._all_spreads)
        self._curvature = jax.jit(self._all_curvatures)

    def measure(self, weights: Weights) -> Measured:
        with forms.plain():
            loss, cells = self._means(self._data, weights)
            spreads = jax.tree.map(np.asarray, self._spreads(self._data, weights, cells))
            curvature, error = jax.tree.map(np.asarray, self._curvature(self._data, weights))
        whole = tree.weighted_sum(self._cell_weight, cells)
        gap = {path: g - whole[path] for path, g in cells.items()}
        m, noise = self._topology.weight, spreads.noise.sum(1)
        noisiest, steepest = int(noise.argmax()), int(curvature.argmax())
        return Measured(
            loss=float(loss),
            gradient2=float(_square(whole)),
            apart=float(m @ spreads.apart),
            apart_most=float(spreads.apart.max()),
            cells_apart=float(self._topology.cell_weight @ np.asarray(jax.vmap(_square)(gap))),
            within_cells=float(m @ spreads.from_cell),
            noise_most=float(noise[noisiest]),
            noise_error=float(spreads.error[noisiest]),
            layer_gradient2=tuple(map(float, spreads.gradient2.max(0))),
            layer_noise=tuple(map(float, spreads.noise.max(0))),
            curvature=float(curvature[steepest]),
            curvature_error=float(error[steepest]),
            norm2=float(_square(weights)),
        )

    def loss_after_step(self, weights: Weights, lr: float) -> float:
        """Return F(w − γ∇F(w)): the loss after an iteration whose minibatches were all samples."""
        with forms.plain():
            whole = tree.weighted_sum(self._cell_weight, self._means(self._data, weights)[1])
            moved = weights | {path: weights[path] - lr * g for path, g in whole.items()}
            return float(self._means(self._data, moved)[0])

    # One client

    def _mean_loss(self, params: Weights, rest: Weights, own: Samples, at: Array, count: Array) -> Array:
        """Sum the loss over the samples at these places of a client that it has, divided by `count`."""
        rows = own.rows[own.first + jnp.minimum(at, own.size - 1)]
        x, y = self._task.inputs(own, rows)
        outputs, _ = self._task.forward(params | rest, x, train=True, key=self._key)
        each = self._task.objective.loss(outputs, y)
        return jnp.where(at < own.size, each, 0).sum() / count

    def _gradient(self, params: Weights, rest: Weights, own: Samples) -> tuple[Array, Weights]:
        """Return F_i and ∇F_i, chunk by chunk."""

        def add(n: Array, sums: tuple[Array, Weights]) -> tuple[Array, Weights]:
            at = n * CHUNK + jnp.arange(CHUNK, dtype=jnp.int32)
            loss, gradient = jax.value_and_grad(self._mean_loss)(params, rest, own, at, own.size)
            return sums[0] + loss, tree.add(sums[1], gradient)

        chunks = (own.size + CHUNK - 1) // CHUNK
        nothing = (jnp.zeros((), self._task.dtype), jax.tree.map(jnp.zeros_like, params))
        return jax.lax.fori_loop(0, chunks, add, nothing)

    def _noise(self, params: Weights, rest: Weights, own: Samples, client: Array, mean: Weights) -> tuple[Any, Any]:
        """Return the variance of a minibatch's gradient, layer by layer, and the standard error of its sum."""
        count = jnp.minimum(own.size, SAMPLES)
        turn = jnp.arange(-(-SAMPLES // SAMPLES_AT_ONCE) * SAMPLES_AT_ONCE, dtype=jnp.int32)
        place = permute(fold(self._key, Purpose.PROBE, client), jnp.int32(0), jnp.minimum(turn, count - 1), own.size)

        def deviation(at: Array) -> Array:
            gradient = jax.grad(self._mean_loss)(params, rest, own, at[None], jnp.ones((), self._task.dtype))
            return self._by_layer(tree.subtract(gradient, mean))

        deviations = jax.lax.map(deviation, place, batch_size=SAMPLES_AT_ONCE)  # squared: samples × L
        used = (turn < count)[:, None]
        # ‖g_s − ∇F_i‖² about the exact mean has the variance as its expectation, for a sample as for all of them.
        mean2 = jnp.where(used, deviations, 0).sum(0) / count
        total = deviations.sum(1)
        scatter = jnp.where(used[:, 0], (total - mean2.sum()) ** 2, 0).sum() / jnp.maximum(count - 1, 1) / count
        missing = 1 - count / own.size  # drawn without replacement: nothing is uncertain where all were drawn
        return mean2 / self._task.batch, jnp.sqrt(scatter * missing) / self._task.batch

    def _by_layer(self, gradient: Weights) -> Array:
        found = {layer: jnp.zeros((), self._task.dtype) for layer in self._layers}
        for path, g in gradient.items():
            found[self._layer_of(path)] += (g**2).sum()
        return jnp.stack(list(found.values()))

    # All clients

    def _parts(self, weights: Weights) -> tuple[Weights, Weights]:
        return tree.split(weights, self._task.trainable.__contains__)

    def _all_means(self, data: Data, weights: Weights) -> tuple[Array, Weights]:
        """Return F and the cells' mean gradients, D of them."""
        params, rest = self._parts(weights)

        def add(sums: tuple[Array, Weights], client: Array) -> tuple[tuple[Array, Weights], None]:
            loss, gradient = self._gradient(params, rest, data.of(client))
            share, cell = self._share[client], self._cell[client]
            cells = {
                path: own.at[cell].add(share / self._cell_weight[cell] * gradient[path])
                for path, own in sums[1].items()
            }
            return (sums[0] + share * loss, cells), None

        nothing = {path: jnp.zeros((self._topology.cells, *w.shape), w.dtype) for path, w in params.items()}
        clients = jnp.arange(self._topology.clients, dtype=jnp.int32)
        return jax.lax.scan(add, (jnp.zeros((), self._task.dtype), nothing), clients)[0]

    def _all_spreads(self, data: Data, weights: Weights, cells: Weights) -> Spread:
        params, rest = self._parts(weights)
        whole = tree.weighted_sum(self._cell_weight, cells)

        def one(client: Array) -> Spread:
            own = data.of(client)
            gradient = self._gradient(params, rest, own)[1]
            of_cell = {path: g[self._cell[client]] for path, g in cells.items()}
            noise, error = self._noise(params, rest, own, client, gradient)
            return Spread(
                apart=_square(tree.subtract(gradient, whole)),
                from_cell=_square(tree.subtract(gradient, of_cell)),
                gradient2=self._by_layer(gradient),
                noise=noise,
                error=error,
            )

        return jax.lax.map(one, jnp.arange(self._topology.clients, dtype=jnp.int32))

    def _all_curvatures(self, data: Data, weights: Weights) -> tuple[Array, Array]:
        """Return the largest |eigenvalue| of some clients' Hessians, and how far from an eigenvector each ended."""
        params, rest = self._parts(weights)

        def one(client: Array) -> tuple[Array, Array]:
            own = data.of(client)
            slope = partial(self._gradient, rest=rest, own=own)

            def bent(v: Weights) -> Weights:
                return jax.jvp(lambda p: slope(p)[1], (params,), (v,))[1]

            def unit(v: Weights) -> Weights:
                return tree.scale(1 / jnp.maximum(jnp.sqrt(_square(v)), 1e-30), v)

            def turn(state: tuple[Array, Weights, Array, Array, Array]) -> tuple[Array, Weights, Array, Array, Array]:
                n, v, _, size, _ = state
                image = bent(v)
                value = sum((image[path] * v[path]).sum() for path in v)
                left = jnp.sqrt(_square({path: image[path] - value * v[path] for path in v}))
                return n + 1, unit(image), size, jnp.abs(jnp.asarray(value)), left

            def goes_on(state: tuple[Array, Weights, Array, Array, Array]) -> Array:
                n, _, before, size, _ = state
                return (n < TURNS) & ((n < 2) | (jnp.abs(size - before) > SETTLED * size))

            keys = jax.random.split(fold(self._key, Purpose.PROBE, self._topology.clients, client), len(params))
            start = {p: jax.random.normal(k, w.shape, w.dtype) for k, (p, w) in zip(keys, params.items(), strict=True)}
            zero = jnp.zeros((), self._task.dtype)
            _, _, _, size, left = jax.lax.while_loop(goes_on, turn, (jnp.int32(0), unit(start), zero, zero, zero))
            return size, left

        return jax.lax.map(one, self._curved)


def _square(v: Weights) -> Array:
    return jnp.asarray(sum((x**2).sum() for x in v.values()))


def mean_over(at: Sequence[float], values: Sequence[float]) -> float:
    """Return the mean of what was measured at these iterations, by the trapezoid rule."""
    x: NDArray[np.float64] = np.asarray(at, np.float64)
    return float(np.trapezoid(values, x) / (x[-1] - x[0])) if len(x) > 1 and x[-1] > x[0] else float(values[0])
