"""Layers have here the form that stays fast when every client has its own weights.

A convolution whose kernel differs per client would become a grouped convolution under `vmap`, which is 4 to 11 times
slower on a GPU and 6 on a CPU than the same sum written as slices and one matrix product.

Small images with few channels (`conv_max_pool`) are computed with the batch innermost, (C, H, W, B): then slices are
long runs of memory, and the matrix products are short and wide, (F × KKC) · (KKC × HWB), which a CPU core multiplies at
its peak rate; with channels innermost they reach a fifth of it. The whole CNN step takes half the time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array, lax

from fedge.core.forms import is_plain
from fedge.models import winograd

_ONE_KERNEL: ContextVar[bool] = ContextVar("one kernel", default=False)
IMAGE_AXES = ("NHWC", "HWIO", "NHWC")


@contextmanager
def one_kernel() -> Iterator[None]:
    """Trace a program in which all images meet the same kernels: off the CPU, `lax.conv` is the better form."""
    token = _ONE_KERNEL.set(jax.default_backend() != "cpu")
    try:
        yield
    finally:
        _ONE_KERNEL.reset(token)


def client_conv(
    lhs: Array,
    rhs: Array,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = IMAGE_AXES,
    feature_group_count: int = 1,
    precision: Any = None,
    **rest: Any,
) -> Array:
    """Do what `lax.conv_general_dilated` does to NHWC images and HWIO kernels, by slices and a matrix product.

    Larger 3 × 3 convolutions have faster forms: `winograd` on a CPU, `kernels` on a GPU in bfloat16. What there is no
    form for (dilation, groups, other ranks) goes to `lax`.
    """
    dilated = any(d != 1 for d in (*(lhs_dilation or ()), *(rhs_dilation or ())))
    if is_plain() or _ONE_KERNEL.get() or lhs.ndim != 4 or dilated or feature_group_count != 1:
        return lax.conv_general_dilated(
            lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers,
            feature_group_count=feature_group_count, precision=precision, **rest,
        )  # fmt: skip
    height, width, channels, features = rhs.shape
    if isinstance(padding, str):
        padding = lax.padtype_to_pads(lhs.shape[1:3], (height, width), window_strides, padding)
    if lhs.dtype == jnp.bfloat16 and jax.default_backend() == "gpu":
        from fedge.models import kernels  # only now: elsewhere they cannot run

        if kernels.serves(lhs, rhs, (window_strides[0], window_strides[1]), padding) and kernels.at_hand():
            return kernels.convolve(lhs, rhs, window_strides[0], padding[0][0])
    (top, bottom), (left, right) = padding
    border = (top, bottom), (left, right)
    if jax.default_backend() == "cpu" and winograd.serves(lhs, rhs, window_strides, border):
        return winograd.convolve(lhs, rhs, border)
    found = patches(lhs, (height, width), window_strides, padding)
    flat = jnp.dot(found.reshape(-1, height * width * channels), rhs.reshape(-1, features), precision=precision)
    return flat.reshape(*found.shape[:3], features)


def patches(x: Array, taps: tuple[int, int], stride: Sequence[int], padding: Sequence[tuple[int, int]]) -> Array:
    """Collect what each output of a convolution sees of B × H × W × C images: B × R × S × taps · C."""
    if any(tuple(p) != (0, 0) for p in padding):
        x = jnp.pad(x, ((0, 0), *(tuple(p) for p in padding), (0, 0)))
    last = [(size - taps[d]) // stride[d] * stride[d] + 1 for d, size in enumerate(x.shape[1:3])]
    window = [
        x[:, i : i + last[0] : stride[0], j : j + last[1] : stride[1]] for i in range(taps[0]) for j in range(taps[1])
    ]
    return window[0] if len(window) == 1 else jnp.concatenate(window, axis=-1)


def max_pool(x: Array, size: int) -> Array:
    """Pool NHWC images by the maxima of windows that do not overlap; rows and columns that fill none are dropped."""
    b, h, w, c = x.shape
    h, w = h // size, w // size
    return x[:, : h * size, : w * size].reshape(b, h, size, w, size, c).max((2, 4))


def conv_max_pool(x: Array, kernel: Array, bias: Array) -> Array:
    """Convolve without padding and pool the result, 2 × 2, by its maxima; NHWC in and out, HWIO kernel."""
    if is_plain() or _ONE_KERNEL.get():
        return max_pool(client_conv(x, kernel, (1, 1), "VALID") + bias, 2)
    x = x.transpose(3, 1, 2, 0)
    height, width, channels, features = kernel.shape
    h, w, b = x.shape[1] - height + 1, x.shape[2] - width + 1, x.shape[3]
    # Patches in two strides, each of long runs: first along the columns, then along the rows.
    across = jnp.stack([x[:, :, j : j + w].reshape(channels, -1, w * b) for j in range(width)])
    patches = jnp.stack([across[:, :, i : i + h].reshape(width, channels, -1) for i in range(height)])
    z = _multiply(kernel.reshape(-1, features), patches.reshape(height * width * channels, -1))
    z = z.reshape(features, h, w, b)[:, : h // 2 * 2, : w // 2 * 2]
    z = _maximum(2, z.reshape(features, h // 2, 2, -1))
    z = _maximum(3, z.reshape(features, h // 2, w // 2, 2, b))
    return (z + bias[:, None, None, None]).transpose(3, 1, 2, 0)


@jax.custom_vjp
def _multiply(kernel: Array, patches: Array) -> Array:
    """Multiply (KKC × F)ᵀ · (KKC × HWB).

    On a CPU the small factor is transposed beforehand: XLA has a faster product then, which it would give up to save
    the transposition. The gradients are best left as they are.
    """
    turned = lax.optimization_barrier(kernel.T) if jax.default_backend() == "cpu" else kernel.T
    return turned @ patches


def _multiply_forward(kernel: Array, patches: Array) -> tuple[Array, tuple[Array, Array]]:
    return _multiply(kernel, patches), (kernel, patches)


def _multiply_backward(kept: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    kernel, patches = kept
    return patches @ gradient.T, kernel @ gradient


_multiply.defvjp(_multiply_forward, _multiply_backward)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _maximum(axis: int, pairs: Array) -> Array:
    """Return the larger of the two along an axis; the gradient goes to it, to the first where both are equal."""
    return pairs.max(axis)


def _maximum_forward(axis: int, pairs: Array) -> tuple[Array, Array]:
    first, second = (lax.index_in_dim(pairs, i, axis, keepdims=False) for i in (0, 1))
    return pairs.max(axis), first >= second


def _maximum_backward(axis: int, first: Array, gradient: Array) -> tuple[Array]:
    return (jnp.stack([jnp.where(first, gradient, 0), jnp.where(first, 0, gradient)], axis),)


_maximum.defvjp(_maximum_forward, _maximum_backward)


# U(±1/√fan_in) for kernels and biases: what the papers' own code, written for PyTorch, starts from.
kernel_init = nnx.initializers.variance_scaling(1 / 3, "fan_in", "uniform")


def bias_init(fan_in: int) -> Callable[..., Array]:
    bound = 1 / math.sqrt(fan_in)

    def draw(key: Array, shape: Any, dtype: Any = jnp.float32, out_sharding: Any = None) -> Array:
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return draw


def linear(
    inputs: int, outputs: int, rngs: nnx.Rngs, *, units_in: str | None = None, units_out: str | None = None
) -> nnx.Linear:
    """Make a linear layer whose input or output axis may carry a unit name."""
    return nnx.Linear(
        inputs, outputs, rngs=rngs, kernel_init=kernel_init, bias_init=bias_init(inputs),
        kernel_metadata={"units": (units_in, units_out)}, bias_metadata={"units": (units_out,)},
    )  # fmt: skip


def conv(
    inputs: int, outputs: int, size: int, rngs: nnx.Rngs, *, strides: int = 1, padding: int = 0, bias: bool = True,
    units_in: str | None = None, units_out: str | None = None,
) -> nnx.Conv:  # fmt: skip
    """Make a square convolution on the client-batched path, its channel axes named."""
    return nnx.Conv(
        inputs, outputs, (size, size), (strides, strides), padding=((padding, padding),) * 2, use_bias=bias, rngs=rngs,
        kernel_init=kernel_init, bias_init=bias_init(inputs * size * size), conv_general_dilated=client_conv,
        kernel_metadata={"units": (None, None, units_in, units_out)}, bias_metadata={"units": (units_out,)},
    )  # fmt: skip
