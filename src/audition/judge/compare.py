"""Compares arms within one run: each leg of an arm against the reference legs around it.

Method. A leg's figure is put beside the geometric mean of the nearest reference leg before it and the nearest after it
(bracketing removes drift that is linear between neighbours; on a ratio scale, because drift multiplies). The mean of the log
ratios is a generalised least squares mean, since two pairs may share a reference leg. The noise of a single leg is estimated
from all legs of both arms around one level an arm and a common drift (a straight line for five legs, a polynomial of higher degree
for more, see ``leg_noise``); it gives Student's t interval with 2 degrees of freedom for five legs, where the two pairs alone would
leave 1, and one more for every two further legs. Requests inside a leg are not independent, so they
never count as samples of the comparison; their block jackknife only sets a floor: the interval is never narrower than the noise
inside the legs. Fewer than two pairs give a ratio without an interval. Sources: see ``estimate``; that legs, not requests, are
the unit: Kalibera and Jones 2013, Rigorous benchmarking in reasonable time.

No thresholds and no verdict here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from audition.judge.estimate import Z_975, Mean, detectable, leg_noise, mean, paired_mean, t_quantile
from audition.judge.metrics import Key, LegSheet, Measure
from audition.units import NoData

_MAX_LEGS = 50


@dataclass(frozen=True)
class Pair:
    """One leg beside its neighbours. ``ratio``: own figure / geometric mean of the reference legs' figures."""

    leg: int
    reference_legs: list[int]
    value: float
    reference: float
    ratio: float


@dataclass(frozen=True)
class Comparison:
    """One figure of one arm against a reference arm. ``low``, ``high``: 95 % interval of the ratio, None with ``interval_missing``.

    ``log_se``, ``log_floor``: standard error of the log ratio, and its floor from the noise inside the legs.
    ``detectable_ratio``: a true ratio at least this far from 1 would have been found with 80 % power. ``missing``: why there is no
    ratio at all. ``dropped``: why planned pairs do not count.
    """

    workload: str
    metric: str
    stat: str
    arm: str
    reference_arm: str
    pairs: list[Pair]
    ratio: float | None
    low: float | None
    high: float | None
    log_se: float | None
    log_floor: float
    degrees: int
    samples: int
    detectable_ratio: float | None
    interval_missing: str
    missing: str
    dropped: list[str]
    basis: str


@dataclass(frozen=True)
class Noise:
    """How far legs of one arm differ from each other: the noise floor. ``spread``: largest / smallest - 1.

    Speed can be bimodal by process start, so legs of different boots are kept apart. ``boots``: number of the boot of each leg, in
    the order in which they were seen. ``within_boot``: largest spread among the legs of one boot, None when no boot has two;
    ``between_boots``: spread of the boots' geometric means, None with one boot.
    """

    workload: str
    metric: str
    stat: str
    arm: str
    legs: list[int]
    values: list[float]
    spread: float
    boots: list[int]
    within_boot: float | None
    between_boots: float | None


def compare(sheets: Sequence[LegSheet], arm: str, reference: str, key: Key) -> Comparison:
    """The paired comparison of ``arm`` with ``reference`` for one figure. Total: what is missing is said in the result."""
    columns = [s for s in sheets if s.arm == reference]
    pairs: list[Pair] = []
    weights: list[list[float]] = []
    dropped: list[str] = []
    floor: list[float] = []
    samples = 0
    for sheet in (s for s in sheets if s.arm == arm):
        around = _neighbours(sheet, columns)
        if not around:
            dropped.append(f"leg {sheet.index} has no {reference} leg beside it")
            continue
        values = [sheet.get(key), *(n.get(key) for n in around)]
        gaps = [v.reason for v in values if isinstance(v, NoData)]
        good = [v for v in values if isinstance(v, Measure)]
        if gaps or any(v.value <= 0 for v in good):
            dropped.append(gaps[0] if gaps else f"leg {sheet.index}: a figure of 0 has no ratio")
            continue
        own, *others = good
        centre = math.exp(mean([math.log(v.value) for v in others]))
        pairs.append(Pair(sheet.index, [n.index for n in around], own.value, centre, own.value / centre))
        weights.append([1 / len(around) if c in around else 0.0 for c in columns])
        samples += sum(v.samples for v in good)
        relative = [(v.se / v.value) ** 2 if v.se is not None else 0.0 for v in good]
        floor.append(relative[0] + math.fsum(relative[1:]) / len(others) ** 2)
    noise = _leg_noise(sheets, arm, reference, key)
    return _result(key, arm, reference, pairs=pairs, weights=weights, floor=floor, noise=noise, dropped=dropped, samples=samples)


