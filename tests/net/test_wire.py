"""Messages come back as they were sent, and whatever else comes is refused in one sentence before it costs memory."""

import contextlib
import json
import struct
import zlib
from types import SimpleNamespace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra import numpy as npst

from fedge.errors import FleetError
from fedge.net import wire
from fedge.net.names import Name
from fedge.net.wire import DTYPES, MAGIC, PREFIX, Message, Slot, pack, read_body, read_head, require

NAMES = st.sampled_from([Name("cloud"), Name("edge", 3), Name("client", 17)])
COUNT = st.integers(0, 2**31 - 1)
ARRAYS = st.sampled_from(sorted(DTYPES)).flatmap(
    lambda name: npst.arrays(np.dtype(name), npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)


@st.composite
def messages(draw):
    tensors = draw(st.dictionaries(st.text(max_size=8), ARRAYS, max_size=4))
    masks = {n: draw(npst.arrays(bool, a.shape)) for n, a in tensors.items() if draw(st.booleans())}
    facts = draw(st.dictionaries(st.text(max_size=4), st.integers() | st.floats(allow_nan=False, allow_infinity=False)))
    places = [draw(COUNT) for _ in range(4)]
    return Message(draw(st.text(max_size=8)), draw(NAMES), draw(NAMES), *places, tensors, masks, facts)


def whole(message):
    head, parts = pack(message)
    return head + b"".join(parts)


def opened(data):
    head = read_head(data)
    return read_body(head, data[head.framing :])


def form_of(message):
    return {n: Slot(a.dtype.name, a.shape, n in message.masks) for n, a in message.tensors.items()}


@given(messages())
def test_a_message_comes_back_as_it_was_sent(message):
    data = whole(message)
    head = read_head(data)
    require(head, form_of(message))
    assert head.size == message.payload == len(data) - head.framing
    back = read_body(head, memoryview(data)[head.framing :])
    for name in ("kind", "sender", "receiver", "round", "edge_round", "step", "attempt", "facts"):
        assert getattr(back, name) == getattr(message, name)
    assert back.tensors.keys() == message.tensors.keys()
    for name, array in message.tensors.items():
        mask = message.masks.get(name)
        expected = array if mask is None else np.where(mask, array, np.zeros((), array.dtype))
        np.testing.assert_array_equal(back.tensors[name], expected)
        assert back.tensors[name].dtype == array.dtype


@given(messages(), st.data())
@settings(max_examples=200)
def test_no_changed_bit_goes_unnoticed(message, data):
    sent = bytearray(whole(message))
    where = data.draw(st.integers(0, 8 * len(sent) - 1))
    sent[where // 8] ^= 1 << where % 8
    with pytest.raises(FleetError):
        opened(bytes(sent))


def test_a_tensor_that_is_too_large_for_one_checksum_is_sealed_in_pieces(monkeypatch):
    """OpenSSL takes less than 2**31 bytes; here, 8."""
    seal, sizes = wire._gcm().encrypt, []

    def encrypt(nonce, nothing, part):
        if len(part) > 8:
            raise OverflowError("Data or associated data too long. Max 2**31 - 1 bytes")
        sizes.append(len(part))
        return seal(nonce, nothing, part)

    monkeypatch.setattr(wire, "SEALED", 8)
    monkeypatch.setattr(wire, "_gcm", lambda: SimpleNamespace(encrypt=encrypt))
    sent = whole(Message("update", Name("edge", 0), Name("cloud"), tensors={"w": np.arange(5, dtype=np.float32)}))
    np.testing.assert_array_equal(opened(sent).tensors["w"], np.arange(5))
    assert sizes == [8, 8, 4] * 2
    with pytest.raises(FleetError, match="its checksum does not hold"):
        opened(sent[:-1] + b"x")


@given(st.binary(max_size=200) | st.binary(max_size=80).map(lambda tail: MAGIC + tail))
def test_any_bytes_are_read_or_refused_in_one_sentence(data):
    with pytest.raises(FleetError) as refused:
        opened(data)
    assert "\n" not in str(refused.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
)
GOOD = {"kind": "deal", "from": "cloud", "to": "edge-0", "at": [0, 0, 0, 0], "facts": {}, "tensors": [], "bytes": 0,
        "checksum": ""}  # fmt: skip


def framed(text):
    return PREFIX.pack(MAGIC, len(text), zlib.crc32(text)) + text


@given(st.sampled_from(sorted(GOOD)), JSON)
def test_any_value_in_a_header_is_read_or_refused(key, value):
    data = framed(json.dumps(GOOD | {key: value}).encode())
    with contextlib.suppress(FleetError):  # and nothing else
        assert str(read_head(data).bare.sender) == (GOOD | {key: value})["from"]


TENSOR = ["w", "float32", [2, 2], None]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tensors": [TENSOR, TENSOR], "bytes": 32}, "named twice"),
        ({"tensors": [TENSOR], "bytes": 8}, "bytes announced"),
        ({"tensors": [["w", "object", [2], None]], "bytes": 16}, "dtype that is not sent"),
        ({"tensors": [["w", "float32", [2**31 - 1] * 3, None]], "bytes": 4}, "larger than any memory"),
        ({"tensors": [["w", "float32", [-1], None]], "bytes": -4}, "no count"),
        ({"tensors": [["w", "float32", [3], "/w=="]], "bytes": 12}, "more bits"),
        ({"tensors": [["w", "float32", [9], "/w=="]], "bytes": 36}, "does not fit"),
        ({"at": [0, 0, 0, 2**31]}, "no count"),
        ({"from": "edge-03"}, "no name of a node"),
        ({"facts": {"loss": float("nan")}}, "NaN is not a number"),
    ],
)
def test_headers_that_lie_are_refused(change, says):
    with pytest.raises(FleetError, match=says):
        read_head(framed(json.dumps(GOOD | change).encode()))


