"""SD-FEEL's convergence theory: Theorem 1, its constants and Corollary 1, as printed and fixed.

    mean over k of E‖∇F(u_k)‖² ≤ …,  u = W·m the weighted mean model

| here | paper | |
|---|---|---|
| tau1, tau2 | τ1, τ2 | local_steps, edge_rounds; τ = τ1·τ2 |
| q | ζ^α | what is left of a disagreement after a gossip event |
| s2 | Σ m_i² | 1/C for equal clients |
| gap | Δ | F(u_0) − F* |
| smooth | L | smoothness |
| sigma2 | σ² | variance of a client's stochastic gradient |
| kappa2 | κ² | Σ m_i ‖∇F_i(u) − ∇F(u)‖² at most |

What is wrong in print:
- Lemma 5(f), hence (13), bounds ‖∇F(u) − ∇F_i(w_i)‖ by L‖u − w_i‖, which fails as soon as clients differ: for
  F_{1,2} = ½(w ∓ 1)² and w_i = u = 0 the left side is 1 and the right side 0.
- Lemma 6 drops a cross term; Lemmas 3, 4 and 7 need equal cells.
- V1: the factor τ² stands outside the bracket in Lemma 2 and on Λ only in Lemma 8 (`v1_lemma8`, the one that follows).
- V2: the sum is τ(τ−1)/2, not 2τ²(τ1−1)/τ1, and the factor ρ is lost (`v2_repaired`).

The fixed bound splits each gradient into noise, drift [∇F_i(w_i) − ∇F_i(u)], dissimilarity [∇F_i(u) − ∇F(u)] and the
common part, which averaging leaves alone; the first three contract by q at each gossip event. It holds for unequal
clients with the weighted mixing matrix.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedge.theory.bound import Bound, bound


@dataclass(frozen=True)
class Setting:
    tau1: int
    tau2: int
    q: float
    s2: float
    gap: float
    smooth: float
    sigma2: float
    kappa2: float

    @property
    def tau(self) -> int:
        return self.tau1 * self.tau2


def big_lambda(q: float) -> float:
    """Λ = q²/(1−q²) + 2q/(1−q) + q²/(1−q)²."""
    return math.inf if q >= 1 else q**2 / (1 - q**2) + 2 * q / (1 - q) + q**2 / (1 - q) ** 2


def rho(q: float) -> float:
    """ρ = (2−q)/(1−q)."""
    return math.inf if q >= 1 else (2 - q) / (1 - q)


def _drift(s: Setting) -> float:
    return s.tau1**2 * (s.tau2 - 1) * (2 * s.tau2 + 1) / 6 + (s.tau1 - 1) * (2 * s.tau1 + 1) / 6


def v1_printed(s: Setting) -> float:
    """Lemma 2 has τ²[Λ + ρ(τ1²(τ2−1)(2τ2+1)/6 + (τ1−1)(2τ1+1)/6)]."""
    return s.tau**2 * (big_lambda(s.q) + rho(s.q) * _drift(s))


def v1_lemma8(s: Setting) -> float:
    """Lemma 8 has τ² on Λ only."""
    return s.tau**2 * big_lambda(s.q) + rho(s.q) * _drift(s)


def v2_printed(s: Setting) -> float:
    """The print has τ²(Λ + 2(τ1−1)/τ1)."""
    return s.tau**2 * (big_lambda(s.q) + 2 * (s.tau1 - 1) / s.tau1)


def v2_repaired(s: Setting) -> float:
    """The sum it stands for is τ²Λ + ρ[τ1²τ2(τ2−1)/2 + τ1(τ1−1)/2]."""
    inner = s.tau1**2 * s.tau2 * (s.tau2 - 1) / 2 + s.tau1 * (s.tau1 - 1) / 2
    return s.tau**2 * big_lambda(s.q) + rho(s.q) * inner


# Lemmas 5 and 6. J = Σ m_i‖∇F_i(w_i)‖².


def lemma5(s: Setting, lr: float, gradient2: float, own2: float, apart: float, clients: int, *, fixed: bool) -> Bound:
    """Bound one step: F(u⁺) − F(u) ≤ −(η/2)‖∇F(u)‖² − (η/2)(1 − LCη)J + (ηL²/2)D + (Lη²/2)s2σ², D = Σ m_i‖u − w_i‖².

    Fixed: Σ m_i‖∇F(u) − ∇F_i(w_i)‖² ≤ 2L²D + 2κ², and Jensen's inequality needs no C.
    """
    terms = {
        "descent": -lr / 2 * gradient2,
        "gradients": -lr / 2 * (1 - s.smooth * (1 if fixed else clients) * lr) * own2,
        "disagreement": lr * s.smooth**2 * apart * (1 if fixed else 0.5),
        "gradient noise": s.smooth * lr**2 / 2 * s.s2 * s.sigma2,
    }
    return bound(terms | {"unlike clients": lr * s.kappa2} if fixed else terms, {})


def lemma6(s: Setting, own2: float, *, fixed: bool) -> Bound:
    """Bound Σ m_i‖∇F(w_i)‖² by s2κ² + J; fixed, by 2κ² + 2J, where κ² bounds each ‖∇F_i − ∇F‖² at any model."""
    unlike = 2 * s.kappa2 if fixed else s.s2 * s.kappa2
    return bound({"unlike clients": unlike, "gradients": 2 * own2 if fixed else own2}, {})


def lemma2_printed(s: Setting, lr: float, mean_gradient2: float) -> Bound:
    """The mean disagreement is ≤ 2η²V1(σ² + κ²) + 2η²V2(s2κ² + J), by Lemma 6, J its mean over iterations."""
    v1, v2, factor = v1_printed(s), v2_printed(s), 2 * lr**2
    through = lemma6(s, mean_gradient2, fixed=False).terms
    return bound(
        {
            "noise": _times(factor * v1, s.sigma2),
            "unlike clients": _times(factor * v1, s.kappa2) + _times(factor * v2, through["unlike clients"]),
            "gradients": _times(factor * v2, through["gradients"]),
        },
        {},
    )


def theorem1_printed(s: Setting, lr: float, steps: int, clients: int) -> Bound:
    """The print has 2Δ/(ηK) + Lηs2σ² + 2L²η²V1σ² + 2L²η²(V1 + V2 s2)κ², if 1 − LCη − 2L²η²V2 ≥ 0."""
    v1, v2, factor = v1_printed(s), v2_printed(s), 2 * s.smooth**2 * lr**2
    return bound(
        {
            "optimality gap": 2 * s.gap / (lr * steps),
            "gradient noise": s.smooth * lr * s.s2 * s.sigma2,
            "noise through disagreement": _times(factor * v1, s.sigma2),
            "unlike clients": _times(factor * (v1 + v2 * s.s2), s.kappa2),
        },
        {"1 − LCη − 2L²η²V2 ≥ 0": 1 - s.smooth * clients * lr - factor * v2 >= 0},
    )


def disagreement_fixed(s: Setting, lr: float) -> dict[str, float]:
    """Return D̄ by cause, a bound on the mean of E‖W_k(I − A)‖²_m."""
    if s.q >= 1:
        return {"noise": math.inf if s.sigma2 else 0.0, "unlike clients": math.inf if s.kappa2 else 0.0}
    c = s.tau * s.q / (1 - s.q)
    a_sigma = (s.tau - 1) / 2 + s.tau * s.q**2 / (1 - s.q**2)
    a_kappa = (s.tau - 1) * (2 * s.tau - 1) / 6 + c * (s.tau - 1) + c**2
    return {"noise": 4 * lr**2 * s.sigma2 * a_sigma, "unlike clients": 8 * lr**2 * s.kappa2 * a_kappa}


def theorem1_fixed(s: Setting, lr: float, steps: int) -> Bound:
    """The repair is 2Δ/(ηK) + Lηs2σ² + L²D̄, if η ≤ 1/L and 8η²L²B ≤ 1 with B = (τ−1+c)², c = τq/(1−q)."""
    apart = disagreement_fixed(s, lr)
    b = math.inf if s.q >= 1 else (s.tau - 1 + s.tau * s.q / (1 - s.q)) ** 2
    return bound(
        {
            "optimality gap": 2 * s.gap / (lr * steps),
            "gradient noise": s.smooth * lr * s.s2 * s.sigma2,
            "noise through disagreement": s.smooth**2 * apart["noise"],
            "unlike clients": s.smooth**2 * apart["unlike clients"],
        },
        {"η ≤ 1/L": lr * s.smooth <= 1, "8η²L²(τ−1+c)² ≤ 1": 8 * lr**2 * s.smooth**2 * b <= 1},
    )


def corollary1_printed(s: Setting, steps: int, clients: int) -> Bound:
    """At η = (1/L)(K s2)^{-1/2} it is (2LΔ + σ²)√(s2/K) + [2V1σ²/s2 + (2V1/s2 + 2V2)κ²]/K.

    Condition (15) then asks for K ≥ C³ for equal clients even where V2 = 0, which the paper does not say.
    """
    lr = corollary1_rate(s, steps)
    v1, v2 = v1_printed(s), v2_printed(s)
    return bound(
        {
            "O(√(s2/K))": (2 * s.smooth * s.gap + s.sigma2) * math.sqrt(s.s2 / steps),
            "noise through disagreement": _times(2 * v1 / s.s2 / steps, s.sigma2),
            "unlike clients": _times((2 * v1 / s.s2 + 2 * v2) / steps, s.kappa2),
        },
        {"1 − LCη − 2L²η²V2 ≥ 0": 1 - s.smooth * clients * lr - 2 * s.smooth**2 * lr**2 * v2 >= 0},
    )


def corollary1_fixed(s: Setting, steps: int) -> Bound:
    """Evaluate the fixed theorem at the corollary's step size."""
    return theorem1_fixed(s, corollary1_rate(s, steps), steps)


def corollary1_rate(s: Setting, steps: int) -> float:
    """The corollary's step size is η = (1/L)(K s2)^{-1/2}."""
    return 1 / (s.smooth * math.sqrt(steps * s.s2))


def _times(factor: float, x: float) -> float:
    return factor * x if x else 0.0  # an infinite factor on an absent cause is no cost