def _leg_noise(sheets: Sequence[LegSheet], arm: str, reference: str, key: Key) -> tuple[float, int] | None:
    arms: list[list[tuple[float, float]]] = []
    for name in dict.fromkeys((arm, reference)):
        rows = [(float(s.index), s.get(key)) for s in sheets if s.arm == name]
        arms.append([(t, math.log(v.value)) for t, v in rows if isinstance(v, Measure) and v.value > 0])
    return leg_noise(arms)


def _neighbours(sheet: LegSheet, columns: Sequence[LegSheet]) -> list[LegSheet]:
    before = [c for c in columns if c.index < sheet.index]
    after = [c for c in columns if c.index > sheet.index]
    return [*before[-1:], *after[:1]]


def _result(
    key: Key,
    arm: str,
    reference: str,
    *,
    pairs: list[Pair],
    weights: list[list[float]],
    floor: list[float],
    noise: tuple[float, int] | None,
    dropped: list[str],
    samples: int,
) -> Comparison:
    workload, metric, stat = key
    if not pairs:
        why = dropped[0] if dropped else f"no leg of {arm} ran"
        return Comparison(
            workload,
            metric,
            stat,
            arm,
            reference,
            [],
            None,
            None,
            None,
            None,
            0.0,
            0,
            0,
            None,
            why,
            why,
            dropped,
            "nothing to compare",
        )
    within = math.sqrt(math.fsum(floor)) / len(floor)
    between = paired_mean([math.log(p.ratio) for p in pairs], weights, noise, within)
    ratio = math.exp(between.value)
    if between.se is None:
        why = "one pair: no interval, the spread between boots is unknown"
        return Comparison(
            workload,
            metric,
            stat,
            arm,
            reference,
            pairs,
            ratio,
            None,
            None,
            None,
            within,
            0,
            samples,
            None,
            why,
            "",
            dropped,
            "one pair",
        )
    se, basis = between.se, f"t interval on the log ratios of {len(pairs)} pairs, {between.degrees} degrees of freedom"
    if Z_975 * within > t_quantile(0.975, between.degrees) * se:
        basis = f"noise within the legs (block jackknife), wider than the spread of {len(pairs)} pairs"
    low, high = between.interval() or (between.value, between.value)
    return Comparison(
        workload,
        metric,
        stat,
        arm,
        reference,
        pairs,
        ratio,
        math.exp(low),
        math.exp(high),
        se,
        within,
        between.degrees,
        samples,
        math.exp(detectable(max(se, within), between.degrees)),
        "",
        "",
        dropped,
        basis,
    )


def noise_floor(sheets: Sequence[LegSheet], arm: str, key: Key) -> Noise | NoData:
    """How far the legs of one arm are apart. NoData with fewer than two legs that have the figure."""
    workload, metric, stat = key
    rows = [(s.index, v.value, s.boot or f"leg {s.index}") for s in sheets if s.arm == arm if isinstance(v := s.get(key), Measure)]
    values = [v for _, v, _ in rows]
    if len(rows) < 2:
        return NoData(f"{arm} has {len(rows)} leg with this figure, two are needed to see noise")
    if min(values) <= 0:
        return NoData("a figure of 0 has no relative spread")
    boots: dict[str, list[float]] = {}
    for _, value, boot in rows:
        boots.setdefault(boot, []).append(value)
    within = [_spread(group) for group in boots.values() if len(group) > 1]
    centres = [math.exp(mean([math.log(x) for x in group])) for group in boots.values()]
    numbers = {boot: number for number, boot in enumerate(boots, start=1)}
    return Noise(
        workload, metric, stat, arm, [i for i, _, _ in rows], values, _spread(values), [numbers[boot] for _, _, boot in rows],
        max(within) if within else None, _spread(centres) if len(centres) > 1 else None,
    )  # fmt: skip


def _spread(values: Sequence[float]) -> float:
    return max(values) / min(values) - 1


def pairs_needed(comparison: Comparison, threshold: float) -> int | None:
    """How many pairs in all would bring the interval to one side of ``threshold``, if ratio and noise stay as they are.

    None when that is more than 50, or when the noise is not known.
    """
    if comparison.log_se is None or comparison.ratio is None or threshold <= 0:
        return None
    estimate = Mean(math.log(comparison.ratio), comparison.log_se, comparison.degrees)
    return legs_needed(estimate, len(comparison.pairs), math.log(threshold))


def legs_needed(estimate: Mean, n: int, threshold: float) -> int | None:
    """Smallest count of at most 50 whose 95 % interval would miss ``threshold``; each more gains one degree of freedom."""
    if estimate.se is None:
        return None
    single, distance = estimate.se * math.sqrt(n), abs(estimate.value - threshold)
    for more in range(n + 1, _MAX_LEGS + 1):
        if t_quantile(0.975, estimate.degrees + more - n) * single / math.sqrt(more) <= distance:
            return more
    return None
