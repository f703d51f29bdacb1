"""Runs one workload against one server and leaves its records: warm-up, counters, the load itself, counters, reading, files.

What must not live here: sending (``round``, ``workers``), what bytes mean (``scan``), what lessens trust (``audit``).
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from audition.errors import BadInput
from audition.judge.records import ClientStats, RequestRecord, WorkloadRecord, to_json
from audition.load.arrivals import ClosedLoop, OpenLoop, due_times, part_of, read_trace
from audition.load.audit import Evidence, audit
from audition.load.chat import CHAT_PATH, request_body
from audition.load.client import Connection, Endpoint, Target
from audition.load.clock import ClockCheck
from audition.load.corpus import long_prompts, read_prompts
from audition.load.counters import Reading, read_at_rest
from audition.load.prompts import PromptClass, PromptOrder, salt, salted_messages, shipped
from audition.load.round import RAW_LIMIT, Phase, Round, Task, no_collection
from audition.load.telemetry import MetricsWatch, Timeline
from audition.load.vitals import EngineWatch, LoopLag
from audition.load.workers import Sum, processes_for, run_in_processes
from audition.observe.prometheus import CounterReset, difference
from audition.spike.model import Workload
from audition.units import NoData

_PREFLIGHT_TOKENS = 8  # length of the answer that shows which options the server takes
_LONG_DOCUMENTS = 4  # different long prompts made for a workload
_SURVIVAL_TOKENS = 16
_UNTOLD = NoData("not told by this phase, or by several sending processes")


@dataclass(frozen=True)
class Progress:
    """Where a workload stands. ``planned`` None: until the time is over. ``elapsed_s`` of the current phase.

    For whoever watches, not judged: ``tokens`` received so far, ``ttft_p50_s`` over the requests that ended, ``counters`` of
    speculative decoding since the phase began (empty: not read yet, or the engine has none).
    """

    workload: str
    phase: Phase
    done: int
    planned: int | None
    failed: int
    elapsed_s: float
    tokens: int | NoData = _UNTOLD
    ttft_p50_s: float | NoData = _UNTOLD
    counters: Mapping[str, float] = field(default_factory=dict)


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
    base: Path = Path("."),
) -> WorkloadRecord:
    """Measure one workload; writes ``<workload>.requests.jsonl``, ``<workload>.telemetry.jsonl`` and ``<workload>.json`` into
    ``out_dir`` and returns the last.

    ``leg_salt`` must differ for every leg; ``seed`` decides the order of the prompts and the arrivals, and must not. ``base``:
    folder that the workload's file names start from. ``alive`` and ``give_up`` are called about twice a second in a thread;
    ``alive`` False, refused connections for 4 s, or ``give_up`` True end the workload early (``complete`` False, a void caveat,
    open requests recorded as cancelled or dropped). Failures of requests are outcomes, not exceptions. Raises ValueError for a
    URL that is none, BadInput for prompts or a trace that cannot be read or made, InternalError when a sending process breaks,
    and OSError when ``out_dir`` cannot be written.
    """
    run = _Run(endpoint, workload, leg_salt, seed, out_dir=out_dir, on_progress=on_progress, raw_limit=raw_limit, base=base)
    return await run.go(alive, give_up)


def check_inputs(workload: Workload, base: Path) -> None:
    """Read the files that a workload names, before anything is touched. Raises BadInput as ``run_workload`` would."""
    if workload.prompts_file is not None:
        read_prompts(base / workload.prompts_file)
    _trace(workload, base)


def _trace(workload: Workload, base: Path) -> list[float] | None:
    if workload.trace is None:
        return None
    path = base / workload.trace
    try:
        return read_trace(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(
            f"the trace {path} cannot be used: {error}", next_step='write one time in seconds on each line, or {"at": seconds}'
        ) from error


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
        base: Path,
    ) -> None:
        self.endpoint, self.workload, self.leg_salt, self.seed = endpoint, workload, leg_salt, seed
        self.out_dir, self.on_progress, self.raw_limit, self.base = out_dir, on_progress, raw_limit, base
        self.target = Target.of(endpoint)
        self.continuous = True
        self.now: tuple[Phase, int, int | None, int, float] = ("preflight", 0, None, 0, time.monotonic())
        self.round: Round | None = None
        self.survived: bool | None = None
        self.drafting: Callable[[], Mapping[str, float]] = dict
        self.watch: EngineWatch

    async def go(self, alive: Callable[[], bool], give_up: Callable[[], bool]) -> WorkloadRecord:
        workload = self.workload
        times = self._times()
        own = read_prompts(self.base / workload.prompts_file) if workload.prompts_file is not None else None
        async with EngineWatch(self.endpoint.url, alive, give_up, self._tick) as self.watch:
            await self._preflight()
            if own is None and workload.prompt_tokens is not None and not self.watch.ended.is_set():
                own = await long_prompts(self.endpoint, workload.prompt_tokens, _LONG_DOCUMENTS, self.seed)
            kind = cast(PromptClass, workload.prompts)
            prompts = PromptOrder(own if own is not None else shipped(kind), self.seed, workload.prompts_file or workload.prompts)
            await self._warm_up(times)
            before = await self._reading()
            started_at, begun, clock = time.time(), time.monotonic(), ClockCheck()
            async with MetricsWatch(self.endpoint) as metrics:
                self.drafting = lambda: _grown(before, metrics)
                measured = await self._measured(prompts, times)
                self._tick()
            wall, clock_trouble = time.monotonic() - begun, clock.trouble()
            client = ClientStats(measured.cpu_s, wall, measured.loop_lag_p99, self._processes())
            ended = (self.watch.code, self.watch.reason) if self.watch.code else measured.ended
            after = await self._reading()
            await self._survive()
        if self.round is not None:
            await self.round.read_rest()
            measured.records = self.round.records
        timeline = metrics.timeline(measured.t0, before.snapshot, after.snapshot, wall)
        return self._write(
            measured, started_at, client, readings=(before, after), ended=ended, timeline=timeline, clock_trouble=clock_trouble
        )

    # -- the parts of a run ---------------------------------------------------------------------------------------------

    def _times(self) -> list[float] | None:
        """Due times of an open loop, None for a closed one. Raises BadInput for a trace that cannot be read."""
        workload = self.workload
        if workload.rate is not None:
            return list(
                due_times(
                    workload.rate, workload.arrivals, burstiness=workload.burstiness, seed=self.seed,
                    requests=workload.requests, duration=workload.duration,
                )
            )  # fmt: skip
        return _trace(workload, self.base)

    def _processes(self) -> int:
        workload = self.workload
        users = workload.users if not workload.open_loop else workload.processes or 1
        return processes_for(users, workload.processes)

    async def _reading(self) -> Reading:
        if self.watch.ended.is_set():
            return Reading(None, self.watch.reason, False)
        self.now = ("settling", 0, None, 0, time.monotonic())
        return await read_at_rest(self.endpoint)

    async def _short_request(self, workload: Workload, mark: str, *, continuous: bool) -> tuple[str, int | None]:
        """One request that is never measured, cut when the watch ends the workload. Returns its outcome and HTTP status."""
        messages = salted_messages(PromptOrder.of("warmup", self.seed)[0], salt(self.leg_salt, workload.name, mark))
        async with Connection(self.target) as connection:
            body = request_body(workload, self.endpoint.model, messages, continuous=continuous)
            ended = asyncio.create_task(self.watch.ended.wait())
            request = self.target.request("POST", CHAT_PATH, body)
            sending = asyncio.create_task(connection.send(request, deadline_s=workload.deadline, silence_s=workload.silence))
            await asyncio.wait((ended, sending), return_when=asyncio.FIRST_COMPLETED)
            connection.close()
            ended.cancel()
            exchange = await sending
        return exchange.outcome, exchange.status

    async def _preflight(self) -> None:
        """Does the server take ``continuous_usage_stats``?"""
        short = self.workload.model_copy(update={"max_tokens": min(_PREFLIGHT_TOKENS, self.workload.max_tokens)})
        _, status = await self._short_request(short, "preflight", continuous=True)
        if status in (400, 422):
            self.continuous = False

    async def _survive(self) -> None:
        """After the last request a short one must be answered, where the workload asks for that."""
        if self.workload.survival and not self.watch.ended.is_set():
            short = self.workload.model_copy(update={"max_tokens": _SURVIVAL_TOKENS})
            outcome, _ = await self._short_request(short, "survival", continuous=False)
            self.survived = outcome == "ok"

    async def _warm_up(self, times: list[float] | None) -> None:
        """Requests at the measured concurrency with prompts that are never measured."""
        workload = self.workload
        many = workload.users if workload.warmup is None else workload.warmup
        if not many or self.watch.ended.is_set():
            return
        users = min(workload.users if times is None else many, many)
        pacer = ClosedLoop(users, many, None)
        this = self._round("warm-up", pacer, PromptOrder.of("warmup", self.seed), many)
        await this.open()
        await this.run()
        self.round = None

    def _round(self, phase: Phase, pacer: ClosedLoop | OpenLoop, prompts: PromptOrder, planned: int | None) -> Round:
        task = Task(self.endpoint, self.workload, self.leg_salt, phase, self.continuous)
        self.now = (phase, 0, planned, 0, time.monotonic())
        self.round = Round(task, pacer, prompts, self.watch, self.raw_limit)
        return self.round

    async def _measured(self, prompts: PromptOrder, times: list[float] | None) -> Sum:
        """The measured part, in this process or in several."""
        workload = self.workload
        planned = len(times) if times is not None else workload.requests
        if self._processes() > 1:
            self.now = ("measuring", 0, planned, 0, time.monotonic())

            def progress(done: int, failed: int) -> None:
                self.now = ("measuring", done, planned, failed, self.now[4])

            task = Task(self.endpoint, workload, self.leg_salt, "measuring", self.continuous)
            return await run_in_processes(
                task, prompts, times, processes=self._processes(), folder=self.out_dir, watch=self.watch, on_progress=progress
            )
        if times is None:
            pacer: ClosedLoop | OpenLoop = ClosedLoop(workload.users, workload.requests, workload.duration)
        else:
            pacer = OpenLoop(part_of(iter(times), (0, 1)), len(times))
        this = self._round("measuring", pacer, prompts, planned)
        cpu = time.process_time()
        with no_collection(), LoopLag() as lag:
            await this.open()
            await this.run()
        return Sum(this.t0, this.records, pacer.steady_window(), time.process_time() - cpu, lag.p99())

    def _tick(self) -> None:
        if self.on_progress is None:
            return
        phase, done, planned, failed, since = self.now
        elapsed, seen = time.monotonic() - since, self.round
        if seen is None:
            self.on_progress(Progress(self.workload.name, phase, done, planned, failed, elapsed))
            return
        now = Progress(
            self.workload.name, phase, seen.done, planned, seen.failed, elapsed, seen.tokens(),
            seen.live.ttft_p50(), self.drafting(),
        )  # fmt: skip
        self.on_progress(now)

    # -- what is left on disk -------------------------------------------------------------------------------------------

    def _write(
        self,
        measured: Sum,
        started_at: float,
        client: ClientStats,
        *,
        readings: tuple[Reading, Reading],
        ended: tuple[str, str],
        timeline: Timeline,
        clock_trouble: str,
    ) -> WorkloadRecord:
        workload, (before, after) = self.workload, readings
        records = sorted(measured.records, key=lambda record: record.index)
        if [record.index for record in records] != list(range(len(records))):
            records = [replace(record, index=number) for number, record in enumerate(records)]  # cut short in an open loop
        counters: dict[str, float] | None = None
        missing, restarted = before.missing or after.missing, timeline.restarted
        if before.snapshot is not None and after.snapshot is not None:
            change = difference(before.snapshot, after.snapshot)
            if isinstance(change, CounterReset):
                missing = restarted = change.reason
            elif restarted:
                missing = restarted
            else:
                counters = change.values
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
            steady=measured.window is not None,
            timeline=timeline,
            clock_trouble=clock_trouble,
            survived=self.survived,
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
            steady_window=list(measured.window) if measured.window is not None else None,
        )
        self._leave(record, records, timeline)
        return record

    def _leave(self, record: WorkloadRecord, records: list[RequestRecord], timeline: Timeline) -> None:
        rows = [point.as_row() for point in timeline.points] + [{"minute": n, **m.as_row()} for n, m in enumerate(timeline.minutes)]
        _replace(self.out_dir / f"{record.workload}.telemetry.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
        _replace(self.out_dir / record.requests_file, "".join(f"{line.to_line()}\n" for line in records))
        _replace(self.out_dir / f"{record.workload}.json", to_json(record))


def _grown(before: Reading, metrics: MetricsWatch) -> Mapping[str, float]:
    """How much the counters of speculative decoding grew since the reading at rest, as far as the last reading tells."""
    if before.snapshot is None:
        return {}
    start = before.snapshot.counters
    return {name: value - start[name] for name, value in metrics.drafting.items() if name in start}


def _replace(path: Path, text: str) -> None:
    """Write a file whole or not at all: to a neighbour, to the disk, then renamed."""
    part = path.with_name(f"{path.name}.part")
    with part.open("w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    part.replace(path)
