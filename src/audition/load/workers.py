"""Sends a workload from several processes at once and puts what they bring into one set of records.

What must not live here: sending (see ``round``), what a process does (see ``worker``).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from audition.errors import InternalError
from audition.judge.records import RequestRecord
from audition.load.arrivals import common_window
from audition.load.prompts import PromptOrder
from audition.load.round import Task
from audition.load.vitals import EngineWatch
from audition.load.worker import job_of

USERS_PER_PROCESS = 1024
"""Users of one process when the workload does not say: at 40 tokens a second each, 41,000 tokens a second, half a core at 12
microseconds a token."""

_READY_LIMIT_S = 60.0  # longest wait for the processes to be ready; a start takes a second
_LEAD_S = 0.25  # from ready to the common start
_END_LIMIT_S = 30.0  # after an early end: longest wait for a process to write its records


@dataclass
class Sum:
    """What all processes brought. ``ended``: code and reason of an early end that one of them saw, ("", "") without one."""

    t0: float
    records: list[RequestRecord] = field(default_factory=list)
    window: tuple[float, float] | None = None
    cpu_s: float = 0.0
    loop_lag_p99: float | None = None
    ended: tuple[str, str] = ("", "")


def processes_for(users: int, asked: int | None) -> int:
    """How many processes send: as asked, else one for every USERS_PER_PROCESS, but never more than there are users or cores."""
    if asked is not None:
        return max(1, min(asked, users))
    return max(1, min(-(-users // USERS_PER_PROCESS), os.cpu_count() or 1))


async def run_in_processes(
    task: Task,
    prompts: PromptOrder,
    times: list[float] | None,
    *,
    processes: int,
    folder: Path,
    watch: EngineWatch,
    on_progress: Callable[[int, int], None],
) -> Sum:
    """Send the workload from so many processes. ``times``: due times of an open loop, None: closed loop. Their records pass through
    files in ``folder``. Raises InternalError when a process does not start or breaks."""
    users = task.workload.users
    jobs, parts = [], []
    for number in range(processes):
        part = folder / f".{task.workload.name}.part-{number}.jsonl"
        mine = len(range(number, users, processes))
        jobs.append(job_of(task, prompts, times, part=(number, processes), users=mine, out=part))
        parts.append(part)
    crew = [await _Member.start(job) for job in jobs]
    try:
        await asyncio.wait_for(asyncio.gather(*(member.ready() for member in crew)), _READY_LIMIT_S)
        whole = Sum(time.monotonic() + _LEAD_S)
        for member in crew:
            member.tell({"t0": whole.t0})
        await _until_all_end(crew, watch, on_progress)
        _merge(whole, crew, parts)
    except (TimeoutError, ValueError, OSError) as error:
        raise InternalError(f"a process that sends requests broke: {error or type(error).__name__}") from error
    finally:
        for member in crew:
            await member.stop()
        for part in parts:
            part.unlink(missing_ok=True)
    return whole


async def _until_all_end(crew: list[_Member], watch: EngineWatch, on_progress: Callable[[int, int], None]) -> None:
    """Wait for all; as soon as the watch or one of them sees an early end, tell the others to stop."""

    def said() -> None:
        on_progress(sum(member.done for member in crew), sum(member.failed for member in crew))

    reading = [asyncio.create_task(member.read(said)) for member in crew]
    ended: asyncio.Task[Any] = asyncio.create_task(watch.ended.wait())
    pending: set[asyncio.Task[Any]] = {*reading, ended}
    try:
        while any(not task.done() for task in reading):
            limit = _END_LIMIT_S if ended.done() or any(m.ended_early for m in crew) else None
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED, timeout=limit)
            if not done:
                raise TimeoutError("no end within 30 s after it was told to stop")
            if ended.done() or any(m.ended_early for m in crew):
                for member in crew:
                    member.give_up()
        for task in reading:
            task.result()
    finally:
        for task in (*reading, ended):
            task.cancel()
        await asyncio.gather(*reading, ended, return_exceptions=True)


def _merge(whole: Sum, crew: list[_Member], parts: list[Path]) -> None:
    for part in parts:
        with part.open(encoding="utf-8") as lines:
            whole.records += [RequestRecord.from_line(line) for line in lines]
    whole.records.sort(key=lambda record: record.index)
    if [record.index for record in whole.records] != list(range(len(whole.records))):
        # After an early end, or a limit in time, the parts have given out numbers unevenly: number anew in the order of sending.
        whole.records.sort(key=lambda record: (record.scheduled, record.index))
        whole.records = [replace(record, index=number) for number, record in enumerate(whole.records)]
    ends = [member.end for member in crew]
    whole.window = common_window([tuple(end["window"]) if end["window"] else None for end in ends])
    whole.cpu_s = sum(end["cpu"] for end in ends)
    whole.loop_lag_p99 = max((end["lag"] for end in ends if end["lag"] is not None), default=None)
    early = [end["ended"] for end in ends if end["ended"][0] not in ("", "given-up")] or [e["ended"] for e in ends if e["ended"][0]]
    whole.ended = (early[0][0], early[0][1]) if early else ("", "")


class _Member:
    """One process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.done = self.failed = 0
        self.end: dict[str, Any] = {}

    @staticmethod
    async def start(job: str) -> _Member:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "audition.load.worker", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            limit=2**20,
        )  # fmt: skip
        member = _Member(process)
        assert process.stdin is not None
        process.stdin.write(job.encode() + b"\n")
        return member

    @property
    def ended_early(self) -> bool:
        return bool(self.end) and bool(self.end["ended"][0])

    def tell(self, what: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what).encode() + b"\n")

    def give_up(self) -> None:
        if self._process.stdin is not None and not self._process.stdin.is_closing():
            self._process.stdin.close()

    async def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise ValueError(f"it ended with exit code {await self._process.wait()} before its work was done")
        said = json.loads(line)
        if not isinstance(said, dict):
            raise ValueError(f"it said {line[:80]!r}")
        return said

    async def ready(self) -> None:
        while "ready" not in await self._line():
            pass

    async def read(self, on_progress: Callable[[], None]) -> None:
        while True:
            said = await self._line()
            if "ended" in said:
                self.end = said
                return
            self.done, self.failed = said.get("done", 0), said.get("failed", 0)
            on_progress()

    async def stop(self) -> None:
        """Make sure that it is gone."""
        self.give_up()
        try:
            await asyncio.wait_for(self._process.wait(), 2.0)
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
