"""Draining: wait until production has no running request, within a budget. Closing the entry comes first and is not done here."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from audition.load.counters import read_once
from audition.observe.prometheus import RUNNING, WAITING
from audition.run.leg import in_loop
from audition.wayback.plan import EndpointPlan

_POLL_S = 0.25


@dataclass(frozen=True)
class Drained:
    """How a drain ended. ``left``: requests still running or waiting; None when the server does not say, ``detail`` why."""

    left: int | None
    seconds: float
    detail: str = ""


def drain(endpoint: EndpointPlan, budget_s: float, give_up: Callable[[], bool]) -> Drained:
    """Poll ``vllm:num_requests_running`` and ``_waiting`` until both are 0, the budget is over, or the run is given up."""
    began = time.monotonic()
    while True:
        reading = in_loop(read_once(endpoint))
        seconds = time.monotonic() - began
        if reading.snapshot is None:
            return Drained(None, seconds, reading.missing)
        left = int(reading.snapshot.gauges.get(RUNNING, 0) + reading.snapshot.gauges.get(WAITING, 0))
        if left == 0 or seconds >= budget_s or give_up():
            return Drained(left, seconds)
        time.sleep(_POLL_S)
