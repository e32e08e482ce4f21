"""A message on a wire is a typed header, then the bytes of its tensors.

    FEDGE1 | bytes of the header | its CRC-32 | header, JSON | tensors, little-endian, one after the other

The header names each tensor with its dtype and shape, and the length and a checksum of all their bytes. Spaces at its
end make the tensors begin at a multiple of `ALIGN`, so that whoever computes with them where they lie is not slowed.
On its way TLS guards a message; the checksum guards it on this side of TLS, where it is cut, put together and copied.
It is a GMAC under a key that everybody knows: processors make it for TLS already, at five times the speed of a CRC-32.

Whoever receives a message says first which tensors may come (a `Form`, made from its own model); what differs is
refused before any of their bytes is read. Of a tensor with a mask only the numbers that the mask owns are sent; the
mask, a bit for each number, is part of the header.

The tensors' bytes are the payload, which is what `cost/ledger.py` predicts to the byte; all else is framing.
"""

from __future__ import annotations

import base64
import json
import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from numpy.typing import NDArray

from fedge.errors import FleetError, brief
from fedge.net.names import Name

Tensors = Mapping[str, NDArray[Any]]
Facts = Mapping[str, Any]
NONE: Mapping[str, Any] = MappingProxyType({})

PREFIX = struct.Struct("<6sII")
MAGIC = b"FEDGE1"
ALIGN = 16  # bytes
MOST_HEADER = 2**22  # bytes
MOST_COUNT = 2**31 - 1  # of rounds and steps
SEALED = 2**30  # bytes at a time: OpenSSL refuses 2**31
DTYPES = {
    name: np.dtype(name).newbyteorder("<")
    for name in ("float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
}
named = lru_cache(maxsize=4096)(Name.of)
NAMES = {dtype: name for name, dtype in DTYPES.items()}


class Slot(NamedTuple):
    """This says of one tensor what may come; where it may be masked, fewer of its numbers may."""

    dtype: str
    shape: tuple[int, ...]
    maskable: bool = False


Form = Mapping[str, Slot]
NOTHING: Form = {}


class Message(NamedTuple):
    """This is one message between two nodes; what its numbers mean depends on its kind."""

    kind: str
    sender: Name
    receiver: Name
    round: int = 0
    edge_round: int = 0
    step: int = 0
    attempt: int = 0
    tensors: Tensors = NONE
    masks: Tensors = NONE  # of some tensors: True where a number is sent, and 0 elsewhere
    facts: Facts = NONE  # plain values of JSON

    @property
    def words(self) -> str:
        """Return what it is, as people say it."""
        return f"{self.kind} of {self.sender.words}"

    @property
    def payload(self) -> int:
        """Count the bytes of its tensors on a wire."""
        if not self.masks:
            return sum([array.nbytes for array in self.tensors.values()])
        return sum(_sent(array, self.masks.get(name)).nbytes for name, array in self.tensors.items())


class Entry(NamedTuple):
    """This is a tensor as a header names it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    mask: NDArray[np.bool_] | None
    size: int  # bytes that are sent


class Head(NamedTuple):
    """This is a header: all of a message but its tensors' numbers."""

    bare: Message
    entries: tuple[Entry, ...]
    size: int  # bytes of the tensors
    checksum: str
    framing: int  # bytes of the header, with its prefix


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is not a number")


ENCODE = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
DECODE = json.JSONDecoder(parse_constant=_no_number).decode


def checksum_of(parts: Sequence[bytes | memoryview]) -> str:
    """Return a checksum of the bytes of some tensors, and of their order."""
    seal, found = _gcm().encrypt, bytes(16)
    for part in parts:
        whole = len(part) <= SEALED
        for piece in (part,) if whole else (part[n : n + SEALED] for n in range(0, len(part), SEALED)):
            found = seal(found[:12], b"", piece)
    return found.hex()


@cache
def _gcm() -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(bytes(16))


def pack(message: Message) -> tuple[bytes, list[memoryview]]:
    """Return a message's header and the bytes of its tensors, which are not copied where they lie in order."""
    parts, table = list[memoryview](), list[list[Any]]()
    for name, array in message.tensors.items():
        mask = message.masks.get(name)
        sent = _sent(array, mask)
        if (dtype := NAMES.get(sent.dtype)) is None:
            raise FleetError(f"a tensor of {sent.dtype.name} cannot be sent; allowed: {', '.join(DTYPES)}")
        bits = (
            None
            if mask is None
            else base64.b64encode(np.packbits(np.asarray(mask, bool).reshape(-1)).tobytes()).decode()
        )
        table.append([name, dtype, list(array.shape), bits])
        parts.append(sent.reshape(-1).view(np.uint8).data if sent.size else memoryview(b""))
    told = {
        "kind": message.kind,
        "from": str(message.sender),
        "to": str(message.receiver),
        "at": [message.round, message.edge_round, message.step, message.attempt],
        "facts": dict(message.facts),
        "tensors": table,
        "bytes": sum(map(len, parts)),
        "checksum": checksum_of(parts),
    }
    try:
        header = ENCODE(told).encode()
    except ValueError:
        raise FleetError(f"a {message.kind} has a fact that is no finite number, which cannot be sent") from None
    header += b" " * (-(PREFIX.size + len(header)) % ALIGN)
    if len(header) > MOST_HEADER:
        raise FleetError(f"the header of a message has {len(header):,} bytes; at most {MOST_HEADER:,} can be sent")
    return PREFIX.pack(MAGIC, len(header), zlib.crc32(header)) + header, parts


def is_number(fact: Any) -> TypeGuard[float]:
    """Say whether a fact that came can be counted with: a number, and so small that sums of such are finite too."""
    return type(fact) in (int, float) and abs(fact) < 1e300


def _sent(array: NDArray[Any], mask: NDArray[Any] | None) -> NDArray[Any]:
    """Return the numbers of a tensor that are sent, in order and little-endian."""
    array = np.asarray(array) if mask is None else np.asarray(array)[np.asarray(mask, bool)]
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<"))


def read_head(data: bytes | memoryview) -> Head:
    """Read a header from the first bytes of a message, and refuse whatever is none."""
    if len(data) < PREFIX.size:
        raise FleetError(f"a message of {len(data)} bytes is cut short; it was not sent by a node of fedge")
    magic, length, checksum = PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise FleetError("a message does not begin as one of this version of fedge; run the same version on both sides")
    if length > MOST_HEADER:
        raise FleetError(f"a message announces a header of {length:,} bytes; at most {MOST_HEADER:,} are read")
    text = bytes(data[PREFIX.size : PREFIX.size + length])
    if len(text) < length:
        raise FleetError("the header of a message is cut short")
    if zlib.crc32(text) != checksum:
        raise FleetError("the header of a message is damaged: its checksum does not hold")
    try:
        return _parsed(DECODE(text.decode()), PREFIX.size + length)
    except (KeyError, TypeError, ValueError, RecursionError, OverflowError) as problem:
        raise FleetError(
            f"the header of a message cannot be read ({type(problem).__name__}: {brief(problem)})"
        ) from None


def _parsed(given: Any, framing: int) -> Head:
    kind, facts, at = given["kind"], given["facts"], given["at"]
    if not (isinstance(kind, str) and isinstance(facts, dict) and isinstance(at, list) and len(at) == 4):
        raise ValueError("kind, facts or place are not what they should be")
    index, edge_round, step, attempt = map(_counted, at)
    entries = tuple([_entry(*row) for row in given["tensors"]])
    if len(entries) > 1 and len({e.name for e in entries}) != len(entries):
        raise ValueError("a tensor is named twice")
    size, checksum = given["bytes"], given["checksum"]
    if type(size) is not int or type(checksum) is not str or size != sum([e.size for e in entries]):
        raise ValueError("the bytes announced are not those of the tensors")
    bare = Message(
        kind, named(given["from"]), named(given["to"]), index, edge_round, step, attempt, facts=facts,
        masks={e.name: e.mask for e in entries if e.mask is not None},
    )  # fmt: skip
    return Head(bare, entries, size, checksum, framing)


def _counted(number: Any) -> int:
    if type(number) is not int or not 0 <= number <= MOST_COUNT:
        raise ValueError("a round or a step is no count")
    return number


def _entry(name: Any, dtype: Any, shape: Any, bits: Any) -> Entry:
    if not isinstance(name, str) or dtype not in DTYPES or not isinstance(shape, list) or len(shape) > 32:
        raise ValueError("a tensor has no name, a dtype that is not sent, or no shape")
    sides = tuple(map(_counted, shape))
    count, each = math.prod(sides), DTYPES[dtype].itemsize
    if count > 2**48:
        raise ValueError("a tensor is larger than any memory")
    if bits is None:
        return Entry(name, dtype, sides, None, count * each)
    packed = np.frombuffer(base64.b64decode(bits, validate=True), np.uint8)
    if len(packed) != -(-count // 8):
        raise ValueError("a mask does not fit its tensor")
    flags = np.unpackbits(packed)
    if flags[count:].any():
        raise ValueError("a mask has more bits than its tensor has numbers")
    mask = flags[:count].astype(bool).reshape(sides)
    return Entry(name, dtype, sides, mask, int(mask.sum()) * each)


def require(head: Head, form: Form) -> None:
    """Refuse tensors that are not what a message of this kind must bring, before their bytes are read."""
    what, found = head.bare.words, {entry.name: entry for entry in head.entries}
    if found.keys() != form.keys():
        missing, beyond = sorted(form.keys() - found.keys()), sorted(found.keys() - form.keys())
        said = f"lacks tensor '{brief(missing[0])}'" if missing else f"brings an unknown tensor '{brief(beyond[0])}'"
        raise FleetError(f"{what} {said}; both sides must run the same model")
    for name, slot in form.items():
        entry = found[name]
        if (entry.dtype, entry.shape) != (slot.dtype, slot.shape):
            raise FleetError(
                f"{what} brings '{brief(name)}' as {entry.dtype}{list(entry.shape)} and not as "
                f"{slot.dtype}{list(slot.shape)}; both sides must run the same model"
            )
        if entry.mask is not None and not slot.maskable:
            raise FleetError(f"{what} leaves out numbers of '{brief(name)}', which must come whole")


def read_body(head: Head, body: bytes | bytearray | memoryview) -> Message:
    """Return the whole message, once the bytes of its tensors are there."""
    bare = head.bare
    if len(body) != head.size:
        raise FleetError(f"{bare.words} has {len(body):,} bytes of tensors and announced {head.size:,}")
    whole, parts, first = memoryview(body), list[memoryview](), 0
    for entry in head.entries:
        parts.append(whole[first : first + entry.size])
        first += entry.size
    if checksum_of(parts) != head.checksum:
        raise FleetError(f"{bare.words} is damaged: its checksum does not hold")
    tensors = dict[str, NDArray[Any]]()
    for entry, part in zip(head.entries, parts, strict=True):
        array = np.frombuffer(part, DTYPES[entry.dtype])
        if entry.mask is None:
            tensors[entry.name] = array.reshape(entry.shape)
        else:
            tensors[entry.name] = filled = np.zeros(entry.shape, array.dtype)
            filled[entry.mask] = array
    return Message(*bare[:7], tensors, bare.masks, bare.facts)
