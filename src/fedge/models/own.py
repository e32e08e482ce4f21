"""A model of the user's own is found by the name of the function that makes it.

    def build(shape, outputs, rngs, *, width: Annotated[int, Field(ge=1, description="hidden units")] = 64):
        return Net(...)                          # an NNX module

    def build(shape, outputs):
        return fedge.from_nnx(...)               # a fedge.Model, or a Linen module

`shape` is that of one input, `outputs` how many numbers the task wants for it: classes, numbers to predict, tokens.
Keyword-only parameters are keys of the run, as an algorithm's are (`core/declared.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from flax import linen, nnx
from pydantic.fields import FieldInfo

from fedge import plugins
from fedge.core.declared import declared
from fedge.errors import ConfigError
from fedge.models.base import Model, from_nnx
from fedge.models.linen import from_linen

WITH_RNGS, WITHOUT = ("shape", "outputs", "rngs"), ("shape", "outputs")
Shape = tuple[int, ...]
MADE = {  # what people pass in where a function is asked for
    Model: "pass it by itself, as in fedge.run(model=model, …)",
    linen.Module: "wrap it, fedge.from_linen(module, input_shape=…, classes=…)",
    nnx.Module: "give a function that makes it, of (shape, outputs, rngs), or wrap one with fedge.from_nnx",
}
OWN: dict[str, Callable[..., Any]] = {}  # the user's functions, once they were asked for


def name_of(function: Callable[..., Any]) -> str:
    """Name a function, or a class, that was passed in from Python, and remember it by that name."""
    for kind, instead in MADE.items():
        if isinstance(function, kind):
            raise ConfigError(f"the model passed in is a {type(function).__name__} that was made already; {instead}")
    name = plugins.name_of("model", function)
    plugins.require_takes("model", name, function, WITH_RNGS, WITHOUT)
    declared(function)
    OWN[name] = function
    return name


def function_of(name: str) -> Callable[..., Any]:
    """Find the function of this name; keys that it declares badly are refused at once."""
    if name not in OWN:
        found = plugins.find("model", name, WITH_RNGS, WITHOUT)
        declared(found)
        OWN[name] = found
    return OWN[name]


def keys_of(name: Any) -> dict[str, FieldInfo]:
    """Return the keys that the model of this name declares: none, where it is not the user's own."""
    return declared(function_of(name)) if plugins.is_name(name) else {}


def make_own(name: str, shape: Shape, outputs: int, **own: Any) -> Model:
    """Call the user's function; what it returns becomes a model."""
    return _make(function_of(name), name, shape, outputs, **own)


@cache
def _make(function: Callable[..., Any], name: str, shape: Shape, outputs: int, **own: Any) -> Model:
    """The same arguments give the same object, so that what it compiled is there again."""
    what = f"model={name}"
    if plugins.accepts(function, WITH_RNGS):

        def build(rngs: nnx.Rngs) -> nnx.Module:
            return _module(what, function(shape, outputs, rngs, **own))

        return plugins.call(what, from_nnx, build, input_shape=shape, classes=outputs, name=name)
    made = plugins.call(what, function, shape, outputs, **own)
    if isinstance(made, linen.Module):
        made = plugins.call(what, from_linen, made, input_shape=shape, classes=outputs, name=name)
    if not isinstance(made, Model):
        raise ConfigError(
            f"{what} returned a {type(made).__name__}; let it return a fedge.Model (fedge.from_nnx, fedge.from_linen) "
            "or a Linen module, or take (shape, outputs, rngs) and return an NNX module"
        )
    return replace(made, name=name) if made.name == "custom" else made


def _module(what: str, made: Any) -> nnx.Module:
    if isinstance(made, nnx.Module):
        return made
    raise ConfigError(
        f"{what} returned a {type(made).__name__}; a function of (shape, outputs, rngs) returns an NNX module, one of "
        "(shape, outputs) a fedge.Model or a Linen module"
    )
