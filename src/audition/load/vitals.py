"""Watching while a workload runs: does the engine live, must we stop, how late is our own event loop.

What must not live here: thresholds of trust (see ``audit``), sending requests.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from urllib.parse import urlsplit

POLL_S = 1.0  # between two looks at `alive` and `give_up`; each wakes two threads, which costs as much as ten tokens
KNOCK_S = 0.5  # between two tries to connect to an engine that refused
DEAD_AFTER_S = 4.0  # an engine that refuses connections for so long is dead; with the other waits it ends a workload within 10 s
BEAT_S = 0.1  # between two measurements of the loop's lag


class EngineWatch:
    """Decides when a workload must end early. ``ended`` is set once, with ``code`` and ``reason`` saying why."""

    def __init__(self, url: str, alive: Callable[[], bool], give_up: Callable[[], bool], tick: Callable[[], None]) -> None:
        self.ended = asyncio.Event()
        self.code = ""
        self.reason = ""
        parts = urlsplit(url)
        self._address = (parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))
        self._alive, self._give_up, self._tick = alive, give_up, tick
        self._reachable = asyncio.Event()
        self._reachable.set()
        self._suspected = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> EngineWatch:
        self._tasks = [asyncio.create_task(self._poll()), asyncio.create_task(self._knock())]
        return self

    async def __aexit__(self, *_: object) -> None:
        failures = []
        for task in self._tasks:
            task.cancel()
        for result in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(result, Exception):
                failures.append(result)
        if failures:
            raise failures[0]

    def end(self, code: str, reason: str) -> None:
        """The workload must end."""
        if not self.ended.is_set():
            self.code, self.reason = code, reason
            self.ended.set()
            self._reachable.set()

    def suspect(self) -> None:
        """Call after a refused connection: the engine is asked until it accepts connections again, or counts as dead."""
        if not self.ended.is_set():
            self._reachable.clear()
            self._suspected.set()

    async def reachable(self) -> None:
        """The same, and return when the engine accepts connections again, or the workload has ended."""
        self.suspect()
        await self._reachable.wait()

    async def _poll(self) -> None:
        try:
            while not self.ended.is_set():
                found = await asyncio.to_thread(self._look)
                if found is not None:
                    self.end(*found)
                self._tick()
                await asyncio.sleep(POLL_S)
        except Exception:
            self.end("watch-failed", "the check whether the engine lives failed")
            raise

    def _look(self) -> tuple[str, str] | None:
        """Why the workload must end, None when it need not. Runs in a thread."""
        if self._give_up():
            return "given-up", "the run asked the workload to stop"
        return None if self._alive() else ("engine-died", "the engine died during the workload")

    async def _knock(self) -> None:
        while not self.ended.is_set():
            await self._suspected.wait()
            since = time.monotonic()
            while not self.ended.is_set() and not await self._accepts():
                if time.monotonic() - since >= DEAD_AFTER_S:
                    self.end("engine-died", f"the engine refused connections for {DEAD_AFTER_S:g} s")
                await asyncio.sleep(KNOCK_S)
            self._suspected.clear()
            self._reachable.set()

    async def _accepts(self) -> bool:
        try:
            async with asyncio.timeout(KNOCK_S):
                _, writer = await asyncio.open_connection(*self._address)
        except (OSError, TimeoutError):
            return False
        writer.close()
        return True


class LoopLag:
    """How late the event loop calls back, in seconds, sampled every BEAT_S. Use as ``with``, inside the loop."""

    def __init__(self) -> None:
        self.late: list[float] = []
        self._due = 0.0
        self._handle: asyncio.TimerHandle | None = None

    def __enter__(self) -> LoopLag:
        self._arm()
        return self

    def __exit__(self, *_: object) -> None:
        if self._handle is not None:
            self._handle.cancel()

    def _arm(self) -> None:
        self._due = time.monotonic() + BEAT_S
        self._handle = asyncio.get_running_loop().call_later(BEAT_S, self._beat)

    def _beat(self) -> None:
        self.late.append(max(0.0, time.monotonic() - self._due))
        self._arm()

    def p99(self) -> float | None:
        """The lag that 99 % of the samples do not exceed, None without samples."""
        return quantile(self.late, 0.99)


def quantile(values: list[float], share: float) -> float | None:
    """The smallest value that at least ``share`` of the values do not exceed (inverse of the empirical distribution)."""
    if not values:
        return None
    ordered = sorted(values)
    rank = max(1, -(-len(ordered) * round(share * 1000) // 1000))
    return ordered[min(rank, len(ordered)) - 1]
