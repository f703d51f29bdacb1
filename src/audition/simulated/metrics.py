"""Counters and histograms of the simulated engine, and their Prometheus text with vLLM's names and labels.

What must not live here: deciding when something is counted (the engine does).
"""

from __future__ import annotations

import os
import resource
import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping

# Bucket bounds as vLLM exposes them (captured from 0.24.0).
TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
        160.0, 640.0, 2560.0)  # fmt: skip
INTER_TOKEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
               80.0)  # fmt: skip
LATENCY = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
           1920.0, 7680.0)  # fmt: skip
TOKENS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0, 20000.0, 50000.0,
          100000.0)  # fmt: skip
FINISH_REASONS = ("stop", "length", "abort", "error", "repetition")


class Histogram:
    """A Prometheus histogram: cumulative only when it is shown."""

    __slots__ = ("bounds", "counts", "help", "sum")

    def __init__(self, bounds: tuple[float, ...], help_text: str) -> None:
        self.bounds = bounds
        self.help = help_text
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value, in the histogram's unit."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """Values seen."""
        return sum(self.counts)


class Metrics:
    """Everything the engine counts. Counters only grow while the process lives."""

    def __init__(self, drafted: int) -> None:
        self.started = time.time()
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.generation_tokens = 0
        self.prefix_queries = 0
        self.prefix_hits = 0
        self.preemptions = 0
        self.drafts = 0
        self.draft_tokens = 0
        self.accepted_per_position = [0] * drafted
        self.finished = dict.fromkeys(FINISH_REASONS, 0)
        self.http: dict[tuple[str, str, str], int] = {}
        self.ttft = Histogram(TTFT, "Histogram of time to first token in seconds.")
        self.inter_token = Histogram(INTER_TOKEN, "Histogram of inter-token latency in seconds.")
        self.time_per_output_token = Histogram(INTER_TOKEN, "Histogram of time_per_output_token_seconds per request.")
        self.e2e = Histogram(LATENCY, "Histogram of e2e request latency in seconds.")
        self.queue = Histogram(LATENCY, "Histogram of time spent in WAITING phase for request.")
        self.prefill = Histogram(LATENCY, "Histogram of time spent in PREFILL phase for request.")
        self.decode = Histogram(LATENCY, "Histogram of time spent in DECODE phase for request.")
        self.request_prompt = Histogram(TOKENS, "Number of prefill tokens processed.")
        self.request_generation = Histogram(TOKENS, "Number of generation tokens processed.")

    @property
    def accepted_tokens(self) -> int:
        """Drafted tokens accepted so far, over all positions."""
        return sum(self.accepted_per_position)


