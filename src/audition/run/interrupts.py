"""Signals as a flag. A handler never raises: long waits poll the flag, and restoring always runs to its end."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType

CAUGHT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Remembers the first signal. ``on_signal`` is told of each one, with how many came before."""

    def __init__(self, on_signal: Callable[[str, int], None]) -> None:
        self._on_signal = on_signal
        self._count = 0
        self.name = ""
        self._previous: dict[int, signal.Handlers | int | None] = {}

    @property
    def requested(self) -> bool:
        """Whether the run is to end early."""
        return self._count > 0

    def install(self) -> None:
        """Catch SIGINT, SIGTERM and SIGHUP from now on (main thread only)."""
        for number in CAUGHT:
            self._previous[number] = signal.signal(number, self._handle)  # type: ignore[assignment]

    def uninstall(self) -> None:
        """Put the previous handlers back."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        before, self._count = self._count, self._count + 1
        if before == 0:
            self.name = signal.Signals(number).name
        self._on_signal(signal.Signals(number).name, before)
