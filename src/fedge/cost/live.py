"""This estimates how many bytes a program holds at its worst moment, from its operations and without compiling it.

    live(k) = the values that operation k reads or makes, or that a later one reads
    peak    = max over k of their bytes

A compiler does not write every value down: what is reshaped, cut out or turned stays where it is, an elementwise value
with a single elementwise reader is computed where it is read, and an elementwise result takes the place of an operand
that nobody reads any more. Arguments are not counted. Loops hold one turn at a time, and what is handed from turn to
turn may be changed in its place.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
from jax.extend.core import Literal

IN_PLACE = frozenset({
    "broadcast_in_dim", "copy", "expand_dims", "iota", "reshape", "slice", "split", "squeeze", "stop_gradient",
    "transpose", "unstack",
})  # fmt: skip
ELEMENTWISE = frozenset({
    "abs", "add", "add_any", "and", "clamp", "convert_element_type", "div", "eq", "erf", "exp", "exp2", "expm1", "ge",
    "gt", "integer_pow", "is_finite", "le", "log", "log1p", "logistic", "lt", "max", "min", "mul", "ne", "neg", "not",
    "or", "pow", "rsqrt", "select_n", "shift_left", "shift_right_logical", "sign", "sqrt", "square", "sub", "tanh",
    "xor",
})  # fmt: skip
GATHERING = frozenset({"argmax", "concatenate", "dynamic_update_slice", "pad", "reduce_max", "reduce_sum"})
READS_ELEMENTWISE = ELEMENTWISE | IN_PLACE | GATHERING
SORTING = frozenset({"approx_top_k", "sort", "top_k"})  # their values once more, and as many positions of 4 bytes
LOOPS = ("scan", "while", "cond")
Places = frozenset[int]
"""what must lie in memory for a value to be read: itself, or what it is computed from where it is read"""


class Step(NamedTuple):
    """This is an operation once calls are written out in their place; values are numbered."""

    kind: str
    reads: tuple[int, ...]
    makes: tuple[int, ...]
    within: int  # bytes that a loop holds inside


def peak_bytes(function: Callable[..., Any], *shapes: Any) -> int:
    """Return the bytes that a function holds at its worst moment besides its arguments, of these shapes."""
    return _peak(jax.make_jaxpr(function)(*shapes).jaxpr)


def bytes_of(shapes: Any) -> int:
    """Return the bytes of a pytree of arrays or their shapes."""
    return sum(_size(leaf) for leaf in jax.tree.leaves(shapes))


def _size(shape: Any) -> int:
    return math.prod(shape.shape) * int(getattr(shape.dtype, "itemsize", 8))


class _Program:
    """This is a program whose calls are written out."""

    def __init__(self, jaxpr: Any, carried: slice) -> None:
        self.steps: list[Step] = []
        self.size: dict[int, int] = {}  # of each value that is made, or carried into this
        self._next = itertools.count()
        known = {v: next(self._next) for v in (*jaxpr.invars, *jaxpr.constvars)}
        self.carried = frozenset(known[v] for v in jaxpr.invars[carried])
        self.size.update({known[v]: _size(v.aval) for v in jaxpr.invars[carried]})
        self._write_out(jaxpr, known)
        self.results = [known[v] for v in jaxpr.outvars if not isinstance(v, Literal)]

    def _write_out(self, jaxpr: Any, known: dict[Any, int]) -> None:
        """List a program's operations, and number what they make in `known`."""

        def number(variables: Any, of: Mapping[Any, int]) -> list[int | None]:
            return [None if isinstance(v, Literal) else of.get(v) for v in variables]

        for equation in jaxpr.eqns:
            given = [getattr(part, "jaxpr", part) for value in equation.params.values()
                     for part in (value if isinstance(value, tuple | list) else (value,))]  # fmt: skip
            inner: list[Any] = [part for part in given if hasattr(part, "eqns")]
            name, reads = equation.primitive.name, number(equation.invars, known)
            if name not in LOOPS and len(inner) == 1 and len(inner[0].invars) == len(reads):
                own = {v: n for v, n in zip(inner[0].invars, reads, strict=True) if n is not None}
                self._write_out(inner[0], own)
                ends = number(inner[0].outvars, own)
                known.update({v: n for v, n in zip(equation.outvars, ends, strict=True) if n is not None})
            else:
                makes = tuple(next(self._next) for _ in equation.outvars)
                known.update(zip(equation.outvars, makes, strict=True))
                self.size.update({n: _size(v.aval) for n, v in zip(makes, equation.outvars, strict=True)})
                begin = int(equation.params.get("num_consts", 0))
                carried = slice(begin, begin + int(equation.params.get("num_carry", 0)) if name == "scan" else begin)
                within = max((_peak(part, carried) for part in inner), default=0)
                if name in SORTING:
                    within += sum(_size(v.aval) + 4 * math.prod(v.aval.shape) for v in equation.invars)
                self.steps.append(Step(name, tuple(n for n in reads if n is not None), makes, within))

    def places(self) -> dict[int, Places]:
        """Say of each value that is made where it lies: at a place of its own, or at those that it is computed from."""
        readers: dict[int, list[str]] = {}
        for step in self.steps:
            for value in step.reads:
                readers.setdefault(value, []).append(step.kind)
        found: dict[int, Places] = {value: frozenset((value,)) for value in self.carried}
        for step in self.steps:
            sources = frozenset().union(*(found.get(value, frozenset()) for value in step.reads))
            for value in step.makes:
                by, kept = readers.get(value, []), value in self.results
                fused = step.kind in ELEMENTWISE and len(by) == 1 and by[0] in READS_ELEMENTWISE and not kept
                found[value] = sources if step.kind in IN_PLACE or fused else frozenset((value,))
        return found


def _peak(jaxpr: Any, carried: slice = slice(0)) -> int:
    program = _Program(jaxpr, carried)
    places = program.places()
    last = {place: k for k, step in enumerate(program.steps) for value in step.reads for place in places.get(value, ())}
    last |= {place: len(program.steps) for value in program.results for place in places.get(value, ())}
    ends: dict[int, list[int]] = {}
    for place, k in last.items():
        ends.setdefault(k, []).append(place)
    peak = total = 0
    for k, step in enumerate(program.steps):
        own = [value for value in step.makes if places[value] == {value}]
        size, ended = sum(program.size[value] for value in own), ends.get(k, [])
        over = [program.size[place] for place in ended if place not in program.carried]
        if step.kind in ELEMENTWISE and size and size in [program.size[p] for p in ended if p in program.carried]:
            program.size.update(dict.fromkeys(own, 0))  # in the place of what was carried here, which is not counted
            size = 0
        reused = min(size, max(over, default=0)) if step.kind in ELEMENTWISE else 0
        peak = max(peak, total + size - reused + step.within)
        total += size - sum(over) - sum(program.size[value] for value in own if value not in last)
    return peak
