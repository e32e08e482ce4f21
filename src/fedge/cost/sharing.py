"""Transfers share links fairly, by max-min: nobody's rate can be raised without lowering one that is no higher.

    r_f ≤ o_f                     a transfer is no faster than its owner's own link
    Σ_{f through l} r_f ≤ C_l     and those through a link are together no faster than the link
    progressive filling           raise all rates together; who meets a limit stays there, and the others go on

So a link whose n open transfers are held back nowhere else gives each (C_l − what the settled ones take) / n. Source of
the notion: Bertsekas and Gallager, Data Networks (2nd edition), section 6.5.2.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
OWN = 0  # what holds a transfer back: its own link; n: the n-th shared link on its route


class Shares(NamedTuple):
    """This is the rate of each transfer, and what holds it back: `OWN`, or a place on its route, counted from 1."""

    rate: Floats
    held: Indices


def fair_shares(own: Floats, routes: Indices, capacity: Floats) -> Shares:
    """Share links: `own[f]` limits transfer f, which runs over the links `routes[f]`; `capacity[l]` is a link's rate.

    A route that is shorter than others is filled up with links of endless capacity.
    """
    rate, held = np.zeros(len(own)), np.zeros(len(own), np.intp)
    left, open_ = capacity.astype(np.float64), np.ones(len(own), bool)
    if not routes.shape[1]:
        return Shares(own.astype(np.float64), held)
    while open_.any():
        users = np.bincount(routes[open_].ravel(), minlength=len(left))
        level = np.divide(left, users, out=np.full(len(left), np.inf), where=users > 0)
        along = level[routes]
        share = along.min(1)
        settled = open_ & (own <= share)  # shares only grow from here on, so these never get more than their own
        if settled.any():
            rate[settled], held[settled] = own[settled], OWN
        else:
            settled = open_ & (share == share[open_].min())
            rate[settled], held[settled] = share[settled], along[settled].argmin(1) + 1
        open_ &= ~settled
        taken = np.bincount(routes[settled].ravel(), np.repeat(rate[settled], routes.shape[1]), len(left))
        left = np.maximum(left - taken, 0)
        left[np.isinf(capacity)] = np.inf
    return Shares(rate, held)
