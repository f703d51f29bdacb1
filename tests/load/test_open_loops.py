"""Arrivals of an open loop, several processes, and long prompts: pure, and against real servers."""

import asyncio
import json
from itertools import pairwise
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from audition.errors import BadInput
from audition.judge.records import EVENT_REASONING, EVENT_TOOL, RequestRecord, WorkloadRecord, unpack_events
from audition.load.arrivals import ClosedLoop, common_window, due_times, part_of, read_trace
from audition.load.workers import processes_for
from audition.load.workload import run_workload
from audition.spike.model import Workload
from load.arms import MTP3, Arm, simulated_arm
from load.scripted import scripted

LIMIT_S = 120.0


@pytest.mark.parametrize(("kind", "shape", "variation"), [("constant", 1.0, 0.0), ("poisson", 1.0, 1.0), ("gamma", 0.25, 2.0)])
def test_gaps_have_the_rate_and_the_spread_that_was_asked_for(kind: str, shape: float, variation: float) -> None:
    times = list(due_times(50.0, kind, burstiness=shape, seed=3, requests=20_000))  # type: ignore[arg-type]
    gaps = [b - a for a, b in pairwise(times)]
    assert times[0] == 0
    assert fmean(gaps) == pytest.approx(0.02, rel=0.06)
    assert pstdev(gaps) / fmean(gaps) == pytest.approx(variation, abs=0.1)
    again = list(due_times(50.0, kind, burstiness=shape, seed=3, requests=20_000))  # type: ignore[arg-type]
    assert again == times
    if kind != "constant":
        assert list(due_times(50.0, kind, burstiness=shape, seed=4, requests=9)) != times[:9]  # type: ignore[arg-type]


@given(st.floats(0.1, 100), st.floats(0.01, 20), st.integers(1, 5))
def test_parts_are_all_of_it_and_within_the_time(rate: float, duration: float, parts: int) -> None:
    whole = list(enumerate(due_times(rate, "poisson", seed=1, duration=duration)))
    assert all(at < duration for _, at in whole)
    split = [list(part_of(due_times(rate, "poisson", seed=1, duration=duration), (n, parts))) for n in range(parts)]
    assert sorted(pair for part in split for pair in part) == whole


@given(st.integers(1, 4), st.integers(1, 30))
def test_parts_of_a_closed_loop_give_every_number_once(parts: int, requests: int) -> None:
    numbers = []
    for n in range(parts):
        pacer = ClosedLoop(1, requests, None, (n, parts))
        while (index := pacer.next_index(0, 0.0)) is not None:
            numbers.append(index)
    assert sorted(numbers) == list(range(requests))


def test_windows_of_processes() -> None:
    assert common_window([(1.0, 5.0), (2.0, 4.0)]) == (2.0, 4.0)
    assert common_window([(1.0, 2.0), (3.0, 4.0)]) is None
    assert common_window([(1.0, 2.0), None]) is None
    assert common_window([]) is None


def test_how_many_processes() -> None:
    assert processes_for(16, None) == 1
    assert processes_for(16, 3) == 3
    assert processes_for(2, 8) == 2
    assert 1 <= processes_for(4096, None) <= 4


def test_traces() -> None:
    assert read_trace('# seconds\n12.5\n\n10\n{"at": 11}\n{"timestamp": 13.0}\n') == [0.0, 1.0, 2.5, 3.0]
    for wrong in ("", "# only\n", "1\nsoon\n", '{"when": 3}', "true", "NaN"):
        with pytest.raises(ValueError, match=r"line|no times"):
            read_trace(wrong)


def measure(arm: Arm, folder: Path, *, give_up_after: float = 1e9, **keys: Any) -> tuple[WorkloadRecord, list[RequestRecord]]:
    workload = Workload.model_validate({"name": "w", "max_tokens": 30, **keys})

    async def work() -> WorkloadRecord:
        loop = asyncio.get_running_loop()
        until = loop.time() + give_up_after
        return await run_workload(
            arm.endpoint, workload, leg_salt="leg", seed=5, out_dir=folder, alive=arm.alive, give_up=lambda: loop.time() > until,
            base=folder,
        )  # fmt: skip

    record = uvloop.run(asyncio.wait_for(work(), LIMIT_S))
    return record, [RequestRecord.from_line(line) for line in (folder / record.requests_file).read_text().splitlines()]


def exact(record: WorkloadRecord, requests: list[RequestRecord]) -> None:
    assert record.counters is not None, record.counters_missing
    assert sum(r.completion_tokens or 0 for r in requests) == record.counters["generation_tokens"]
    assert record.counters["request_success"] == len(requests)
    assert [r.index for r in requests] == list(range(len(requests)))
    assert not {c.code for c in record.caveats if c.effect == "void"} - {"client-bound", "loop-lag"}


def test_a_rate_sends_when_due_whatever_is_open(tmp_path: Path) -> None:
    with simulated_arm(tmp_path, step_base_ms=30.0, answer_tokens=500) as arm:
        record, requests = measure(arm, tmp_path, rate=20.0, arrivals="constant", requests=20, warmup=2)
    exact(record, requests)
    assert [r.scheduled for r in requests] == pytest.approx([n / 20 for n in range(20)], abs=1e-6)
    assert min(r.end - r.scheduled for r in requests) > 0.5  # each takes longer than the whole of the arrivals' gaps
    assert requests[-1].sent is not None
    assert requests[-1].sent < requests[0].end + 1.0
    assert record.steady_window is None
    assert "never-all-busy" not in {c.code for c in record.caveats}


