"""Small statistics of the judge: percentiles, Student's t quantiles, a block jackknife, a generalised mean of paired values.

Pure arithmetic on plain numbers. Nothing here knows of legs, gates or files. Randomness is not needed: the jackknife is
deterministic, so that judging twice gives identical bytes.

Sources
    percentile      Hyndman and Fan 1996, Sample quantiles in statistical packages, type 7 (what numpy and R use by default)
    t quantiles     tables of Student's t distribution (Fisher and Yates 1963, table III); beyond 30 degrees of freedom the
                    expansion of Abramowitz and Stegun 1964, 26.7.5
    jackknife       Künsch 1989, The jackknife and the bootstrap for general stationary observations (blocks in time);
                    Shao and Wu 1989, A general theory for jackknife variance estimation (valid for quantiles when whole
                    blocks, not single observations, are deleted)
    paired mean     Aitken 1935, generalised least squares with a known correlation
    leg noise       Cox 1951, Some systematic experimental designs
    detectable      Bloom 1995, Minimum detectable effects: (t of the confidence + t of the power) x standard error
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

CONFIDENCE = 0.95
_RANK = 1e-9  # a column that is the others' up to this share adds nothing to the fit
POWER = 0.80
BLOCKS = 10
_LEAST_BLOCKS = 4
"""Most blocks of the jackknife; 10 to 30 are usual for batch means (Schmeiser 1982, Batch size effects)."""

_T_975 = (
    "12.706 4.303 3.182 2.776 2.571 2.447 2.365 2.306 2.262 2.228 2.201 2.179 2.160 2.145 2.131 "
    "2.120 2.110 2.101 2.093 2.086 2.080 2.074 2.069 2.064 2.060 2.056 2.052 2.048 2.045 2.042"
)
_T_800 = (
    "1.376 1.061 0.978 0.941 0.920 0.906 0.896 0.889 0.883 0.879 0.876 0.873 0.870 0.868 0.866 "
    "0.865 0.863 0.862 0.861 0.860 0.859 0.858 0.858 0.857 0.856 0.856 0.855 0.855 0.854 0.854"
)
Z_975 = NormalDist().inv_cdf(0.975)
_T = {0.975: [float(x) for x in _T_975.split()], 0.8: [float(x) for x in _T_800.split()]}


def t_quantile(probability: float, degrees: int) -> float:
    """Quantile of Student's t. ``probability`` is 0.975 (95 % two-sided) or 0.8 (power); ``degrees`` at least 1.

    Raises ValueError for anything else.
    """
    if probability not in _T or degrees < 1:
        raise ValueError(f"no t quantile for probability {probability} and {degrees} degrees of freedom")
    table = _T[probability]
    if degrees <= len(table):
        return table[degrees - 1]
    z = NormalDist().inv_cdf(probability)
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def percentile(ordered: Sequence[float], share: float) -> float:
    """Percentile of values in ascending order, ``share`` in [0, 1], Hyndman-Fan type 7. Raises ValueError without values."""
    if not ordered:
        raise ValueError("no percentile of no values")
    at = (len(ordered) - 1) * share
    below = math.floor(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (at - below)


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean. Raises ValueError without values."""
    if not values:
        raise ValueError("no mean of no values")
    return math.fsum(values) / len(values)


