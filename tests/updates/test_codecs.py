"""Codecs against what numpy says their messages are; both are handed the same draws and nothing else."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.core.keys import root
from fedge.errors import ConfigError
from fedge.updates.bits import pack, unpack
from fedge.updates.codecs import codec_of
from fedge.updates.int8 import int8
from fedge.updates.qsgd import qsgd
from fedge.updates.topk import topk

TIGHT = {"atol": 1e-12, "rtol": 0}
EVERY = ("qsgd2", "qsgd3", "qsgd4", "qsgd8", "qsgd16", "int8", "topk:0.1", "topk:0.1:plain")


def drawn(seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    shapes = {"fc/bias": (3,), "fc/kernel": (5, 7), "scale": ()}
    return {path: np.asarray(rng.normal(size=shape), dtype) for path, shape in shapes.items()}


@pytest.mark.parametrize("bits", [1, 2, 5, 8, 11, 16])
def test_numbers_are_packed_without_a_gap_and_come_back(bits):
    """The bytes are those of numpy's packbits, lowest bit first."""
    numbers = np.random.default_rng(bits).integers(0, 1 << bits, 29).astype(np.uint32)
    packed = np.asarray(pack(jnp.asarray(numbers), bits))
    columns = (numbers[:, None] >> np.arange(bits)) & 1
    np.testing.assert_array_equal(packed, np.packbits(columns.astype(np.uint8).ravel(), bitorder="little"))
    assert packed.dtype == np.uint8
    assert len(packed) == -(-bits * 29 // 8)
    np.testing.assert_array_equal(unpack(jnp.asarray(packed), bits, 29), numbers)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_qsgd_is_its_equation(bits):
    with jax.enable_x64(True):
        update, s = drawn(), 2 ** (bits - 1) - 1
        arrived = jax.jit(qsgd(bits).passed)(root(3), update)
        draws = np.split(np.asarray(jax.random.uniform(root(3), (39,), jnp.float64)), [3, 38])
        for path, u in zip(sorted(update), draws, strict=True):
            v = update[path]
            u = u.reshape(v.shape)
            norm = np.sqrt((v**2).sum())
            a = s * abs(v) / norm
            xi = np.floor(a) + (u < a - np.floor(a))
            np.testing.assert_allclose(arrived[path], norm * np.sign(v) * np.minimum(xi, s) / s, **TIGHT)


def test_qsgd_is_unbiased():
    """A number's mean of 20,000 draws is within 5 of its standard deviations, those of its Bernoulli variable.

    Both tails of a normal variable beyond 5 have 6·10⁻⁷, so one of the 8 numbers is outside in 5 of 10⁶ such tests; the
    key is fixed, so this one always says the same. Rounding to the nearest level would be outside by hundreds.
    """
    draws, s = 20_000, 7
    v = np.array([0.9, -0.61, 0.33, 0.05, -0.02, 0.0, 1.7, -1.1])
    norm = np.linalg.norm(v)
    with jax.enable_x64(True):
        once = jax.jit(jax.vmap(lambda key: qsgd(4).passed(key, {"w": jnp.asarray(v)})["w"]))
        mean = np.asarray(once(jax.random.split(root(11), draws))).mean(0)
    p = s * abs(v) / norm % 1
    deviation = norm / s * np.sqrt(p * (1 - p) / draws)
    assert (abs(mean - v) <= 5 * deviation + 1e-12).all()
    nearest = norm * np.sign(v) * np.round(s * abs(v) / norm) / s
    assert (abs(nearest - v) > 5 * deviation).sum() >= 5


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_a_codec_can_represent_arrives_as_it_was(dtype):
    """(6, −3, 2) has the norm 7 = s of qsgd4; int8's largest number is 127 scales; three of 30 numbers are not 0.

    In float32 XLA divides by s = 7 by multiplying with its inverse, which may be off by one in the last place.
    """
    with jax.enable_x64(True):
        levels = jnp.asarray([[6, -3, 2]], dtype) / 64
        sparse = jnp.zeros((5, 6), dtype).at[[0, 2, 4], [1, 1, 5]].set(jnp.asarray([1e-3, -7, 0.3], dtype))
        signed = jnp.asarray([-127, 64, 1, 0, 5], dtype) / 1024
        for made, v in ((qsgd(4), levels), (topk(0.1), sparse), (int8(), signed)):
            step = jax.jit(made.passed)
            for update in ({"w": v}, {"w": jnp.zeros_like(v)}):
                arrived = step(root(0), update)["w"]
                assert arrived.dtype == dtype
                off = np.finfo(dtype).eps if made.name == "qsgd4" and dtype == np.float32 else 0
                np.testing.assert_allclose(arrived, update["w"], rtol=off, atol=0)


def test_int8_is_the_nearest_of_255_numbers():
    with jax.enable_x64(True):
        update = drawn(1)
        message = jax.jit(int8().encode)(root(0), update)
        arrived = jax.jit(int8().decode)(message, update)
        for path, v in update.items():
            scale = abs(v).max() / 127
            assert message[path][1].dtype == jnp.int8
            np.testing.assert_array_equal(message[path][1], np.round(v / scale))
            np.testing.assert_allclose(arrived[path], scale * np.round(v / scale), **TIGHT)
            assert abs(arrived[path] - v).max() <= scale / 2 + 1e-15


def test_topk_sends_the_largest_numbers_and_of_equal_ones_the_first():
    with jax.enable_x64(True):
        v = np.array([[0.1, -2.0, 0.5], [2.0, -0.5, 0.0]])
        values, where = topk(0.5).encode(root(0), {"w": jnp.asarray(v)})["w"]
        assert where.tolist() == [1, 3, 2]
        assert values.tolist() == [-2.0, 2.0, 0.5]
        np.testing.assert_array_equal(topk(0.5).passed(root(0), {"w": jnp.asarray(v)})["w"], [[0, -2, 0.5], [2, 0, 0]])


def test_error_feedback_telescopes():
    """With e ← Δ + e − C(Δ + e) all that was sent and the last e are all that there was: Σ C + e = ΣΔ."""
    made = topk(0.1)
    assert made.feedback
    assert not topk(0.1, feedback=False).feedback
    with jax.enable_x64(True):
        send = jax.jit(lambda update: made.passed(root(0), update))
        total, sent, kept = (jax.tree.map(np.zeros_like, drawn()) for _ in range(3))
        for n in range(20):
            update = drawn(n)
            given = jax.tree.map(np.add, update, kept)
            arrived = jax.tree.map(np.asarray, send(given))
            kept = jax.tree.map(np.subtract, given, arrived)
            total, sent = jax.tree.map(np.add, total, update), jax.tree.map(np.add, sent, arrived)
    assert max(abs(e).max() for e in kept.values()) > 0.5
    for path in total:
        np.testing.assert_allclose(sent[path] + kept[path], total[path], **TIGHT)


@pytest.mark.parametrize(("name", "expected"), [
    ("qsgd8", 3 * 4 + 39),
    ("qsgd3", 3 * 4 + 15),  # ⌈117/8⌉
    ("int8", 3 * 4 + 39),
    ("topk:0.1", (1 + 4 + 1) * (4 + 2)),  # round(3.5) = 4 of 35 numbers
])  # fmt: skip
def test_bytes_are_counted_from_shapes(name, expected):
    update = drawn(dtype=np.float32)
    assert codec_of(name).size(update) == expected


@pytest.mark.parametrize(("numbers", "each"), [(1 << 16, 2), ((1 << 16) + 1, 4)])
def test_positions_take_two_bytes_where_they_fit(numbers, each):
    assert topk(0.01).size({"w": jax.ShapeDtypeStruct((numbers,), jnp.float32)}) == 655 * (4 + each)


def test_the_last_position_of_two_bytes_is_found_again():
    v = jnp.zeros((256, 256)).at[255, 255].set(3.0)
    np.testing.assert_array_equal(topk(1e-5).passed(root(0), {"w": v})["w"], v)


@pytest.mark.parametrize("name", EVERY)
def test_a_batch_of_clients_is_each_by_itself(name):
    """Under jit and vmap the message is, to the bit, the one of a client alone, and keeps its dtypes."""
    made = codec_of(name)
    update = jax.tree.map(lambda *w: jnp.stack(w), *(drawn(n, np.float32) for n in range(3)))
    keys = jax.random.split(root(5), 3)
    together = jax.jit(jax.vmap(made.encode))(keys, update)
    one = jax.jit(made.encode)(keys[1], jax.tree.map(lambda w: w[1], update))
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[1], b), together, one)
    assert sum(x.nbytes for x in jax.tree.leaves(one)) == made.size(drawn(dtype=np.float32))
    arrived = jax.eval_shape(jax.vmap(made.decode), together, update)
    assert jax.tree.map(lambda a: (a.shape, a.dtype), arrived) == jax.tree.map(lambda a: (a.shape, a.dtype), update)