def test_a_deep_header_is_refused():
    with pytest.raises(FleetError):
        read_head(framed(b'{"kind":' + b"[" * 100_000))


def test_what_the_model_does_not_say_is_refused_before_it_is_read():
    """The header alone is enough: a body of terabytes is announced and never asked for."""
    form = {"w": Slot("float32", (2, 2))}
    for entry, says in [
        (["v", "float32", [2, 2], None], "lacks tensor 'w'"),
        (["w", "float64", [2, 2], None], r"float64\[2, 2\] and not as float32\[2, 2\]"),
        (["w", "float32", [2**20, 2**20], None], "the same model"),
        (["w", "float32", [2, 2], "8A=="], "must come whole"),
    ]:
        count = 4 if entry[3] else int(np.prod(entry[2], dtype=object))
        size = count * (8 if entry[1] == "float64" else 4)
        head = read_head(framed(json.dumps(GOOD | {"tensors": [entry], "bytes": size}).encode()))
        with pytest.raises(FleetError, match=says):
            require(head, form)
    head = read_head(framed(json.dumps(GOOD | {"tensors": [TENSOR, ["x", *TENSOR[1:]]], "bytes": 32}).encode()))
    with pytest.raises(FleetError, match="unknown tensor 'x'"):
        require(head, form)


def test_a_huge_header_is_refused_by_its_prefix():
    with pytest.raises(FleetError, match="at most"):
        read_head(struct.pack("<6sII", MAGIC, 2**32 - 1, 0))


def test_what_cannot_be_sent_is_refused():
    message = Message("deal", Name("cloud"), Name("edge"), tensors={"w": np.zeros(2, complex)})
    with pytest.raises(FleetError, match="complex128 cannot be sent"):
        pack(message)

    with pytest.raises(FleetError, match="a deal has a fact that is no finite number"):
        pack(Message("deal", Name("cloud"), Name("edge"), facts={"loss": float("nan")}))