class Sample:
    """Values in time order, sorted once: percentiles and means of all of them and of all but one block of neighbours in time.

    The error of a percentile or mean is a jackknife over blocks; None with fewer than eight values: there is nothing to say.
    """

    def __init__(self, in_time_order: Sequence[float]) -> None:
        self._values = in_time_order
        self._edges = _edges(len(in_time_order)) or []
        self._blocks = [sorted(in_time_order[a:b]) for a, b in self._edges]
        self._ordered = sorted(itertools.chain.from_iterable(self._blocks) if self._blocks else in_time_order)

    def __len__(self) -> int:
        return len(self._values)

    def percentile(self, share: float) -> float:
        """Percentile of all values; see ``percentile``."""
        return percentile(self._ordered, share)

    def percentile_se(self, share: float) -> float | None:
        """Standard error of the percentile."""
        return _spread([self._without(block, share) for block in self._blocks]) if self._blocks else None

    def mean(self) -> float:
        """Arithmetic mean."""
        return mean(self._values)

    def mean_se(self) -> float | None:
        """Standard error of the mean."""
        if not self._edges:
            return None
        whole, n = math.fsum(self._values), len(self._values)
        return _spread([(whole - math.fsum(self._values[a:b])) / (n - (b - a)) for a, b in self._edges])

    def _without(self, block: list[float], share: float) -> float:
        """Percentile of the values outside one block."""
        at = (len(self._ordered) - len(block) - 1) * share
        below = math.floor(at)
        low = self._ranked(block, below)
        return low if at == below else low + (self._ranked(block, below + 1) - low) * (at - below)

    def _ranked(self, block: list[float], rank: int) -> float:
        """The value of this rank, from 0, among those outside the block: the first that has so many of them at or below it."""
        low, high = rank, min(rank + len(block), len(self._ordered) - 1)
        while low < high:
            middle = (low + high) // 2
            value = self._ordered[middle]
            if bisect_right(self._ordered, value) - bisect_right(block, value) > rank:
                high = middle
            else:
                low = middle + 1
        return self._ordered[low]


def ratio_jackknife_se(in_time_order: Sequence[tuple[float, float]]) -> float | None:
    """Relative standard error of sum of the first / sum of the second parts (ratio estimator, Cochran 1977, chapter 6), by blocks.

    None with fewer than eight pairs, or when nothing can be divided.
    """
    edges = _edges(len(in_time_order))
    top, bottom = math.fsum(t for t, _ in in_time_order), math.fsum(b for _, b in in_time_order)
    if edges is None or top <= 0 or bottom <= 0:
        return None
    rest = []
    for a, b in edges:
        up = top - math.fsum(t for t, _ in in_time_order[a:b])
        down = bottom - math.fsum(d for _, d in in_time_order[a:b])
        if down <= 0:
            return None
        rest.append(up / down)
    return _spread(rest) / (top / bottom)


