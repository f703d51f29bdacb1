"""Scheduling of a real simulated server: metrics, acceptance, queueing, preemption, prefix cache, truth."""

from __future__ import annotations

import re
import threading
import time
from itertools import pairwise
from typing import Any

import pytest

from simulated.simserver import MTP3, Server, Start, deltas

# Patterns of vLLM's own lines, 0.10 and later.
STATS = re.compile(
    r"Engine (\d+): Avg prompt throughput: ([\d.]+) tokens/s, Avg generation throughput: ([\d.]+) tokens/s, "
    r"Running: (\d+) reqs, Waiting: (\d+) reqs,(?: Deferred: (\d+) reqs,)?(?: Preemptions: (\d+),)? \w+ KV cache usage: "
    r"([\d.]+)%(?:, Prefix cache hit rate: ([\d.]+)%)?"
)
SPEC = re.compile(
    r"SpecDecoding metrics: Mean acceptance length: ([\d.]+), Accepted throughput: ([\d.]+) tokens/s, Drafted throughput: "
    r"([\d.]+) tokens/s, Accepted: (\d+) tokens, Drafted: (\d+) tokens, Per-position acceptance rate: ([\d., ]+), "
    r"Avg Draft acceptance rate: ([\d.]+)%"
)
DRAFTS = "vllm:spec_decode_num_drafts_total"
DRAFTED = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
GENERATED = "vllm:generation_tokens_total"
PROMPTED = "vllm:prompt_tokens_total"


def position(at: int) -> str:
    return f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{at}"}}'


