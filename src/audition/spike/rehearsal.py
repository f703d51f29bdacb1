"""How a rehearsal shortens a spike. Pure. Which server plays the arms is the business of ``audition.run``."""

from __future__ import annotations

from audition.spike.model import Spike, Window, Workload

REQUESTS_PER_USER = 2
"""Two for each user: the second shows the steady state, more would only make people wait."""
LEAST_REQUESTS = 3
LONGEST_LOAD_S = 3.0
LONGEST_HOLD_S = 1.0
LONGEST_DRAIN_S = 10.0


def shorten(spike: Spike) -> Spike:
    """The spike with fewer requests, short waits and no window; arms, legs, gates and everything else stay as written.

    A rehearsal shows the whole way in about a minute; its figures are invented anyway. Times in seconds.
    """
    restore = spike.restore.model_copy(update={"hold": min(spike.restore.hold, LONGEST_HOLD_S)})
    drain = spike.drain.model_copy(update={"budget": min(spike.drain.budget, LONGEST_DRAIN_S)})
    return spike.model_copy(
        update={
            "workloads": [_shorten(workload) for workload in spike.workloads],
            "restore": restore,
            "drain": drain,
            "window": Window(),
        }
    )


def _shorten(workload: Workload) -> Workload:
    if workload.duration is not None:
        return workload.model_copy(update={"duration": min(workload.duration, LONGEST_LOAD_S)})
    most = max(LEAST_REQUESTS, REQUESTS_PER_USER * workload.users)
    return workload.model_copy(update={"requests": min(workload.requests or most, most)})