def _edges(n: int) -> list[tuple[int, int]] | None:
    """Bounds of equal blocks of neighbours; None when fewer than four blocks of two can be made."""
    blocks = min(BLOCKS, n // 2)
    if blocks < _LEAST_BLOCKS:
        return None
    at = [round(i * n / blocks) for i in range(blocks + 1)]
    return list(itertools.pairwise(at))


def _spread(rest: Sequence[float]) -> float:
    centre = mean(rest)
    return math.sqrt((len(rest) - 1) / len(rest) * math.fsum((x - centre) ** 2 for x in rest))


@dataclass(frozen=True)
class Mean:
    """A mean with its standard error and degrees of freedom; ``se`` is None when nothing tells it.

    ``floor``: standard error from the noise inside the legs alone. The interval is never narrower than this one allows.
    """

    value: float
    se: float | None
    degrees: int
    floor: float = 0.0

    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval, or None without a standard error or degrees of freedom."""
        if self.se is None or self.degrees < 1:
            return None
        half = max(t_quantile(0.975, self.degrees) * self.se, Z_975 * self.floor)
        return self.value - half, self.value + half


def detectable(se: float, degrees: int) -> float:
    """The smallest true difference that would be found with 80 % power at 95 % confidence, in the unit of ``se``."""
    return (t_quantile(0.975, degrees) + t_quantile(POWER, degrees)) * se


def paired_mean(
    values: Sequence[float], weights: Sequence[Sequence[float]], noise: tuple[float, int] | None = None, floor: float = 0.0
) -> Mean:
    """Generalised least squares mean of differences that share reference legs.

    ``values[i]`` = own leg - sum over j of ``weights[i][j]`` x reference leg j, all legs with the same independent noise. Two
    differences that share a bracketing leg are correlated by ``w_i . w_j``; a plain t interval would be too narrow. ``noise``:
    variance of a single leg with its degrees of freedom (see ``leg_noise``); without it the spread of the differences tells it,
    which without shared legs is the ordinary paired t interval. Raises ValueError without values.
    """
    n = len(values)
    if n == 0:
        raise ValueError("no mean of no pairs")
    cov = [[(1.0 if i == j else 0.0) + _dot(weights[i], weights[j]) for j in range(n)] for i in range(n)]
    by_one = _solve(cov, [1.0] * n)
    information = math.fsum(by_one)
    centre = math.fsum(a * v for a, v in zip(by_one, values, strict=True)) / information
    if n == 1:
        return Mean(centre, None, 0, floor)
    if noise is not None:
        return Mean(centre, math.sqrt(noise[0] / information), noise[1], floor)
    residual = [v - centre for v in values]
    variance = max(_dot(residual, _solve(cov, residual)), 0.0) / (n - 1)
    return Mean(centre, math.sqrt(variance / information), n - 1, floor)


def leg_noise(arms: Sequence[Sequence[tuple[float, float]]]) -> tuple[float, int] | None:
    """Variance of a single leg around its arm's level and a drift common to all arms, with its degrees of freedom.

    ``arms`` holds (position, value) of every leg of each arm. Least squares with one level an arm and a polynomial in time, whose
    degree grows with the legs, so that half of the freedom goes to the drift and half to the noise: a straight line for five legs,
    a cubic for nine. A straight line through many legs would take a drift that turns round for noise. Polynomial trends in
    interleaved designs: Cox 1951. None without degrees of freedom.
    """
    groups = [legs for legs in arms if legs]
    rows = [(t, y) for legs in groups for t, y in legs]
    if not rows:
        return None
    first, last = min(t for t, _ in rows), max(t for t, _ in rows)
    scale = [2 * (t - first) / (last - first) - 1 if last > first else 0.0 for t, _ in rows]
    columns = [[1.0 if legs is own else 0.0 for legs in groups for _ in legs] for own in groups]
    degree = max(1, (len(rows) - len(groups) - 1) // 2) if last > first else 0
    columns += [[x**power for x in scale] for power in range(1, degree + 1)]
    basis: list[list[float]] = []
    for column in columns:
        rest = _without(column, basis)
        size = math.sqrt(_dot(rest, rest))
        if size > _RANK * math.sqrt(_dot(column, column)):
            basis.append([x / size for x in rest])
    degrees = len(rows) - len(basis)
    if degrees < 1:
        return None
    values = [y for _, y in rows]
    residual = _without(values, basis)
    squares = _dot(residual, residual)
    return (squares / degrees if squares > _RANK**2 * _dot(values, values) else 0.0), degrees


def _without(column: Sequence[float], basis: Sequence[Sequence[float]]) -> list[float]:
    """The part of a column that is orthogonal to an orthonormal basis; taken out twice, for the digits (Kahan, in Parlett 1980)."""
    rest = list(column)
    for _ in range(2):
        for unit in basis:
            along = _dot(rest, unit)
            rest = [x - along * u for x, u in zip(rest, unit, strict=True)]
    return rest


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def _solve(matrix: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """Gaussian elimination with pivoting; the matrices here are identity plus a Gram matrix, hence never singular."""
    n = len(right)
    rows = [[*matrix[i], right[i]] for i in range(n)]
    for i in range(n):
        best = max(range(i, n), key=lambda r: abs(rows[r][i]))
        rows[i], rows[best] = rows[best], rows[i]
        for r in range(i + 1, n):
            factor = rows[r][i] / rows[i][i]
            rows[r] = [x - factor * y for x, y in zip(rows[r], rows[i], strict=True)]
    out = [0.0] * n
    for i in range(n - 1, -1, -1):
        out[i] = (rows[i][n] - math.fsum(rows[i][j] * out[j] for j in range(i + 1, n))) / rows[i][i]
    return out


def pooled_mean(own: Sequence[float], groups: Sequence[Sequence[float]], within_se: float = 0.0) -> Mean:
    """Mean of one arm's legs, its error from the spread of legs around their own arm's mean, pooled over all arms.

    ``groups`` holds every arm's legs, ``own`` included (one-way analysis of variance with a common variance: the legs differ
    by boot and by the hour, not by the arm). ``within_se``: the error of the mean from the noise inside the legs alone.
    Raises ValueError without values.
    """
    centre = mean(own)
    degrees = sum(len(g) - 1 for g in groups if g)
    if degrees < 1:
        return Mean(centre, None, 0)
    variance = math.fsum((x - mean(g)) ** 2 for g in groups if g for x in g) / degrees
    return Mean(centre, math.sqrt(variance / len(own)), degrees, within_se)
