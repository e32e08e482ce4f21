"""Codecs are chosen by their names, link by link.

A client's codec is of its update, what it adds to its edge's model, over trainable weights; running statistics travel
as they are. Downwards it is of the model itself. Between edges that gossip nothing is encoded.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from fedge.core.contract import Algorithm, Cloud, ModelDescription
from fedge.core.update import Codec
from fedge.errors import ConfigError, brief, suggestion
from fedge.updates.int8 import int8
from fedge.updates.names import NUMBER, own
from fedge.updates.qsgd import qsgd
from fedge.updates.topk import topk

NAMES = ["none", "qsgd8", "int8", "topk:0.01", "topk:0.01:plain"]
ALLOWED = (
    "none, qsgdB with B = 2 to 16 bits for each number, int8, topk:F with a fraction F of each tensor's numbers, "
    "topk:F:plain where what is not sent is lost, or package.module:function with one of your own"
)


def codec_of(text: str, key: str = "codec") -> Codec | None:
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


def encoded(
    algorithm: Algorithm, model: ModelDescription, *,
    codec: Annotated[str, Field(examples=NAMES, description="form in which clients send their updates")] = "none",
    down_codec: Annotated[str, Field(examples=NAMES, description="form in which clients are sent models")] = "none",
    cloud_codec: Annotated[str, Field(examples=NAMES, description="form in which edges send their updates")] = "none",
) -> Algorithm:  # fmt: skip
    up, down, far = codec_of(codec), codec_of(down_codec, "down_codec"), codec_of(cloud_codec, "cloud_codec")
    if far is not None and not isinstance(algorithm.exchange, Cloud):
        raise ConfigError(
            f"cloud_codec={cloud_codec} is for edges under a cloud, which {algorithm.name} has not; leave it out"
        )
    for key, chosen in (("down_codec", down), ("cloud_codec", far)):
        if chosen is not None and chosen.feedback:
            raise ConfigError(
                f"{key}={chosen.name} would lose what it does not send, as only clients keep it; write :plain if that "
                "is meant"
            )
    if up is not None and up.feedback and (algorithm.shared is not None or not algorithm.whole_models):
        raise ConfigError(
            f"codec={codec} keeps what was lost for the next update, which {algorithm.name} cannot: what its clients "
            f"train is not the same from round to round or not theirs alone; write codec={codec}:plain"
        )
    if up is None and down is None and far is None:
        return algorithm
    return replace(algorithm, way=replace(algorithm.way, uplink=up, downlink=down, backhaul=far))
