"""Figures for whoever watches a round: counted from bytes that came, never guessed."""

from __future__ import annotations

import asyncio
import json
import statistics
from pathlib import Path

import uvloop

from audition.judge.records import RequestRecord
from audition.load.body import Body
from audition.load.live import MOST_GROWING, Live, last_count
from audition.load.telemetry import SAMPLE_S
from audition.load.workload import Progress, run_workload
from audition.observe.prometheus import ACCEPTED, DRAFT_TOKENS
from audition.spike.model import Workload
from audition.units import NoData
from load.arms import MTP3, simulated_arm


def event(text: str, tokens: int | None, key: str = "content") -> bytes:
    chunk: dict[str, object] = {"choices": [{"delta": {key: text}}]}
    if tokens is not None:
        chunk["usage"] = {"prompt_tokens": 5, "completion_tokens": tokens, "completion_tokens_details": {"reasoning_tokens": 1}}
    return f"data: {json.dumps(chunk)}\n\n".encode()


def body_of(*pieces: tuple[float, bytes]) -> Body:
    body = Body()
    for at, data in pieces:
        body.add(at, data)
    return body


def test_the_first_token_is_the_first_text_and_not_the_role() -> None:
    live = Live()
    live.ended(body_of((10.1, event("", None)), (10.4, event("Hello", 1)), (10.9, event(" you", 7))), 10.0, ok=True)
    first = live.ttft_p50()
    assert not isinstance(first, NoData)
    assert abs(first - 0.4) < 1e-9
    assert live.tokens([]) == 7


def test_thinking_counts_as_a_first_token() -> None:
    live = Live()
    live.ended(body_of((1.25, event("hm", 1, "reasoning"))), 1.0, ok=True)
    assert live.ttft_p50() == 0.25


def test_bodies_that_grow_count_while_they_are_few() -> None:
    live = Live()
    growing = body_of((1.0, event("a", 3)), (2.0, event("b", 4)))
    assert live.tokens([growing, growing]) == 8
    assert isinstance(live.tokens([growing] * (MOST_GROWING + 1)), NoData)


def test_what_is_not_told_stays_unknown() -> None:
    live = Live()
    assert isinstance(live.ttft_p50(), NoData)
    live.ended(body_of((1.0, b"Internal Server Error")), 0.5, ok=False)
    assert isinstance(live.ttft_p50(), NoData)
    assert isinstance(live.tokens([]), NoData)
    assert last_count(body_of((1.0, b'{"usage": {"completion_tokens": null}}'))) is None


def test_a_body_whose_beginning_was_dropped_gives_no_first_token() -> None:
    live = Live()
    body = body_of((1.0, event("a", 1)), (2.0, event("b", 2)))
    body.drop(10)
    live.ended(body, 0.0, ok=True)
    assert isinstance(live.ttft_p50(), NoData)
    assert live.tokens([]) == 2


def test_figures_on_the_way_agree_with_the_records(tmp_path: Path) -> None:
    seen: list[Progress] = []
    workload = Workload.model_validate({"name": "w", "users": 4, "duration": SAMPLE_S + 2.0, "max_tokens": 60, "warmup": 0})
    with simulated_arm(tmp_path, *MTP3, step_base_ms=10.0) as arm:
        work = run_workload(
            arm.endpoint, workload, leg_salt="live", seed=1, out_dir=tmp_path, alive=arm.alive, give_up=lambda: False,
            on_progress=seen.append,
        )  # fmt: skip
        record = uvloop.run(asyncio.wait_for(work, 120))
    measuring = [now for now in seen if now.phase == "measuring"]
    counts = [now.tokens for now in measuring if not isinstance(now.tokens, NoData)]
    assert counts == sorted(counts)
    lines = [RequestRecord.from_line(line) for line in (tmp_path / record.requests_file).read_text().splitlines()]
    last = measuring[-1]
    assert last.done == len(lines)
    assert last.tokens == sum(line.completion_tokens or 0 for line in lines)
    assert not isinstance(last.ttft_p50_s, NoData)
    firsts = statistics.median(line.stream.first - line.scheduled for line in lines if line.stream and line.stream.first)
    assert abs(last.ttft_p50_s - firsts) < 0.001
    assert record.counters is not None
    assert 0 < last.counters[ACCEPTED] <= record.counters[ACCEPTED]
    assert 0 < last.counters[DRAFT_TOKENS] <= record.counters[DRAFT_TOKENS]
