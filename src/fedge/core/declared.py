"""A function declares its own keys by its keyword-only parameters: a type with limits and a meaning, and a default.

    def mine(knobs, topology, model, *, mu: Annotated[float, Field(ge=0, description="weight of …")] = 0.1) -> Algorithm

makes `mu` a key of this algorithm everywhere: on the command line, in TOML, in Python, in records and in `fedge keys`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any, get_type_hints

from pydantic import TypeAdapter
from pydantic.fields import FieldInfo

from fedge.errors import ConfigError


@cache
def declared(function: Callable[..., Any]) -> dict[str, FieldInfo]:
    """Read the keys that a function declares; each needs an annotation and a default."""
    own = [p for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    if not own:
        return {}
    name = getattr(function, "__name__", str(function))
    try:
        hints = get_type_hints(function, include_extras=True)
    except Exception as problem:  # a name in an annotation that is imported for type checkers only, say
        raise ConfigError(f"the annotations of {name} cannot be read ({problem}); import what they name") from None
    found = {}
    for parameter in own:
        if parameter.name not in hints or parameter.default is parameter.empty:
            raise ConfigError(
                f"key '{parameter.name}' of {name} needs a type and a default; write for instance "
                f'{parameter.name}: Annotated[float, Field(ge=0, description="what it means")] = 0.1'
            )
        found[parameter.name] = FieldInfo.from_annotated_attribute(hints[parameter.name], parameter.default)
    return found


def validated(field: FieldInfo, value: Any) -> Any:
    """Return a value as what its key takes, or raise pydantic's error."""
    return TypeAdapter(_annotated(field)).validate_python(value)


def _annotated(field: FieldInfo) -> Any:
    from typing import Annotated

    return Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
