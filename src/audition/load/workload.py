"""Runs one workload against one server and leaves its records: warm-up, counters, closed loop, counters, parsing, files.

What must not live here: how a connection works (``client``), what bytes mean (``stream``), what lessens trust (``audit``).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from audition.judge.records import ClientStats, RequestRecord, WorkloadRecord, to_json
from audition.load.arrivals import ClosedLoop
from audition.load.audit import Evidence, audit
from audition.load.chat import CHAT_PATH, Sent, record_of, request_body
from audition.load.client import Connection, Endpoint, Target
from audition.load.counters import Reading, read_at_rest
from audition.load.prompts import PromptClass, PromptOrder, mark, salt, salted_messages
from audition.load.scan import Templates
from audition.load.vitals import EngineWatch, LoopLag
from audition.observe.prometheus import CounterReset, difference
from audition.spike.model import Workload

RAW_LIMIT = 128 * 2**20  # bytes of finished bodies held unparsed; above it they are parsed while the load runs
_SMALL_BODY = 4096  # a body up to this size is parsed at once: it may be an error, and costs under 0.1 ms
_FAILURE_PAUSE_S = 0.2  # after a failed request, so that an instantly failing server is not hammered
_CLOSE_LIMIT_S = 2.0  # after an early end: longest wait for the users to stop
_PREFLIGHT_TOKENS = 8  # length of the answer that shows which options the server takes

Phase = Literal["preflight", "warm-up", "measuring", "settling"]


@dataclass(frozen=True)
class Progress:
    """Where a workload stands. ``planned`` None: until the time is over. ``elapsed_s`` of the current phase."""

    workload: str
    phase: Phase
    done: int
    planned: int | None
    failed: int
    elapsed_s: float


@dataclass
class _Round:
    """One pass of the closed loop (warm-up or measured) with what it brought."""

    phase: Phase
    pacer: ClosedLoop
    prompts: PromptClass
    t0: float
    waiting: deque[Sent] = field(default_factory=deque)
    records: list[RequestRecord] = field(default_factory=list)
    raw_bytes: int = 0
    done: int = 0
    failed: int = 0
    stalled_in_a_row: int = 0


async def run_workload(
    endpoint: Endpoint,
    workload: Workload,
    *,
    leg_salt: str,
    seed: int,
    out_dir: Path,
    alive: Callable[[], bool],
    give_up: Callable[[], bool],
    on_progress: Callable[[Progress], None] | None = None,
    raw_limit: int = RAW_LIMIT,
) -> WorkloadRecord:
    """Measure one workload; writes ``<workload>.requests.jsonl`` and ``<workload>.json`` into ``out_dir`` and returns the latter.

    ``leg_salt`` must differ for every leg; ``seed`` decides the order of the prompts and must not. ``alive`` and ``give_up`` are
    called about twice a second in a thread; ``alive`` False, refused connections for 4 s, or ``give_up`` True end the workload
    early (``complete`` False, a void caveat, open requests recorded as cancelled or dropped). Failures of requests are outcomes,
    not exceptions. Raises ValueError for a URL that is none and OSError when ``out_dir`` cannot be written.
    """
    return await _Run(endpoint, workload, leg_salt, seed, out_dir=out_dir, on_progress=on_progress, raw_limit=raw_limit).go(
        alive, give_up
    )


class _Run:
    def __init__(
        self,
        endpoint: Endpoint,
        workload: Workload,
        leg_salt: str,
        seed: int,
        *,
        out_dir: Path,
        on_progress: Callable[[Progress], None] | None,
        raw_limit: int,
    ) -> None:
        self.endpoint, self.workload, self.leg_salt, self.seed = endpoint, workload, leg_salt, seed
        self.out_dir, self.on_progress, self.raw_limit = out_dir, on_progress, raw_limit
        self.target = Target.of(endpoint)
        self.continuous = True
        self.templates = Templates()
        self.round = _Round("preflight", ClosedLoop(1, 1, None), "warmup", time.monotonic())
        self.watch: EngineWatch

    async def go(self, alive: Callable[[], bool], give_up: Callable[[], bool]) -> WorkloadRecord:
        workload = self.workload
        async with EngineWatch(self.target, alive, give_up, self._tick) as self.watch:
            await self._preflight()
            warmup = workload.users if workload.warmup is None else workload.warmup
            if warmup:
                await self._load("warm-up", ClosedLoop(min(workload.users, warmup), warmup, None), "warmup")
            before = await self._reading()
            started_at, cpu, begun = time.time(), time.process_time(), time.monotonic()
            with LoopLag() as lag:
                measured = await self._load(
                    "measuring", ClosedLoop(workload.users, workload.requests, workload.duration), workload.prompts
                )
            client = ClientStats(time.process_time() - cpu, time.monotonic() - begun, lag.p99())
            ended = (self.watch.code, self.watch.reason)
            after = await self._reading()
        while measured.waiting:
            await self._parse_one(measured)
        return self._write(measured, started_at, client, readings=(before, after), ended=ended)

    async def _reading(self) -> Reading:
        if self.watch.ended.is_set():
            return Reading(None, self.watch.reason, False)
        self.round = _Round("settling", ClosedLoop(1, 1, None), "warmup", time.monotonic())
        return await read_at_rest(self.endpoint)

    async def _preflight(self) -> None:
        """One short request that is never measured: does the server take ``continuous_usage_stats``?"""
        short = self.workload.model_copy(update={"max_tokens": min(_PREFLIGHT_TOKENS, self.workload.max_tokens)})
        messages = salted_messages(PromptOrder("warmup", self.seed)[0], salt(self.leg_salt, self.workload.name, "preflight"))
        async with Connection(self.target) as connection:
            body = request_body(short, self.endpoint.model, messages, continuous=True)
            ended = asyncio.create_task(self.watch.ended.wait())
            sending = asyncio.create_task(
                connection.send(
                    self.target.request("POST", CHAT_PATH, body),
                    deadline_s=self.workload.deadline,
                    silence_s=self.workload.silence,
                )
            )
            await asyncio.wait((ended, sending), return_when=asyncio.FIRST_COMPLETED)
            connection.close()
            ended.cancel()
            exchange = await sending
        if exchange.status in (400, 422):
            self.continuous = False

    async def _load(self, phase: Phase, pacer: ClosedLoop, prompts: PromptClass) -> _Round:
        """All users until the pacer has no more requests, or the watch ends it."""
        order = PromptOrder(prompts, self.seed)
        connections = [Connection(self.target) for _ in range(pacer.users)]
        await asyncio.gather(*(connection.open() for connection in connections))
        this = self.round = _Round(phase, pacer, prompts, time.monotonic())
        users = [asyncio.create_task(self._user(this, order, n, c)) for n, c in enumerate(connections)]
        everyone = asyncio.gather(*users)
        parser = asyncio.create_task(self._parse_surplus(this))
        ended = asyncio.create_task(self.watch.ended.wait())
        try:
            await asyncio.wait((everyone, ended), return_when=asyncio.FIRST_COMPLETED)
            if not everyone.done():
                pacer.stop()
                for connection in connections:
                    connection.close()
                await asyncio.wait((everyone,), timeout=_CLOSE_LIMIT_S)
            if everyone.done():
                everyone.result()
        finally:
            for task in (everyone, parser, ended):
                task.cancel()
            await asyncio.gather(everyone, parser, ended, return_exceptions=True)
            for connection in connections:
                connection.close()
        return this

    async def _user(self, this: _Round, order: PromptOrder, user: int, connection: Connection) -> None:
        """One user: sends, waits for the end, sends again. The next request is due at the end of the one before it."""
        workload, scheduled = self.workload, this.t0
        prefix = f"audition-{mark(self.leg_salt, workload.name, this.phase)}"
        while True:
            index = this.pacer.next_index(user, time.monotonic() - this.t0)
            if index is None or self.watch.ended.is_set():
                return
            prompt = order[index]
            messages = salted_messages(prompt, salt(self.leg_salt, workload.name, this.phase, index))
            body = request_body(workload, self.endpoint.model, messages, continuous=self.continuous)
            request = self.target.request("POST", CHAT_PATH, body, f"{prefix}-{index}")
            exchange = await connection.send(request, deadline_s=workload.deadline, silence_s=workload.silence)
            if exchange.sent is not None:
                this.pacer.began(user, exchange.sent - this.t0)
            sent = Sent(index, user, prompt.id, scheduled, exchange, self.templates)
            failed = self._keep(this, sent)
            scheduled = exchange.end
            if exchange.outcome == "refused":
                await self.watch.reachable()
                scheduled = time.monotonic()
            elif failed:
                await asyncio.sleep(_FAILURE_PAUSE_S)
                scheduled = time.monotonic()

    def _keep(self, this: _Round, sent: Sent) -> bool:
        """Store a finished request; True when it is known to have failed. Only small bodies are looked into now."""
        exchange = sent.exchange
        size = len(exchange.raw.raw)
        failed = exchange.outcome != "ok"
        if failed or size <= _SMALL_BODY:
            record = record_of(sent, this.t0)
            this.records.append(record)
            failed = record.outcome != "ok"
        else:
            this.waiting.append(sent)
            this.raw_bytes += size
        this.done += 1
        this.failed += failed
        this.stalled_in_a_row = this.stalled_in_a_row + 1 if exchange.outcome in ("stalled", "deadline") else 0
        if this.stalled_in_a_row >= max(2, self.workload.users):
            self.watch.end("engine-hangs", f"{this.stalled_in_a_row} requests in a row got no answer in time")
        return failed

    async def _parse_surplus(self, this: _Round) -> None:
        """Parse finished bodies while the load runs, only when too many bytes are held."""
        while True:
            await asyncio.sleep(0.05)
            while this.waiting and this.raw_bytes > self.raw_limit:
                await self._parse_one(this)

    async def _parse_one(self, this: _Round) -> None:
        sent = this.waiting.popleft()
        this.raw_bytes -= len(sent.exchange.raw.raw)
        this.records.append(record_of(sent, this.t0))
        await asyncio.sleep(0)

    def _tick(self) -> None:
        if self.on_progress is not None:
            this = self.round
            self.on_progress(
                Progress(self.workload.name, this.phase, this.done, this.pacer.requests, this.failed, time.monotonic() - this.t0)
            )

    def _write(
        self,
        measured: _Round,
        started_at: float,
        client: ClientStats,
        *,
        readings: tuple[Reading, Reading],
        ended: tuple[str, str],
    ) -> WorkloadRecord:
        workload, (before, after) = self.workload, readings
        records = sorted(measured.records, key=lambda record: record.index)
        counters: dict[str, float] | None = None
        missing, restarted = before.missing or after.missing, ""
        if before.snapshot is not None and after.snapshot is not None:
            change = difference(before.snapshot, after.snapshot)
            if isinstance(change, CounterReset):
                missing = restarted = change.reason
            else:
                counters = change.values
        steady = measured.pacer.steady_window()
        evidence = Evidence(
            workload=workload,
            records=records,
            counters=counters,
            counters_missing=missing,
            restarted=restarted,
            at_rest=before.at_rest and after.at_rest,
            client=client,
            ended=ended,
            continuous=self.continuous,
            steady=steady is not None,
        )
        record = WorkloadRecord(
            workload=workload.name,
            users=workload.users,
            started_at=started_at,
            wall_s=client.wall_s,
            complete=not ended[0],
            requests_file=f"{workload.name}.requests.jsonl",
            counters=counters,
            counters_missing=missing if counters is None else "",
            gauges_after=after.snapshot.gauges if after.snapshot is not None else None,
            client=client,
            caveats=audit(evidence),
            ignore_eos=workload.ignore_eos,
            requests_recorded=len(records),
            steady_window=list(steady) if steady is not None else None,
        )
        _replace(self.out_dir / record.requests_file, "".join(f"{line.to_line()}\n" for line in records))
        _replace(self.out_dir / f"{workload.name}.json", to_json(record))
        return record


def _replace(path: Path, text: str) -> None:
    """Write a file whole or not at all: to a neighbour, to the disk, then renamed."""
    part = path.with_name(f"{path.name}.part")
    with part.open("w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    part.replace(path)
