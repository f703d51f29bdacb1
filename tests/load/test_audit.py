"""The self-audit, case by case."""

from dataclasses import replace

import pytest

from audition.judge.records import Caveat, ClientStats, RequestRecord, StreamEvent, pack_events
from audition.load.audit import Evidence, audit, first_token_at
from audition.load.clock import ClockCheck, clock_trouble
from audition.load.telemetry import Timeline
from audition.load.vitals import quantile
from audition.observe.timeline import Minute, Point
from audition.spike.model import Workload


def request(index: int, **keys: object) -> RequestRecord:
    good = RequestRecord(index, 0, "p", 0.0, 0.001, 0.01, 1.0, "ok", prompt_tokens=100, completion_tokens=50)
    return replace(good, **keys)  # type: ignore[arg-type]


def evidence(records: list[RequestRecord] | None = None, counters: dict[str, float] | None = None, **keys: object) -> Evidence:
    rows = [request(n) for n in range(10)] if records is None else records
    known = {"generation_tokens": 500.0, "request_success": 10.0, "prefix_cache_queries": 1000.0, "prefix_cache_hits": 0.0}
    base = Evidence(
        workload=Workload(name="w", requests=10, max_tokens=100),
        records=rows,
        counters={**known, **(counters or {})},
        counters_missing="",
        restarted="",
        at_rest=True,
        client=ClientStats(1.0, 10.0, 0.001),
        ended=("", ""),
        continuous=True,
        steady=True,
    )
    return replace(base, **keys)  # type: ignore[arg-type]


def found(caveats: list[Caveat]) -> dict[str, str]:
    return {caveat.code: caveat.effect for caveat in caveats}


def test_nothing_to_say() -> None:
    assert audit(evidence()) == []


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (evidence(client=ClientStats(8.5, 10.0)), {"client-bound": "void"}),
        (evidence(client=ClientStats(8.5, 10.0, processes=2)), {}),
        (evidence(client=ClientStats(1.0, 10.0, 0.02)), {"loop-lag": "note"}),
        (evidence(client=ClientStats(1.0, 10.0, 0.2)), {"loop-lag": "void"}),
        (evidence([request(n, sent=0.3) for n in range(10)]), {"client-late": "note"}),
        (evidence(counters={"generation_tokens": 520.0}), {"token-disagreement": "note"}),
        (evidence(counters={"generation_tokens": 400.0}), {"token-disagreement": "void"}),
        (evidence(counters={"generation_tokens": 502.0}), {}),
        (evidence(counters={"generation_tokens": 600.0, "request_success": 12.0}), {"foreign-traffic": "void"}),
        (evidence(counters={"generation_tokens": 501.0, "request_success": 11.0}), {"foreign-traffic": "note"}),
        (evidence(counters={"generation_tokens": 510.0, "request_success": 12.0}), {"foreign-traffic": "void"}),
        (evidence(counters={"prefix_cache_hits": 300.0}), {}),
        (evidence(counters={"prefix_cache_hits": 500.0}), {"prefix-cache-warm": "note"}),
        (evidence(counters={"prefix_cache_hits": 900.0}), {"prefix-cache-warm": "void"}),
        (evidence(counters={"prefix_cache_queries": 0.0}), {}),
        (evidence([], {"generation_tokens": 0.0, "request_success": 0.0}), {"no-requests": "void"}),
        (evidence(at_rest=False), {"engine-not-at-rest": "note"}),
        (evidence(steady=False), {"never-all-busy": "note"}),
        (evidence(continuous=False), {"no-continuous-usage": "note"}),
        (evidence(ended=("engine-died", "it died")), {"engine-died": "void"}),
        (evidence([request(n, tokens_estimated=True) for n in range(10)]), {"tokens-estimated": "note"}),
    ],
)
def test_each_case(case: Evidence, expected: dict[str, str]) -> None:
    assert found(audit(case)) == expected


def test_missing_and_reset_counters() -> None:
    assert found(audit(replace(evidence(), counters=None, counters_missing="HTTP 404"))) == {"no-counters": "note"}
    assert found(audit(replace(evidence(), counters=None, restarted="it fell"))) == {"engine-restarted": "void"}


