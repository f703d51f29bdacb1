"""The catalogue of metrics: name, unit, better direction, formula, source. Each metric is defined here once.

Pure data. Computing them is the business of ``audition.judge``; gates are checked against this table when a spike file is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Scope = Literal["requests", "workload", "leg"]


@dataclass(frozen=True)
class Metric:
    """One metric. ``scope`` says over what it is defined: a distribution over requests, one figure a workload, or one a leg."""

    name: str
    unit: str
    better: Literal["higher", "lower", "neither"]
    scope: Scope
    formula: str
    source: str


_ROWS = [
    Metric(
        "ttft",
        "s",
        "lower",
        "requests",
        "first event with a non-empty delta of any kind - scheduled send",
        "request records",
    ),
    Metric(
        "time_to_first_answer_token",
        "s",
        "lower",
        "requests",
        "first event with a non-empty content or tool-call delta - scheduled send",
        "request records",
    ),
    Metric(
        "tpot",
        "s/token",
        "lower",
        "requests",
        "(last event - first event) / (tokens - tokens of the first event)",
        "request records, usage",
    ),
    Metric(
        "inter_chunk_latency",
        "s",
        "lower",
        "requests",
        "gaps between consecutive events; an event may hold several tokens",
        "request records",
    ),
    Metric("e2e_latency", "s", "lower", "requests", "end - scheduled send", "request records"),
    Metric(
        "decode_tok_s",
        "tok/s",
        "higher",
        "requests",
        "(tokens - tokens of the first event) / (last event - first event), one stream",
        "request records, usage",
    ),
    Metric(
        "tokens_per_event",
        "tokens",
        "neither",
        "requests",
        "tokens / events with a non-empty delta",
        "request records, usage",
    ),
    Metric("schedule_slip", "s", "lower", "requests", "sent - scheduled send", "request records"),
    Metric(
        "output_tok_s",
        "tok/s",
        "higher",
        "workload",
        "output tokens of all requests inside the steady window / its length; the window is where all users are busy",
        "request records, usage",
    ),
    Metric(
        "output_tok_s_whole",
        "tok/s",
        "higher",
        "workload",
        "output tokens of all requests / (last end - first scheduled send)",
        "request records, usage",
    ),
    Metric(
        "requests_per_s",
        "1/s",
        "higher",
        "workload",
        "succeeded requests / (last end - first scheduled send)",
        "request records",
    ),
    Metric(
        "goodput",
        "1/s",
        "higher",
        "workload",
        "succeeded requests that met the workload's limits / (last end - first scheduled send)",
        "request records",
    ),
    Metric("failure_share", "share", "lower", "workload", "requests that did not succeed / all requests", "request records"),
    Metric(
        "acceptance_rate",
        "share",
        "higher",
        "workload",
        "accepted draft tokens / draft tokens",
        "vllm:spec_decode_num_accepted_tokens, vllm:spec_decode_num_draft_tokens",
    ),
    Metric(
        "acceptance_length",
        "tokens",
        "higher",
        "workload",
        "1 + accepted draft tokens / drafts",
        "vllm:spec_decode_num_accepted_tokens, vllm:spec_decode_num_drafts",
    ),
    Metric(
        "prefix_hit_rate",
        "share",
        "neither",
        "workload",
        "prefix cache hits / prefix cache queries, in tokens",
        "vllm:prefix_cache_hits, vllm:prefix_cache_queries",
    ),
    Metric(
        "kv_capacity_tokens",
        "tokens",
        "higher",
        "leg",
        "maximum concurrency x tokens per request of the log line; comparable across versions",
        "engine log",
    ),
    Metric("max_concurrency", "requests", "higher", "leg", "maximum concurrency of the log line", "engine log"),
    Metric("boot_s", "s", "lower", "leg", "start of the engine to the first real completion", "conductor"),
]

METRICS: dict[str, Metric] = {metric.name: metric for metric in _ROWS}
STATS = ("mean", "p50", "p90", "p95", "p99")
PROBES: dict[str, str] = {
    "conversation": "a two-turn conversation is answered sensibly",
    "thinking": "reasoning is separated from the answer",
    "tool_call": "a tool call is made with the right name and arguments, streamed and not",
    "json_schema": "an answer asked for in a JSON schema fits it",
    "vision": "a picture is seen rightly, where the model takes pictures",
    "long_prompt": "a prompt longer than one KV block is answered",
    "canary": "answers are sane: no repetition, exact answers, the right language",
    "greedy_equality": "answers at temperature 0 equal production's",
}
