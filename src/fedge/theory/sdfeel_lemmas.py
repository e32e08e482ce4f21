"""SD-FEEL's lemmas, as printed and fixed; those on matrices take a topology and say what holds of its operators.

| here | paper | |
|---|---|---|
| gradient2 | E‖∇F(u)‖² | |
| own2 | J | Σ m_i E‖∇F_i(w_i)‖² |
| apart | E‖W(I − M)‖²_M | Σ m_i E‖w_i − u‖² |
| A | M | m·1ᵀ, `Topology.cloud_operator` |

The paper's ‖X‖_M is defined with weights m_ij that M = m·1ᵀ does not have for a matrix of models; what Lemma 5 needs is
‖X‖²_m = Σ m_i‖x_i‖², the columns weighted, and the fixed forms use that.

What is wrong in print:
- Lemma 1 selects T by k, and would gossip before the first step; k + 1 is right.
- Lemmas 3, 4 and 7 need equal cells with the paper's P, and 7 equal clients; the weighted mixing matrix and the
  weighted norm repair them.
- Lemma 5(f) bounds ‖∇F(u) − ∇F_i(w_i)‖ by L‖u − w_i‖, which fails as soon as clients differ: for F_{1,2} = ½(w ∓ 1)²
  and w_i = u = 0 the left side is 1 and the right side 0. (13) also has σ²/C for s2σ², right for equal clients only.
- Lemma 6 drops a cross term.
- Lemmas 8 and 9 have s2 where the weights Σ m_i = 1 belong. Lemma 9 and V2 lose the factor ρ and the gradients between
  two edge rounds: V2 is 0 for τ1 = 1 and q = 0, whatever τ2 is.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedge.core.topology import Matrix, Topology
from fedge.theory.bound import Bound, bound, times
from fedge.theory.sdfeel import Setting, v1_lemma8, v1_printed, v2_printed, v2_repaired


def lemma1(tau1: int, tau2: int, k: int, *, fixed: bool) -> str:
    """Name the operator T_k of W_{k+1} = (W_k − ηG_k)T_k: H2, H1 or I. Fixed: chosen by k + 1, as in Algorithm 1."""
    count = k + 1 if fixed else k
    if count % (tau1 * tau2) == 0:
        return "H2"
    return "H1" if count % tau1 == 0 else "I"


def lemma3(topology: Topology, mixing: Matrix, steps: int) -> dict[str, bool]:
    """Say which eigenvectors and eigenvalues of Lemma 3 the operators H1 and H2 have."""
    h1, h2 = topology.edge_operator, topology.gossip_operator(mixing, steps)
    m, one = topology.weight, np.ones(topology.clients)
    of_mixing = np.linalg.eigvals(np.linalg.matrix_power(mixing, steps))
    found = np.sort(np.linalg.eigvals(h2).real)
    expected = np.sort(np.concatenate([of_mixing.real, np.zeros(topology.clients - topology.cells)]))
    return {
        "1ᵀH1 = 1ᵀ": _same(one @ h1, one),
        "H1m = m": _same(h1 @ m, m),
        "1ᵀH2 = 1ᵀ": _same(one @ h2, one),
        "H2m = m": _same(h2 @ m, m),
        "H2 has the eigenvalues of P^α, and 0": _same(found, expected),
        "all but one are below 1": bool(np.sort(np.abs(found))[:-1].max(initial=0.0) < 1),
    }


def lemma4(topology: Topology, operator: Matrix) -> dict[str, bool]:
    """Say whether TA = A and AT = A."""
    a = topology.cloud_operator
    return {"TA = A": _same(operator @ a, a), "AT = A": _same(a @ operator, a)}


def lemma7(topology: Topology, operator: Matrix, power: int = 1, *, fixed: bool) -> float:
    """Return ‖Tʲ − A‖, which Lemma 7 says is 1 for H1 and ζ^{αj} for H2. Fixed: in the norm weighted by m."""
    apart = np.linalg.matrix_power(operator, power) - topology.cloud_operator
    root = np.sqrt(topology.weight) if fixed else np.ones(topology.clients)
    return float(np.linalg.norm(apart / root[:, None] * root[None, :], 2))


def _same(found: Matrix, expected: Matrix) -> bool:
    return bool(np.allclose(found, expected, rtol=0, atol=1e-9))


def lemma5(s: Setting, lr: float, gradient2: float, own2: float, apart: float, clients: int, *, fixed: bool) -> Bound:
    """Bound one step: F(u⁺) − F(u) ≤ −(η/2)‖∇F(u)‖² − (η/2)(1 − LCη)J + (ηL²/2)D + (Lη²/2)s2σ², D = `apart`.

    Fixed: Σ m_i‖∇F(u) − ∇F_i(w_i)‖² ≤ 2L²D + 2κ², κ² the weighted mean, and Jensen's inequality needs no C.
    """
    terms = {
        "descent": -lr / 2 * gradient2,
        "gradients": -lr / 2 * (1 - s.smooth * (1 if fixed else clients) * lr) * own2,
        "disagreement": lr * s.smooth**2 * apart * (1 if fixed else 0.5),
        "gradient noise": s.smooth * lr**2 / 2 * s.s2 * s.sigma2,
    }
    return bound(terms | {"unlike clients": lr * s.kappa2_mean} if fixed else terms, {})


def equation13(s: Setting, lr: float, gradient2: float, own2: float, apart: float, clients: int) -> Bound:
    """(13) is Lemma 5 as printed with σ²/C for s2σ²."""
    return lemma5(replace(s, s2=1 / clients), lr, gradient2, own2, apart, clients, fixed=False)


def lemma6(s: Setting, own2: float, *, fixed: bool) -> Bound:
    """Bound Σ m_i‖∇F(w_i)‖² by s2κ² + J; fixed, by 2κ² + 2J. Models differ, so κ² must bound every client."""
    unlike = 2 * s.kappa2 if fixed else s.s2 * s.kappa2
    return bound({"unlike clients": unlike, "gradients": 2 * own2 if fixed else own2}, {})


def lemma8(s: Setting, lr: float, *, fixed: bool) -> Bound:
    """Bound the mean of T1, from what differs from the common gradient: 2η² s2 V1(σ² + κ²), V1 of this lemma.

    Fixed: without s2, for the columns' weights sum to one.
    """
    factor = 2 * lr**2 * v1_lemma8(s) * (1 if fixed else s.s2)
    return bound({"noise": times(factor, s.sigma2), "unlike clients": times(factor, s.kappa2)}, {})


def lemma9(s: Setting, lr: float, own2: float, *, fixed: bool) -> Bound:
    """Bound the mean of T2, from the common gradient at unlike models: 2η²V2(s2κ² + J); fixed, 2η²V2(2κ² + 2J).

    J is the mean over iterations, and fixed V2 is the repaired one.
    """
    factor = 2 * lr**2 * (v2_repaired(s) if fixed else v2_printed(s))
    return bound({name: times(factor, term) for name, term in lemma6(s, own2, fixed=fixed).terms.items()}, {})


def lemma2(s: Setting, lr: float, own2: float, *, fixed: bool) -> Bound:
    """Bound the mean disagreement by 2η²V1(σ² + κ²) + 2η²V2(s2κ² + J); fixed, by the sum of Lemmas 8 and 9, fixed."""
    factor = 2 * lr**2 * (v1_lemma8(s) if fixed else v1_printed(s))
    common = lemma9(s, lr, own2, fixed=fixed).terms
    return bound(
        {
            "noise": times(factor, s.sigma2),
            "unlike clients": times(factor, s.kappa2) + common["unlike clients"],
            "gradients": common["gradients"],
        },
        {},
    )
