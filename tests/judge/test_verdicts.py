"""Verdicts of whole runs: truth tables, broken evidence, the field series, determinism."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from audition.errors import BadInput
from audition.judge.compare import compare
from audition.judge.gates import combine_all, combine_any, decide
from audition.judge.load import load_run
from audition.judge.metrics import LegSheet, Measure
from audition.judge.records import BootRecord, Caveat
from audition.judge.result import Result, early_end_reason, judge_run, result_json
from audition.spike.model import Spike
from judge.build_run import ORDER, LegPlan, build_run, legs_of, make_spike
from judge.damage import HOW, damage

FAST = [100.0, 150.0, 101.0, 151.0, 100.5]
GATES = [
    {"metric": "output_tok_s", "workload": "users", "at_least": 200},
    {"metric": "output_tok_s", "workload": "users", "ratio_to": "v2g", "at_least": 1.05},
]


def judge(
    folder: Path, legs: list[LegPlan], gates: list[dict[str, Any]] | None = None, run: dict[str, Any] | None = None, **spike: Any
) -> Result:
    if "order" in spike:
        spike["legs"] = spike.pop("order")
    made = make_spike(GATES if gates is None else gates, **spike)
    return judge_run(load_run(build_run(folder, made, legs, run=run)), made)


def test_a_faster_candidate_is_go(tmp_path: Path) -> None:
    result = judge(tmp_path, legs_of(FAST))
    assert result.verdict == "GO", result.reasons
    ratio = result.gates[2]
    assert ratio.low is not None
    # Streams decode 1.5 times as fast, but each of their requests also waits 0.1 s for its first token.
    assert 1.3 < ratio.low < 1.40 < (ratio.high or 0) < 1.5
    assert result.gates[0].name == "canary (always)"


def test_a_slower_candidate_is_no_go_with_the_reason(tmp_path: Path) -> None:
    result = judge(tmp_path, legs_of([100.0, 50.0, 101.0, 51.0, 100.5]))
    assert result.verdict == "NO-GO"
    assert any("at least 200" in r for r in result.reasons)


def test_across_the_threshold_is_inconclusive_and_says_what_would_settle(tmp_path: Path) -> None:
    result = judge(tmp_path, legs_of([100.0, 95.0, 140.0, 130.0, 100.0]), [GATES[1]])
    assert result.verdict == "INCONCLUSIVE"
    assert result.settle


@pytest.mark.parametrize(
    ("series", "ratio"), [((683.0, 119.0, 872.0, 138.0, 870.0), 1 / 6.4), ((58.3, 25.0, 101.7, 42.0, 101.7), 0.365)]
)
def test_field_series_shows_a_clearly_worse_candidate_in_spite_of_drift(series: tuple[float, ...], ratio: float) -> None:
    key = ("users-16", "output_tok_s", "")
    sheets = [LegSheet(i, arm, {key: Measure(v, 16)}) for i, (arm, v) in enumerate(zip(ORDER, series, strict=True), start=1)]
    c = compare(sheets, "mtp", "v2g", key)
    assert c.ratio == pytest.approx(ratio, rel=0.02)
    assert c.high is not None
    assert c.high < 1
    assert c.detectable_ratio is not None


def test_field_series_fails_the_reference_gate(tmp_path: Path) -> None:
    gates = [{"metric": "output_tok_s", "workload": "users", "at_least": 700}]
    result = judge(tmp_path, legs_of([341.0, 59.0, 436.0, 69.0, 435.0]), gates)
    assert result.verdict == "NO-GO"
    assert result.gates[1].high is not None
    assert result.gates[1].high < 700


@pytest.mark.parametrize("leg", [1, 2, 3, 4, 5])
def test_a_leg_that_was_not_reached_is_inconclusive(tmp_path: Path, leg: int) -> None:
    rates: list[float | None] = list(FAST)
    rates[leg - 1] = None
    assert judge(tmp_path, legs_of(rates)).verdict == "INCONCLUSIVE"


@pytest.mark.parametrize("ended", ["interrupted", "failed", "running", "early-end"])
def test_a_run_without_a_proper_end_is_inconclusive(tmp_path: Path, ended: str) -> None:
    result = judge(tmp_path, legs_of(FAST), run={"ended": ended, "end_reason": "SIGINT"})
    assert result.verdict == "INCONCLUSIVE"
    assert "SIGINT" in result.reasons[0]


@pytest.mark.parametrize("ended", ["complete", "interrupted", "failed", "running", "early-end"])
def test_a_failed_canary_is_no_go_whatever_the_speed_and_the_end(tmp_path: Path, ended: str) -> None:
    legs = legs_of(FAST, leg2=LegPlan("mtp", 500.0, canary=False, canary_detail="repeats itself"))
    result = judge(tmp_path, legs, run={"ended": ended})
    assert result.verdict == "NO-GO"
    assert "repeats itself" in result.reasons[0]


def test_a_canary_that_was_not_judged_blocks_go(tmp_path: Path) -> None:
    legs = legs_of(FAST, leg4=LegPlan("mtp", 150.0, canary=None, canary_detail="no answer"))
    result = judge(tmp_path, legs)
    assert result.verdict == "INCONCLUSIVE"
    assert "no answer" in result.reasons[0]


def test_productions_failing_canary_does_not_rule_the_candidate_out(tmp_path: Path) -> None:
    assert judge(tmp_path, legs_of(FAST, leg1=LegPlan("v2g", 100.0, canary=False))).verdict == "GO"


def failed_boot(origin: str = "candidate", signature: str = "deepcopy-poison") -> LegPlan:
    boot = BootRecord("booted", "b", None, False, "exited with code 1", signature, "AttributeError: 'code' object", 1, None, origin)  # type: ignore[arg-type]
    return LegPlan("mtp", 0.0, outcome="boot-failed", boot=boot)


def test_a_candidate_that_cannot_boot_is_no_go_with_its_cause(tmp_path: Path) -> None:
    legs = [LegPlan("v2g"), failed_boot(), *(LegPlan(arm, None) for arm in ORDER[2:])]
    result = judge(tmp_path, legs, run={"ended": "early-end"})
    assert result.verdict == "NO-GO"
    assert "deepcopy-poison" in result.reasons[0]


def test_a_boot_that_failed_for_an_outside_cause_is_inconclusive(tmp_path: Path) -> None:
    legs = legs_of(FAST, leg4=failed_boot("environment", "port-in-use"))
    result = judge(tmp_path, legs)
    assert result.verdict == "INCONCLUSIVE"
    assert any("port-in-use" in r for r in result.reasons)


def test_a_candidate_that_dies_while_serving_is_no_go(tmp_path: Path) -> None:
    legs = legs_of(FAST, leg4=LegPlan("mtp", 150.0, outcome="engine-died", detail="exit code -11"))
    assert judge(tmp_path, legs, run={"ended": "early-end"}).verdict == "NO-GO"


def test_production_that_dies_is_inconclusive(tmp_path: Path) -> None:
    legs = legs_of(FAST, leg3=LegPlan("v2g", 100.0, outcome="engine-died", detail="exit code -11"))
    assert judge(tmp_path, legs, run={"ended": "failed"}).verdict == "INCONCLUSIVE"


def test_early_end_asks_only_for_what_is_certain(tmp_path: Path) -> None:
    spike = make_spike(GATES)
    run = load_run(build_run(tmp_path / "a", spike, [LegPlan("v2g"), LegPlan("mtp", 1.0), *(LegPlan(a, None) for a in ORDER[2:])]))
    assert early_end_reason(run, spike) is None
    bad = load_run(build_run(tmp_path / "b", spike, [LegPlan("v2g"), failed_boot(), *(LegPlan(a, None) for a in ORDER[2:])]))
    assert "deepcopy-poison" in (early_end_reason(bad, spike) or "")
    assert early_end_reason(bad, make_spike(GATES, early_end=False)) is None


def test_failed_requests_hide_no_figure_and_are_counted(tmp_path: Path) -> None:
    gates = [
        {"metric": "failure_share", "workload": "users", "at_most": 0.01},
        {"metric": "ttft", "workload": "users", "at_most": 9},
    ]
    result = judge(tmp_path, legs_of(FAST, leg2=LegPlan("mtp", 150.0, failed=8)), gates)
    assert result.verdict == "NO-GO"
    leg = result.legs[1]
    assert leg.figure("users", "failure_share") is not None
    ttft = leg.figure("users", "ttft", "p50")
    assert ttft is not None
    assert ttft.value is None
    assert "8 of 8 requests failed" in ttft.missing
    assert result.gates[2].outcome == "unknown"


def test_a_group_that_does_not_hold_says_which_part_and_with_what_figure(tmp_path: Path) -> None:
    fast = {"name": "fast", "metric": "output_tok_s", "workload": "users", "at_least": 100_000}
    safe = {"name": "safe", "metric": "failure_share", "workload": "users", "at_most": 0}
    result = judge(tmp_path, legs_of(FAST), [{"name": "go", "all": [{"name": "both", "all": [fast, safe]}, safe]}])
    assert result.verdict == "NO-GO"
    reason = next(text for text in result.reasons if text.startswith("go: "))
    assert reason.startswith("go: failed (both: failed (fast: failed, ")
    assert "tok/s" in reason
    assert "safe" not in reason


def test_one_pair_decides_only_when_the_spike_file_says_so(tmp_path: Path) -> None:
    legs = [LegPlan("v2g"), LegPlan("mtp", 150.0), LegPlan("v2g")]
    order = ["v2g", "mtp", "v2g"]
    plain = judge(tmp_path / "a", legs, [GATES[1]], order=order)
    assert plain.verdict == "INCONCLUSIVE"
    assert plain.gates[1].value is not None
    allowed = judge(tmp_path / "b", legs, [{**GATES[1], "one_pair_suffices": True}], order=order)
    assert allowed.verdict == "GO"
    assert "one pair" in allowed.gates[1].basis


def test_a_single_candidate_leg_gives_no_absolute_verdict(tmp_path: Path) -> None:
    legs = [LegPlan("v2g"), LegPlan("mtp", 150.0), LegPlan("v2g")]
    assert judge(tmp_path / "a", legs, [GATES[0]], order=["v2g", "mtp", "v2g"]).verdict == "INCONCLUSIVE"
    allowed = judge(tmp_path / "b", legs, [{**GATES[0], "one_pair_suffices": True}], order=["v2g", "mtp", "v2g"])
    assert allowed.verdict == "GO"


def test_shadow_gates_are_reported_and_never_decide(tmp_path: Path) -> None:
    gates = [GATES[0], {"metric": "output_tok_s", "workload": "users", "at_least": 1e6, "shadow": True}]
    result = judge(tmp_path, legs_of(FAST), gates)
    assert result.verdict == "GO"
    assert result.gates[2].outcome == "failed"
    only_shadow = judge(tmp_path / "b", legs_of(FAST), [gates[1]], probes=[])
    assert only_shadow.verdict == "INCONCLUSIVE"


THREE = ("passed", "failed", "unknown")


@pytest.mark.parametrize(("a", "b"), list(itertools.product(THREE, THREE)))
def test_groups_follow_three_valued_logic(a: Any, b: Any) -> None:
    rank = {"failed": 0, "unknown": 1, "passed": 2}
    assert combine_all([a, b]) == min((a, b), key=rank.__getitem__)
    assert combine_any([a, b]) == max((a, b), key=rank.__getitem__)


@given(st.floats(-1e6, 1e6), st.floats(0, 1e5), st.floats(-1e6, 1e6))
def test_an_interval_decides_only_when_it_is_wholly_on_one_side(low: float, width: float, limit: float) -> None:
    high = low + width
    outcome = decide(low, high, limit, None)
    if outcome == "passed":
        assert low >= limit - 1e-5
    elif outcome == "failed":
        assert high < limit
    else:
        assert low < limit <= high + 1e-5


def test_groups_decide_in_a_whole_run(tmp_path: Path) -> None:
    passing, failing = GATES[0], {**GATES[0], "at_least": 1e6}
    assert judge(tmp_path / "a", legs_of(FAST), [{"any": [passing, failing]}]).verdict == "GO"
    result = judge(tmp_path / "b", legs_of(FAST), [{"all": [passing, failing]}])
    assert result.verdict == "NO-GO"
    assert [p.outcome for p in result.gates[1].parts] == ["passed", "failed"]


@pytest.mark.parametrize("where", ["caveats", "workload_caveats"])
@pytest.mark.parametrize("leg", [1, 2, 3, 4, 5])
def test_void_data_never_decide(tmp_path: Path, where: str, leg: int) -> None:
    legs = legs_of(FAST)
    setattr(legs[leg - 1], where, [Caveat("cache-warm", "void", "the cache was warm")])
    result = judge(tmp_path, legs)
    assert result.verdict == "INCONCLUSIVE"
    assert any("the cache was warm" in r for r in result.reasons)
    noted = legs_of(FAST)
    setattr(noted[leg - 1], where, [Caveat("desktop", "note", "a desktop ran")])
    assert judge(tmp_path / "n", noted).verdict == "GO"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    where=st.tuples(st.integers(0, 4), st.sampled_from(["leg.json", "users.json", "users.requests.jsonl"])),
    how=st.sampled_from(HOW),
    at=st.floats(0.05, 0.9),
    good=st.booleans(),
)
def test_damaged_records_are_always_inconclusive(
    tmp_path_factory: pytest.TempPathFactory, where: tuple[int, str], how: str, at: float, good: bool
) -> None:
    leg, file = where
    folder = tmp_path_factory.mktemp("run")
    spike = make_spike(GATES)
    build_run(folder, spike, legs_of(FAST if good else [100.0, 50.0, 101.0, 51.0, 100.5]))
    target = folder / "legs" / f"{leg + 1:02d}-{ORDER[leg]}" / file
    damage(target, how, at)
    result = judge_run(load_run(folder), spike)
    assert result.verdict == "INCONCLUSIVE", (how, file, result.reasons)


def test_a_leg_with_damaged_events_is_inconclusive(tmp_path: Path) -> None:
    spike = make_spike(GATES)
    build_run(tmp_path, spike, legs_of(FAST))
    path = tmp_path / "legs/02-mtp/users.requests.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[3]["events"] = rows[3]["events"][:-3] + '"~'
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    assert judge_run(load_run(tmp_path), spike).verdict == "INCONCLUSIVE"


def test_judging_twice_gives_identical_bytes(tmp_path: Path) -> None:
    spike = make_spike(GATES)
    build_run(tmp_path, spike, legs_of(FAST))
    texts = {result_json(judge_run(load_run(tmp_path), spike)) for _ in range(2)}
    assert len(texts) == 1
    json.loads(texts.pop(), parse_constant=lambda name: pytest.fail(f"{name} in result.json"))


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"schema": 1}'])
def test_a_folder_without_a_run_is_bad_input(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "run.json").write_text(text)
    with pytest.raises(BadInput, match=r"run\.json"):
        load_run(tmp_path)


HYPOTHESIS = {
    "name": "att4-is-the-image",
    "claim": "Att4 comes from the patched image.",
    "refuted_by": "deepcopy-poison",
    "supported_by_clean_boots": 2,
    "when_supported": "The patched image is the origin.",
    "when_refuted": "General bug: draft an issue.",
}


def hypothesis_of(folder: Path, legs: list[LegPlan], run: dict[str, Any] | None = None) -> Any:
    return judge(folder, legs, run=run, hypotheses=[HYPOTHESIS]).hypotheses[0]


def test_hypotheses_are_supported_refuted_or_open(tmp_path: Path) -> None:
    supported = hypothesis_of(tmp_path / "a", legs_of(FAST))
    assert (supported.outcome, supported.clean_boots, len(supported.digests)) == ("supported", 2, 1)
    assert supported.text == "The patched image is the origin."
    tail = [LegPlan(arm, None) for arm in ORDER[2:]]
    refuted = hypothesis_of(tmp_path / "b", [LegPlan("v2g"), failed_boot(), *tail])
    assert (refuted.outcome, refuted.failed_boots) == ("refuted", 1)
    assert "AttributeError" in refuted.excerpt
    other = hypothesis_of(tmp_path / "c", [LegPlan("v2g"), failed_boot(signature="cuda-out-of-memory"), *tail])
    assert other.outcome == "open"
    once = hypothesis_of(tmp_path / "d", [LegPlan("v2g"), LegPlan("mtp", 150.0), *tail])
    assert once.outcome == "open"


def test_every_gate_of_a_valid_spike_gets_a_result_on_an_empty_run(tmp_path: Path) -> None:
    from audition.spike.metrics import METRICS

    gates: list[dict[str, Any]] = []
    for metric in METRICS.values():
        gate: dict[str, Any] = {"metric": metric.name, "at_least": 1}
        if metric.scope != "leg":
            gate["workload"] = "users"
        gates += [gate, {**gate, "ratio_to": "v2g"}]
    spike: Spike = make_spike(gates)
    result = judge_run(load_run(build_run(tmp_path, spike, [LegPlan(arm, None) for arm in ORDER])), spike)
    assert result.verdict == "INCONCLUSIVE"
    assert {g.outcome for g in result.gates} == {"unknown"}


def test_an_arm_with_a_single_boot_is_noted(tmp_path: Path) -> None:
    legs = legs_of(FAST)
    for leg in (legs[1], legs[3]):
        leg.boot = BootRecord("booted", "the same", 100.0, True)
    result = judge(tmp_path, legs)
    assert [(c.where, c.code, c.effect) for c in result.caveats] == [("mtp", "one-boot", "note")]
    assert result.verdict == "GO"


def test_a_spike_that_states_every_key_is_read_again() -> None:
    spike = make_spike(GATES)
    assert Spike.model_validate_json(spike.model_dump_json()) == spike
