"""Probes against simulated servers, sane and broken, and against servers that answer nonsense or not at all."""

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvloop

from audition.errors import BadInput
from audition.judge.records import ProbeRecord
from audition.probes import reference_answers, run_probes
from audition.probes.ask import sample_answers
from audition.spike.metrics import PROBES
from load.arms import simulated_arm
from load.scripted import CLOSE, HANG, Endpoint, Step, scripted

T = TypeVar("T")
ALL = list(PROBES)
TOOLS = ("--enable-auto-tool-choice", "--tool-call-parser", "qwen3_coder")
THINKING = ("--reasoning-parser", "qwen3")


def run(work: Coroutine[Any, Any, T]) -> T:
    return uvloop.run(asyncio.wait_for(work, 100))


def by_name(records: list[ProbeRecord]) -> dict[str, bool | None]:
    return {record.probe: record.passed for record in records}


def test_a_sane_server_passes_everything(tmp_path: Path) -> None:
    with simulated_arm(tmp_path, *TOOLS, *THINKING, answers=sample_answers(), step_base_ms=1.0) as arm:
        first = run(run_probes(arm.endpoint, ALL))
        reference = reference_answers(first)
        second = run(run_probes(arm.endpoint, ["greedy_equality"], reference=reference))
    assert by_name(first) == {**dict.fromkeys(ALL, True), "greedy_equality": None}, [r.detail for r in first]
    assert by_name(second) == {"greedy_equality": True}
    assert all(record.evidence for record in first)


def test_a_server_of_another_seed_is_not_equal(tmp_path: Path) -> None:
    with simulated_arm(tmp_path, seed=1) as arm:
        reference = reference_answers(run(run_probes(arm.endpoint, ["greedy_equality"])))
    with simulated_arm(tmp_path, seed=2) as arm:
        record = run(run_probes(arm.endpoint, ["greedy_equality"], reference=reference))[0]
    assert record.passed is False
    assert "share of equal prefix" in record.detail


def test_degenerate_text_fails_the_canary_though_the_server_is_healthy(tmp_path: Path) -> None:
    with simulated_arm(tmp_path, faults=[{"kind": "degenerate-text"}], step_base_ms=1.0) as arm:
        records = run(run_probes(arm.endpoint, ["canary", "conversation", "long_prompt"]))
    assert by_name(records) == {"canary": False, "conversation": False, "long_prompt": False}
    assert "4-grams" in records[0].detail


def test_missing_parsers_fail_thinking_and_tool_calls(tmp_path: Path) -> None:
    with simulated_arm(tmp_path, thinking_tokens=10, step_base_ms=1.0) as arm:
        records = run(run_probes(arm.endpoint, ["thinking", "tool_call"]))
    assert by_name(records) == {"thinking": False, "tool_call": False}
    assert "<think>" in records[0].detail


def test_a_server_too_short_for_the_long_prompt_cannot_be_judged(tmp_path: Path) -> None:
    with simulated_arm(tmp_path, "--max-model-len", "512", step_base_ms=1.0) as arm:
        record = run(run_probes(arm.endpoint, ["long_prompt"]))[0]
    assert record.passed is None
    assert "takes no such prompt" in record.detail


def response(status: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


def completion(content: str | None) -> bytes:
    message = {"role": "assistant", "content": content}
    return response(200, json.dumps({"choices": [{"message": message, "finish_reason": "length"}]}).encode())


async def against(script: list[Step], names: list[str]) -> list[ProbeRecord]:
    async with scripted(script) as server:
        return await run_probes(server.endpoint, names, deadline_s=0.5)


@pytest.mark.parametrize(
    "script",
    [
        [completion("\ufffd stop beforeM sc fails adK star")],
        [completion("")],
        [completion(None)],
        [response(200, b"[]")],
        [response(500, b"oh")],
        [b"junk\r\n\r\n"],
        [CLOSE],
    ],
)
def test_nonsense_fails_and_never_raises(script: list[Step]) -> None:
    records = by_name(run(against(script, ALL)))
    assert list(records) == ALL
    assert records["canary"] is False
    assert True not in records.values()


def test_a_hanging_server_is_waited_for_once() -> None:
    records = run(against([HANG], ALL))
    assert [record.passed for record in records] == [False] + [None] * (len(ALL) - 1)
    assert "deadline" in records[0].detail
    assert all("not asked" in record.detail for record in records[1:])
    canary_first = run(against([HANG], ["canary", "thinking"]))
    assert [record.passed for record in canary_first] == [False, None]


def test_giving_up_cuts_the_probe_that_runs_and_the_rest() -> None:
    async def work() -> list[ProbeRecord]:
        async with scripted([HANG]) as server:
            asked: list[int] = []
            return await run_probes(server.endpoint, ALL, give_up=lambda: asked.append(1) or len(asked) > 1)  # type: ignore[func-returns-value]

    records = run(work())
    assert by_name(records) == dict.fromkeys(ALL)
    assert all("cut" in record.detail for record in records)


def test_no_server_cannot_be_judged() -> None:
    async def work() -> list[ProbeRecord]:
        async with scripted([]) as server:
            endpoint: Endpoint = server.endpoint
        return await run_probes(endpoint, ALL)

    records = run(work())
    assert by_name(records) == dict.fromkeys(ALL)
    assert all("connection" in record.detail for record in records)


def test_an_unknown_probe_is_bad_input() -> None:
    with pytest.raises(BadInput, match="canray"):
        run(run_probes(Endpoint("http://127.0.0.1:9"), ["canray"]))


def test_a_server_that_refuses_template_options_is_asked_without(tmp_path: Path) -> None:
    async def work() -> list[bytes]:
        refusal = response(400, b'{"error": "extra field chat_template_kwargs"}')
        async with scripted([refusal], [completion("42")]) as server:
            await run_probes(server.endpoint, ["canary"], deadline_s=5)
            return server.requests

    sent = run(work())
    assert [b"chat_template_kwargs" in request for request in sent] == [True] + [False] * (len(sent) - 1)
    assert len(sent) == 7
