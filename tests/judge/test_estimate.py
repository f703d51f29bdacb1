from __future__ import annotations

import itertools
import math
import random
import statistics

import pytest

from audition.judge.compare import Noise, noise_floor
from audition.judge.estimate import Sample, detectable, leg_noise, mean, paired_mean, percentile, pooled_mean, t_quantile
from audition.judge.metrics import LegSheet, Measure


def _t_cdf(x: float, df: int) -> float:
    """Simpson's rule over the density: an independent check of the table."""
    scale = math.gamma((df + 1) / 2) / (math.sqrt(df * math.pi) * math.gamma(df / 2))
    steps = 4000
    h = x / steps
    f: list[float] = [scale * (1 + (i * h) ** 2 / df) ** (-(df + 1) / 2) for i in range(steps + 1)]
    return 0.5 + h / 3 * (f[0] + f[-1] + 4 * sum(f[1:-1:2]) + 2 * sum(f[2:-1:2]))


@pytest.mark.parametrize("probability", [0.975, 0.8])
@pytest.mark.parametrize("df", [*range(1, 31), 31, 40, 100])
def test_t_quantiles_agree_with_the_integrated_density(probability: float, df: int) -> None:
    # The tables have three decimals; the density at the quantile turns that into a tolerance of the probability.
    assert _t_cdf(t_quantile(probability, df), df) == pytest.approx(probability, abs=2.5e-4)


def test_t_quantile_refuses_what_it_has_no_table_for() -> None:
    with pytest.raises(ValueError, match="degrees of freedom"):
        t_quantile(0.975, 0)
    with pytest.raises(ValueError, match="probability"):
        t_quantile(0.9, 3)


def test_percentile_is_type_7() -> None:
    values = [1.0, 2.0, 3.0, 4.0]
    assert percentile(values, 0.5) == 2.5
    assert percentile(values, 0.9) == pytest.approx(3.7)
    assert [percentile(values, s) for s in (0.25, 0.5, 0.75)] == pytest.approx(
        statistics.quantiles(values, n=4, method="inclusive")
    )
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_paired_mean_without_shared_legs_is_the_ordinary_t_interval() -> None:
    values = [0.1, 0.2, 0.4]
    result = paired_mean(values, [[1, 0, 0], [0, 1, 0], [0, 0, 1]])
    assert result.value == pytest.approx(mean(values))
    assert result.se == pytest.approx(statistics.stdev(values) / math.sqrt(3))
    assert result.degrees == 2


