"""Figures out of vLLM's log lines, old and new."""

from pathlib import Path

import pytest

from audition.observe.logs import facts_for_leg, read_engine_line, read_log, read_spec_line
from audition.observe.prometheus import read_snapshot

DATA = Path(__file__).parents[1] / "data"


def lines(name: str) -> list[str]:
    return (DATA / name).read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    ("name", "version", "per_request", "concurrency", "logged", "raw"),
    [
        ("vllm-0.24-h200/mtp-k3.boot.log", "0.24.0", 131_072, 34.35, 4_502_500, 2),
        ("boot-logs/healthy_mtp_boot_0.28.log", None, 131_072, 9.44, 1_237_319, 1),
        ("vllm-0.32-cpu/mtp3.boot.log", "0.32.0", 2_048, 390.07, 798_866, 1),
    ],
)
def test_kv_capacity_is_concurrency_times_length(
    name: str, version: str | None, *, per_request: int, concurrency: float, logged: int, raw: int
) -> None:
    facts = read_log(lines(name))
    assert facts.version == version
    assert facts.kv is not None
    assert (facts.kv.tokens_per_request, facts.kv.max_concurrency, facts.kv.logged_tokens) == (per_request, concurrency, logged)
    assert facts.kv.capacity_tokens == pytest.approx(concurrency * per_request)
    assert len(facts.kv.raw) == raw
    assert "MTP" in " ".join(facts.markers["architecture"])
    assert facts.markers["loading_drafter"]
    assert facts.markers["startup_complete"]


def test_the_formula_up_to_0_20_0_gives_another_logged_figure_but_the_same_capacity() -> None:
    old = ["GPU KV cache size: 322,000 tokens", "Maximum concurrency for 131,072 tokens per request: 9.44x"]
    kv = read_log(old).kv
    assert kv is not None
    assert kv.capacity_tokens == pytest.approx(1_237_319.68)
    assert kv.logged_tokens == 322_000


def test_data_parallel_engines_are_summed_and_a_repeated_boot_is_not() -> None:
    line = "(EngineCore_DP{} pid=7) INFO GPU KV cache size: 1,000 tokens, Maximum concurrency for 100 tokens per request: 10.00x"
    kv = read_log([line.format(0), line.format(1), line.format(0)]).kv
    assert kv is not None
    assert (kv.max_concurrency, kv.capacity_tokens, kv.logged_tokens) == (20.0, 2000.0, 2000)


def test_boot_markers_of_a_real_boot() -> None:
    markers = read_log(lines("vllm-0.24-h200/mtp-k3.boot.log")).markers
    assert markers["architecture"] == ["Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeMTP"]
    assert markers["mtp_shared"] == ["embedding", "lm_head"]
    assert markers["weights_gib"] == ["66.29"]
    assert markers["kv_memory_gib"] == ["57.19"]
    assert markers["graph_capture_s"] == ["16"]
    assert markers["init_engine_s"] == ["189.82"]


def test_the_spec_decoding_lines_agree_with_the_metrics_of_the_same_server() -> None:
    facts = read_log(lines("vllm-0.24-h200/mtp-k3.boot.log"))
    counters = read_snapshot((DATA / "vllm-0.24-h200/mtp.metrics.txt").read_text()).counters
    accepted, drafted = sum(s.accepted_tokens for s in facts.spec), sum(s.draft_tokens for s in facts.spec)
    assert accepted / drafted == pytest.approx(
        counters["spec_decode_num_accepted_tokens"] / counters["spec_decode_num_draft_tokens"], abs=0.01
    )
    assert facts.spec[1].per_position == [0.840, 0.695, 0.551]
    assert facts.spec[1].acceptance_rate == pytest.approx(0.695)


def test_the_order_of_0_9() -> None:
    line = read_spec_line(
        "INFO SpecDecoding metrics: Draft acceptance rate: 70.1%, Mean acceptance length: 3.10, Accepted: 2604 tokens, "
        "Drafted: 3714 tokens, Per-position acceptance rate: 0.849, 0.700, 0.555"
    )
    assert line is not None
    assert (line.accepted_tokens, line.draft_tokens, line.mean_acceptance_length) == (2604, 3714, 3.10)
    assert line.acceptance_rate == pytest.approx(0.701)
    assert line.per_position == [0.849, 0.700, 0.555]


@pytest.mark.parametrize(
    ("line", "hit_rate"),
    [
        ("Running: 14 reqs, Waiting: 2 reqs, GPU KV cache usage: 7.2%, Prefix cache hit rate: 55.0%", 0.55),
        ("Running: 14 reqs, Waiting: 2 reqs, Deferred: 1 reqs, Preemptions: 3, CPU KV cache usage: 7.2%", None),
    ],
)
def test_engine_lines(line: str, hit_rate: float | None) -> None:
    text = f"INFO Engine 001: Avg prompt throughput: 2611.5 tokens/s, Avg generation throughput: 1207.4 tokens/s, {line}"
    stats = read_engine_line(text)
    assert stats is not None
    assert (stats.engine, stats.running, stats.waiting, stats.generation_tok_s) == (1, 14, 2, 1207.4)
    assert stats.kv_usage == pytest.approx(0.072)
    assert stats.prefix_hit_rate == hit_rate


def test_a_log_that_says_nothing_gives_nothing() -> None:
    facts = read_log(["hello", "", "SpecDecoding metrics: none"])
    assert facts.kv is None
    assert facts.spec == []
    assert facts_for_leg(facts) == {"engine_version": None, "boot_markers": {}}


def test_facts_for_the_record_of_a_leg() -> None:
    facts = facts_for_leg(read_log(lines("vllm-0.24-h200/mtp-k3.boot.log")))
    assert facts["max_concurrency"] == 34.35
    assert facts["max_concurrency_tokens"] == 131_072
    assert facts["kv_tokens_logged"] == 4_502_500
