"""What probes measured along a run becomes the theories' constants, and their bounds are evaluated with them.

A theory wants a number that holds at every model of a run: the largest of those measured stands for it, which models,
and for L clients, that were not measured may exceed, so most constants found here are lower estimates. The largest of
several noisy estimates (σ², where samples were drawn) is biased upwards, by about the standard error beside it. F* is
taken as 0, which is below it for every usual loss, so gaps are upper estimates. Means over iterations are taken by the
trapezoid rule over the models that were measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fedge.core.topology import Topology
from fedge.theory import hiersfl, hist, sdfeel
from fedge.theory.bound import Bound
from fedge.theory.probe import Measured, mean_over


@dataclass(frozen=True)
class Measurements:
    """These were made along one run, at its evaluated model after some global rounds, 0 and the last among them."""

    theory: str  # whose bounds are meant: sdfeel, hist or hiersfl
    topology: Topology
    tau1: int
    tau2: int
    q: float  # what is left of a disagreement between cells after a global round: ζ^α, and 0 under a cloud
    cut: int  # layers on the client, where the model is split
    layers: tuple[str, ...]
    lr: float
    rounds: Sequence[int]
    found: Sequence[Measured]
    after_step: float  # F(u_1), if the first step takes the whole gradient

    @property
    def period(self) -> int:
        return self.tau1 * self.tau2

    @property
    def gradient2(self) -> float:
        """Return the mean of ‖∇F‖² over the iterations, which all theorems bound."""
        return mean_over(self.rounds, [m.gradient2 for m in self.found])


class Constant(NamedTuple):
    """This is one constant as it was found: the spread is over the models that were measured."""

    symbol: str
    meaning: str
    least: float
    mean: float
    most: float  # what the bounds are evaluated with, unless they ask for a mean
    round: int  # after which it was largest
    error: float  # of the largest: from the samples drawn, or from power iterations not run to their end; 0: exact


def constants(m: Measurements) -> list[Constant]:
    """List what the theory of this run assumes to be bounded, as found."""
    found = [
        _constant(m, "L", "curvature of a client's loss", lambda p: p.curvature, lambda p: p.curvature_error),
        _constant(m, "σ²", "variance of a client's gradient", lambda p: p.noise_most, lambda p: p.noise_error),
    ]
    match m.theory:
        case "hist":
            found += [
                _constant(m, "δ1²", "cells apart from the whole", lambda p: p.cells_apart),
                _constant(m, "δ2²", "clients apart from their cell", lambda p: p.within_cells),
                _constant(m, "X", "squared norm of the model (its mean counts)", lambda p: p.norm2),
            ]
        case "hiersfl":
            for n, layer in enumerate(m.layers):
                found += [
                    _constant(m, f"G² {layer}", "largest squared gradient of it", lambda p, n=n: p.layer_gradient2[n]),
                    _constant(m, f"σ² {layer}", "variance of its gradient", lambda p, n=n: p.layer_noise[n]),
                ]
        case _:
            found += [
                _constant(m, "κ²", "clients apart from the whole, at most", lambda p: p.apart_most),
                _constant(m, "κ² mean", "the same in the weighted mean", lambda p: p.apart),
            ]
    return found


Read = Callable[..., float]


def _constant(m: Measurements, symbol: str, meaning: str, read: Read, error: Read = lambda p: 0.0) -> Constant:
    values = [read(p) for p in m.found]
    at = int(np.argmax(values))
    mean = mean_over(m.rounds, values)
    return Constant(symbol, meaning, min(values), mean, values[at], m.rounds[at], error(m.found[at]))


def bounds(m: Measurements) -> dict[str, Bound]:
    """Evaluate the bounds on the mean of ‖∇F‖² over this run's iterations, as printed and fixed."""
    rounds = m.rounds[-1] - m.rounds[0]
    steps = rounds * m.period
    match m.theory:
        case "hist":
            s = _hist(m)
            return {
                "printed": hist.theorem1_printed(s, m.lr),
                "fixed": hist.theorem1_fixed(s, m.lr, steps),
                "fixed, unsimplified": hist.theorem1_unsimplified_fixed(s, m.lr, steps),
            }
        case "hiersfl":
            own = _hiersfl(m)
            return {
                "printed": hiersfl.theorem1_printed(own, m.lr, rounds),
                "fixed": hiersfl.theorem1_fixed(own, m.lr, rounds),
                "fixed, small steps": hiersfl.theorem1_small_steps(own, m.lr, rounds, m.topology.clients),
            }
        case _:
            at = _sdfeel(m)
            return {
                "printed": sdfeel.theorem1_printed(at, m.lr, steps, m.topology.clients),
                "fixed": sdfeel.theorem1_fixed(at, m.lr, steps),
            }