def together(server: Server, number: int, **body: Any) -> list[list[dict[str, Any]]]:
    """Stream several answers at once, each to its own prompt."""
    results: list[list[dict[str, Any]]] = [[] for _ in range(number)]

    def one(at: int) -> None:
        results[at] = server.stream(f"Story number {at}, please.", **body)

    threads = [threading.Thread(target=one, args=(at,)) for at in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def completion_tokens(chunks: list[dict[str, Any]]) -> int:
    count: int = chunks[-1]["usage"]["completion_tokens"]
    return count


def test_metrics_count_what_usage_says(mtp: Server) -> None:
    before = mtp.metrics()
    answers = together(mtp, 4, max_tokens=60)
    after = mtp.metrics()
    assert after[GENERATED] - before[GENERATED] == sum(map(completion_tokens, answers)) == 240
    prompts = sum(chunks[-1]["usage"]["prompt_tokens"] for chunks in answers)
    assert after[PROMPTED] - before[PROMPTED] == prompts
    for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds"):
        key = f"vllm:{name}_count"
        assert after[key] - before[key] == 4
    finished = 'vllm:request_success_total{finished_reason="length"}'
    assert after[finished] - before[finished] == 4
    chunk_count = sum(len(chunks) - 2 for chunks in answers)  # without the role and the usage chunk
    gaps = after["vllm:inter_token_latency_seconds_count"] - before["vllm:inter_token_latency_seconds_count"]
    assert gaps == chunk_count - 4
    assert after["vllm:num_requests_running"] == after["vllm:num_requests_waiting"] == 0
    assert after["vllm:kv_cache_usage_perc"] == 0


def test_acceptance_is_as_configured(mtp: Server) -> None:
    before = mtp.metrics()
    together(mtp, 8, max_tokens=1200, ignore_eos=True)
    after = mtp.metrics()
    drafts = after[DRAFTS] - before[DRAFTS]
    assert after[DRAFTED] - before[DRAFTED] == 3 * drafts
    accepted = [after[position(at)] - before[position(at)] for at in range(3)]
    assert sum(accepted) == after[ACCEPTED] - before[ACCEPTED]
    for number, rate in zip(accepted, (0.85, 0.70, 0.55), strict=True):
        assert number / drafts == pytest.approx(rate, abs=0.03)


def test_chunks_hold_one_token_plus_the_accepted_drafts(mtp: Server) -> None:
    chunks = mtp.stream("Count.", max_tokens=200, ignore_eos=True)
    entry = mtp.truth()[-1]
    assert entry["tokens"][0] == 1  # the prefill yields one token
    assert sum(entry["tokens"]) == 200
    assert max(entry["tokens"]) == 4
    assert len(entry["tokens"]) == len(chunks) - 2


def test_greedy_answers_are_the_same_with_and_without_drafts(mtp: Server, start: Start) -> None:
    plain = start("--reasoning-parser", "qwen3", version="0.24.0")
    question = "Tell me of the sea."
    one, other = mtp.stream(question), plain.stream(question)
    assert deltas(one) == deltas(other)
    assert deltas(one, "reasoning") == deltas(other, "reasoning")
    assert completion_tokens(one) == completion_tokens(other)
    assert len(one) < len(other)
    assert DRAFTS not in plain.metrics()


def test_log_lines_match_vllms_and_the_metrics(mtp: Server) -> None:
    mtp.stream("Something to count.", max_tokens=30)
    Server.wait_for(lambda: SPEC.search(mtp.log) is not None)
    Server.wait_for(lambda: mtp.metrics()[ACCEPTED] == sum(int(found[4]) for found in SPEC.finditer(mtp.log)))
    metrics = mtp.metrics()
    lines = list(SPEC.finditer(mtp.log))
    assert sum(int(found[5]) for found in lines) == metrics[DRAFTED]
    for found in lines:
        shares = [float(share) for share in found[6].split(", ")]
        assert float(found[1]) == pytest.approx(1 + sum(shares), abs=0.006)
        assert float(found[7]) == pytest.approx(100 * sum(shares) / 3, abs=0.1)
    assert STATS.search(mtp.log)


def test_an_idle_server_prints_one_last_line_and_no_more(start: Start) -> None:
    server = start(stats_interval_s=0.1)
    server.chat("Hi", max_tokens=3)
    Server.wait_for(lambda: "Running: 0 reqs" in server.log)
    time.sleep(0.4)
    printed = len(STATS.findall(server.log))
    time.sleep(0.4)
    assert len(STATS.findall(server.log)) == printed


def test_requests_beyond_max_num_seqs_wait(start: Start) -> None:
    server = start("--max-num-seqs", "2", step_base_ms=10.0)
    seen: list[tuple[float, float]] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            metrics = server.metrics()
            seen.append((metrics["vllm:num_requests_running"], metrics["vllm:num_requests_waiting"]))

    watcher = threading.Thread(target=watch)
    watcher.start()
    together(server, 6, max_tokens=60, ignore_eos=True)
    done.set()
    watcher.join()
    assert max(running for running, _ in seen) == 2
    assert max(waiting for _, waiting in seen) >= 3
    entries = sorted(server.truth(), key=lambda entry: entry["planned"][0])
    assert entries[2]["planned"][0] >= min(entry["planned"][-1] for entry in entries[:2])


def test_a_full_kv_cache_preempts_and_still_answers_all(start: Start) -> None:
    server = start("--max-model-len", "400", kv_tokens=800)
    answers = together(server, 4, max_tokens=300, ignore_eos=True)
    assert [completion_tokens(chunks) for chunks in answers] == [300] * 4
    metrics = server.metrics()
    assert metrics["vllm:num_preemptions_total"] > 0
    assert metrics[GENERATED] == 1200
    assert metrics["vllm:kv_cache_usage_perc"] == 0


@pytest.mark.parametrize(("flags", "share"), [((), 1.0), (MTP3, 1.0)])
def test_prefix_cache_hits_are_counted_in_tokens(start: Start, flags: tuple[str, ...], share: float) -> None:
    server = start("--enable-prefix-caching", *flags)
    text = "Repeat after me. " * 100
    tokens = server.chat(text, max_tokens=1).json["usage"]["prompt_tokens"]
    before = server.metrics()
    server.chat(text, max_tokens=1)
    after = server.metrics()
    name = "vllm:prefix_cache_{}_total"
    blocks = (tokens - 1) // 16 - (1 if flags else 0)
    assert after[name.format("queries")] - before[name.format("queries")] == tokens * share
    assert after[name.format("hits")] - before[name.format("hits")] == blocks * 16
    assert after["vllm:prompt_tokens_cached_total"] == blocks * 16


def test_truth_tells_planned_and_actual_times(start: Start) -> None:
    server = start(step_base_ms=5.0, step_per_seq_ms=1.0, prefill_tokens_s=1000.0)
    before = time.monotonic()
    chunks = server.stream("A b c.", {"x-request-id": "one"}, max_tokens=30, ignore_eos=True)
    after = time.monotonic()
    (entry,) = server.truth()
    assert (entry["request_id"], entry["finish"], entry["stream"]) == ("one", "length", True)
    assert entry["prompt_tokens"] == chunks[-1]["usage"]["prompt_tokens"]
    assert sum(entry["tokens"]) == entry["completion_tokens"] == 30
    assert before < entry["arrival"] < entry["planned"][0]
    assert entry["sent"][-1] < after
    assert all(sent >= planned for planned, sent in zip(entry["planned"], entry["sent"], strict=True))
    gaps = [b - a for a, b in pairwise(entry["planned"])]
    assert all(gap == pytest.approx(0.006) for gap in gaps)
    first = 0.005 + entry["prompt_tokens"] / 1000
    assert entry["planned"][0] - entry["arrival"] >= first


def test_a_client_that_goes_away_is_forgotten(start: Start) -> None:
    server = start(step_base_ms=20.0)
    connection = server.connect()
    body = b'{"model":"qwen","messages":[{"role":"user","content":"x"}],"stream":true,"ignore_eos":true,"max_tokens":5000}'
    connection.request("POST", "/v1/chat/completions", body)
    response = connection.getresponse()
    response.read(300)
    assert server.metrics()["vllm:num_requests_running"] == 1
    response.close()
    connection.close()
    Server.wait_for(lambda: server.metrics()["vllm:num_requests_running"] == 0)
    assert server.metrics()['vllm:request_success_total{finished_reason="abort"}'] == 1
    assert server.truth()[-1]["finish"] == "abort"


def test_cold_steps_and_context_slow_the_engine_as_stated(start: Start) -> None:
    server = start(step_base_ms=2.0, step_per_seq_ms=0.0, step_per_ktoken_ms=10.0, cold_steps=3, cold_factor=5.0)
    server.stream("word " * 990, max_tokens=6, ignore_eos=True)
    planned = server.truth()[0]["planned"]
    gaps = [b - a for a, b in pairwise(planned)]
    assert gaps[0] == pytest.approx(5 * 0.012, rel=0.03)
    assert gaps[-1] == pytest.approx(0.012, rel=0.03)
