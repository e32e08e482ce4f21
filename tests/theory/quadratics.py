"""Of quadratic losses everything is known, and SD-FEEL trains on them in exact first and second moments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedge.core.topology import Topology
from fedge.theory.sdfeel import Setting


class Means(NamedTuple):
    """These are means over iterations: k = 0..K−1, `after` over k = 1..K; gap1 is F(u_1) − F*."""

    gradient2: float  # E‖∇F(u)‖²
    after: float
    apart: float  # E‖W(I − A)‖²_m
    own2: float  # J
    common2: float  # E Σ m_i‖∇F(w_i)‖²
    t1: float  # 2E‖U‖²_m, U the part of W(I − A) that comes from G − ∇F(W)
    t2: float  # 2E‖V‖²_m, V the part that comes from ∇F(W); U + V = W(I − A)
    gap1: float


@dataclass(frozen=True)
class Quadratics:
    """Losses are F_i = ½(w − c_i)ᵀH(w − c_i), H diagonal with entries up to L = 1; training starts at w = 0."""

    topology: Topology
    curvature: np.ndarray  # H's diagonal
    centre: np.ndarray  # parameters × clients
    sigma2: float  # of a stochastic gradient, spread evenly over the parameters

    @property
    def mean(self) -> np.ndarray:
        return self.centre @ self.topology.weight

    @property
    def unlike(self) -> np.ndarray:
        """‖∇F_i − ∇F‖² is ‖H(c_i − c̄)‖² at every model."""
        return ((self.curvature[:, None] * (self.centre - self.mean[:, None])) ** 2).sum(0)

    def setting(self, tau1: int, tau2: int, q: float, gap1: float = 0.0) -> Setting:
        m = self.topology.weight
        return Setting(
            tau1, tau2, q, float(m @ m), gap0=0.5 * self.curvature @ self.mean**2, gap1=gap1, smooth=1.0,
            sigma2=self.sigma2, kappa2=float(self.unlike.max()), kappa2_mean=float(m @ self.unlike),
        )  # fmt: skip

    def train(self, mixing: np.ndarray, alpha: int, tau1: int, tau2: int, lr: float, steps: int) -> Means:
        """The state of one parameter is the row (w, U) of 2C numbers: its mean and its covariance are linear in it."""
        topology, m, clients = self.topology, self.topology.weight, self.topology.clients
        average, none, eye = topology.cloud_operator, np.zeros((clients, clients)), topology.identity
        look = {
            "u": np.vstack([m[:, None], np.zeros((clients, 1))]),
            "apart": np.vstack([eye - average, none]) * np.sqrt(m),
            "models": np.vstack([eye, none]) * np.sqrt(m),
            "t1": np.vstack([none, eye]) * np.sqrt(m),
            "t2": np.vstack([eye - average, -eye]) * np.sqrt(m),
        }
        mean = np.zeros((len(self.curvature), 2 * clients))
        covariance = np.zeros((len(self.curvature), 2 * clients, 2 * clients))

        def second(name: str, scale: np.ndarray, shift: np.ndarray | float = 0.0) -> float:
            """Return Σ over parameters of scale·E‖(row − shift) seen through `look`‖²."""
            moved = mean.copy()
            moved[:, :clients] -= shift
            seen = ((moved @ look[name]) ** 2).sum(1)
            spread = np.einsum("pij,ik,jk->p", covariance, look[name], look[name])
            return float(scale @ (seen + spread))

        h2, one = self.curvature**2, np.ones(len(self.curvature))
        rows, gap1 = [], 0.0
        for k in range(1, steps + 2):
            rows.append((
                second("u", h2, self.mean[:, None]), second("apart", one), second("models", h2, self.centre),
                second("models", h2, self.mean[:, None]), 2 * second("t1", one), 2 * second("t2", one),
            ))  # fmt: skip
            if k == 2:
                gap1 = 0.5 * second("u", self.curvature, self.mean[:, None])
            operator = self._operator(k, mixing, alpha, tau1, tau2)
            for p, h in enumerate(self.curvature):
                move = np.block([[(1 - lr * h) * operator, none], [none, operator]])
                push = np.hstack([operator, operator - average])
                common = np.hstack(
                    [h * self.centre[p] @ operator, h * (self.centre[p] - self.mean[p]) @ push[:, clients:]]
                )
                mean[p] = mean[p] @ move + lr * common
                noise = lr**2 * self.sigma2 / len(self.curvature)
                covariance[p] = move.T @ covariance[p] @ move + noise * push.T @ push
        means = np.mean(rows[:-1], axis=0)
        return Means(means[0], float(np.mean([row[0] for row in rows[1:]])), *means[1:], gap1)

    def _operator(self, k: int, mixing: np.ndarray, alpha: int, tau1: int, tau2: int) -> np.ndarray:
        if k % (tau1 * tau2) == 0:
            return self.topology.gossip_operator(mixing, alpha)
        return self.topology.edge_operator if k % tau1 == 0 else self.topology.identity
