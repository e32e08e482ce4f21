"""The mean of a sample and its 95 % confidence interval by Student's t: mean ± t · s/√n, with n − 1 degrees of
freedom."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

LEVEL = 0.95


class Interval(NamedTuple):
    mean: float
    low: float
    high: float
    p: float  # two-sided, that the mean is 0

    @property
    def half(self) -> float:
        return (self.high - self.low) / 2


def interval(values: ArrayLike) -> Interval:
    """Return the mean of a sample, its interval, and the p of a mean of 0; one value alone has no bounds."""
    sample = np.asarray(values, float)
    n, mean = len(sample), float(np.mean(sample))
    if n < 2:
        return Interval(mean, -math.inf, math.inf, 1.0)
    error = float(np.std(sample, ddof=1)) / math.sqrt(n)
    if error == 0:
        return Interval(mean, mean, mean, 0.0 if mean else 1.0)
    from scipy.special import stdtr  # where it is needed, for a fleet's node would start a tenth later

    half = reach(n) * error * math.sqrt(n)
    return Interval(mean, mean - half, mean + half, float(2 * stdtr(n - 1, -abs(mean) / error)))


def reach(n: int) -> float:
    """Return by how many standard deviations the interval of n values reaches from their mean."""
    from scipy.special import stdtrit

    return float(stdtrit(n - 1, (1 + LEVEL) / 2)) / math.sqrt(n)
