"""HierSFL's convergence theory: its constants, lemmas and Theorem 1, as printed in the proof supplement and fixed.

    mean over cloud rounds κ of E‖∇f(x^κ)‖² ≤ …

| here | supplement | |
|---|---|---|
| tau1, tau2 | τ1, τ2 | local_steps, edge_rounds; τ = τ1·τ2 |
| gradients, variances | G_l², σ_l² | bounds for each layer l, the client's layers first |
| cut | L_c | number of layers on the client |
| gap | Δ | f(x⁰) − f* |
| smooth | L | |

What is wrong in print:
- The term −Σ G_l² uses an upper bound as a lower one and makes the bound negative: for f = √(1 + w²), G = L = 1, σ = 0,
  τ = 1, η = 0.1, K = 100 from w = 1 it is −0.82.
- The D term is an artefact of splitting (aτ1 + b)² into 2(a²τ1² + b²). The deviation of a client is a sum of aτ1 + b
  stochastic gradients, so Jensen gives (aτ1 + b)²(G² + σ²), and D is gone: *under these assumptions the bound does not
  depend on the cut*, and what is concluded about the cut from D does not follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedge.theory.bound import Bound, bound


@dataclass(frozen=True)
class Setting:
    tau1: int
    tau2: int
    gradients: Sequence[float]
    variances: Sequence[float]
    cut: int
    gap: float
    smooth: float

    @property
    def tau(self) -> int:
        return self.tau1 * self.tau2

    @property
    def everything(self) -> float:
        """Γ = Σ_l (G_l² + σ_l²)."""
        return sum(self.gradients) + sum(self.variances)

    @property
    def on_client(self) -> float:
        """Γ_c is the same sum over the layers up to the cut."""
        return sum(self.gradients[: self.cut]) + sum(self.variances[: self.cut])


def constant_c(tau1: int, tau2: int) -> float:
    """C = τ1²(τ2−1)(2τ2−1)/6 + (τ1−1)(2τ1−1)/6 + τ1(τ2−1)(τ1−1)/2 = (τ−1)(2τ−1)/6."""
    return _squares(tau1, tau2) + tau1 * (tau2 - 1) * (tau1 - 1) / 2


def constant_d(tau1: int, tau2: int) -> float:
    """D is the same with the last term subtracted."""
    return _squares(tau1, tau2) - tau1 * (tau2 - 1) * (tau1 - 1) / 2


def _squares(tau1: int, tau2: int) -> float:
    return tau1**2 * (tau2 - 1) * (2 * tau2 - 1) / 6 + (tau1 - 1) * (2 * tau1 - 1) / 6


def lemma1(s: Setting, inner: float, client_move2: float, server_move2: float) -> Bound:
    """Bound one cloud round: E f(x^{κ+1}) − E f(x^κ) ≤ E⟨∇f, x^{κ+1} − x^κ⟩ + (L/2)E‖x_r^{κ+1} − x_r^κ‖² + that of x_s.

    Lemma 4 bounds `inner`, Lemma 2 how far the clients' half moves and Lemma 3 the servers' half.
    """
    return bound(
        {
            "inner product": inner,
            "clients' half": s.smooth / 2 * client_move2,
            "servers' half": s.smooth / 2 * server_move2,
        },
        {},
    )


def lemma2(s: Setting, lr: float, own2: float) -> Bound:
    """Bound how far a cloud round moves the clients' half: E‖x_r^{κ+1} − x_r^κ‖² ≤ η²τ·J_r + η²τ²Σ_{l≤L_c}σ_l².

    J_r = `own2` is the mean over clients of Σ_t E‖∇f_{r,i}(w_i^t)‖², at most τΣ_{l≤L_c}G_l².
    """
    return _movement(s, lr, own2, sum(s.variances[: s.cut]))


def lemma3(s: Setting, lr: float, own2: float) -> Bound:
    """Bound the same for the servers' half, the layers above the cut; with Lemma 2, E‖x^{κ+1} − x^κ‖² ≤ η²τ²Γ."""
    return _movement(s, lr, own2, sum(s.variances[s.cut :]))


def _movement(s: Setting, lr: float, own2: float, variance: float) -> Bound:
    return bound({"gradients": lr**2 * s.tau * own2, "gradient noise": (lr * s.tau) ** 2 * variance}, {})


def lemma4(s: Setting, lr: float, gradient2: float, means: float, *, fixed: bool) -> Bound:
    """Bound E⟨∇f, x^{κ+1} − x^κ⟩ ≤ −(ητ/2)E‖∇f‖² − (η/2)Σ_t E‖mean_j ∇f_j‖² + ½L²η³τ(CΓ [+ DΓ_c as printed])."""
    factor = s.smooth**2 * lr**3 * s.tau / 2
    terms = {
        "descent": -lr * s.tau / 2 * gradient2,
        "mean gradients": -lr / 2 * means,
        "deviation": factor * constant_c(s.tau1, s.tau2) * s.everything,
    }
    return bound(terms if fixed else terms | {"cut": factor * constant_d(s.tau1, s.tau2) * s.on_client}, {})


def theorem1_printed(s: Setting, lr: float, rounds: int) -> Bound:
    """The print has 2Δ/(ητK) − ΣG_l² + L²η²CΓ + LητΓ + L²η²DΓ_c."""
    printed = {
        "minus gradient bounds": -sum(s.gradients),
        "cut": (s.smooth * lr) ** 2 * constant_d(s.tau1, s.tau2) * s.on_client,
    }
    return bound(_common(s, lr, rounds) | {"movement": s.smooth * lr * s.tau * s.everything} | printed, {})


def theorem1_fixed(s: Setting, lr: float, rounds: int) -> Bound:
    """The repair is 2Δ/(ητK) + L²η²CΓ + LητΓ, for any η."""
    return bound(_common(s, lr, rounds) | {"movement": s.smooth * lr * s.tau * s.everything}, {})


def theorem1_small_steps(s: Setting, lr: float, rounds: int, clients: int) -> Bound:
    """It is 2Δ/(ητK) + L²η²CΓ + 2LηΣσ_l²/N for η ≤ 1/(2Lτ) and clients with independent noise."""
    noise = 2 * s.smooth * lr * sum(s.variances) / clients
    return bound(_common(s, lr, rounds) | {"gradient noise": noise}, {"η ≤ 1/(2Lτ)": 2 * s.smooth * lr * s.tau <= 1})


def _common(s: Setting, lr: float, rounds: int) -> dict[str, float]:
    return {
        "optimality gap": 2 * s.gap / (lr * s.tau * rounds),
        "deviation": (s.smooth * lr) ** 2 * constant_c(s.tau1, s.tau2) * s.everything,
    }
