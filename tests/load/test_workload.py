"""A whole workload against the simulated server: exact tokens, true times, every early end, honest caveats."""

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import uvloop

from audition.judge.records import RequestRecord, WorkloadRecord, unpack_events, workload_from_dict
from audition.load.client import fetch
from audition.load.prompts import mark
from audition.load.round import RAW_LIMIT
from audition.load.workload import Progress, run_workload
from audition.spike.model import Workload
from load.arms import MTP3, Arm, simulated_arm
from load.scripted import END, HANG, HEAD, Endpoint, Step, part, scripted
from load.sse import DONE, chunk

LIMIT_S = 90.0


def never() -> bool:
    return False


def measure(
    endpoint: Endpoint,
    folder: Path,
    *,
    alive: Callable[[], bool] = lambda: True,
    give_up: Callable[[], bool] = never,
    on_progress: Callable[[Progress], None] | None = None,
    leg: str = "leg-1",
    raw_limit: int = RAW_LIMIT,
    **keys: Any,
) -> tuple[WorkloadRecord, list[RequestRecord]]:
    workload = Workload.model_validate({"name": "w", "users": 4, "requests": 12, "max_tokens": 60, **keys})
    work = run_workload(
        endpoint, workload, leg_salt=leg, seed=5, out_dir=folder, alive=alive, give_up=give_up, on_progress=on_progress,
        raw_limit=raw_limit,
    )  # fmt: skip
    record = uvloop.run(asyncio.wait_for(work, LIMIT_S))
    lines = (folder / record.requests_file).read_text(encoding="utf-8").splitlines()
    assert workload_from_dict(json.loads((folder / "w.json").read_text(encoding="utf-8"))) == record
    assert record.requests_recorded == len(lines)
    return record, [RequestRecord.from_line(line) for line in lines]


def codes(record: WorkloadRecord, effect: str | None = None) -> set[str]:
    """Codes of the caveats, without those that only say that this machine was busy."""
    busy = {"loop-lag", "client-late", "client-bound"}
    return {c.code for c in record.caveats if c.code not in busy and effect in (None, c.effect)}


def test_tokens_equal_usage_counters_and_truth_and_times_are_near_the_truth(tmp_path: Path) -> None:
    with simulated_arm(tmp_path, *MTP3) as arm:
        record, requests = measure(arm.endpoint, tmp_path, alive=arm.alive)
        truth = arm.truth()
    assert record.complete
    assert codes(record) == set()
    assert [r.index for r in requests] == list(range(12))
    assert record.counters is not None
    total = sum(r.completion_tokens or 0 for r in requests)
    assert total == record.counters["generation_tokens"]
    assert record.counters["request_success"] == 12
    assert record.counters["prompt_tokens"] == sum(r.prompt_tokens or 0 for r in requests)
    assert 0 < record.counters["spec_decode_num_accepted_tokens"] < record.counters["spec_decode_num_draft_tokens"]
    prefix = f"audition-{mark('leg-1', 'w', 'measuring')}"
    errors = []
    for r in requests:
        assert r.outcome == "ok"
        assert r.sent is not None
        known = truth[f"{prefix}-{r.index}"]
        events = [event for event in unpack_events(r.events) if event.tokens]
        assert r.completion_tokens == known["completion_tokens"] == sum(event.tokens or 0 for event in events)
        assert max(event.tokens or 0 for event in events) > 1
        errors.append((events[0].at - r.sent) - (known["sent"][0] - known["arrival"]))
        assert abs((events[-1].at - events[0].at) - (known["sent"][-1] - known["sent"][0])) < 0.5
    assert -0.005 < median(errors) < 0.25
    assert record.steady_window is not None
    assert record.steady_window[1] <= record.wall_s


@pytest.mark.parametrize(
    ("version", "thinking"), [("0.9.2", True), ("0.19.1", True), ("0.28.0", True), ("0.19.1", False), ("0.32.0", None)]
)
def test_thinking_and_versions_are_counted_exactly(tmp_path: Path, version: str, thinking: bool | None) -> None:
    with simulated_arm(tmp_path, "--reasoning-parser", "qwen3", version=version, thinking_tokens=20) as arm:
        record, requests = measure(arm.endpoint, tmp_path, alive=arm.alive, thinking=thinking, requests=4, users=2)
    assert record.counters is not None
    assert sum(r.completion_tokens or 0 for r in requests) == record.counters["generation_tokens"]
    kinds = {event.kind for r in requests for event in unpack_events(r.events)}
    assert (2 in kinds) is (thinking is not False)
    assert not codes(record, "void")


def test_bodies_over_the_memory_limit_are_parsed_on_the_way_with_the_same_result(tmp_path: Path) -> None:
    with simulated_arm(tmp_path) as arm:
        record, requests = measure(arm.endpoint, tmp_path, alive=arm.alive, raw_limit=1)
    assert record.counters is not None
    assert sum(r.completion_tokens or 0 for r in requests) == record.counters["generation_tokens"]
    assert [r.index for r in requests] == list(range(12))


