"""Who may send when: the pure pacing of a workload. Times are seconds since the start of the measured part, given by the caller.

What must not live here: a clock, a socket, prompts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count, islice
from random import Random
from typing import Literal, Protocol

STEADY_DEFINITION = (
    "from the send of the first request of the user who began last, to the end of the last request of the user who first "
    "found no further request to send; all users have an open request in between"
)


class Pacer(Protocol):
    """What a round asks of its pacing. ``requests``: how many there will be, None: until the time is over."""

    requests: int | None

    def stop(self) -> None:
        """No further requests."""

    def steady_window(self) -> tuple[float, float] | None:
        """The time in which all users are busy, None when there is none or the word has no meaning."""


@dataclass
class ClosedLoop:
    """A closed loop: each user sends its next request when the last one has ended, until ``requests`` are sent or time is over.

    ``duration`` in seconds. Exactly one of the two limits is set. ``part`` (number, of): this process sends every ``of``-th request
    only; ``users`` and ``sent`` are its own, the numbers it gives out are those of all requests.
    """

    users: int
    requests: int | None
    duration: float | None
    part: tuple[int, int] = (0, 1)
    sent: int = 0
    stopped: bool = False
    _first_sent: dict[int, float] = field(default_factory=dict)
    _ran_out: dict[int, float] = field(default_factory=dict)

    def next_index(self, user: int, now: float) -> int | None:
        """Number of the request that this user sends now, or None when there is none left for it."""
        over = self.duration is not None and now >= self.duration
        number = self.sent * self.part[1] + self.part[0]
        if self.stopped or over or (self.requests is not None and number >= self.requests):
            self._ran_out.setdefault(user, now)
            return None
        self.sent += 1
        return number

    def began(self, user: int, at: float) -> None:
        """The user has sent a request at ``at``."""
        self._first_sent.setdefault(user, at)

    def stop(self) -> None:
        """No further requests."""
        self.stopped = True

    def steady_window(self) -> tuple[float, float] | None:
        """The window of STEADY_DEFINITION in seconds, or None when there never was a moment with all users busy."""
        if len(self._first_sent) < self.users or not self._ran_out:
            return None
        start, end = max(self._first_sent.values()), min(self._ran_out.values())
        return (start, end) if end > start else None


def common_window(windows: list[tuple[float, float] | None]) -> tuple[float, float] | None:
    """The window in which the users of all processes were busy."""
    if not windows or any(window is None for window in windows):
        return None
    start, end = max(w[0] for w in windows if w), min(w[1] for w in windows if w)
    return (start, end) if end > start else None


@dataclass
class OpenLoop:
    """An open loop: request ``n`` is due at the n-th of ``times``, seconds since the start, whatever is still open."""

    times: Iterator[tuple[int, float]]
    requests: int | None
    stopped: bool = False

    def next_due(self) -> tuple[int, float] | None:
        """(number, due time) of the next request, None when there is none."""
        return None if self.stopped else next(self.times, None)

    def stop(self) -> None:
        """No further requests."""
        self.stopped = True

    def steady_window(self) -> tuple[float, float] | None:
        """None: an open loop has no users who could all be busy."""
        return None


def due_times(
    rate: float, kind: Literal["constant", "poisson", "gamma"], *, burstiness: float = 1.0, seed: int = 0,
    requests: int | None = None, duration: float | None = None,
) -> Iterator[float]:  # fmt: skip
    """Due times of an open loop in seconds, from 0 on, until one of the limits; ``rate`` in requests a second.

    Gaps have the mean 1 / rate: all equal; exponential (a Poisson process); or gamma with shape ``burstiness`` and thus a
    coefficient of variation of 1 / sqrt(burstiness). The same seed gives the same times.
    """
    draw = Random(f"arrivals/{kind}/{seed}")
    now = 0.0
    for number in count():
        if (requests is not None and number >= requests) or (duration is not None and now >= duration):
            return
        yield now
        if kind == "constant":
            now = (number + 1) / rate
        elif kind == "poisson":
            now += draw.expovariate(rate)
        else:
            now += draw.gammavariate(burstiness, 1 / (rate * burstiness))


def part_of(times: Iterator[float], part: tuple[int, int]) -> Iterator[tuple[int, float]]:
    """(number, time) of those times that one of several processes serves: every ``part[1]``-th, from ``part[0]`` on."""
    return islice(enumerate(times), part[0], None, part[1])


def read_trace(text: str) -> list[float]:
    """Due times of a trace in seconds, the first one at 0: one a line, as a number or as a JSON object with ``at`` (or
    ``timestamp``).

    Blank lines and lines that begin with ``#`` are passed over; the order is that of time. Raises ValueError with the line's
    number.
    """
    times: list[float] = []
    for number, line in enumerate(text.split("\n"), start=1):
        words = line.strip()
        if not words or words.startswith("#"):
            continue
        try:
            value = json.loads(words)
        except ValueError:
            value = None
        if isinstance(value, dict):
            value = value.get("at", value.get("timestamp"))
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"line {number} holds no time in seconds: {words[:60]!r}")
        times.append(float(value))
    if not times:
        raise ValueError("it holds no times")
    times.sort()
    return [time - times[0] for time in times]