def test_failures_are_counted_and_their_unseen_tokens_are_not_foreign() -> None:
    rows = [request(n) for n in range(8)] + [request(n, outcome="stalled", completion_tokens=3, detail="x") for n in (8, 9)]
    assert found(audit(evidence(rows, {"generation_tokens": 590.0}))) == {"failures": "note"}
    assert found(audit(evidence(rows, {"generation_tokens": 700.0}))) == {"failures": "note", "foreign-traffic": "void"}
    broken = [request(n, outcome="http-error", completion_tokens=None, detail="oh") for n in range(10)]
    caveats = audit(evidence(broken, {"generation_tokens": 0.0, "request_success": 0.0}))
    assert found(caveats) == {"all-failed": "void"}
    assert "http-error" in caveats[0].text


def test_few_requests() -> None:
    case = evidence([request(0), request(1)], {"generation_tokens": 100.0, "request_success": 2.0})
    assert found(audit(case)) == {"few-requests": "note"}


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([], 0.99, None), ([3.0], 0.99, 3.0), (list(map(float, range(1, 101))), 0.99, 99.0), ([1.0, 2.0], 0.5, 1.0)],
)
def test_quantile(values: list[float], share: float, expected: float | None) -> None:
    assert quantile(values, share) == expected


def minute(number: int, length: float | None) -> Minute:
    return Minute(60.0 * number, 60.0 * (number + 1), 100.0, None if length is None else 0.5, length)


def point(running: float) -> Point:
    return Point(1.0, running, 0.0, None, 1.0, None, None, None, None)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (evidence(timeline=Timeline(minutes=[minute(0, 2.6), minute(1, 2.4), minute(2, 1.0)])), {"acceptance-collapsed": "note"}),
        (evidence(timeline=Timeline(minutes=[minute(0, 2.6), minute(1, 2.2), minute(2, None)])), {}),
        (evidence(timeline=Timeline(minutes=[minute(0, 1.01), minute(1, 1.0)])), {}),
        (evidence(timeline=Timeline(points=[point(1.0), point(2.0)])), {"foreign-requests": "note"}),
        (evidence(timeline=Timeline(points=[point(1.0)])), {}),
        (evidence(clock_trouble="the wall clock was set by +3.0 s during the workload"), {"clock-trouble": "note"}),
        (evidence(clock_trouble="the machine was suspended for 9.0 s during the workload"), {"clock-trouble": "void"}),
        (evidence(survived=False), {"not-survived": "void"}),
        (evidence(survived=True), {}),
    ],
)
def test_what_shows_over_time(case: Evidence, expected: dict[str, str]) -> None:
    assert found(audit(case)) == expected


@pytest.mark.parametrize(
    ("engine", "expected"), [(0.099, {}), (0.05, {}), (0.03, {"ttft-disagreement": "note"}), (0.2, {"ttft-disagreement": "note"})]
)
def test_client_and_engine_on_first_tokens(engine: float, expected: dict[str, str]) -> None:
    rows = [request(n, events=pack_events([StreamEvent(0.05, 0, 0), StreamEvent(0.101, 50, 1)])) for n in range(10)]
    counters = {"time_to_first_token_seconds_sum": 10 * engine, "time_to_first_token_seconds_count": 10.0}
    assert first_token_at(rows[0]) == pytest.approx(0.101)
    assert found(audit(evidence(rows, counters))) == expected


@pytest.mark.parametrize(
    ("clocks", "said"),
    [
        ((10.0, 10.0, 10.0), ""),
        ((600.2, 600.0, 600.0), ""),
        ((7.0, 10.0, 10.0), "set by -3.0"),
        ((70.0, 10.0, 70.0), "suspended for 60.0"),
    ],
)
def test_clocks(clocks: tuple[float, float, float], said: str) -> None:
    trouble = clock_trouble(*clocks)
    assert said in trouble
    assert bool(said) is bool(trouble)
    assert ClockCheck().trouble() == ""
