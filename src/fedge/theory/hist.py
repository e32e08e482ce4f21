"""HIST's convergence theory: Theorem 1, Corollary 1, Remark 1 and the lemmas behind them, as printed and fixed.

    mean over t of E‖∇f(x̂^t)‖² ≤ …,  x̂ the union of the cells' means

| here | paper | |
|---|---|---|
| cells | N | |
| inverse | Ñ = Σ_j 1/n_j | n_j clients in cell j |
| local_steps, period | H, E | E = local_steps × edge_rounds |
| gap | Δ | f(x̄⁰) − f* |
| smooth | L | |
| sigma2 | σ² | variance of a stochastic gradient |
| delta1 | δ1² | (1/N)Σ_j‖∇f_j − ∇f‖² at most: between cells |
| delta2 | δ2² | between the clients of a cell |
| norm | X | (E/T) Σ_m E‖x̄^{mE}‖²: mean squared norm of the synchronised models |

What is wrong in print:
- Telescoping (18) → (19) loses a factor 1/T on the optimality gap; at the corollary's step size the printed term grows.
- Fact 1 needs the vector to be independent of the mask, which holds only at the start of a round. The mask-free bound
  Σ_j‖p_j ⊙ (∇f_j − ∇f)‖² ≤ (N − 1)·δ1² replaces δ1² by (N − 1)·δ1², tight, and the same at N = 2.
- Corollary 1's second term is O((ÑT)^{-1/2}), not O(T^{-1/2}): large cells make Ñ small and the term large.

At the paper's own N = 4, H = 40, E = 200 condition (12) asks for γL ≤ 9.0e-5: its experiments lie outside. The norm
term alone exceeds L²‖x − x*‖² when x* is near 0, so the bound is a trend and not a number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedge.theory.bound import Bound, bound


@dataclass(frozen=True)
class Setting:
    sizes: Sequence[int]  # n_j
    local_steps: int
    period: int
    gap: float
    smooth: float
    sigma2: float
    delta1: float
    delta2: float
    norm: float

    @property
    def cells(self) -> int:
        return len(self.sizes)

    @property
    def inverse(self) -> float:
        return sum(1 / n for n in self.sizes)


def condition12(s: Setting, lr: float) -> dict[str, bool]:
    """Say which parts of (12) hold: γ ≤ min{1/(32E√(N−1)L), Ñ/(NHL), 1/(NH²L), 1/((N+1)EL)}, N ≥ 2."""
    n, h, e, step = s.cells, s.local_steps, s.period, lr * s.smooth
    return {
        "N ≥ 2": n >= 2,
        "γ ≤ 1/(32E√(N−1)L)": step * 32 * e * math.sqrt(n - 1) <= 1,
        "γ ≤ Ñ/(NHL)": step * n * h <= s.inverse,
        "γ ≤ 1/(NH²L)": step * n * h**2 <= 1,
        "γ ≤ 1/((N+1)EL)": step * (n + 1) * e <= 1,
    }


def largest_rate(s: Setting) -> float:
    """Return the largest γ that (12) admits."""
    n, h, e = s.cells, s.local_steps, s.period
    limits = [s.inverse / (n * h), 1 / (n * h**2), 1 / ((n + 1) * e)]
    if n > 1:
        limits.append(1 / (32 * e * math.sqrt(n - 1)))
    return min(limits) / s.smooth


def theorem1_printed(s: Setting, lr: float) -> Bound:
    """(13) is 4Δ/γ + 50γÑLσ² + 24γLδ2² + 12δ1² + 24(N−1)L²X."""
    return bound(_terms(s, lr, 4 * s.gap / lr, 12 * s.delta1), condition12(s, lr))


def theorem1_fixed(s: Setting, lr: float, steps: int) -> Bound:
    """It is 4Δ/(γT) + 50γÑLσ² + 24γLδ2² + 12(N−1)δ1² + 24(N−1)L²X, under the same condition."""
    terms = _terms(s, lr, 4 * s.gap / (lr * steps), 12 * (s.cells - 1) * s.delta1)
    return bound(terms, condition12(s, lr))


def _terms(s: Setting, lr: float, gap: float, between: float) -> dict[str, float]:
    return {
        "optimality gap": gap,
        "gradient noise": 50 * lr * s.inverse * s.smooth * s.sigma2,
        "unlike clients in a cell": 24 * lr * s.smooth * s.delta2,
        "unlike cells": between,
        "norm of the model": 24 * (s.cells - 1) * s.smooth**2 * s.norm,
    }


def theorem1_unsimplified_printed(s: Setting, lr: float) -> Bound:
    """(22) gathers no terms by the step-size condition and needs less of it; it has 4Δ/γ and δ1², as (13)."""
    return _unsimplified(s, lr, 4 * s.gap / lr, s.delta1)


def theorem1_unsimplified_fixed(s: Setting, lr: float, steps: int) -> Bound:
    """It is (22) with 4Δ/(γT) and (N−1)δ1²."""
    return _unsimplified(s, lr, 4 * s.gap / (lr * steps), (s.cells - 1) * s.delta1)


def _unsimplified(s: Setting, lr: float, gap: float, between: float) -> Bound:
    n, h, e, el = s.cells, s.local_steps, s.period, s.smooth
    noise = 2 + 12 * lr * h * el * n / s.inverse + 36 * lr * (n + 1) * e * el
    return bound(
        {
            "optimality gap": gap,
            "gradient noise": noise * lr * el * s.sigma2 * s.inverse,
            "unlike clients in a cell": 24 * lr**2 * n * h**2 * el**2 * s.delta2,
            "unlike cells": (6 + 648 * lr**2 * (n + 1) * e**2 * el**2) * between,
            "norm of the model": 24 * (n - 1) * el**2 * s.norm,
        },
        {
            "γ ≤ 1/(EL√(972(N−1)))": lr * e * el * math.sqrt(972 * (n - 1)) <= 1,
            "γ ≤ 1/(EL√(54(N+1)))": lr * e * el * math.sqrt(54 * (n + 1)) <= 1,
            "γ ≤ 1/(HL√18)": lr * h * el * math.sqrt(18) <= 1,
            "γ ≤ 1/L": lr * el <= 1,
        },
    )


# The lemmas. `fixed` takes (N−1)δ1² where the print has δ1².


def lemma1(s: Setting, lr: float, gradient2: float, apart_cells: float, apart_clients: float, *, fixed: bool) -> Bound:
    """Bound one step: E f(x̂⁺) − E f(x̂) ≤ −(γ/2)‖∇f‖² + ½γ²LÑσ² + (3γ/2)[δ1² + L²(d_e + d_c)]."""
    return bound(
        {
            "descent": -lr / 2 * gradient2,
            "gradient noise": lr**2 * s.smooth * s.inverse * s.sigma2 / 2,
            "unlike cells": 1.5 * lr * _between(s, fixed),
            "cells away from the union": 1.5 * lr * s.smooth**2 * apart_cells,
            "clients away from their cell": 1.5 * lr * s.smooth**2 * apart_clients,
        },
        {"γ ≤ 1/L": lr * s.smooth <= 1},
    )


def lemma2(s: Setting, lr: float, gradient2: float, apart_clients: float, *, fixed: bool) -> Bound:
    """Bound cells away from the union: D_e ≤ D_c/3 + 162γ²E²(N−1)ḡ + 108γ²(N+1)E²δ1² + 6γ²(N+1)ÑEσ² + 4(N−1)X."""
    n, e = s.cells, s.period
    between = 108 * lr**2 * (n + 1) * e**2 * _between(s, fixed)
    return bound(
        {
            "clients away from their cell": apart_clients / 3,
            "gradient": 162 * lr**2 * e**2 * (n - 1) * gradient2,
            "unlike cells": between,
            "gradient noise": 6 * lr**2 * (n + 1) * s.inverse * e * s.sigma2,
            "norm of the model": 4 * (n - 1) * s.norm,
        },
        {"γ ≤ 1/(EL√(54(N+1)))": lr * e * s.smooth * math.sqrt(54 * (n + 1)) <= 1},
    )


def lemma3(s: Setting, lr: float) -> Bound:
    """Bound clients away from their cell: D_c ≤ 1.5γ²NHσ² + 3γ²NH²δ2²."""
    n, h = s.cells, s.local_steps
    return bound(
        {
            "gradient noise": 1.5 * lr**2 * n * h * s.sigma2,
            "unlike clients in a cell": 3 * lr**2 * n * h**2 * s.delta2,
        },
        {"γ ≤ 1/(HL√18)": lr * h * s.smooth * math.sqrt(18) <= 1},
    )


def _between(s: Setting, fixed: bool) -> float:
    return (s.cells - 1) * s.delta1 if fixed else s.delta1


# Corollary 1, its conditions and Remark 1


def corollary1_rate(s: Setting, steps: int) -> float:
    """The corollary's rate is γ = (TÑ)^{-1/2}."""
    return 1 / math.sqrt(steps * s.inverse)


