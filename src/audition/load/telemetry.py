"""Reading ``/metrics`` again and again while a workload runs. Texts are stored packed and read afterwards, off the hot path.

What must not live here: what the text means (see ``audition.observe``), thresholds.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from dataclasses import dataclass, field

from audition.load.client import Endpoint, fetch
from audition.observe.prometheus import GENERATED, Snapshot, read_snapshot
from audition.observe.timeline import Minute, Point, first_reset, minutes, point_of

SAMPLE_S = 5.0  # between two readings; one costs the client about 2 ms and the engine about as much
_READ_LIMIT_S = 4.0


@dataclass(frozen=True)
class Timeline:
    """What the engine said over a workload. ``restarted``: a restart in between, in words. ``missed``: readings that failed."""

    points: list[Point] = field(default_factory=list)
    minutes: list[Minute] = field(default_factory=list)
    restarted: str = ""
    missed: int = 0


class MetricsWatch:
    """Reads while it is open. Use as ``async with``."""

    def __init__(self, endpoint: Endpoint, interval_s: float = SAMPLE_S) -> None:
        self._endpoint, self._interval = endpoint, interval_s
        self._texts: list[tuple[float, bytes]] = []
        self._missed = 0
        self.drafting: dict[str, float] = {}  # counters of drafts at the last reading, for whoever watches
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> MetricsWatch:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            exchange = await fetch(self._endpoint, "GET", "/metrics", deadline_s=_READ_LIMIT_S)
            if exchange.outcome != "ok":
                self._missed += 1
                if not self._texts:
                    return  # there is no such path; the readings at rest say so
                continue
            self.drafting = _drafting(exchange.body)
            self._texts.append((time.monotonic(), zlib.compress(exchange.body, 1)))

    def timeline(self, t0: float, before: Snapshot | None, after: Snapshot | None, end: float) -> Timeline:
        """Everything that was read, with the readings at rest before (at 0) and after (at ``end`` seconds since ``t0``)."""
        readings = [(at - t0, read_snapshot(zlib.decompress(text).decode("utf-8", "replace"))) for at, text in self._texts]
        readings = [(at, snapshot) for at, snapshot in readings if GENERATED in snapshot.counters]
        if before is not None:
            readings.insert(0, (0.0, before))
        if after is not None:
            readings.append((max(end, readings[-1][0] if readings else 0.0), after))
        points = [point_of(at, snapshot) for at, snapshot in readings]
        return Timeline(points, minutes(points), first_reset(readings), self._missed)


def _drafting(text: bytes) -> dict[str, float]:
    """The counters of speculative decoding alone: quick enough for the loop that sends."""
    lines = [line for line in text.splitlines() if line.startswith((b"vllm:spec_decode_num_", b"# TYPE vllm:spec_decode_num_"))]
    return read_snapshot(b"\n".join(lines).decode("utf-8", "replace")).counters
