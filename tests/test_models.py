from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax import lax

from fedge.errors import ConfigError
from fedge.models import from_nnx, kernels, make
from fedge.models.layers import client_conv, conv_max_pool, max_pool
from tests.helpers import shallow

IMAGES = {"mlp": (28, 28, 1), "cnn": (28, 28, 1), "resnet8": (32, 32, 3), "resnet18": (32, 32, 3)}
KEY = jax.random.key(0)


@pytest.mark.parametrize(
    ("name", "count"), [("mlp", 238_510), ("cnn", 21_840), ("resnet8", 78_042), ("resnet18", 11_173_962)]
)
def test_parameter_counts(name, count):
    """ResNet-8: stem 432 + 32; stages 4,672, 14,528 and 57,728 with their projections; head 650."""
    model = make(name, IMAGES[name], 10)
    assert model.parameters == count
    assert {model.stage_of(path) for path in model.template} == set(model.stages)


def test_groupnorm_has_as_many_parameters_and_no_statistics():
    model = make("resnet18", IMAGES["resnet18"], 10, bn="groupnorm")
    assert model.parameters == 11_173_962
    assert not model.has_statistics


def test_resnet_running_statistics():
    """20 BatchNorm layers with 4,800 channels: 9,600 running statistics, counted apart from the parameters."""
    model = make("resnet18", IMAGES["resnet18"], 10)
    statistics = model.travelling - model.trainable
    assert len(statistics) == 40
    assert sum(model.template[p].size for p in statistics) == 9_600


@pytest.mark.parametrize("name", ["mlp", "cnn", "resnet8"])
def test_stages_own_every_parameter_and_compose_to_the_whole(name):
    """Each stage sees only its own weights: that is what a split model's two sides hold."""
    shape = {"mlp": (5, 5, 1), "cnn": (16, 16, 1), "resnet8": (8, 8, 3)}[name]
    model = make(name, shape, 4)
    weights = model.initialise(KEY)
    x = jax.random.normal(KEY, (2, *shape))

    def run(own, x, **stages):
        return jax.jit(lambda own, x: model(own, x, train=False, key=KEY, **stages)[0])(own, x)

    whole = run(weights, x)
    owned = {stage: {p: w for p, w in weights.items() if model.stage_of(p) == stage} for stage in model.stages}
    assert sum(len(own) for own in owned.values()) == len(weights)
    for stage in model.stages:
        x = run(owned[stage], x, stages=(stage,))
    np.testing.assert_allclose(x, whole, atol=1e-5)


@pytest.mark.parametrize(("name", "units"), [("mlp", {"hidden": 300}), ("cnn", {"conv1": 10, "fc1": 50})])
def test_units_have_one_size_and_one_axis_per_tensor(name, units):
    """Every second layer is dealt in units, so no weight lies between two groups."""
    model = make(name, IMAGES[name], 10)
    found: dict[str, set[int]] = {}
    for path, axes in model.axes.items():
        named = [(axis, n) for axis, n in zip(axes, model.template[path].shape, strict=True) if axis]
        assert len(named) <= 1
        for axis, n in named:
            found.setdefault(axis, set()).add(n)
    assert found == {name: {n} for name, n in units.items()}


def test_resnet_units_are_the_inner_channels():
    """Each block's inner channels are dealt (conv1's outputs, bn1, conv2's inputs): 10,989,312 parameters. The stem,
    the second norms, the shortcuts and the head are everybody's: 184,650."""
    model = make("resnet18", IMAGES["resnet18"], 10)
    dealt = sum(model.template[p].size for p, axes in model.axes.items() if any(axes) and p in model.trainable)
    assert dealt == 10_989_312
    assert model.parameters - dealt == 184_650


@pytest.mark.parametrize(
    ("size", "stride", "pad", "channels", "features"),
    [(1, 1, 0, 1, 1), (2, 2, 1, 3, 2), (3, 1, 2, 2, 4), (4, 2, 0, 1, 3), (5, 1, 2, 3, 4), (5, 2, 1, 2, 1)],
)
def test_client_conv_is_the_convolution(size, stride, pad, channels, features):
    x = jax.random.normal(KEY, (2, 9, 8, channels))
    kernel = jax.random.normal(KEY, (size, size, channels, features))
    shape = {"window_strides": (stride, stride), "padding": ((pad, pad), (pad, pad))}
    layout = ("NHWC", "HWIO", "NHWC")
    expected = lax.conv_general_dilated(x, kernel, **shape, dimension_numbers=layout)
    np.testing.assert_allclose(client_conv(x, kernel, **shape), expected, atol=2e-5)


