"""One pass of a workload in one process: the users of a closed loop, or the arrivals of an open one, and what came of each request.

What must not live here: how a connection works (``client``), what bytes mean (``scan``), counters and records on disk
(``workload``).
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from audition.judge.records import RequestRecord
from audition.load.arrivals import ClosedLoop, OpenLoop
from audition.load.chat import CHAT_PATH, Sent, record_of, request_body
from audition.load.client import Connection, Endpoint, Target
from audition.load.live import Live
from audition.load.prompts import PromptOrder, mark, salt, salted_messages
from audition.load.scan import BodyReader, Templates
from audition.load.vitals import EngineWatch
from audition.load.wire import Exchange, Gather
from audition.spike.model import Workload
from audition.units import NoData

RAW_LIMIT = 64 * 2**20  # bytes of bodies held unread; above it they are read while the load runs
MOST_CONNECTIONS = 4096  # open at a time in an open loop; a request that finds none free waits, and its slip shows it
_SMALL_BODY = 4096  # a body up to this size is read at once: it may be an error, and costs under 0.1 ms
_WORTH_READING = 8192  # bytes of a body that still grows from which on reading it on the way frees something
_AT_ONCE = 32_768  # bytes read on the way before the loop gets its turn: about 0.3 ms
_FAILURE_PAUSE_S = 0.2  # after a failed request, so that an instantly failing server is not hammered
_CLOSE_LIMIT_S = 2.0  # after an early end: longest wait for the users to stop
_SURPLUS_S = 0.25  # between two looks at how many bytes are held
_READY_CONNECTIONS = 8  # opened before the first arrival of an open loop

Phase = Literal["preflight", "warm-up", "measuring", "settling"]


@dataclass(frozen=True)
class Task:
    """What a round sends, to whom. ``continuous``: ask for the token count of every chunk. ``part``: see ``ClosedLoop``."""

    endpoint: Endpoint
    workload: Workload
    leg_salt: str
    phase: Phase
    continuous: bool = True


@dataclass
class Round:
    """One pass with what it brought. ``t0``: its start, monotonic seconds."""

    task: Task
    pacer: ClosedLoop | OpenLoop
    prompts: PromptOrder
    watch: EngineWatch
    raw_limit: int = RAW_LIMIT
    t0: float = 0.0
    records: list[RequestRecord] = field(default_factory=list)
    done: int = 0
    failed: int = 0
    stalled_in_a_row: int = 0
    live: Live = field(default_factory=Live)
    _waiting: deque[Sent] = field(default_factory=deque)
    _held: int = 0
    _gather: Gather = field(default_factory=Gather)
    _templates: Templates = field(default_factory=Templates)
    _connections: list[Connection] = field(default_factory=list)
    _free: list[Connection] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.t0 = time.monotonic()
        self._target = Target.of(self.task.endpoint)
        self._prefix = f"audition-{mark(self.task.leg_salt, self.task.workload.name, self.task.phase)}"

    async def open(self) -> None:
        """Connect ahead of the start."""
        many = self.pacer.users if isinstance(self.pacer, ClosedLoop) else _READY_CONNECTIONS
        self._connections = [Connection(self._target, self._gather) for _ in range(many)]
        self._free = list(self._connections)
        await asyncio.gather(*(connection.open() for connection in self._connections))

    async def run(self, t0: float | None = None) -> None:
        """Until the pacer has no more requests, or the watch ends it. Starts now, or at ``t0`` (monotonic seconds)."""
        if t0 is not None:
            await asyncio.sleep(max(0.0, t0 - time.monotonic()))
        self.t0 = time.monotonic() if t0 is None else t0
        if isinstance(self.pacer, ClosedLoop):
            users = [self._user(self.pacer, n, c) for n, c in enumerate(self._connections)]
        else:
            users = [self._arrivals(self.pacer)]
        everyone = asyncio.gather(*(asyncio.create_task(user) for user in users))
        reading = asyncio.create_task(self._read_surplus())
        ended = asyncio.create_task(self.watch.ended.wait())
        try:
            await asyncio.wait((everyone, ended), return_when=asyncio.FIRST_COMPLETED)
            if not everyone.done():
                self.pacer.stop()
                for connection in self._connections:
                    connection.close()
                await asyncio.wait((everyone,), timeout=_CLOSE_LIMIT_S)
            if everyone.done():
                everyone.result()
        finally:
            for task in (everyone, reading, ended):
                task.cancel()
            await asyncio.gather(everyone, reading, ended, return_exceptions=True)
            for connection in self._connections:
                connection.close()

    async def read_rest(self) -> None:
        """Read the bodies that are still held."""
        while self._waiting:
            self._read_one()
            await asyncio.sleep(0)

    def tokens(self) -> int | NoData:
        """Output tokens received so far, for whoever watches."""
        return self.live.tokens(body for connection in self._connections if (body := connection.growing()) is not None)

    # -- sending --------------------------------------------------------------------------------------------------------

    async def _user(self, pacer: ClosedLoop, user: int, connection: Connection) -> None:
        """One user: sends, waits for the end, sends again. The next request is due at the end of the one before it."""
        scheduled, number = self.t0, user * pacer.part[1] + pacer.part[0]
        while True:
            index = pacer.next_index(user, time.monotonic() - self.t0)
            if index is None or self.watch.ended.is_set():
                return
            exchange, failed = await self._one(index, number, connection, scheduled)
            if exchange.sent is not None:
                pacer.began(user, exchange.sent - self.t0)
            scheduled = exchange.end
            if exchange.outcome == "refused":
                await self.watch.reachable()
                scheduled = time.monotonic()
            elif failed:
                await asyncio.sleep(_FAILURE_PAUSE_S)
                scheduled = time.monotonic()

    async def _arrivals(self, pacer: OpenLoop) -> None:
        """Send each request when it is due, whatever is still open."""
        running: set[asyncio.Task[None]] = set()
        while (due := pacer.next_due()) is not None and not self.watch.ended.is_set():
            index, at = due
            if (wait := self.t0 + at - time.monotonic()) > 0:
                await self._sleep(wait)
                if self.watch.ended.is_set():
                    break
            while len(running) >= MOST_CONNECTIONS:
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            task = asyncio.create_task(self._arrival(index, self.t0 + at))
            running.add(task)
            task.add_done_callback(running.discard)
        if running:
            await asyncio.gather(*running)

    async def _sleep(self, seconds: float) -> None:
        """Sleep, or until the watch ends the workload."""
        try:
            async with asyncio.timeout(seconds):
                await self.watch.ended.wait()
        except TimeoutError:
            return

    async def _arrival(self, index: int, scheduled: float) -> None:
        if self._free:
            connection = self._free.pop()
        else:
            connection = Connection(self._target, self._gather)
            self._connections.append(connection)
        exchange, _ = await self._one(index, 0, connection, scheduled)
        self._free.append(connection)
        if exchange.outcome == "refused":
            self.watch.suspect()

    async def _one(self, index: int, user: int, connection: Connection, scheduled: float) -> tuple[Exchange, bool]:
        """One request, stored. Returns what came back, and whether it is known to have failed."""
        task, workload = self.task, self.task.workload
        prompt = self.prompts[index]
        messages = salted_messages(prompt, salt(task.leg_salt, workload.name, task.phase, index))
        body = request_body(workload, task.endpoint.model, messages, continuous=task.continuous, tools=prompt.tools)
        request = self._target.request("POST", CHAT_PATH, body, f"{self._prefix}-{index}")
        self._gather.open += 1
        try:
            exchange = await connection.send(request, deadline_s=workload.deadline, silence_s=workload.silence)
        finally:
            self._gather.open -= 1
        return exchange, self._keep(Sent(index, user, prompt.id, scheduled, exchange, self._templates))

    # -- storing and reading --------------------------------------------------------------------------------------------

    def _keep(self, sent: Sent) -> bool:
        """Store a finished request; True when it is known to have failed. Only small bodies are looked into now."""
        exchange = sent.exchange
        size = len(exchange.raw.raw)
        failed = exchange.outcome != "ok"
        self.live.ended(exchange.raw, sent.scheduled, ok=not failed)
        if failed or size <= _SMALL_BODY:
            record = record_of(sent, self.t0)
            self.records.append(record)
            failed = record.outcome != "ok"
        else:
            self._waiting.append(sent)
            self._held += size
        self.done += 1
        self.failed += failed
        self.stalled_in_a_row = self.stalled_in_a_row + 1 if exchange.outcome in ("stalled", "deadline") else 0
        if self.stalled_in_a_row >= max(2, self.task.workload.users):
            self.watch.end("engine-hangs", f"{self.stalled_in_a_row} requests in a row got no answer in time")
        return failed

    async def _read_surplus(self) -> None:
        """Read bodies while the load runs, only when too many bytes are held: finished ones first, then those that still grow."""
        while True:
            await asyncio.sleep(_SURPLUS_S)
            while self._waiting and self._held > self.raw_limit:
                self._read_one()
                await asyncio.sleep(0)
            growing = [body for connection in self._connections if (body := connection.growing()) is not None]
            if self._held + sum(len(body.raw) for body in growing) <= self.raw_limit:
                continue
            for connection in self._connections:
                body = connection.growing()
                while body is not None and len(body.raw) > _WORTH_READING:
                    connection.settle()
                    if body is not connection.growing():
                        break
                    if body.reader is None:
                        body.reader = BodyReader(body, self._templates)
                    body.reader.advance(_AT_ONCE)
                    await asyncio.sleep(0)

    def _read_one(self) -> None:
        sent = self._waiting.popleft()
        self._held -= len(sent.exchange.raw.raw)
        self.records.append(record_of(sent, self.t0))


@contextmanager
def no_collection() -> Iterator[None]:
    """Without the cycle collector: one of its passes stops the loop for milliseconds, and hardly anything here makes cycles."""
    was = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was:
            gc.enable()
