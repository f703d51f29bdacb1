"""One request's events turned into the times that the metrics are made of. Definitions only; no statistics over requests."""

from __future__ import annotations

from dataclasses import dataclass

from audition.judge.load import events_of
from audition.judge.records import EVENT_CONTENT, EVENT_TOOL, RequestRecord, StreamEvent


@dataclass(frozen=True)
class Timing:
    """One request. Times in seconds since the workload's t0; None where the request never got there.

    ``tokens``: output tokens of the whole answer as the server counts them. ``later_tokens``: those after the first event with
    text, None when the server did not say how many the first event held. ``events``: those with text, (time, tokens) each.
    """

    record: RequestRecord
    first: float | None
    first_answer: float | None
    last: float | None
    tokens: int | None
    later_tokens: int | None
    events: tuple[tuple[float, float], ...]

    @property
    def ok(self) -> bool:
        """Whether the request succeeded."""
        return self.record.outcome == "ok"


def timing_of(record: RequestRecord) -> Timing:
    """Timing of one request. Raises audition.judge.load.Garbled when its events cannot be read."""
    filled = _filled(events_of(record))
    tokens = record.completion_tokens
    if not filled:
        return Timing(record, None, None, None, tokens, None, ())
    answer = next((e.at for e in filled if e.kind & (EVENT_CONTENT | EVENT_TOOL)), None)
    return Timing(
        record, filled[0].at, answer, filled[-1].at, tokens, _later_tokens(filled, tokens), _spread_tokens(filled, tokens)
    )


def _filled(events: list[StreamEvent]) -> list[StreamEvent]:
    """Events from the first one with text on that carry text or tokens: at a natural stop the last event is empty, yet holds the
    end-of-text token, whose step took its time like any other."""
    first = next((place for place, event in enumerate(events) if event.kind), len(events))
    return [event for event in events[first:] if event.kind or event.tokens]


def _later_tokens(filled: list[StreamEvent], tokens: int | None) -> int | None:
    """Tokens after the first event with text. Without a count per event this is known only when every event held one token."""
    if tokens is None:
        return None
    first = filled[0].tokens
    if first is not None:
        return max(tokens - first, 0)
    return tokens - 1 if tokens == len(filled) else None


def _spread_tokens(filled: list[StreamEvent], tokens: int | None) -> tuple[tuple[float, float], ...]:
    """Tokens of each event as the server said, or the answer's tokens spread evenly when it did not say so for each."""
    if all(e.tokens is not None for e in filled):
        return tuple((e.at, float(e.tokens or 0)) for e in filled)
    each = (tokens if tokens is not None else len(filled)) / len(filled)
    return tuple((e.at, each) for e in filled)


def steady_window(timings: list[Timing]) -> tuple[float, float] | None:
    """The time in which every user is busy: from the last user's first send to the first user's last end. None if there is none."""
    starts: dict[int, float] = {}
    ends: dict[int, float] = {}
    for t in timings:
        user, sent = t.record.user, t.record.sent if t.record.sent is not None else t.record.scheduled
        starts[user] = min(starts.get(user, sent), sent)
        ends[user] = max(ends.get(user, t.record.end), t.record.end)
    if not starts:
        return None
    begin, end = max(starts.values()), min(ends.values())
    return (begin, end) if end > begin else None
