"""Whether this machine's clocks behaved while a workload ran. What must not live here: thresholds' consequences (see ``audit``)."""

from __future__ import annotations

import time

MAX_STEP_S = 0.5
"""Difference between wall clock and monotonic clock over a workload above which the wall clock was set. A disciplined clock drifts
by at most 500 ppm (the limit of adjtimex), 0.3 s in ten minutes."""

MAX_SLEEP_S = 0.1
"""Time in which the machine was suspended: CLOCK_BOOTTIME runs on, CLOCK_MONOTONIC stands still."""


class ClockCheck:
    """Compares the clocks between its creation and ``trouble``."""

    def __init__(self) -> None:
        self._start = _clocks()

    def trouble(self) -> str:
        """What went wrong, in words; empty when nothing did."""
        wall, monotonic, boot = (now - then for now, then in zip(_clocks(), self._start, strict=True))
        return clock_trouble(wall, monotonic, boot)


def _clocks() -> tuple[float, float, float]:
    return time.time(), time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME)


def clock_trouble(wall: float, monotonic: float, boot: float) -> str:
    """What is wrong with the seconds that passed on the three clocks; empty when nothing is."""
    if boot - monotonic > MAX_SLEEP_S:
        return f"the machine was suspended for {boot - monotonic:.1f} s during the workload"
    if abs(wall - boot) > MAX_STEP_S + 0.0005 * monotonic:
        return f"the wall clock was set by {wall - boot:+.1f} s during the workload"
    return ""