class Exposition:
    """Builds the text of /metrics, line by line, with labels sorted as the Prometheus client sorts them."""

    def __init__(self, model: str) -> None:
        self.lines: list[str] = []
        self.labels = {"engine": "0", "model_name": model}

    def _line(self, name: str, labels: Mapping[str, str], value: float) -> None:
        inner = ",".join(f'{key}="{labels[key]}"' for key in sorted(labels))
        self.lines.append(f"{name}{{{inner}}} {float(value)}" if inner else f"{name} {float(value)}")

    def _head(self, name: str, kind: str, help_text: str) -> None:
        self.lines.append(f"# HELP {name} {help_text}")
        self.lines.append(f"# TYPE {name} {kind}")

    def gauge(self, name: str, help_text: str, values: Iterable[tuple[Mapping[str, str], float]]) -> None:
        """One gauge with a value for each set of extra labels."""
        self._head(name, "gauge", help_text)
        for labels, value in values:
            self._line(name, {**self.labels, **labels}, value)

    def counter(self, name: str, help_text: str, values: Iterable[tuple[Mapping[str, str], float]]) -> None:
        """One counter (the name gains `_total`) with a value for each set of extra labels."""
        self._head(f"{name}_total", "counter", help_text)
        for labels, value in values:
            self._line(f"{name}_total", {**self.labels, **labels}, value)

    def histogram(self, name: str, histogram: Histogram) -> None:
        """One histogram, buckets cumulative."""
        self._head(name, "histogram", histogram.help)
        running = 0
        for bound, number in zip((*map(str, histogram.bounds), "+Inf"), histogram.counts, strict=True):
            running += number
            self._line(f"{name}_bucket", {**self.labels, "le": bound}, running)
        self._line(f"{name}_count", self.labels, running)
        self._line(f"{name}_sum", self.labels, histogram.sum)

    def plain(self, name: str, kind: str, help_text: str, values: Iterable[tuple[Mapping[str, str], float]]) -> None:
        """A metric without vLLM's engine and model labels."""
        self._head(name, kind, help_text)
        for labels, value in values:
            self._line(name, labels, value)

    def text(self) -> str:
        """Everything so far."""
        return "\n".join(self.lines) + "\n"


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def process_metrics(out: Exposition, metrics: Metrics) -> None:
    """The Prometheus client's own process metrics."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    out.plain("process_resident_memory_bytes", "gauge", "Resident memory size in bytes.", [({}, _resident_bytes())])
    out.plain(
        "process_start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds.",
        [({}, metrics.started)],
    )  # fmt: skip
    out.plain(
        "process_cpu_seconds_total", "counter", "Total user and system CPU time spent in seconds.",
        [({}, used.ru_utime + used.ru_stime)],
    )  # fmt: skip


def spec_decode_metrics(out: Exposition, metrics: Metrics) -> None:
    """The counters of speculative decoding."""
    if not metrics.accepted_per_position:
        return
    out.counter("vllm:spec_decode_num_drafts", "Number of spec decoding drafts.", [({}, metrics.drafts)])
    out.counter("vllm:spec_decode_num_draft_tokens", "Number of draft tokens.", [({}, metrics.draft_tokens)])
    out.counter("vllm:spec_decode_num_accepted_tokens", "Number of accepted tokens.", [({}, metrics.accepted_tokens)])
    out.counter(
        "vllm:spec_decode_num_accepted_tokens_per_pos", "Accepted tokens per draft position.",
        [({"position": str(at)}, number) for at, number in enumerate(metrics.accepted_per_position)],
    )  # fmt: skip


def cache_metrics(out: Exposition, metrics: Metrics, usage: float, release: tuple[int, ...]) -> None:
    """KV cache usage and the prefix cache; before 0.12 the old names are shown as well."""
    old = ("", "gpu_") if release < (0, 12) else ("",)
    for prefix in old:
        usage_name = "kv_cache_usage_perc" if not prefix else "gpu_cache_usage_perc"
        out.gauge(f"vllm:{usage_name}", "KV-cache usage. 1 means 100 percent usage.", [({}, usage)])
        out.counter(
            f"vllm:{prefix}prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens.",
            [({}, metrics.prefix_queries)],
        )  # fmt: skip
        out.counter(
            f"vllm:{prefix}prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.",
            [({}, metrics.prefix_hits)],
        )  # fmt: skip


def request_metrics(out: Exposition, metrics: Metrics, release: tuple[int, ...]) -> None:
    """Token counters, finish reasons and latency histograms."""
    out.counter("vllm:num_preemptions", "Cumulative number of preemption from the engine.", [({}, metrics.preemptions)])
    out.counter("vllm:prompt_tokens", "Number of prefill tokens processed.", [({}, metrics.prompt_tokens)])
    if release >= (0, 16):
        out.counter(
            "vllm:prompt_tokens_cached", "Number of cached prompt tokens (local + external).",
            [({}, metrics.cached_tokens)],
        )  # fmt: skip
    out.counter("vllm:generation_tokens", "Number of generation tokens processed.", [({}, metrics.generation_tokens)])
    out.counter(
        "vllm:request_success", "Count of successfully processed requests.",
        [({"finished_reason": reason}, number) for reason, number in metrics.finished.items()],
    )  # fmt: skip
    out.histogram("vllm:request_prompt_tokens", metrics.request_prompt)
    out.histogram("vllm:request_generation_tokens", metrics.request_generation)
    out.histogram("vllm:time_to_first_token_seconds", metrics.ttft)
    if release >= (0, 10):
        out.histogram("vllm:inter_token_latency_seconds", metrics.inter_token)
    if release < (0, 16):
        out.histogram("vllm:time_per_output_token_seconds", metrics.inter_token)
    out.histogram("vllm:request_time_per_output_token_seconds", metrics.time_per_output_token)
    out.histogram("vllm:e2e_request_latency_seconds", metrics.e2e)
    out.histogram("vllm:request_queue_time_seconds", metrics.queue)
    out.histogram("vllm:request_prefill_time_seconds", metrics.prefill)
    out.histogram("vllm:request_decode_time_seconds", metrics.decode)