def test_a_shared_reference_leg_widens_the_interval() -> None:
    weights = [[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]
    shared = paired_mean([0.1, 0.2], weights)
    plain = paired_mean([0.1, 0.2], [[1, 0], [0, 1]])
    assert shared.se is not None
    assert plain.se is not None
    # var of the mean 0.875 s^2 against the 0.625 s^2 that a plain t interval would estimate (1.5 and 0.25 on and off the diagonal)
    assert (shared.se / plain.se) ** 2 == pytest.approx(0.875 / 0.625)


@pytest.mark.parametrize("legs", [5, 9, 13])
@pytest.mark.parametrize("curve", ["linear", "wave"])
def test_coverage_of_the_paired_interval_under_drift_and_boot_noise(curve: str, legs: int) -> None:
    """Legs in turn, no true difference, drift and boots 7 % apart: 93 to 97 % of the intervals hold 0."""
    rng = random.Random(7)
    weights = [[0.5 if column in (row, row + 1) else 0.0 for column in range(legs // 2 + 1)] for row in range(legs // 2)]
    inside = 0
    trials = 2500
    for _ in range(trials):
        slope, period, phase = rng.uniform(-0.1, 0.1), rng.uniform(8, 40), rng.uniform(0, 2 * math.pi)
        wave = [math.log(1 + 0.4 * math.sin(2 * math.pi * i / period + phase)) for i in range(legs)]
        y = [(slope * i if curve == "linear" else wave[i]) + rng.gauss(0, 0.07) for i in range(legs)]
        pairs = [y[i] - (y[i - 1] + y[i + 1]) / 2 for i in range(1, legs, 2)]
        noise = leg_noise([[(i, y[i]) for i in range(start, legs, 2)] for start in (0, 1)])
        interval = paired_mean(pairs, weights, noise).interval()
        assert interval is not None
        inside += interval[0] <= 0 <= interval[1]
    assert 0.93 <= inside / trials <= 0.97


def test_coverage_of_the_pooled_interval() -> None:
    rng = random.Random(8)
    inside = 0
    trials = 4000
    for _ in range(trials):
        own = [rng.gauss(1, 0.07) for _ in range(2)]
        other = [rng.gauss(3, 0.07) for _ in range(3)]
        interval = pooled_mean(own, [own, other]).interval()
        assert interval is not None
        inside += interval[0] <= 1 <= interval[1]
    assert inside / trials == pytest.approx(0.95, abs=0.012)


def test_one_value_has_no_interval() -> None:
    assert paired_mean([0.1], [[1.0]]).interval() is None
    assert pooled_mean([0.1], [[0.1]], 0.01).interval() is None
    assert Sample([1.0, 2.0, 3.0]).mean_se() is None


def test_jackknife_of_a_mean_is_about_its_standard_error() -> None:
    rng = random.Random(1)
    values = [rng.gauss(10, 2) for _ in range(1000)]
    se = Sample(values).mean_se()
    assert se == pytest.approx(2 / math.sqrt(1000), rel=0.6)


def test_noise_in_a_single_leg_bounds_the_pooled_error_from_below() -> None:
    assert pooled_mean([1.0, 1.0], [[1.0, 1.0]], 0.5).interval() == pytest.approx((1 - 1.96 * 0.5, 1 + 1.96 * 0.5), abs=1e-4)


def test_detectable_adds_confidence_and_power() -> None:
    assert detectable(1.0, 1) == pytest.approx(12.706 + 1.376)


def test_percentiles_without_a_block_are_those_of_the_rest() -> None:
    rng = random.Random(3)
    for values in ([float(rng.randrange(6)) for _ in range(57)], [rng.random() for _ in range(203)]):
        n = len(values)
        at = [round(i * n / 10) for i in range(11)]
        for share in (0.5, 0.9, 0.99):
            rest = [percentile(sorted([*values[:a], *values[b:]]), share) for a, b in itertools.pairwise(at)]
            centre = mean(rest)
            expected = math.sqrt(0.9 * math.fsum((x - centre) ** 2 for x in rest))
            assert Sample(values).percentile_se(share) == pytest.approx(expected, abs=1e-12)
            assert Sample(values).percentile(share) == percentile(sorted(values), share)


def test_legs_of_different_boots_are_kept_apart() -> None:
    key = ("users", "output_tok_s", "")
    rows = [(1, "a", 100.0), (2, "a", 104.0), (3, "b", 150.0), (4, "b", 153.0)]
    noise = noise_floor([LegSheet(i, "mtp", {key: Measure(v, 9)}, boot) for i, boot, v in rows], "mtp", key)
    assert isinstance(noise, Noise)
    assert noise.boots == [1, 1, 2, 2]
    assert noise.spread == pytest.approx(0.53)
    assert noise.within_boot == pytest.approx(0.04)
    assert noise.between_boots == pytest.approx(math.sqrt(150 * 153 / 104 / 100) - 1)
    alone = noise_floor([LegSheet(i, "mtp", {key: Measure(v, 9)}, f"{boot}{i}") for i, boot, v in rows], "mtp", key)
    assert isinstance(alone, Noise)
    assert (alone.within_boot, alone.boots) == (None, [1, 2, 3, 4])


def test_a_drift_that_turns_round_is_not_taken_for_noise() -> None:
    drift = [math.log(1 + 0.4 * math.sin(2 * math.pi * i / 20)) for i in range(13)]
    arms = [[(float(i), drift[i] + level) for i in range(start, 13, 2)] for start, level in ((0, 0.0), (1, 0.3))]
    found = leg_noise(arms)
    assert found is not None
    assert found[1] == 6
    assert math.sqrt(found[0]) < 0.01  # boots differ by 0.07
    straight = leg_noise([[(float(i), 0.1 * i + level) for i in range(start, 5, 2)] for start, level in ((0, 0.0), (1, 0.3))])
    assert straight == (0.0, 2)
    assert leg_noise([[(1.0, 0.5)], [(2.0, 0.7)]]) is None
    assert leg_noise([[], []]) is None