def _most(m: Measurements, read: Read) -> float:
    return max(read(p) for p in m.found)


def _sdfeel(m: Measurements) -> sdfeel.Setting:
    weight = m.topology.weight
    apart_most, apart = _most(m, lambda p: p.apart_most), _most(m, lambda p: p.apart)
    return sdfeel.Setting(
        m.tau1, m.tau2, m.q, float(weight @ weight), gap0=m.found[0].loss, gap1=m.after_step,
        smooth=_most(m, lambda p: p.curvature), sigma2=_most(m, lambda p: p.noise_most),
        kappa2=max(apart_most, apart), kappa2_mean=apart,
    )  # fmt: skip


def _hist(m: Measurements) -> hist.Setting:
    return hist.Setting(
        sizes=np.bincount(m.topology.cell).tolist(), local_steps=m.tau1, period=m.period, gap=m.found[0].loss,
        smooth=_most(m, lambda p: p.curvature), sigma2=_most(m, lambda p: p.noise_most),
        delta1=_most(m, lambda p: p.cells_apart), delta2=_most(m, lambda p: p.within_cells),
        norm=mean_over(m.rounds, [p.norm2 for p in m.found]),
    )  # fmt: skip


def _hiersfl(m: Measurements) -> hiersfl.Setting:
    each = range(len(m.layers))
    return hiersfl.Setting(
        m.tau1, m.tau2, gradients=[_most(m, lambda p, n=n: p.layer_gradient2[n]) for n in each],
        variances=[_most(m, lambda p, n=n: p.layer_noise[n]) for n in each],
        cut=m.cut, gap=m.found[0].loss, smooth=_most(m, lambda p: p.curvature),
    )  # fmt: skip


def verdict(bound: Bound, start: float, measured: float) -> str:
    """Say what a bound is worth for this run; `start` is ‖∇F‖² at first, `measured` its mean over the run."""
    broken = [name for name, holds in bound.conditions.items() if not holds]
    if broken:
        return f"vacuous: it needs {', '.join(broken)}, which does not hold here"
    if not math.isfinite(bound.value):
        return "vacuous: it is infinite"
    if bound.value < 0:
        return "impossible: a squared norm is never below 0"
    if bound.value >= start:
        return f"vacuous: {bound.value / start:.3g} times the squared gradient norm that training started with"
    if bound.value < measured:
        times = measured / bound.value
        return f"refuted, or its constants are larger elsewhere: the mean measured is {times:.3g} times it"
    return f"it holds, {bound.value / measured:.3g} times the mean measured"


def as_numbers(bound: Bound) -> Mapping[str, Any]:
    """Return a bound as JSON has it, with None for what is not finite."""

    def plain(x: float) -> float | None:
        return float(x) if math.isfinite(x) else None

    return {
        "value": plain(bound.value), "terms": {name: plain(x) for name, x in bound.terms.items()},
        "valid": bool(bound.valid), "conditions": {name: bool(holds) for name, holds in bound.conditions.items()},
    }  # fmt: skip
