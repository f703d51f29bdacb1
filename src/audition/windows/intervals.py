"""Half-open intervals of time and their set operations. Nothing of calendars here."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, order=True)
class Interval:
    """``start`` (included) to ``end`` (excluded), instants with a time zone. ``why``: what takes this time, "" for free time.

    ``start == end`` is a moment: it takes no time, but nothing may run across it.
    """

    start: datetime
    end: datetime
    why: str = ""

    @property
    def seconds(self) -> float:
        """Length in seconds of real time."""
        return (self.end - self.start).total_seconds()


def merge(intervals: Iterable[Interval]) -> list[Interval]:
    """The union, in order; intervals that touch become one. The ``why`` of the first one of each stays. Moments are kept alone."""
    out: list[Interval] = []
    for one in sorted(intervals):
        if out and one.start <= out[-1].end:
            last = out[-1]
            out[-1] = Interval(last.start, max(last.end, one.end), last.why)
        else:
            out.append(one)
    return out


def subtract(free: Iterable[Interval], taken: Iterable[Interval]) -> list[Interval]:
    """What remains of ``free``. A taken moment inside a free interval splits it."""
    blocks = merge(taken)
    ends = [block.end for block in blocks]
    out: list[Interval] = []
    for one in free:
        at = one.start
        for block in (blocks[n] for n in range(bisect_left(ends, at), len(blocks))):
            if block.end == at and block.start < block.end:
                continue
            if block.start >= one.end:
                break
            if block.start > at:
                out.append(Interval(at, block.start, one.why))
            at = max(at, block.end)
        if at < one.end:
            out.append(Interval(at, one.end, one.why))
    return out


def intersect(free: Iterable[Interval], allowed: Iterable[Interval]) -> list[Interval]:
    """What is in both; ``allowed`` is merged first, so that events that touch allow a run across them."""
    wide = merge(one for one in allowed if one.start < one.end)
    ends = [one.end for one in wide]
    out: list[Interval] = []
    for a in free:
        for b in (wide[n] for n in range(bisect_right(ends, a.start), len(wide))):
            if b.start >= a.end:
                break
            if a.start < a.end:
                out.append(Interval(max(a.start, b.start), min(a.end, b.end), a.why))
    return sorted(out)
