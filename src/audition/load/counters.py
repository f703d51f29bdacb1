"""Reading the engine's counters at rest: ``/metrics`` fetched until nothing moves any more.

What must not live here: the text format (see ``audition.observe.prometheus``), judging differences (see ``audit``).
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from audition.load.client import Endpoint, fetch
from audition.observe.prometheus import GENERATED, RUNNING, WAITING, Snapshot, read_snapshot

SETTLE_LIMIT_S = 5.0  # longest wait for the engine to come to rest; own choice, an idle engine needs well under a second
_PAUSE_S = 0.25  # between two readings
_READ_LIMIT_S = 5.0  # longest wait for one reading


@dataclass(frozen=True)
class Reading:
    """One reading. ``snapshot`` None: there was none, ``missing`` says why. ``at_rest``: no request ran and no token was made."""

    snapshot: Snapshot | None
    missing: str
    at_rest: bool


async def read_once(endpoint: Endpoint) -> Reading:
    """One reading of ``/metrics``, wherever the engine stands."""
    exchange = await fetch(endpoint, "GET", "/metrics", deadline_s=_READ_LIMIT_S)
    if exchange.outcome != "ok":
        status = f"HTTP {exchange.status}" if exchange.status else exchange.detail
        return Reading(None, f"/metrics could not be read: {status}", False)
    snapshot = read_snapshot(exchange.body.decode("utf-8", "replace"))
    if GENERATED not in snapshot.counters:
        return Reading(None, "/metrics has no vllm:generation_tokens, so this is not a vLLM engine", False)
    return Reading(snapshot, "", False)


async def read_at_rest(endpoint: Endpoint, limit_s: float = SETTLE_LIMIT_S) -> Reading:
    """The first reading with nothing running or waiting and no token made since the one before; after ``limit_s`` the last one."""
    until = time.monotonic() + limit_s
    before = await read_once(endpoint)
    while before.snapshot is not None:
        await asyncio.sleep(_PAUSE_S)
        now = await read_once(endpoint)
        if now.snapshot is None:
            return now
        busy = now.snapshot.gauges.get(RUNNING, 0) + now.snapshot.gauges.get(WAITING, 0)
        if busy == 0 and now.snapshot.counters[GENERATED] == before.snapshot.counters[GENERATED]:
            return Reading(now.snapshot, "", True)
        if time.monotonic() >= until:
            return now
        before = now
    return before