NUMBERS = st.floats(-1e6, 1e6, width=32).filter(lambda x: x == 0 or abs(x) > 1e-12)  # the squares of others may vanish


@given(st.lists(NUMBERS, min_size=6, max_size=6), st.integers(0, 2**32 - 1))
@settings(max_examples=50)
def test_what_arrives_is_never_far_away(values, seed):
    """A number is off by at most a level of qsgd8, half a scale of int8, or its own size where it is not in the top."""
    v = np.asarray(values, np.float32)
    size = abs(v).max()
    arrived = {name: np.asarray(ARRIVED[name](root(seed), {"w": v})["w"]) for name in ARRIVED}
    slack = 1e-5 * size
    assert abs(arrived["qsgd8"] - v).max() <= np.linalg.norm(v.astype(np.float64)) / 127 + slack
    assert abs(arrived["int8"] - v).max() <= size / 254 + slack
    assert (np.sort(abs(arrived["topk:0.5"]))[3:] == np.sort(abs(v))[3:]).all()
    assert ((arrived["topk:0.5"] == v) | (arrived["topk:0.5"] == 0)).all()


ARRIVED = {name: jax.jit(codec_of(name).passed) for name in ("qsgd8", "int8", "topk:0.5")}


def test_a_codec_that_would_do_nothing_is_none():
    assert [codec_of(name) for name in ("none", "qsgd32", "topk:1", "topk:1.0:plain")] == [None] * 4


@pytest.mark.parametrize("name", EVERY)
def test_a_codec_has_the_name_it_is_called_by(name):
    assert codec_of(name).name == name


@pytest.mark.parametrize(("name", "reason"), [
    ("qsgd", r"codec=qsgd is no codec; allowed: none, qsgdB .*; did you mean 'qsgd8'\?"),
    ("qsgd1", "codec=qsgd1: qsgd with 1 bits for each number; give 2 to 16, .* or 32"),
    ("qsgd17", "give 2 to 16"),
    ("topk", r"codec=topk is no codec; .*"),
    ("topk:0", "topk of a fraction 0.0 of each tensor; give more than 0 and at most 1"),
    ("topk:1.5", "give more than 0 and at most 1"),
    ("topk:-1", "is no codec"),
    ("topk:nan", "is no codec"),
    ("topk:0.1:lossy", "is no codec"),
    ("qsgd٨", "is no codec"),
    ("", "codec= is no codec"),
])  # fmt: skip
def test_a_codec_that_cannot_be_is_refused_in_a_sentence(name, reason):
    with pytest.raises(ConfigError, match=reason):
        codec_of(name)