def test_a_trace_is_followed_and_a_missing_one_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "times.jsonl").write_text("".join(json.dumps({"at": 100 + at}) + "\n" for at in (0, 0.1, 0.1, 0.5)))
    with simulated_arm(tmp_path) as arm:
        record, requests = measure(arm, tmp_path, trace="times.jsonl", warmup=0)
        with pytest.raises(BadInput, match=r"other\.jsonl"):
            measure(arm, tmp_path, trace="other.jsonl")
    exact(record, requests)
    assert [r.scheduled for r in requests] == pytest.approx([0, 0.1, 0.1, 0.5], abs=1e-6)


@pytest.mark.parametrize(
    "keys", [{"users": 5, "requests": 23}, {"rate": 30.0, "requests": 23, "arrivals": "gamma", "burstiness": 0.5}]
)
def test_several_processes_leave_one_record_set(tmp_path: Path, keys: dict[str, Any]) -> None:
    with simulated_arm(tmp_path) as arm:
        record, requests = measure(arm, tmp_path, processes=2, warmup=0, **keys)
        truth = arm.truth()
    exact(record, requests)
    assert len(requests) == 23
    assert record.client is not None
    assert record.client.processes == 2
    assert record.client.cpu_s > 0
    assert len({r.user for r in requests}) == (5 if "users" in keys else 1)
    assert len({row["id"] for row in truth.values()}) >= 23
    assert list(tmp_path.glob(".*part*")) == []


def test_several_processes_end_early_together(tmp_path: Path) -> None:
    with simulated_arm(tmp_path, step_base_ms=20.0, answer_tokens=2000) as arm:
        record, requests = measure(
            arm, tmp_path, users=4, duration="60s", max_tokens=2000, processes=2, warmup=0, give_up_after=6.0
        )
    assert not record.complete
    assert "given-up" in {c.code for c in record.caveats}
    assert {r.outcome for r in requests} == {"cancelled"}
    assert len(requests) == 4


def test_long_prompts_have_the_length_by_the_servers_count_and_survival_is_asked(tmp_path: Path) -> None:
    with simulated_arm(tmp_path, prefill_tokens_s=200_000.0) as arm:
        record, requests = measure(arm, tmp_path, prompts="long", prompt_tokens=3000, requests=4, warmup=0, survival=True)
    exact(record, requests)
    assert all(abs((r.prompt_tokens or 0) - 3000) < 60 for r in requests)
    assert "not-survived" not in {c.code for c in record.caveats}
    assert len({r.prompt_id for r in requests}) == 4


def test_a_server_that_does_not_survive_is_void(tmp_path: Path) -> None:
    with simulated_arm(tmp_path, faults=[{"kind": "http-5xx", "share": 1.0, "after_requests": 3}]) as arm:
        record, _ = measure(arm, tmp_path, requests=2, warmup=0, survival=True)
    assert "not-survived" in {c.code for c in record.caveats if c.effect == "void"}


def test_a_prompt_that_is_too_long_is_bad_input(tmp_path: Path) -> None:
    with simulated_arm(tmp_path, "--max-model-len", "512") as arm, pytest.raises(BadInput, match="5000"):
        measure(arm, tmp_path, prompts="long", prompt_tokens=5000, requests=1)


def test_a_server_that_counts_nothing_is_bad_input(tmp_path: Path) -> None:
    async def work() -> None:
        async with scripted([b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"]) as server:
            workload = Workload(name="w", requests=1, prompts="long", prompt_tokens=200)
            await run_workload(
                server.endpoint, workload, leg_salt="x", seed=1, out_dir=tmp_path, alive=lambda: True, give_up=lambda: False
            )

    with pytest.raises(BadInput, match="does not count tokens"):
        asyncio.run(asyncio.wait_for(work(), 30))


def test_the_engine_is_read_meanwhile(tmp_path: Path) -> None:
    with simulated_arm(tmp_path, "--speculative-config", '{"method":"mtp","num_speculative_tokens":3}', step_base_ms=20.0) as arm:
        record, _ = measure(arm, tmp_path, users=2, duration="11s", max_tokens=200)
    rows = [json.loads(line) for line in (tmp_path / "w.telemetry.jsonl").read_text().splitlines()]
    points = [row for row in rows if "running" in row]
    assert len(points) >= 4  # before, twice on the way, after
    assert max(row["running"] for row in points) == 2
    minutes = [row for row in rows if "minute" in row]
    assert len(minutes) == 1
    assert minutes[0]["acceptance_length"] > 1
    assert "foreign-requests" not in {c.code for c in record.caveats}


@pytest.mark.parametrize("arguments", [(), MTP3], ids=["one token a chunk", "up to four"])
@pytest.mark.parametrize("version", ["0.11.0", "0.28.0"], ids=["reasoning_content", "reasoning"])
def test_tool_calls_and_reasoning_are_counted_exactly(tmp_path: Path, arguments: tuple[str, ...], version: str) -> None:
    tools = ("--enable-auto-tool-choice", "--tool-call-parser", "qwen3_coder", "--reasoning-parser", "qwen3")
    with simulated_arm(tmp_path, *arguments, *tools, version=version, thinking_tokens=12) as arm:
        record, requests = measure(arm, tmp_path, prompts="tools", users=2, requests=6, max_tokens=300, thinking=True)
    exact(record, requests)
    events = [unpack_events(r.events) for r in requests]
    assert [sum(e.tokens or 0 for e in row) for row in events] == [r.completion_tokens for r in requests]
    kinds = {event.kind for row in events for event in row}
    assert {EVENT_REASONING, EVENT_TOOL} <= kinds
    assert max(e.tokens or 0 for row in events for e in row) > 1 or not arguments
    assert "tool_calls" in {r.finish_reason for r in requests}
