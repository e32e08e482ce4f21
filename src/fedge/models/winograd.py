"""Winograd's F(2 × 2, 3 × 3) is a 3 × 3 convolution with stride 1 in fewer multiplications.

Two outputs of a filter with three taps need four products instead of six, y = Aᵀ [(G g) ⊙ (Bᵀ d)] with the matrices
below; along both axes of an image 2 × 2 outputs need 16 instead of 36. Summed over channels, each of the 16 is a matrix
product, (tiles × channels) · (channels × features); everything else is additions. Both gradients are products of the
same kind. In exact arithmetic it is the convolution, and float32 rounds no more than the plain sum does (measured
against float64). F(4 × 4, 3 × 3) was another tenth faster, with ten times the rounding.

XLA's own convolution cannot be used here: in a compiled loop on a CPU its gradients are 20 times slower. Forward and
both gradients in such a loop on one core (AMD EPYC, 94 GFLOP/s), batch 10, milliseconds:

    images          patches   Winograd   PyTorch
    32 × 32 × 64       39.0       17.2      24.1
    16 × 16 × 128      28.4       12.4      23.7
    8 × 8 × 256        24.5       12.1      21.5
    4 × 4 × 512        26.5       17.1      29.1

Legend: images are B × H × W × C, kernels 3 × 3 × C × F; a grid of arrays is a list of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce

import jax
import jax.numpy as jnp
from jax import Array, lax

Matrix = tuple[tuple[float, ...], ...]
Grid = list[list[Array]]
Padding = tuple[tuple[int, int], tuple[int, int]]

INPUT: Matrix = ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1))  # Bᵀ
KERNEL: Matrix = ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1))  # G
OUTPUT: Matrix = ((1, 1, 1, 0), (0, 1, -1, -1))  # Aᵀ
CHANNELS, PIXELS = 16, 128


def serves(x: Array, kernel: Array, strides: Sequence[int], padding: Padding) -> bool:
    """Say whether this form is the faster one for a convolution on a CPU.

    Measured: with 8 channels the products are too thin (0.6 to 0.9 times the speed of patches, with 16 1.0 to 1.5), and
    for fewer outputs than weights are worth transforming for (90 in a batch: 0.7, 40: 0.8, 160: 1.1 to 1.7) as well.
    """
    outputs = len(x) * math.prod(size + sum(pad) - 2 for size, pad in zip(x.shape[1:3], padding, strict=True))
    exact = x.dtype == kernel.dtype and x.dtype in (jnp.float32, jnp.float64)
    large = min(kernel.shape[2:]) >= CHANNELS and outputs >= PIXELS
    return exact and large and kernel.shape[:2] == (3, 3) and tuple(strides) == (1, 1)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def convolve(x: Array, kernel: Array, padding: Padding) -> Array:
    """Convolve images with a kernel."""
    return _forward(x, kernel, padding)[0]


@partial(jax.jit, static_argnums=2)
def _forward(x: Array, kernel: Array, padding: Padding) -> tuple[Array, tuple[Grid, Grid]]:
    factors = _through(KERNEL, [list(row) for row in kernel])
    y, tiles = _product(x, factors, padding)
    return y, (tiles, factors)


@partial(jax.jit, static_argnums=0)
def _backward(padding: Padding, kept: tuple[Grid, Grid], gradient: Array) -> tuple[Array, Array]:
    """Return both gradients. That of the images is a convolution with the kernel turned by half a turn, which
    makes the first and the last of the four factors along each axis change places."""
    tiles, factors = kept
    turned = [[factors[i][j].T for j in (3, 1, 2, 0)] for i in (3, 1, 2, 0)]
    (top, bottom), (left, right) = padding
    of_images, _ = _product(gradient, turned, ((2 - top, 2 - bottom), (2 - left, 2 - right)))
    spread = _through(_transposed(OUTPUT), _every_second(_pad(gradient, ((0, 0), (0, 0))), 2))
    taps = _through(_transposed(KERNEL), _each(_sum, tiles, spread))
    return of_images, jnp.stack([jnp.stack(row) for row in taps])


convolve.defvjp(_forward, _backward)


def _product(x: Array, factors: Grid, padding: Padding) -> tuple[Array, Grid]:
    """Convolve images with a transformed kernel; also give their tiles, which the kernel's gradient is made of."""
    rows, columns = (size + sum(pad) - 2 for size, pad in zip(x.shape[1:3], padding, strict=True))
    tiles = _through(INPUT, _every_second(_pad(x, padding), 4))
    return _interleave(_through(OUTPUT, _each(_mix, tiles, factors)))[:, :rows, :columns], tiles


def _pad(x: Array, padding: Padding) -> Array:
    """Give the images a border of zeros (cut off where it is negative), and an even number of rows and columns."""
    even = [(low, high + (size + low + high) % 2, 0) for size, (low, high) in zip(x.shape[1:3], padding, strict=True)]
    return lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), *even, (0, 0, 0)])


def _through(matrix: Matrix, grid: Grid) -> Grid:
    """Compute matrix · grid · matrixᵀ."""
    columns = [_combine(matrix, [row[j] for row in grid]) for j in range(len(grid[0]))]
    return [_combine(matrix, list(row)) for row in zip(*columns, strict=True)]


def _combine(matrix: Matrix, arrays: list[Array]) -> list[Array]:
    """Compute matrix · arrays, without the products by 0 and 1."""

    def term(factor: float, array: Array) -> Array:
        return array if factor == 1 else factor * array

    rows = [[term(f, a) for f, a in zip(row, arrays, strict=True) if f] for row in matrix]
    return [reduce(jnp.add, row) for row in rows]


def _transposed(matrix: Matrix) -> Matrix:
    return tuple(zip(*matrix, strict=True))


def _each(function: Callable[[Array, Array], Array], a: Grid, b: Grid) -> Grid:
    return [[function(*pair) for pair in zip(*rows, strict=True)] for rows in zip(a, b, strict=True)]


def _mix(x: Array, factor: Array) -> Array:
    """Mix the channels of each pixel."""
    return (x.reshape(-1, x.shape[3]) @ factor).reshape(*x.shape[:3], -1)


def _sum(x: Array, y: Array) -> Array:
    """Sum the outer products of channels over all pixels."""
    return x.reshape(-1, x.shape[3]).T @ y.reshape(-1, y.shape[3])


def _every_second(x: Array, taps: int) -> Grid:
    """Return what each tap of a window sees that goes over the image in steps of two."""
    rows, columns = (size - taps + 1 for size in x.shape[1:3])
    return [[x[:, i : i + rows : 2, j : j + columns : 2] for j in range(taps)] for i in range(taps)]


def _interleave(grid: Grid) -> Array:
    """Put the pixels of 2 × 2 tiles where they belong."""
    b, h, w, c = grid[0][0].shape
    return jnp.stack([jnp.stack(row, 3) for row in grid], 2).reshape(b, 2 * h, 2 * w, c)
