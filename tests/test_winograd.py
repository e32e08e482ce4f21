"""A form of 3 × 3 convolutions for a CPU: it is the convolution, in value and gradients, and used where it pays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fedge.models import winograd
from fedge.models.layers import IMAGE_AXES, client_conv

KEY = jax.random.key(0)


def plain(x, kernel, padding):
    return lax.conv_general_dilated(x, kernel, (1, 1), padding, dimension_numbers=IMAGE_AXES)


def draw(dtype, *shapes):
    return [jax.random.normal(k, s, dtype) for k, s in zip(jax.random.split(KEY, len(shapes)), shapes, strict=True)]


def with_gradients(convolution, x, kernel, weigh):
    value, back = jax.vjp(convolution, x, kernel)
    return value, *back(weigh[tuple(map(slice, value.shape))])


@pytest.mark.parametrize(
    ("size", "padding", "channels", "dtype", "tolerance"),
    [
        ((5, 6), ((1, 1), (1, 1)), (21, 5), jnp.float64, 1e-12),
        ((4, 3), ((0, 1), (3, 2)), (1, 2), jnp.float64, 1e-12),
        ((7, 5), ((0, 0), (2, 0)), (5, 21), jnp.float32, 2e-5),
    ],
)
def test_it_is_the_convolution(size, padding, channels, dtype, tolerance):
    """Odd and even sizes, any border on each side (wider than the kernel reaches, too), single and double precision."""
    with jax.enable_x64(True):
        x, kernel, weigh = draw(dtype, (2, *size, channels[0]), (3, 3, *channels), (2, 8, 8, channels[1]))
        expected, found = (
            with_gradients(lambda x, k, f=f: f(x, k, padding), x, kernel, weigh) for f in (plain, winograd.convolve)
        )
        for a, b in zip(found, expected, strict=True):
            assert a.dtype == dtype
            np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * max(1, float(jnp.abs(b).max())))


def test_each_client_has_its_own_kernel():
    padding = ((1, 1), (1, 1))
    x, kernel, weigh = draw(jnp.float32, (3, 2, 5, 4, 4), (3, 3, 3, 4, 5), (3, 2, 5, 4, 5))
    together = jax.vmap(lambda *a: with_gradients(lambda x, k: winograd.convolve(x, k, padding), *a))(x, kernel, weigh)
    for i in range(3):
        alone = with_gradients(lambda x, k: plain(x, k, padding), x[i], kernel[i], weigh[i])
        for a, b in zip(together, alone, strict=True):
            np.testing.assert_allclose(a[i], b, rtol=0, atol=2e-5 * float(jnp.abs(b).max()))


@pytest.mark.parametrize(
    ("other", "used"),
    [
        ({}, True), ({"channels": 8}, False), ({"features": 8}, False), ({"images": 1}, False), ({"taps": 5}, False),
        ({"stride": 2}, False), ({"dtype": jnp.bfloat16}, False), ({"backend": "gpu"}, False),
    ],
)  # fmt: skip
def test_where_it_is_used(other, used, monkeypatch):
    """Thin products, few outputs, other windows and half precision keep patches; so does every convolution on a GPU."""
    form = {"images": 2, "channels": 16, "features": 16, "taps": 3, "stride": 1, "dtype": jnp.float32, "backend": "cpu"}
    form |= other
    called = []
    monkeypatch.setattr(winograd, "convolve", lambda *a: called.append(a) or plain(*a))
    monkeypatch.setattr(jax, "default_backend", lambda: form["backend"])
    x = jnp.zeros((form["images"], 8, 8, form["channels"]), form["dtype"])
    kernel = jnp.zeros((form["taps"], form["taps"], form["channels"], form["features"]), form["dtype"])
    jax.eval_shape(lambda x, k: client_conv(x, k, (form["stride"],) * 2, "SAME"), x, kernel)
    assert bool(called) == used