def corollary1_printed(s: Setting, steps: int) -> Bound:
    """Evaluate the printed theorem at that rate: its first term grows as √T, which Corollary 1 does not say."""
    return theorem1_printed(s, corollary1_rate(s, steps))


def corollary1_fixed(s: Setting, steps: int) -> Bound:
    return theorem1_fixed(s, corollary1_rate(s, steps), steps)


def smallest_horizon(s: Setting) -> float:
    """Return the T from which on the corollary's rate satisfies (12): γ = (TÑ)^{-1/2} ≤ γ_max."""
    return 1 / (s.inverse * largest_rate(s) ** 2)


def largest_local_steps(s: Setting, steps: int) -> float:
    """Return the largest H of (12) at the corollary's rate: min{(ÑT)^{1/4}(NL)^{-1/2}, Ñ^{3/2}T^{1/2}/(NL)}."""
    n_l = s.cells * s.smooth
    return min((s.inverse * steps) ** 0.25 / math.sqrt(n_l), s.inverse**1.5 * math.sqrt(steps) / n_l)


def largest_period(s: Setting, steps: int) -> float:
    """Return the largest E that (12) admits at the corollary's rate: (ÑT)^{1/2}/L · min{1/(N+1), 1/(32√(N−1))}.

    The paper's order, (ÑT)^{1/2}/N, is the first of the two, the smaller one from N = 1021 on.
    """
    share = 1 / (s.cells + 1)
    if s.cells > 1:
        share = min(share, 1 / (32 * math.sqrt(s.cells - 1)))
    return math.sqrt(s.inverse * steps) / s.smooth * share


def remark1_terms(s: Setting, steps: int) -> dict[str, float]:
    """Return what vanishes of the fixed corollary by its order in Ñ: (4Δ + 50Lσ²)√(Ñ/T) and 24Lδ2²/√(ÑT)."""
    return {
        "√(Ñ/T)": (4 * s.gap + 50 * s.smooth * s.sigma2) * math.sqrt(s.inverse / steps),
        "1/√(ÑT)": 24 * s.smooth * s.delta2 / math.sqrt(s.inverse * steps),
    }


def remark1_crossover(s: Setting) -> float:
    """Return the Ñ at which both are equal; above it, in small cells, the first one leads."""
    return 24 * s.smooth * s.delta2 / (4 * s.gap + 50 * s.smooth * s.sigma2)


def remark1_rate(s: Setting, steps: int) -> float:
    """With γ = (T·max{Ñ, 1})^{-1/2} what vanishes is O(T^{-1/2}) for Ñ ≤ 1, as Remark 1 has it, in large cells too."""
    return 1 / math.sqrt(steps * max(s.inverse, 1.0))