def test_a_restart_of_the_engine_on_the_way_never_counts(tmp_path: Path) -> None:
    with simulated_arm(tmp_path, step_base_ms=10.0, answer_tokens=400) as first:
        port = int(first.endpoint.url.rpartition(":")[2])

        def restart() -> None:
            os.killpg(first.process.pid, signal.SIGKILL)
            first.process.wait()
            running.append(stack.enter_context(simulated_arm(tmp_path, port=port, step_base_ms=10.0)))

        running: list[Arm] = []
        with ExitStack() as stack:
            timer = threading.Timer(3.0, restart)
            timer.start()
            record, requests = measure(first.endpoint, tmp_path, requests=24, max_tokens=400, warmup=0)
            timer.join()
    assert "dropped" in {r.outcome for r in requests}
    assert record.counters is None
    if record.complete:
        assert "engine-restarted" in codes(record, "void")
        assert "ok" in {r.outcome for r in requests}
    else:  # on a busy machine the second boot takes longer than a refusing engine is waited for
        assert "engine-died" in codes(record, "void")


def metrics(started: float, tokens: int) -> list[Step]:
    text = f"process_start_time_seconds {started}\n# TYPE vllm:generation_tokens_total counter\n"
    body = f'{text}vllm:generation_tokens_total{{engine="0"}} {tokens}\n'.encode()
    return [b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)]


@pytest.mark.parametrize(
    ("started", "tokens", "expected"), [(100.0, 9, set()), (900.0, 9, {"engine-restarted"}), (100.0, 2, {"engine-restarted"})]
)
def test_counters_of_another_process_are_void(tmp_path: Path, started: float, tokens: int, expected: set[str]) -> None:
    answer: list[Step] = [HEAD, part(chunk({"content": "a"}, 4, "stop")), part(DONE), END]
    before, after = metrics(100.0, 5), metrics(started, tokens)

    async def work() -> WorkloadRecord:
        async with scripted(answer, before, before, answer, after) as server:
            workload = Workload(name="w", requests=1, warmup=0)
            return await run_workload(
                server.endpoint, workload, leg_salt="x", seed=1, out_dir=tmp_path, alive=lambda: True, give_up=never
            )

    record = uvloop.run(asyncio.wait_for(work(), LIMIT_S))
    assert codes(record, "void") == expected
    assert (record.counters is None) is bool(expected)


def test_the_prefix_cache_stays_cold_across_legs_and_warm_up_is_not_recorded(tmp_path: Path) -> None:
    with simulated_arm(tmp_path, "--enable-prefix-caching") as arm:
        for leg in ("leg-1", "leg-2"):
            record, requests = measure(arm.endpoint, tmp_path, alive=arm.alive, leg=leg, requests=6, users=2)
            assert record.counters is not None
            assert record.counters["prefix_cache_queries"] > 0
            assert record.counters["prefix_cache_hits"] == 0
            assert "prefix-cache-warm" not in codes(record)
            assert all(not r.prompt_id.startswith("warmup") for r in requests)
        again, _ = measure(arm.endpoint, tmp_path, alive=arm.alive, leg="leg-2", requests=6, users=2)
        sent = len(arm.truth_log.read_text().splitlines())
    assert "prefix-cache-warm" in codes(again, "void")  # the same salt twice is what the audit must see
    assert sent == 3 * (1 + 2 + 6)


def test_a_duration_ends_the_workload_and_open_requests_finish(tmp_path: Path) -> None:
    seen: list[Progress] = []
    with simulated_arm(tmp_path, step_base_ms=10.0) as arm:
        record, requests = measure(
            arm.endpoint, tmp_path, alive=arm.alive, requests=None, duration=2.0, users=3, on_progress=seen.append
        )
    assert record.complete
    assert {r.outcome for r in requests} == {"ok"}
    assert max(r.scheduled for r in requests) < 2.0
    assert {p.phase for p in seen} >= {"measuring"}
    assert any(p.planned is None for p in seen if p.phase == "measuring")
    by_user = sorted((r for r in requests if r.user == 0), key=lambda r: r.scheduled)
    assert [r.scheduled for r in by_user[1:]] == pytest.approx([r.end for r in by_user[:-1]], abs=1e-6)


def kill_after(arm: Arm, seconds: float) -> threading.Timer:
    timer = threading.Timer(seconds, lambda: os.killpg(arm.process.pid, signal.SIGKILL))
    timer.start()
    return timer


@pytest.mark.parametrize("told", [True, False])
def test_the_death_of_the_engine_ends_the_workload(tmp_path: Path, told: bool) -> None:
    with simulated_arm(tmp_path, step_base_ms=20.0, answer_tokens=2000) as arm:
        timer = kill_after(arm, 2.5)
        record, requests = measure(
            arm.endpoint, tmp_path, alive=arm.alive if told else lambda: True, max_tokens=2000, warmup=0, requests=400
        )
        timer.join()
    assert not record.complete
    assert "engine-died" in codes(record, "void")
    assert 4 <= len(requests) <= 8
    assert {r.outcome for r in requests} <= {"dropped", "cancelled", "refused"}
    assert sum(r.completion_tokens or 0 for r in requests) > 0


