"""The text of ``/metrics`` as numbers, with the names of all vLLM versions made one. Pure.

What must not live here: fetching the text, waiting, judging.

Normal form: no ``vllm:`` prefix, no ``_total`` suffix on counters, summed over engines and models. A metric with another label has
its sum under the plain name and each value under ``name[value]``, e.g. ``request_success[length]`` and
``spec_decode_num_accepted_tokens_per_pos[0]``. Histograms give ``name_sum`` and ``name_count``. Shares (``_perc``) take the largest
value instead of the sum.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

RUNNING, WAITING, GENERATED, SUCCESS = "num_requests_running", "num_requests_waiting", "generation_tokens", "request_success"
DRAFTS, DRAFT_TOKENS = "spec_decode_num_drafts", "spec_decode_num_draft_tokens"
ACCEPTED, ACCEPTED_PER_POSITION = "spec_decode_num_accepted_tokens", "spec_decode_num_accepted_tokens_per_pos"
PREFIX_QUERIES, PREFIX_HITS = "prefix_cache_queries", "prefix_cache_hits"
TTFT = "time_to_first_token_seconds"

# Names that older versions used (vLLM before 0.12) and their name now.
_RENAMED = {
    "gpu_prefix_cache_queries": PREFIX_QUERIES,
    "gpu_prefix_cache_hits": PREFIX_HITS,
    "gpu_cache_usage_perc": "kv_cache_usage_perc",
}
_SUMMED_LABELS = {"engine", "model_name", "le"}
_LINE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*$")
_LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"\s*,?\s*')
_ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


@dataclass(frozen=True)
class Sample:
    """One line of the exposition. ``kind``: the declared type of its family, "" when none was declared."""

    name: str
    labels: dict[str, str]
    value: float
    kind: str


@dataclass(frozen=True)
class Snapshot:
    """One reading. ``counters`` only grow while a process lives; ``created`` and ``process_started`` (Unix seconds) change with it.

    ``info``: labels of ``*_info`` metrics, e.g. ``info["cache_config_info"]["num_gpu_blocks"]``.
    """

    counters: dict[str, float] = field(default_factory=dict)
    gauges: dict[str, float] = field(default_factory=dict)
    info: dict[str, dict[str, str]] = field(default_factory=dict)
    created: dict[str, float] = field(default_factory=dict)
    process_started: float | None = None


@dataclass(frozen=True)
class CounterDifference:
    """How much each counter grew between two readings of the same process."""

    values: dict[str, float]


@dataclass(frozen=True)
class CounterReset:
    """Two readings that cannot be compared: the process behind them was restarted. ``reason`` in plain words."""

    reason: str


def samples(text: str) -> Iterator[Sample]:
    """The lines of an exposition (Prometheus text format 0.0.4); a line that is none is passed over."""
    kinds: dict[str, str] = {}
    for line in text.split("\n"):
        if line.startswith("#"):
            words = line.split(None, 3)
            if len(words) >= 4 and words[1] == "TYPE":
                kinds[words[2]] = words[3].strip()
            continue
        found = _LINE.match(line)
        if not found:
            continue
        try:
            value = float(found.group(3))
        except ValueError:
            continue
        name = found.group(1)
        labels = {key: _unescape(raw) for key, raw in _LABEL.findall(found.group(2) or "")}
        yield Sample(name, labels, value, _kind(name, kinds))


def _unescape(raw: str) -> str:
    return re.sub(r"\\.", lambda m: _ESCAPES.get(m.group(), m.group()), raw) if "\\" in raw else raw


def _kind(name: str, kinds: dict[str, str]) -> str:
    if name.endswith("_created"):
        return "created"
    if name in kinds:
        return kinds[name]
    for suffix in ("_bucket", "_sum", "_count", "_total"):
        family = name.removesuffix(suffix)
        if family != name and family in kinds:
            return kinds[family]
    return "counter" if name.endswith("_total") else ""


def read_snapshot(text: str) -> Snapshot:
    """One reading in normal form. Metrics that are not vLLM's are left out, but for the start time of the process."""
    snapshot = Snapshot()
    started: float | None = None
    rows = list(samples("\n".join(line for line in text.split("\n") if "_bucket{" not in line)))  # most lines, and never kept
    seen = {sample.name.removeprefix("vllm:").removesuffix("_total") for sample in rows}
    for sample in rows:
        if sample.name == "process_start_time_seconds":
            started = sample.value
        if not sample.name.startswith("vllm:") or math.isnan(sample.value):
            continue
        name = sample.name.removeprefix("vllm:")
        if sample.kind == "created":
            snapshot.created[name] = min(sample.value, snapshot.created.get(name, math.inf))
            continue
        if sample.kind == "counter":
            name = name.removesuffix("_total")
        if name in _RENAMED:
            if _RENAMED[name] in seen:  # a version in between that shows both
                continue
            name = _RENAMED[name]
        _take(snapshot, name, sample)
    return Snapshot(snapshot.counters, snapshot.gauges, snapshot.info, snapshot.created, started)


def _take(snapshot: Snapshot, name: str, sample: Sample) -> None:
    if sample.kind == "counter" or (sample.kind in ("histogram", "summary") and name.endswith(("_sum", "_count"))):
        into = snapshot.counters
    elif sample.kind in ("histogram", "summary"):
        return  # buckets
    elif name.endswith("_info"):
        snapshot.info[name] = {**snapshot.info.get(name, {}), **sample.labels}
        return
    else:
        into = snapshot.gauges
    extra = [value for key, value in sorted(sample.labels.items()) if key not in _SUMMED_LABELS]
    for key in (name, *([f"{name}[{','.join(extra)}]"] if extra else [])):
        known = into.get(key)
        if known is None:
            into[key] = sample.value
        else:
            into[key] = max(known, sample.value) if name.endswith("_perc") else known + sample.value


def difference(before: Snapshot, after: Snapshot) -> CounterDifference | CounterReset:
    """Growth of every counter of ``after``. One that appears only there grew from 0 (labelled counters appear at their first use).

    A restart shows in a later process start, a later creation time of a counter, or a counter that fell or vanished.
    """
    first, second = before.process_started, after.process_started
    if first is not None and second is not None and abs(first - second) > 1.0:
        return CounterReset("the process behind /metrics was started anew between the two readings")
    for name, when in before.created.items():
        if after.created.get(name, when) > when + 1.0:
            return CounterReset(f"counter {name} was created anew between the two readings")
    for name, value in before.counters.items():
        later = after.counters.get(name)
        if later is None and value > 0:
            return CounterReset(f"counter {name} vanished between the two readings")
        if later is not None and later < value:
            return CounterReset(f"counter {name} fell from {value:g} to {later:g}")
    return CounterDifference({name: value - before.counters.get(name, 0.0) for name, value in after.counters.items()})
