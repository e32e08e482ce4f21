"""Codecs by their names, as they are typed, and how many bytes they send."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import jax

from fedge.core.keys import root
from fedge.core.update import Codec
from fedge.errors import ConfigError, brief, suggestion
from fedge.updates.int8 import int8
from fedge.updates.names import NUMBER, own
from fedge.updates.qsgd import qsgd
from fedge.updates.topk import topk

NAMES = ("none", "qsgd8", "int8", "topk:0.01", "topk:0.01:plain")
ALLOWED = (
    "none, qsgdB with B = 2 to 16 bits for each number, int8, topk:F with a fraction F of each tensor's numbers, "
    "topk:F:plain where what is not sent is lost, or package.module:function with one of your own"
)


def codec(text: str, key: str = "codec") -> Codec | None:
    """Return the codec of this name, or None where updates travel as they are; `key` asks for it."""
    if text == "none":
        return None
    if text == "int8":
        return int8()
    try:
        if found := re.fullmatch(r"qsgd(\d{1,4})", text, re.ASCII):
            return qsgd(int(found[1]))
        if found := re.fullmatch(rf"topk:{NUMBER}(:plain)?", text, re.ASCII):
            return topk(float(found[1]), feedback=not found[2])
    except ConfigError as problem:
        raise ConfigError(f"{key}={brief(text)}: {problem}") from None
    if made := own(key, text, Codec, frozenset({"topk"})):
        return made
    raise ConfigError(f"{key}={brief(text)} is no codec; allowed: {ALLOWED}{suggestion(text, NAMES)}")


def encoded_bytes(codec: Codec | None, shapes: Mapping[str, Any]) -> int:
    """Count the bytes of one encoded update, from its shapes and dtypes alone (path → anything that has both)."""
    update = {path: jax.ShapeDtypeStruct(x.shape, x.dtype) for path, x in shapes.items()}
    message = update if codec is None else jax.eval_shape(lambda u: codec.encode(root(0), u), update)
    return sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(message))
