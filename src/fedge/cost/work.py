"""Count the multiply-adds of a forward pass, by the definition of its layers and not by the form that runs fastest."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax

from fedge.core.forms import plain


def multiply_adds(function: Callable[..., Any], *arguments: Any) -> int:
    """Count those of every matrix product and convolution of `function`, traced with arguments of these shapes."""
    with plain():  # a fast form with fewer multiplications must not make a simulated device faster
        return _count(jax.make_jaxpr(function)(*arguments).jaxpr)


def _count(jaxpr: Any) -> int:
    total = 0
    for equation in jaxpr.eqns:
        out = math.prod(equation.outvars[0].aval.shape)
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left = equation.invars[0].aval.shape
            total += out * math.prod(left[axis] for axis in contracted)
        elif equation.primitive.name == "conv_general_dilated":
            kernel, numbers = equation.invars[1].aval.shape, equation.params["dimension_numbers"]
            total += out * math.prod(kernel) // kernel[numbers.rhs_spec[0]]
        repeats = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        for value in equation.params.values():
            programs = [getattr(v, "jaxpr", v) for v in (value if isinstance(value, (tuple, list)) else (value,))]
            counts = [_count(inner) for inner in programs if hasattr(inner, "eqns")]
            total += repeats * max(counts, default=0)  # of branches, the longest
    return total