def test_giving_up_ends_open_requests_as_cancelled(tmp_path: Path) -> None:
    with simulated_arm(tmp_path, step_base_ms=20.0, answer_tokens=2000) as arm:
        until = time.monotonic() + 2.0
        record, requests = measure(
            arm.endpoint, tmp_path, alive=arm.alive, give_up=lambda: time.monotonic() > until, max_tokens=2000, warmup=0
        )
    assert not record.complete
    assert codes(record, "void") == {"given-up", "all-failed"}
    assert {r.outcome for r in requests} == {"cancelled"}


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        ({"kind": "http-5xx", "share": 1.0}, "http-error"),
        ({"kind": "error-in-200", "share": 1.0}, "error-in-stream"),
    ],
)
def test_all_requests_failing_is_void_and_counted(tmp_path: Path, fault: dict[str, Any], outcome: str) -> None:
    with simulated_arm(tmp_path, faults=[fault]) as arm:
        record, requests = measure(arm.endpoint, tmp_path, alive=arm.alive, requests=5, users=2)
    assert record.complete
    assert {r.outcome for r in requests} == {outcome}
    assert "all-failed" in codes(record, "void")


def test_a_stalled_stream_is_one_failure(tmp_path: Path) -> None:
    with simulated_arm(tmp_path, faults=[{"kind": "stall-stream", "request": 6}]) as arm:
        record, requests = measure(arm.endpoint, tmp_path, alive=arm.alive, silence=2.0, users=2, requests=6)
    assert record.complete
    assert sorted(r.outcome for r in requests) == ["ok"] * 5 + ["stalled"]
    assert "failures" in codes(record, "note")


def test_a_hanging_engine_ends_the_workload(tmp_path: Path) -> None:
    with simulated_arm(tmp_path, faults=[{"kind": "hang"}]) as arm:
        record, _ = measure(arm.endpoint, tmp_path, alive=arm.alive, silence=0.5, users=2, requests=500, warmup=0)
    assert not record.complete
    assert "engine-hangs" in codes(record, "void")


def test_foreign_traffic_is_found(tmp_path: Path) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 40}
    with simulated_arm(tmp_path) as arm:

        async def others(stop: asyncio.Event) -> None:
            while not stop.is_set():
                await fetch(arm.endpoint, "POST", "/v1/chat/completions", body)

        async def both() -> WorkloadRecord:
            stop = asyncio.Event()
            stranger = asyncio.create_task(others(stop))
            workload = Workload(name="w", users=2, requests=8, max_tokens=60)
            try:
                return await run_workload(
                    arm.endpoint, workload, leg_salt="x", seed=1, out_dir=tmp_path, alive=arm.alive, give_up=never
                )
            finally:
                stop.set()
                await stranger

        record = uvloop.run(asyncio.wait_for(both(), LIMIT_S))
    assert "foreign-traffic" in codes(record, "void")


def test_a_server_that_refuses_continuous_usage_is_measured_without(tmp_path: Path) -> None:
    async def work() -> tuple[WorkloadRecord, list[bytes]]:
        refusal = b'HTTP/1.1 400 Bad\r\nContent-Length: 31\r\n\r\n{"error":{"message":"unknown"}}\n'
        answer = [HEAD, part(chunk({"content": "a"})), part(chunk({"content": "b"}, finish="stop")), part(chunk(None, 9))]
        async with scripted([refusal], [*answer, part(DONE), END]) as server:
            workload = Workload(name="w", requests=3, warmup=0)
            record = await run_workload(
                server.endpoint, workload, leg_salt="x", seed=1, out_dir=tmp_path, alive=lambda: True, give_up=never
            )
            return record, server.requests

    record, sent = uvloop.run(asyncio.wait_for(work(), LIMIT_S))
    posts = [request for request in sent if request.startswith(b"POST")]
    assert [b"continuous_usage_stats" in request for request in posts] == [True, False, False, False]
    assert "no-continuous-usage" in codes(record, "note")
    assert record.counters is None
    assert "not a vLLM engine" in record.counters_missing
    requests = [RequestRecord.from_line(line) for line in (tmp_path / record.requests_file).read_text().splitlines()]
    assert [r.completion_tokens for r in requests] == [9, 9, 9]


def test_a_server_that_never_answers_the_first_request_does_not_hold_the_run(tmp_path: Path) -> None:
    async def work() -> WorkloadRecord:
        async with scripted([HANG]) as server:
            until = time.monotonic() + 1.0
            return await run_workload(
                server.endpoint, Workload(name="w", requests=3), leg_salt="x", seed=1, out_dir=tmp_path,
                alive=lambda: True, give_up=lambda: time.monotonic() > until,
            )  # fmt: skip

    record = uvloop.run(asyncio.wait_for(work(), LIMIT_S))
    assert not record.complete
    assert "given-up" in codes(record, "void")