@pytest.mark.parametrize("name", ["mlp", "cnn", "shallow"])
def test_the_form_for_one_kernel_is_the_same_model(name, monkeypatch):
    """Off the CPU a model is tested through `lax.conv`."""
    model = shallow("avg_all") if name == "shallow" else make(name, IMAGES[name], 10)
    weights, x = model.initialise(KEY), jax.random.normal(KEY, (2, *model.input_shape))
    here = jax.jit(lambda: model(weights, x, train=False, key=KEY)[0])()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    np.testing.assert_allclose(jax.jit(lambda: model(weights, x, train=False, key=KEY)[0])(), here, atol=2e-5)


@pytest.mark.parametrize("extra", [{"rhs_dilation": (2, 2)}, {"feature_group_count": 2}])
def test_client_conv_leaves_the_rest_to_lax(extra):
    x = jax.random.normal(KEY, (2, 9, 9, 4))
    kernel = jax.random.normal(KEY, (3, 3, 4 // extra.get("feature_group_count", 1), 6))
    layout = lax.conv_dimension_numbers(x.shape, kernel.shape, ("NHWC", "HWIO", "NHWC"))
    given_to = ((1, 1), "SAME")
    expected = lax.conv_general_dilated(x, kernel, *given_to, dimension_numbers=layout, **extra)
    np.testing.assert_array_equal(client_conv(x, kernel, *given_to, dimension_numbers=layout, **extra), expected)


@pytest.mark.parametrize(
    ("form", "channels", "features", "rows"),
    [((3, 1, 1), 16, 32, 8), ((3, 2, 1), 48, 16, 9), ((2, 1, 0), 16, 16, 11), ((5, 1, 2), 48, 32, 10)],
)
def test_kernels_are_the_convolution(form, channels, features, rows):
    """Value and gradients of two clients' convolutions; bfloat16 in, so equal sums are rounded to one part in 256."""
    taps, stride, pad = form
    keys = jax.random.split(KEY, 3)
    x = jax.random.normal(keys[0], (2, 3, rows, 9, channels), jnp.bfloat16)
    kernel = jax.random.normal(keys[1], (2, taps, taps, channels, features), jnp.bfloat16)

    def ours(x, kernel):
        return kernels.convolve(x, kernel, stride, pad, True)

    def plain(x, kernel):
        return client_conv(x, kernel, (stride, stride), ((pad, pad),) * 2)

    def value_and_gradients(form, x, kernel):
        y, back = jax.vjp(jax.vmap(form), x, kernel)
        return y, *back(jax.random.normal(keys[2], y.shape, jnp.bfloat16).astype(y.dtype))

    exact = jax.jit(partial(value_and_gradients, plain))(*(a.astype(jnp.float32) for a in (x, kernel)))
    for expected, found in zip(exact, jax.jit(partial(value_and_gradients, ours))(x, kernel), strict=True):
        size = float(jnp.abs(expected).max())
        np.testing.assert_allclose(found.astype(jnp.float32), expected, atol=size / 128)


def test_kernels_serve_large_square_bfloat16_convolutions_only():
    def serves(rows=8, channels=64, features=64, taps=3, stride=(1, 1), padding=((1, 1), (1, 1)), dtype=jnp.bfloat16):
        x, kernel = jnp.zeros((1, rows, rows, channels), dtype), jnp.zeros((taps, taps, channels, features), dtype)
        return kernels.serves(x, kernel, stride, padding)

    assert serves()
    assert serves(rows=16, stride=(2, 2))
    assert not any(
        serves(**other) for other in (
            {"rows": 4}, {"channels": 3}, {"features": 10}, {"taps": 1, "padding": ((0, 0),) * 2}, {"stride": (1, 2)},
            {"padding": ((1, 2), (1, 2))}, {"dtype": jnp.float32},
        )
    )  # fmt: skip


@pytest.mark.parametrize("bn", ["avg_all", "local", "groupnorm"])
def test_bfloat16_inside_float32_outside(bn):
    """Gradients are off by what rounding does to so deep a network: as with weights known to one part in 2⁸ only."""
    model = shallow(bn)
    weights, x = model.initialise(KEY), jax.random.normal(KEY, (8, *model.input_shape))

    def compiled(model):
        def step(weights):
            def loss(params):
                logits, statistics = model(weights | params, x, train=True, key=KEY)
                return (logits[:, 0] ** 2).sum(), (logits, statistics)

            gradient, outputs = jax.grad(loss, has_aux=True)({p: weights[p] for p in model.trainable})
            return gradient["layer1/conv1/kernel"], *outputs

        return jax.jit(step)

    def rounded(number, w):
        return w * (1 + 2.0**-8 * jax.random.normal(jax.random.fold_in(KEY, number), w.shape))

    def angle(a, b):
        return 1 - float((a * b).sum() / jnp.linalg.norm(a) / jnp.linalg.norm(b))

    full = compiled(model)
    exact, logits, statistics = full(weights)
    found = compiled(replace(model, compute=jnp.bfloat16))(weights)
    assert {a.dtype for a in jax.tree.leaves(found)} == {jnp.dtype(jnp.float32)}
    noise = angle(exact, full({p: rounded(i, w) for i, (p, w) in enumerate(weights.items())})[0])
    assert 0 < angle(exact, found[0]) < noise
    np.testing.assert_allclose(found[1], logits, atol=0.05 * float(jnp.abs(logits).max()))
    for path, mean in statistics.items():
        np.testing.assert_allclose(found[2][path], mean, atol=0.02 * float(jnp.abs(mean).max()))


@pytest.mark.parametrize(("name", "bn"), [("mlp", ""), ("cnn", ""), ("resnet18", "avg_all"), ("shallow", "groupnorm")])
def test_every_product_is_in_bfloat16(name, bn):
    model = shallow(bn) if name == "shallow" else make(name, IMAGES[name], 10, **({"bn": bn} if bn else {}))
    model = replace(model, compute=jnp.bfloat16)
    weights, x = model.initialise(KEY), jnp.zeros((2, *model.input_shape))

    def loss(weights):
        return model(weights, x, train=True, key=KEY)[0].sum()

    text = str(jax.make_jaxpr(jax.grad(loss))(weights))
    products = [line for line in text.splitlines() if "= dot_general[" in line]
    assert products
    assert all("bf16[" in line.split("=")[0] for line in products)


def test_max_pool():
    x = jax.random.normal(KEY, (2, 7, 6, 3))
    expected = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    np.testing.assert_array_equal(max_pool(x, 2), expected)


@pytest.mark.parametrize(
    ("rows", "columns", "size", "channels"), [(5, 5, 2, 1), (6, 9, 2, 3), (9, 6, 3, 2), (8, 8, 4, 1), (7, 5, 4, 3)]
)
def test_conv_max_pool_is_a_convolution_and_a_pool(rows, columns, size, channels):
    """Value and both gradients, in float64, for images of every parity."""
    with jax.enable_x64(True):
        keys = jax.random.split(KEY, 3)
        x = jax.random.normal(keys[0], (3, rows, columns, channels))
        kernel, bias = jax.random.normal(keys[1], (size, size, channels, 4)), jax.random.normal(keys[2], (4,))

        def plain(x, kernel, bias):
            y = lax.conv_general_dilated(x, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            return lax.reduce_window(y + bias, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

        weigh = jax.random.normal(KEY, plain(x, kernel, bias).shape)
        for f, g in zip(
            *(jax.jit(jax.value_and_grad(lambda *a, h=h: jnp.sum(weigh * h(*a)), (0, 1, 2)))(x, kernel, bias)
              for h in (conv_max_pool, plain)), strict=True,
        ):  # fmt: skip
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), f, g)
        np.testing.assert_allclose(jax.jit(conv_max_pool)(x, kernel, bias), plain(x, kernel, bias), atol=1e-12)


def test_where_a_window_is_level_one_winner_takes_the_gradient():
    x = jnp.ones((1, 4, 4, 1))
    gradient = jax.grad(lambda x: conv_max_pool(x, jnp.ones((1, 1, 1, 1)), jnp.zeros(1)).sum())(x)
    np.testing.assert_array_equal(gradient[0, :, :, 0], np.kron(np.ones((2, 2)), [[1, 0], [0, 0]]))


def test_initial_weights_are_uniform_within_one_over_root_fan_in():
    weights = make("mlp", IMAGES["mlp"], 10).initialise(KEY)
    for path, fan_in in {"fc1/kernel": 784, "fc1/bias": 784, "fc2/kernel": 300}.items():
        bound = fan_in**-0.5
        assert float(jnp.abs(weights[path]).max()) <= bound
        assert float(weights[path].std()) == pytest.approx(bound / 3**0.5, rel=0.1)


def test_initialise_is_a_function_of_the_key():
    model = make("cnn", IMAGES["cnn"], 10)
    one, same, other = (model.initialise(jax.random.key(s)) for s in (1, 1, 2))
    assert all((one[p] == same[p]).all() for p in one)
    assert not any((one[p] == other[p]).all() for p in one)


def test_dropout_follows_its_key_and_is_off_in_evaluation():
    model = make("cnn", (16, 16, 1), 4, dropout=0.5)
    weights, x = model.initialise(KEY), jax.random.normal(KEY, (2, 16, 16, 1))
    run = lambda train, seed: model(weights, x, train=train, key=jax.random.key(seed))[0]  # noqa: E731
    np.testing.assert_array_equal(run(True, 1), run(True, 1))
    assert not np.allclose(run(True, 1), run(True, 2))
    np.testing.assert_array_equal(run(False, 1), run(False, 2))


def test_two_dropout_layers_of_one_shape_draw_differently():
    class Twice(nnx.Module):
        def __init__(self, rngs):
            self.a, self.b = (nnx.Dropout(0.5, rngs=rngs) for _ in range(2))

        def __call__(self, x):
            return jnp.stack([self.a(x), self.b(x)])

    model = from_nnx(Twice, input_shape=(64,), classes=64)
    first, second = model({}, jnp.ones((1, 64)), train=True, key=KEY)[0]
    assert not (first == second).all()


class TestBatchNorm:
    def build(self, mode):
        model = shallow(mode)
        return model, model.initialise(KEY), 3 + jax.random.normal(KEY, (6, 8, 8, 3))

    def test_avg_all_moves_the_statistics_with_the_batch(self):
        model, weights, x = self.build("avg_all")
        _, after = jax.jit(lambda: model(weights, x, train=True, key=KEY))()
        batch = jnp.mean(client_conv(x, weights["stem/kernel"], (1, 1), ((1, 1), (1, 1))), (0, 1, 2))
        np.testing.assert_allclose(after["stem_norm/mean"], 0.1 * batch, rtol=1e-4, atol=1e-5)
        assert model(weights, x, train=False, key=KEY)[1] == {}

    def test_local_sends_none_and_estimates_them_before_evaluation(self):
        model, weights, x = self.build("local")
        assert set(weights) == model.trainable
        calibrated = model.calibrated(weights, x[None])
        evaluated, _ = model(calibrated, x, train=False, key=KEY)
        trained, after = model(weights, x, train=True, key=KEY)
        assert after == {}
        np.testing.assert_allclose(evaluated, trained, atol=1e-3)  # the same images, so the same statistics

    def test_batch_stats_evaluates_with_the_batch(self):
        model, weights, x = self.build("batch_stats")
        evaluated, _ = model(weights, x, train=False, key=KEY)
        np.testing.assert_array_equal(evaluated, model(weights, x, train=True, key=KEY)[0])


def test_units_metadata_must_name_every_axis():
    def build(rngs):
        return nnx.Linear(3, 2, rngs=rngs, kernel_metadata={"units": ("hidden",)})

    with pytest.raises(ConfigError, match="'kernel' has 2 axes but its units metadata names 1"):
        from_nnx(build, input_shape=(3,), classes=2)


def test_small_images_are_refused():
    with pytest.raises(ConfigError, match="at least 16 × 16"):
        make("cnn", (8, 8, 1), 10)


def test_variables_that_are_not_trained_keep_their_values():
    class Scaled(nnx.Module):
        def __init__(self, *, rngs):
            self.layer = nnx.Linear(3, 2, rngs=rngs)
            self.scale = nnx.Variable(jnp.array(7.0))

        def __call__(self, x):
            return self.scale[...] * self.layer(x)

    model = from_nnx(Scaled, input_shape=(3,), classes=2)
    weights, x = model.initialise(KEY), jnp.ones((1, 3))
    expected = 7 * (x @ weights["layer/kernel"] + weights["layer/bias"])
    np.testing.assert_allclose(model(weights, x, train=True, key=KEY)[0], expected, rtol=1e-6)


def test_plain_arrays_are_refused():
    class Plain(nnx.Module):
        def __init__(self, rngs):
            self.offset = nnx.data(jnp.ones(2))
            self.layer = nnx.Linear(3, 2, rngs=rngs)

    with pytest.raises(ConfigError, match=r"'offset' of the model is a plain array; make it an nnx\.Param"):
        from_nnx(Plain, input_shape=(3,), classes=2)
