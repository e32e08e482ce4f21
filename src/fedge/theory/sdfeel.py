"""SD-FEEL's convergence theory: Theorem 1, its constants, Corollary 1 and Remark 3, as printed and fixed.

    mean over k of E‖∇F(u_k)‖² ≤ …,  u = W·m the weighted mean model

| here | paper | |
|---|---|---|
| tau1, tau2 | τ1, τ2 | local_steps, edge_rounds; τ = τ1·τ2 |
| q | ζ^α | what is left of a disagreement after a gossip event |
| s2 | Σ m_i² | 1/C for equal clients |
| gap0 | | F(u_0) − F*, of the models that training starts with |
| gap1 | Δ | F(u_1) − F*, after the first iteration |
| smooth | L | smoothness |
| sigma2 | σ² | variance of a client's stochastic gradient |
| kappa2 | κ² | bound (10): ‖∇F_i(w) − ∇F(w)‖² at most, for every client and model |
| kappa2_mean | | Σ m_i ‖∇F_i(w) − ∇F(w)‖² at most, for every model; never above kappa2 |

The printed forms take the paper's Δ and κ², gap1 and kappa2. The fixed ones take gap0, which is known before training,
and kappa2_mean, which suffices for them. The lemmas, and what is wrong with them, are in `sdfeel_lemmas`.

What is wrong in print:
- Theorem 1 uses Lemma 5, which fails as soon as clients differ, and Lemma 2. It is false itself: for equal clients with
  τ1 = 1 and q = 0, where V2 is 0 and (15) admits η = 1/(LC) for any τ2; and for unequal cells with the paper's P.
- V1: the factor τ² stands outside the bracket in Lemma 2 and on Λ only in Lemma 8 (`v1_lemma8`, the one that follows).
- V2: the sum is τ(τ−1)/2, not 2τ²(τ1−1)/τ1, and the factor ρ is lost (`v2_repaired`).
- Condition (15) has a factor C, the number of clients, which Jensen's inequality does not need.

The fixed bound splits each gradient into noise, drift [∇F_i(w_i) − ∇F_i(u)], dissimilarity [∇F_i(u) − ∇F(u)] and the
common part, which averaging leaves alone; the first three contract by q at each gossip event. It holds for unequal
clients with the weighted mixing matrix.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedge.errors import ConfigError
from fedge.theory.bound import Bound, bound, times


@dataclass(frozen=True)
class Setting:
    tau1: int
    tau2: int
    q: float
    s2: float
    gap0: float
    gap1: float
    smooth: float
    sigma2: float
    kappa2: float
    kappa2_mean: float

    def __post_init__(self) -> None:
        if self.kappa2_mean > self.kappa2 * (1 + 1e-9):
            raise ConfigError(
                f"kappa2_mean={self.kappa2_mean:g} is above kappa2={self.kappa2:g}, but a mean over clients is at most "
                "the bound on every client; raise kappa2 or lower kappa2_mean"
            )

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
    return s.tau**2 * (big_lambda(s.q) + times(rho(s.q), _drift(s)))


def v1_lemma8(s: Setting) -> float:
    """Lemma 8 has τ² on Λ only."""
    return s.tau**2 * big_lambda(s.q) + times(rho(s.q), _drift(s))


def v2_printed(s: Setting) -> float:
    """The print has τ²(Λ + 2(τ1−1)/τ1)."""
    return s.tau**2 * (big_lambda(s.q) + 2 * (s.tau1 - 1) / s.tau1)


def v2_repaired(s: Setting) -> float:
    """The sum it stands for is τ²Λ + ρ[τ1²τ2(τ2−1)/2 + τ1(τ1−1)/2]."""
    inner = s.tau1**2 * s.tau2 * (s.tau2 - 1) / 2 + s.tau1 * (s.tau1 - 1) / 2
    return s.tau**2 * big_lambda(s.q) + times(rho(s.q), inner)


def condition15(s: Setting, lr: float, clients: int) -> dict[str, bool]:
    """Say whether 1 − LCη − 2L²η²V2 ≥ 0. With `clients=1` it is (15) without the factor C that Jensen does not need."""
    return {"1 − LCη − 2L²η²V2 ≥ 0": 1 - s.smooth * clients * lr - 2 * (s.smooth * lr) ** 2 * v2_printed(s) >= 0}


def theorem1_printed(s: Setting, lr: float, steps: int, clients: int) -> Bound:
    """(16) is 2Δ/(ηK) + Lηs2σ² + 2L²η²V1σ² + 2L²η²(V1 + V2 s2)κ², if (15) holds; the mean is over k = 1..K."""
    v1, v2, factor = v1_printed(s), v2_printed(s), 2 * s.smooth**2 * lr**2
    return bound(
        {
            "optimality gap": 2 * s.gap1 / (lr * steps),
            "gradient noise": s.smooth * lr * s.s2 * s.sigma2,
            "noise through disagreement": times(factor * v1, s.sigma2),
            "unlike clients": times(factor * (v1 + v2 * s.s2), s.kappa2),
        },
        condition15(s, lr, clients),
    )


def disagreement_fixed(s: Setting, lr: float) -> dict[str, float]:
    """Return D̄ by cause, a bound on the mean of E‖W_k(I − A)‖²_m: 4η²σ²A_σ + 8η²κ²A_κ, κ² the weighted mean."""
    a_sigma, a_kappa, _ = _spread(s)
    return {
        "noise": times(4 * lr**2 * a_sigma, s.sigma2),
        "unlike clients": times(8 * lr**2 * a_kappa, s.kappa2_mean),
    }


def _spread(s: Setting) -> tuple[float, float, float]:
    """A_σ = (τ−1)/2 + τq²/(1−q²), A_κ = (τ−1)(2τ−1)/6 + c(τ−1) + c², B = (τ−1+c)², with c = τq/(1−q)."""
    if s.q >= 1:
        return math.inf, math.inf, math.inf
    c = s.tau * s.q / (1 - s.q)
    a_sigma = (s.tau - 1) / 2 + s.tau * s.q**2 / (1 - s.q**2)
    a_kappa = (s.tau - 1) * (2 * s.tau - 1) / 6 + c * (s.tau - 1) + c**2
    return a_sigma, a_kappa, (s.tau - 1 + c) ** 2


def theorem1_fixed(s: Setting, lr: float, steps: int) -> Bound:
    """The repair is 2(F(u_0) − F*)/(ηK) + Lηs2σ² + L²D̄, if η ≤ 1/L and 8η²L²B ≤ 1; the mean is over k = 0..K−1."""
    apart = disagreement_fixed(s, lr)
    b = _spread(s)[2]
    return bound(
        {
            "optimality gap": 2 * s.gap0 / (lr * steps),
            "gradient noise": s.smooth * lr * s.s2 * s.sigma2,
            "noise through disagreement": s.smooth**2 * apart["noise"],
            "unlike clients": s.smooth**2 * apart["unlike clients"],
        },
        {"η ≤ 1/L": lr * s.smooth <= 1, "8η²L²(τ−1+c)² ≤ 1": 8 * lr**2 * s.smooth**2 * b <= 1},
    )


def corollary1_rate(s: Setting, steps: int) -> float:
    """The corollary's step size is η = (1/L)(K s2)^{-1/2}."""
    return 1 / (s.smooth * math.sqrt(steps * s.s2))


