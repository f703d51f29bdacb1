"""Readings of ``/metrics`` over time as a timeline, and what happened in each minute of it. Pure.

What must not live here: fetching, judging.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise

from audition.observe.prometheus import (
    ACCEPTED,
    DRAFT_TOKENS,
    DRAFTS,
    GENERATED,
    RUNNING,
    WAITING,
    CounterReset,
    Snapshot,
    difference,
)

MINUTE_S = 60.0
KV_USAGE, PREEMPTIONS = "kv_cache_usage_perc", "num_preemptions"


@dataclass(frozen=True)
class Point:
    """One reading. ``at``: seconds since the workload's t0. Counters as the engine shows them; None: it has no such metric."""

    at: float
    running: float | None
    waiting: float | None
    kv_usage: float | None
    generation_tokens: float | None
    drafts: float | None
    draft_tokens: float | None
    accepted_tokens: float | None
    preemptions: float | None

    def as_row(self) -> dict[str, object]:
        """The figures as JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class Minute:
    """What the engine did between two readings about a minute apart (the last one may be shorter).

    ``begin`` and ``end``: seconds since t0. ``tok_s``: generated tokens a second, everybody's. ``acceptance_rate`` = accepted /
    draft tokens and ``acceptance_length`` = 1 + accepted / drafts; None when nothing was drafted.
    """

    begin: float
    end: float
    tok_s: float
    acceptance_rate: float | None
    acceptance_length: float | None

    def as_row(self) -> dict[str, object]:
        """The figures as JSON values."""
        return asdict(self)


def point_of(at: float, snapshot: Snapshot) -> Point:
    """The figures of one reading that a timeline keeps."""
    gauges, counters = snapshot.gauges, snapshot.counters
    return Point(
        at=at,
        running=gauges.get(RUNNING),
        waiting=gauges.get(WAITING),
        kv_usage=gauges.get(KV_USAGE),
        generation_tokens=counters.get(GENERATED),
        drafts=counters.get(DRAFTS),
        draft_tokens=counters.get(DRAFT_TOKENS),
        accepted_tokens=counters.get(ACCEPTED),
        preemptions=counters.get(PREEMPTIONS),
    )


def first_reset(readings: Sequence[tuple[float, Snapshot]]) -> str:
    """The first sign of a restart between neighbours, in words; empty when there is none."""
    for (_, before), (at, after) in pairwise(readings):
        change = difference(before, after)
        if isinstance(change, CounterReset):
            return f"{change.reason}, {at:.0f} s after the start"
    return ""


def minutes(points: Sequence[Point], length: float = MINUTE_S) -> list[Minute]:
    """The minutes of a timeline. A rest shorter than half a minute is added to the last one."""
    known = [point for point in points if point.generation_tokens is not None]
    edges: list[Point] = known[:1]
    for point in known[1:]:
        if point.at - edges[-1].at >= length:
            edges.append(point)
    if known and known[-1] is not edges[-1]:
        if len(edges) > 1 and known[-1].at - edges[-1].at < length / 2:
            edges[-1] = known[-1]
        else:
            edges.append(known[-1])
    return [_minute(a, b) for a, b in pairwise(edges) if b.at > a.at]


def _minute(a: Point, b: Point) -> Minute:
    accepted, drafts, drafted = (
        _grown(a.accepted_tokens, b.accepted_tokens),
        _grown(a.drafts, b.drafts),
        _grown(a.draft_tokens, b.draft_tokens),
    )
    return Minute(
        begin=a.at,
        end=b.at,
        tok_s=(_grown(a.generation_tokens, b.generation_tokens) or 0.0) / (b.at - a.at),
        acceptance_rate=accepted / drafted if accepted is not None and drafted else None,
        acceptance_length=1 + accepted / drafts if accepted is not None and drafts else None,
    )


def _grown(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None or after < before else after - before
