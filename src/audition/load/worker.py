"""A process that sends a part of a workload, for loads that are too much for one core. Started by ``workers``; speaks JSON lines.

In: the job; then ``{"t0": seconds}`` once all processes are ready; then nothing until its end, or the end of input: give up.
Out: ``{"ready": true}``, ``{"done": n, "failed": n}`` now and then, and at last ``{"ended": ...}`` when the records are written.

What must not live here: putting the parts together.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from audition.load.arrivals import ClosedLoop, OpenLoop, part_of
from audition.load.prompts import Prompt, PromptOrder
from audition.load.round import Round, Task, no_collection
from audition.load.vitals import EngineWatch, LoopLag
from audition.spike.model import Workload


@dataclass(frozen=True)
class Address:
    """Where the server answers."""

    url: str
    model: str
    api_key: str | None


def job_of(task: Task, prompts: PromptOrder, times: list[float] | None, *, part: tuple[int, int], users: int, out: Path) -> str:
    """The job of one process as one line."""
    endpoint = task.endpoint
    job = {
        "endpoint": [endpoint.url, endpoint.model, endpoint.api_key],
        "workload": task.workload.model_dump(exclude_unset=True),
        "leg_salt": task.leg_salt,
        "phase": task.phase,
        "continuous": task.continuous,
        "prompts": [[p.id, p.language, p.messages, p.tools] for p in prompts.prompts],
        "order": [prompts.seed, prompts.name],
        "times": times,
        "part": part,
        "users": users,
        "out": str(out),
    }
    return json.dumps(job)


def _say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


async def _work(job: dict[str, Any]) -> None:
    task = Task(
        Address(*job["endpoint"]), Workload.model_validate(job["workload"]), job["leg_salt"], job["phase"], job["continuous"]
    )
    prompts = PromptOrder([Prompt(i, lang, tuple(m), tuple(t)) for i, lang, m, t in job["prompts"]], *job["order"])
    part = (job["part"][0], job["part"][1])
    pacer: ClosedLoop | OpenLoop
    if job["times"] is None:
        pacer = ClosedLoop(job["users"], task.workload.requests, task.workload.duration, part)
    else:
        pacer = OpenLoop(part_of(iter(job["times"]), part), len(job["times"]))
    stopped = threading.Event()
    loop = asyncio.get_running_loop()
    start: asyncio.Future[float] = loop.create_future()
    threading.Thread(target=_listen, args=(loop, start, stopped), daemon=True).start()
    this: Round | None = None

    def tick() -> None:
        if this is not None:
            _say(done=this.done, failed=this.failed)

    async with EngineWatch(task.endpoint.url, lambda: True, stopped.is_set, tick) as watch:
        this = Round(task, pacer, prompts, watch)
        await this.open()
        _say(ready=True)
        t0 = await start
        cpu = time.process_time()
        with no_collection(), LoopLag() as lag:
            await this.run(t0)
        cpu, window = time.process_time() - cpu, pacer.steady_window()
        ended = [watch.code, watch.reason]
        watch.end("over", "")
        await this.read_rest()
    _leave(Path(job["out"]), this)
    _say(ended=ended, window=window, cpu=cpu, lag=lag.p99())


def _leave(out: Path, this: Round) -> None:
    out.write_text("".join(f"{record.to_line()}\n" for record in this.records), encoding="utf-8")


def _listen(loop: asyncio.AbstractEventLoop, start: asyncio.Future[float], stopped: threading.Event) -> None:
    """Read the start from standard input, then wait for its end."""
    for line in sys.stdin:
        t0 = float(json.loads(line)["t0"])
        loop.call_soon_threadsafe(start.set_result, t0)
    stopped.set()
    loop.call_soon_threadsafe(_never_started, start)


def _never_started(start: asyncio.Future[float]) -> None:
    if not start.done():
        start.set_result(time.monotonic())


def main() -> int:
    """Do one job."""
    uvloop.run(_work(json.loads(sys.stdin.readline())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
