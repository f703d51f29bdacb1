"""Ending early because a gate is certainly failed: the boundary, and what it makes of runs."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest

from audition.judge.estimate import Mean, pooled_mean, t_quantile
from audition.judge.load import RunData, load_run
from audition.judge.records import Caveat
from audition.judge.result import early_end_reason, judge_run
from audition.judge.sequential import ALPHA, certain_failures, level_at, spent, t_above
from audition.spike.model import Spike
from judge.build_run import ORDER, LegPlan, build_run, make_spike

FIELD = [341.0, 59.0, 436.0, 69.0]
FAST_ENOUGH = {"name": "fast enough", "metric": "output_tok_s", "workload": "users", "at_least": 700}


@pytest.mark.parametrize("degrees", [1, 2, 3, 5, 10, 30, 100])
def test_t_probabilities_agree_with_the_table(degrees: int) -> None:
    assert t_above(t_quantile(0.975, degrees), degrees) == pytest.approx(0.025, abs=2.5e-5)
    assert t_above(-t_quantile(0.975, degrees), degrees) == pytest.approx(0.975, abs=2.5e-5)
    assert t_above(0, degrees) == pytest.approx(0.5)


def test_t_probabilities_of_one_and_two_degrees_are_the_closed_forms() -> None:
    for x in (0.1, 1.0, 7.0, 300.0):
        assert t_above(x, 1) == pytest.approx(0.5 - math.atan(x) / math.pi, rel=1e-9)
        assert t_above(x, 2) == pytest.approx(0.5 - x / (2 * math.sqrt(2 + x * x)), rel=1e-6)


def test_all_looks_together_spend_alpha_and_early_ones_nearly_nothing() -> None:
    for planned in (3, 5, 9, 21):
        levels = [level_at(k, planned) for k in range(1, planned + 1)]
        assert math.fsum(levels) == pytest.approx(ALPHA)
        assert levels == sorted(levels)
    assert spent(0.5) == pytest.approx(0.00153, abs=5e-5)  # Lan and DeMets' O'Brien-Fleming type for one-sided 0.025
    assert spent(0.0) == 0.0


def test_looking_after_every_leg_fails_good_candidates_no_more_often_than_alpha() -> None:
    """Nine legs around a limit that is the truth: the chance to fail at any look before the last."""
    rng = random.Random(11)
    failed = 0
    trials = 6000
    for _ in range(trials):
        legs = [(n % 2, rng.gauss(0.0, 0.08)) for n in range(9)]
        for k in range(3, 9):
            own, other = [y for a, y in legs[:k] if a == 1], [y for a, y in legs[:k] if a == 0]
            if len(own) < 2:
                continue
            m: Mean = pooled_mean(own, [own, other])
            assert m.se is not None
            if m.value < 0 and t_above(-m.value / m.se, m.degrees) <= level_at(k, 9):
                failed += 1
                break
    assert failed / trials <= ALPHA


def partial(folder: Path, spike: Spike, rates: list[float], **run: Any) -> RunData:
    arms = [leg.arm for leg in spike.planned_legs()]
    plans = [LegPlan(arm, rates[i] if i < len(rates) else None) for i, arm in enumerate(arms)]
    return load_run(build_run(folder, spike, plans, run={"ended": "running", "ended_at": None, **run}))


def test_the_field_series_ends_after_four_legs_and_not_before(tmp_path: Path) -> None:
    spike = make_spike([FAST_ENOUGH])
    for k in (1, 2, 3):
        assert early_end_reason(partial(tmp_path / str(k), spike, FIELD[:k]), spike) is None
    reason = early_end_reason(partial(tmp_path / "4", spike, FIELD), spike)
    assert reason is not None
    assert "fast enough, output_tok_s of users on mtp, is certainly failed after leg 4 of 5" in reason
    assert early_end_reason(partial(tmp_path / "off", spike, FIELD), make_spike([FAST_ENOUGH], early_end=False)) is None
    assert early_end_reason(partial(tmp_path / "all", spike, [*FIELD, 435.0]), spike) is None  # the ordinary rules decide


@pytest.mark.parametrize(
    ("ended", "verdict"),
    [("early-end", "NO-GO"), ("interrupted", "INCONCLUSIVE"), ("running", "INCONCLUSIVE"), ("failed", "INCONCLUSIVE")],
)
def test_a_run_that_ended_for_it_is_no_go_from_the_records_alone(tmp_path: Path, ended: str, verdict: str) -> None:
    spike = make_spike([FAST_ENOUGH])
    result = judge_run(partial(tmp_path, spike, FIELD, ended=ended), spike)
    assert result.verdict == verdict
    if verdict == "NO-GO":
        assert "certainly failed" in result.reasons[0]
        assert result.gates[1].outcome == "failed"
        assert result.gates[1].why == result.reasons[0]


def test_nothing_is_certain_beside_a_void_leg_but_the_failed_gate_is_said(tmp_path: Path) -> None:
    spike = make_spike([FAST_ENOUGH])
    plans = [LegPlan(arm, rate) for arm, rate in zip(ORDER, [*FIELD, 435.0], strict=True)]
    plans[2].caveats = [Caveat("foreign-traffic", "void", "foreign traffic")]
    whole = judge_run(load_run(build_run(tmp_path / "a", spike, plans)), spike)
    assert whole.verdict == "INCONCLUSIVE"
    assert any(r.startswith("Seen, but not deciding: fast enough: failed") for r in whole.reasons)
    plans[4].rate = None
    cut = load_run(build_run(tmp_path / "b", spike, plans, run={"ended": "early-end"}))
    assert certain_failures(cut, spike) == {}
    assert judge_run(cut, spike).verdict == "INCONCLUSIVE"


def test_groups_shadows_and_ratios(tmp_path: Path) -> None:
    good = {"metric": "output_tok_s", "workload": "users", "at_least": 1}
    ratio = {"metric": "output_tok_s", "workload": "users", "ratio_to": "v2g", "at_least": 1.05}
    cases: list[tuple[dict[str, Any], bool]] = [
        ({"all": [good, FAST_ENOUGH]}, True),
        ({"any": [good, FAST_ENOUGH]}, False),
        ({"any": [FAST_ENOUGH, {**FAST_ENOUGH, "name": "twice"}]}, True),
        ({"all": [good, {**FAST_ENOUGH, "shadow": True}]}, False),
        (ratio, False),  # after four legs one pair is whole
        ({"metric": "ttft", "workload": "users", "at_most": 0.0001}, True),
        ({"metric": "ttft", "workload": "users", "at_most": 10}, False),
        ({"metric": "max_concurrency", "at_least": 10}, False),
    ]
    for n, (gate, certain) in enumerate(cases):
        spike = make_spike([gate])
        assert bool(certain_failures(partial(tmp_path / str(n), spike, FIELD), spike)) is certain, gate
    long = make_spike([ratio], legs=["v2g", "mtp"] * 4 + ["v2g"])
    rates = [341.0, 59.0, 360.0, 62.0, 350.0, 60.0, 345.0, 61.0]
    assert certain_failures(partial(tmp_path / "r7", long, rates[:7]), long) != {}
    assert certain_failures(partial(tmp_path / "r3", long, rates[:3]), long) == {}


def test_failures_that_no_further_leg_can_repair_end_the_run(tmp_path: Path) -> None:
    spike = make_spike([{"metric": "failure_share", "workload": "users", "at_most": 0.2}])
    for failed, certain in ((3, False), (4, True)):  # 16 planned requests, of which 3.2 may fail
        plans = [LegPlan("v2g"), LegPlan("mtp", 150.0, failed=failed), *(LegPlan(a, None) for a in ORDER[2:])]
        run = load_run(build_run(tmp_path / str(failed), spike, plans, run={"ended": "early-end"}))
        assert bool(certain_failures(run, spike)) is certain
        assert judge_run(run, spike).verdict == ("NO-GO" if certain else "INCONCLUSIVE")


def test_a_failed_probe_is_certain(tmp_path: Path) -> None:
    spike = make_spike([{"probe": "canary", "arm": "v2g"}])
    plans = [LegPlan("v2g", canary=False, canary_detail="odd"), *(LegPlan(a, None) for a in ORDER[1:])]
    run = load_run(build_run(tmp_path, spike, plans, run={"ended": "early-end"}))
    assert "odd" in certain_failures(run, spike)[0]


def test_a_probe_that_production_fails_too_tells_nothing(tmp_path: Path) -> None:
    """The canary is odd for this model: no NO-GO for the candidate, but no GO either."""
    spike = make_spike([{"probe": "canary"}])
    plans = [LegPlan(arm, 100.0, canary=False, canary_detail="odd") for arm in ORDER]
    result = judge_run(load_run(build_run(tmp_path, spike, plans)), spike)
    assert result.verdict == "INCONCLUSIVE"
    assert any("production fails the same probe" in reason for reason in result.reasons)
    sane = [LegPlan(arm, 100.0, canary=arm == "v2g", canary_detail="odd") for arm in ORDER]
    assert judge_run(load_run(build_run(tmp_path / "sane", spike, sane)), spike).verdict == "NO-GO"
