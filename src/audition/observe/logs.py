"""Lines that vLLM prints, as figures. Pure; forms of 0.9 to 0.33. The raw lines are kept beside every figure.

What must not live here: reading files, naming faults (see ``audition.faults``), judging.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

_KV_SIZE = re.compile(r"(\w+) KV cache size: ([\d,]+) tokens")
_CONCURRENCY = re.compile(r"Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x")
_RANK = re.compile(r"\((EngineCore(?:_DP\d+)?|EngineCore_\d+)\b")
_ENGINE = re.compile(
    r"Engine (\d+): Avg prompt throughput: ([\d.]+) tokens/s, Avg generation throughput: ([\d.]+) tokens/s, "
    r"Running: (\d+) reqs, Waiting: (\d+) reqs,(?: Deferred: (\d+) reqs,)?(?: Preemptions: (\d+),)? "
    r"\w+ KV cache usage: ([\d.]+)%(?:, Prefix cache hit rate: ([\d.]+)%)?"
)
_SPEC = re.compile(r"SpecDecoding metrics: (.*)")
_SPEC_PARTS = {
    "mean_acceptance_length": re.compile(r"Mean acceptance length: ([\d.]+)"),
    "accepted_tokens": re.compile(r"Accepted: (\d+) tokens"),
    "draft_tokens": re.compile(r"Drafted: (\d+) tokens"),
    "acceptance_rate_percent": re.compile(r"(?:Avg )?Draft acceptance rate: ([\d.]+)%"),
}
_SPEC_POSITIONS = re.compile(r"Per-position acceptance rate: ([\d.]+(?:, [\d.]+)*)")
_VERSION = re.compile(r"(?:\bversion (\d+\.\d+[\w.+-]*)\s*$|LLM engine \(v(\d+\.\d+[\w.+-]*)\))")
_MARKERS: dict[str, re.Pattern[str]] = {
    "architecture": re.compile(r"Resolved architecture: (\w+)"),
    "loading_drafter": re.compile(r"(Loading drafter model)"),
    "mtp_shared": re.compile(r"Detected MTP model\. Sharing target model (embedding|lm_head) weights with the draft model"),
    "weights_gib": re.compile(r"Model loading took ([\d.]+) Gi?B"),
    "load_s": re.compile(r"Model loading took [\d.]+ Gi?B(?: memory)? and ([\d.]+) s"),
    "kv_memory_gib": re.compile(r"Available KV cache memory: (-?[\d.]+) GiB"),
    "graph_capture_s": re.compile(r"Graph capturing finished in ([\d.]+) secs"),
    "init_engine_s": re.compile(r"init engine \(profile, create kv cache, warmup model\) took ([\d.]+) s"),
    "attention_block_tokens": re.compile(r"Setting attention block size to (\d+) tokens"),
    "startup_complete": re.compile(r"(Application startup complete)"),
}


@dataclass(frozen=True)
class SpecLine:
    """One ``SpecDecoding metrics`` line: counts since the line before it, shares 0 to 1. ``per_position`` may be empty."""

    mean_acceptance_length: float
    accepted_tokens: int
    draft_tokens: int
    acceptance_rate: float
    per_position: list[float]
    raw: str


@dataclass(frozen=True)
class EngineLine:
    """One ``Engine N:`` line. Throughput in tokens/s, shares 0 to 1; ``prefix_hit_rate`` None when the line has none."""

    engine: int
    prompt_tok_s: float
    generation_tok_s: float
    running: int
    waiting: int
    kv_usage: float
    prefix_hit_rate: float | None
    raw: str


@dataclass(frozen=True)
class KvFacts:
    """KV capacity of the whole server (summed over data-parallel engines).

    ``capacity_tokens`` = maximum concurrency x tokens per request: comparable across versions, unlike ``logged_tokens``, whose
    formula changed in 0.20.1 (vLLM #40691). ``raw`` holds the lines.
    """

    capacity_tokens: float
    max_concurrency: float
    tokens_per_request: int
    logged_tokens: int | None
    raw: list[str]


@dataclass(frozen=True)
class LogFacts:
    """All figures of one engine log. ``markers``: the values of each boot marker in order of appearance."""

    version: str | None
    kv: KvFacts | None
    spec: list[SpecLine] = field(default_factory=list)
    engine: list[EngineLine] = field(default_factory=list)
    markers: dict[str, list[str]] = field(default_factory=dict)


def read_log(lines: Iterable[str]) -> LogFacts:
    """Figures of a log; lines that say nothing known are passed over. After several boots in one log the last KV figures count."""
    version: str | None = None
    sizes: dict[str, tuple[int, str]] = {}
    bounds: dict[str, tuple[int, float, str]] = {}
    spec: list[SpecLine] = []
    engine: list[EngineLine] = []
    markers: dict[str, list[str]] = {}
    for raw in lines:
        line = raw.rstrip("\r\n")
        found = _VERSION.search(line)
        if found and version is None:
            version = found.group(1) or found.group(2)
        rank = _RANK.search(line)
        key = rank.group(1) if rank else ""
        if found := _KV_SIZE.search(line):
            sizes[key] = (_number(found.group(2)), line)
        if found := _CONCURRENCY.search(line):
            bounds[key] = (_number(found.group(1)), float(found.group(2)), line)
        if (parsed := read_spec_line(line)) is not None:
            spec.append(parsed)
        if (stats := read_engine_line(line)) is not None:
            engine.append(stats)
        for name, pattern in _MARKERS.items():
            if found := pattern.search(line):
                markers.setdefault(name, []).append(found.group(1))
    return LogFacts(version, _kv(sizes, bounds), spec, engine, markers)


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def _kv(sizes: dict[str, tuple[int, str]], bounds: dict[str, tuple[int, float, str]]) -> KvFacts | None:
    if not bounds:
        return None
    per_request = next(iter(bounds.values()))[0]
    raw: list[str] = []
    for line in [line for _, line in sizes.values()] + [line for _, _, line in bounds.values()]:
        if line not in raw:
            raw.append(line)
    return KvFacts(
        capacity_tokens=sum(length * times for length, times, _ in bounds.values()),
        max_concurrency=sum(times for _, times, _ in bounds.values()),
        tokens_per_request=per_request,
        logged_tokens=sum(size for size, _ in sizes.values()) if sizes else None,
        raw=raw,
    )


def read_spec_line(line: str) -> SpecLine | None:
    """A ``SpecDecoding metrics`` line in the order of 0.9 or of later versions; None for any other line."""
    found = _SPEC.search(line)
    if not found:
        return None
    values: dict[str, float] = {}
    for name, pattern in _SPEC_PARTS.items():
        part = pattern.search(found.group(1))
        if part is None:
            return None
        values[name] = float(part.group(1))
    positions = _SPEC_POSITIONS.search(found.group(1))
    return SpecLine(
        mean_acceptance_length=values["mean_acceptance_length"],
        accepted_tokens=int(values["accepted_tokens"]),
        draft_tokens=int(values["draft_tokens"]),
        acceptance_rate=values["acceptance_rate_percent"] / 100,
        per_position=[float(part) for part in positions.group(1).split(", ")] if positions else [],
        raw=line,
    )


def read_engine_line(line: str) -> EngineLine | None:
    """An ``Engine N:`` statistics line; None for any other line."""
    found = _ENGINE.search(line)
    if not found:
        return None
    number, prompt, generation, running, waiting, _, _, usage, hits = found.groups()
    return EngineLine(
        engine=int(number),
        prompt_tok_s=float(prompt),
        generation_tok_s=float(generation),
        running=int(running),
        waiting=int(waiting),
        kv_usage=float(usage) / 100,
        prefix_hit_rate=None if hits is None else float(hits) / 100,
        raw=line,
    )


def facts_for_leg(facts: LogFacts) -> dict[str, object]:
    """The figures that a leg's record keeps, as JSON values; absent ones have no key."""
    out: dict[str, object] = {"engine_version": facts.version, "boot_markers": facts.markers}
    if facts.kv is not None:
        out["kv_capacity_tokens"] = facts.kv.capacity_tokens
        out["max_concurrency"] = facts.kv.max_concurrency
        out["max_concurrency_tokens"] = facts.kv.tokens_per_request
        out["kv_tokens_logged"] = facts.kv.logged_tokens
        out["kv_lines"] = facts.kv.raw
    if facts.spec:
        drafted = sum(line.draft_tokens for line in facts.spec)
        out["log_spec_decode"] = {
            "accepted_tokens": sum(line.accepted_tokens for line in facts.spec),
            "draft_tokens": drafted,
            "lines": len(facts.spec),
        }
    return out
