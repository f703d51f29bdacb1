"""Figures of a round while it runs, for whoever watches: tokens so far and the median time to the first token.

They cost the sending loop microseconds: nothing is parsed, the bytes that came are searched for two marks when a request ends, and
once a second at the end of each body that grows. They are not what is judged: that is read from the records afterwards.

What must not live here: records, judging, showing.
"""

from __future__ import annotations

import re
import statistics
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable

from audition.load.body import Body
from audition.units import NoData

_COUNT = b'"completion_tokens":'
_NUMBER = re.compile(rb"\s*(\d{1,12})")
_FIRST = re.compile(rb'"(?:content|reasoning|reasoning_content)":\s?"[^"]')  # a delta that is not empty
_TAIL = 4096  # bytes at the end of a body in which the count of its last event stands
_HEAD = 16384  # bytes at its beginning in which the first token stands
_KEPT = 500  # requests that the median is taken over
MOST_GROWING = 256  # bodies looked at in one go; with more, only requests that have ended count

_UNCOUNTED = NoData("the server has not told a token count yet")
_NONE_ENDED = NoData("no request has ended yet")


class Live:
    """Tokens and first tokens of one round."""

    def __init__(self) -> None:
        self._ended_tokens = 0
        self._counted = False
        self._firsts: deque[float] = deque(maxlen=_KEPT)

    def ended(self, body: Body, scheduled: float, *, ok: bool) -> None:
        """A request ended. ``scheduled``: when it was due, monotonic seconds, as in the judged TTFT."""
        tokens = last_count(body)
        if tokens is not None:
            self._counted = True
            self._ended_tokens += tokens
        first = _first_token(body)
        if ok and first is not None:
            self._firsts.append(first - scheduled)

    def tokens(self, growing: Iterable[Body]) -> int | NoData:
        """Output tokens received so far. ``growing``: bodies of requests under way, at most MOST_GROWING are looked at."""
        bodies = list(growing)
        counts = [last_count(body) for body in bodies] if len(bodies) <= MOST_GROWING else []
        told = [count for count in counts if count is not None]
        if not told and not self._counted:
            return _UNCOUNTED
        return self._ended_tokens + sum(told)

    def ttft_p50(self) -> float | NoData:
        """Median time to the first token in seconds, of the last requests that ended well."""
        return statistics.median(self._firsts) if self._firsts else _NONE_ENDED


def last_count(body: Body) -> int | None:
    """The last ``completion_tokens`` near the end of a body, None when there is none."""
    raw = body.raw
    place = raw.rfind(_COUNT, max(0, len(raw) - _TAIL))
    found = _NUMBER.match(raw, place + len(_COUNT)) if place >= 0 else None
    return int(found[1]) if found is not None else None


def _first_token(body: Body) -> float | None:
    """When the piece with the first text came, monotonic seconds. None: unknown, or those bytes were dropped already."""
    found = _FIRST.search(body.raw, 0, _HEAD) if body.base == 0 else None
    if found is None:
        return None
    piece = bisect_right(body.ends, found.end() - 1)
    return body.at[piece] if piece < len(body.at) else None
