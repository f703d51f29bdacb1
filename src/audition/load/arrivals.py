"""Who may send when: the pure pacing of a workload. Times are seconds since the start of the measured part, given by the caller.

What must not live here: a clock, a socket, prompts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

STEADY_DEFINITION = (
    "from the send of the first request of the user who began last, to the end of the last request of the user who first "
    "found no further request to send; all users have an open request in between"
)


@dataclass
class ClosedLoop:
    """A closed loop: each user sends its next request when the last one has ended, until ``requests`` are sent or time is over.

    ``duration`` in seconds. Exactly one of the two limits is set.
    """

    users: int
    requests: int | None
    duration: float | None
    sent: int = 0
    stopped: bool = False
    _first_sent: dict[int, float] = field(default_factory=dict)
    _ran_out: dict[int, float] = field(default_factory=dict)

    def next_index(self, user: int, now: float) -> int | None:
        """Number of the request that this user sends now, or None when there is none left for it."""
        over = self.duration is not None and now >= self.duration
        if self.stopped or over or (self.requests is not None and self.sent >= self.requests):
            self._ran_out.setdefault(user, now)
            return None
        self.sent += 1
        return self.sent - 1

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
