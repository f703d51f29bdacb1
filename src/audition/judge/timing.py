"""One request's events turned into the times that the metrics are made of. Definitions only; no statistics over requests."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import pairwise

from audition.judge.load import events_of, rows_of
from audition.judge.records import ROW_BYTES, RequestRecord, StreamTimes, filled_events, stream_times


class Timing:
    """One request. Times in seconds since the workload's t0; None where the request never got there.

    ``tokens``: output tokens of the whole answer as the server counts them. ``later_tokens``: those after the first event with
    text, None when the server did not say how many the first event held. ``events``: how many carry text or tokens.
    """

    __slots__ = ("answer", "event_tokens", "events", "first", "last", "later_tokens", "ok", "record", "tokens")

    def __init__(self, record: RequestRecord, stream: StreamTimes) -> None:
        self.record = record
        self.ok = record.outcome == "ok"
        self.first, self.answer, self.last, self.events, first_tokens, self.event_tokens = stream
        tokens = self.tokens = record.completion_tokens
        self.later_tokens: int | None = None
        if tokens is None or self.first is None:
            return
        if first_tokens is not None:
            self.later_tokens = max(tokens - first_tokens, 0)
        elif tokens == self.events:  # without a count per event this is known only when every event held one token
            self.later_tokens = tokens - 1


def timing_of(record: RequestRecord) -> Timing:
    """Timing of one request. Raises audition.judge.load.Garbled when its events cannot be read."""
    return Timing(record, record.stream if record.stream is not None else stream_times(events_of(record)))


def tokens_between(t: Timing, begin: float, end: float) -> float:
    """Tokens that arrived from ``begin`` to ``end``: as the server said for each event, or the answer's tokens spread evenly over
    its events when it did not. Raises Garbled."""
    if t.first is None or t.last is None or t.last < begin or t.first > end:
        return 0.0
    known = t.event_tokens is not None
    whole = float(t.event_tokens if t.event_tokens is not None else t.tokens if t.tokens is not None else t.events)
    if begin <= t.first and t.last <= end:
        return whole
    filled = filled_events(events_of(t.record))
    each = whole / len(filled)
    return sum(float(e.tokens or 0) if known else each for e in filled if begin <= e.at <= end)


def gaps_between_events(timings: Iterable[Timing]) -> list[int]:
    """Microseconds between consecutive events of each request, those of one request after the other. Raises Garbled."""
    out: list[int] = []
    for t in timings:
        if t.events < 2:
            continue
        gaps = _plain_gaps(t)
        if gaps is None:
            at = [round(e.at * 1e6) for e in filled_events(events_of(t.record))]
            gaps = [b - a for a, b in pairwise(at)]
        out.extend(gaps)
    return out


def _plain_gaps(t: Timing) -> Sequence[int] | None:
    """The same without unpacking, when no empty event lies between those with text; else None. Whole columns of the packed rows
    are taken at once, because there may be millions of events."""
    rows = rows_of(t.record)
    kinds, low, high = rows[6::ROW_BYTES], rows[4::ROW_BYTES], rows[5::ROW_BYTES]
    skip = len(kinds) - t.events
    if skip < 0 or any(kinds[:skip]) or not kinds[skip]:
        return None
    if 0 in kinds[skip:] and any(not (k or a or b) for k, a, b in zip(kinds[skip:], low[skip:], high[skip:], strict=True)):
        return None
    column = bytearray(4 * len(kinds))
    for place in range(4):
        column[place::4] = rows[place::ROW_BYTES]
    return struct.unpack(f"<{len(kinds)}I", column)[skip + 1 :]


def steady_window(timings: list[Timing]) -> tuple[float, float] | None:
    """The time in which every user is busy: from the last user's first send to the first user's last end. None if there is none."""
    starts: dict[int, float] = {}
    ends: dict[int, float] = {}
    for t in timings:
        record = t.record
        user, sent = record.user, record.sent if record.sent is not None else record.scheduled
        if user not in starts or sent < starts[user]:
            starts[user] = sent
        if user not in ends or record.end > ends[user]:
            ends[user] = record.end
    if not starts:
        return None
    begin, end = max(starts.values()), min(ends.values())
    return (begin, end) if end > begin else None