def corollary1_printed(s: Setting, steps: int, clients: int) -> Bound:
    """(17) is (2LΔ + σ²)√(s2/K) + [2V1σ²/s2 + (2V1/s2 + 2V2)κ²]/K, at η = (1/L)(K s2)^{-1/2}.

    Condition (15) then asks for K ≥ C³ for equal clients even where V2 = 0, which the paper does not say.
    """
    v1, v2 = v1_printed(s), v2_printed(s)
    return bound(
        {
            "O(√(s2/K))": (2 * s.smooth * s.gap1 + s.sigma2) * math.sqrt(s.s2 / steps),
            "noise through disagreement": times(2 * v1 / s.s2 / steps, s.sigma2),
            "unlike clients": times((2 * v1 / s.s2 + 2 * v2) / steps, s.kappa2),
        },
        condition15(s, corollary1_rate(s, steps), clients),
    )


def corollary1_fixed(s: Setting, steps: int) -> Bound:
    """Evaluate the fixed theorem at the corollary's step size."""
    return theorem1_fixed(s, corollary1_rate(s, steps), steps)


def iterations_printed(s: Setting, epsilon: float, clients: int) -> dict[str, float]:
    """Say from which K on (17) is at most ε, and from which K on its step size obeys (15); both are needed."""
    per_step = corollary1_printed(s, 1, clients).terms
    root = per_step.pop("O(√(s2/K))")
    return {
        "accuracy": _least(root, sum(per_step.values()), epsilon),
        "condition": _least(clients / math.sqrt(s.s2), 2 * v2_printed(s) / s.s2, 1.0),
    }


def iterations_fixed(s: Setting, epsilon: float) -> dict[str, float]:
    """Say the same of the fixed corollary: K ≥ max(1, 8B)/s2 makes its step size small enough."""
    per_step = corollary1_fixed(s, 1).terms
    root = per_step.pop("optimality gap") + per_step.pop("gradient noise")
    return {
        "accuracy": _least(root, sum(per_step.values()), epsilon),
        "condition": _least(0.0, max(1.0, 8 * _spread(s)[2]) / s.s2, 1.0),
    }


def _least(root: float, whole: float, most: float) -> float:
    """Return the least K with root/√K + whole/K ≤ most: a quadratic inequality in 1/√K."""
    if math.isinf(whole):
        return math.inf
    least = ((root + math.sqrt(root**2 + 4 * whole * most)) / (2 * most)) ** 2
    return max(1, math.ceil(least * (1 - 1e-12)))  # an exact K stays what it is


def remark3_condition(s: Setting, lr: float) -> dict[str, bool]:
    """Say whether ηL + 8η²L²τ²Γ ≤ 1, the step sizes of the bound for IID clients that Remark 3 compares with.

    That is Theorem 1 of T. Castiglia, A. Das, S. Patterson, "Multi-Level Local SGD" (ICLR 2021, arXiv:2007.13819), if
    every client steps at every iteration and β = 0, with Γ = q/(1−q²) + 2/(1−q) + q/(1−q)², so that Λ = qΓ.
    """
    if s.q >= 1:
        return {"ηL + 8η²L²τ²Γ ≤ 1": False}
    gamma = s.q / (1 - s.q**2) + 2 / (1 - s.q) + s.q / (1 - s.q) ** 2
    step = lr * s.smooth
    return {"ηL + 8η²L²τ²Γ ≤ 1": step + 8 * (step * s.tau) ** 2 * gamma <= 1}
