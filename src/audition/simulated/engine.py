"""The scheduler: one loop of continuous batching whose steps take the time the model states.

Each step gives every decoding sequence 1 token (and its accepted drafts), computes prompt tokens within the budget of
--max-num-batched-tokens, admits waiting requests up to --max-num-seqs and the KV cache, and preempts the youngest
when the cache is full. Blocks for a whole prompt are taken at admission. Planned times follow each other exactly, so a
late step does not slow the ones after it; after more than SLIP_S of delay the plan starts anew.

What must not live here: HTTP, JSON, texts, processes.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from audition.simulated.answers import Part, Script
from audition.simulated.injection import Injector, Sabotage
from audition.simulated.kv import KvCache, PrefixCache
from audition.simulated.metrics import Metrics
from audition.simulated.settings import Settings
from audition.simulated.timing import accepted_drafts, step_seconds

SLIP_S = 0.5
FINE_S = 0.001  # event-loop timers are about this coarse; the rest is slept exactly


class Sink(Protocol):
    """Where the tokens of one request go. `planned` is on the clock of time.monotonic, in seconds."""

    def deliver(self, parts: list[Part], tokens: int, planned: float, finish: str | None) -> None:
        """Take the tokens of one step; `finish` is the finish_reason when they are the last."""

    def fail(self, message: str, finish: str = "error") -> None:
        """The engine cannot go on with this request; `finish` is how the truth log calls its end."""


class Job:
    """One request inside the engine."""

    __slots__ = (
        "admitted", "arrival", "blocks", "cached", "computed", "draws", "finished", "first_token", "generated", "hashes",
        "last_token", "max_tokens", "preemptions", "prompt_tokens", "sabotage", "script", "sink", "stop", "tail", "target",
    )  # fmt: skip

    def __init__(
        self, script: Script, sink: Sink, prompt_tokens: int, max_tokens: int, *, hashes: Sequence[int],
        draws: Random, stop: Sequence[str], sabotage: Sabotage,
    ) -> None:  # fmt: skip
        self.script = script
        self.sink = sink
        self.prompt_tokens = prompt_tokens
        self.max_tokens = max_tokens
        self.hashes = hashes
        self.draws = draws
        self.stop = stop
        self.sabotage = sabotage
        self.arrival = time.monotonic()
        self.admitted = self.first_token = self.last_token = 0.0
        self.target = prompt_tokens  # tokens to compute before the next one can be generated
        self.computed = 0
        self.generated = self.blocks = self.cached = self.preemptions = 0
        self.tail = ""
        self.finished = False


@dataclass(slots=True)
class Step:
    """The work of one step: who decodes, and how many prompt tokens each prefilling job computes."""

    decoding: list[Job]
    prefill: list[tuple[Job, int]]


class Engine:
    """The engine of one server."""

    def __init__(
        self, settings: Settings, injector: Injector, *, rates: Sequence[float], max_num_seqs: int, budget: int,
        prefix_caching: bool, die: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.settings = settings
        self.injector = injector
        self.rates = rates
        self.drafted = len(rates)
        self.max_num_seqs = max_num_seqs
        self.budget = budget
        self.metrics = Metrics(self.drafted)
        self.kv = KvCache(settings.kv_tokens, settings.block_size)
        self.prefix = PrefixCache(settings.block_size, self.kv.total, bool(rates)) if prefix_caching else None
        self.running: list[Job] = []
        self.waiting: deque[Job] = deque()
        self.held: set[Job] = set()  # stalled or hanging, by a fault
        self.context = 0  # tokens in the KV cache, over all running jobs
        self.steps = 0
        self.paused = False
        self.quiet = asyncio.Event()
        self.drained = asyncio.Event()
        self.drained.set()
        self._die = die
        self._awake = asyncio.Event()
        self._jitter = Random(f"{settings.seed}\x00jitter")

    def submit(self, job: Job) -> None:
        """Take a request in."""
        self.drained.clear()
        if job.sabotage.hang:
            self.held.add(job)
            return
        self.waiting.append(job)
        self._awake.set()

    def abort(self, job: Job) -> None:
        """The client has gone: forget its request and count it as aborted."""
        if not job.finished:
            self._close(job, "abort")

    def jobs(self) -> list[Job]:
        """Every unfinished request."""
        return [*self.running, *self.waiting, *self.held]

    def pause(self) -> None:
        """Stop after the current step; `quiet` is set when it is over."""
        self.quiet.clear()
        self.paused = True
        self._awake.set()

    def resume(self) -> None:
        """Go on where `pause` stopped."""
        self.paused = False
        self._awake.set()

    async def run(self) -> None:
        """Step for ever, sleeping while there is nothing to do."""
        planned = time.monotonic()
        while True:
            step = None if self.paused else self._plan()
            if step is None:
                self._awake.clear()
                self.quiet.set()
                await self._awake.wait()
                self.quiet.clear()
                planned = time.monotonic()
                continue
            planned += self._duration(step)
            await self._sleep_until(planned)
            if time.monotonic() - planned > SLIP_S:
                planned = time.monotonic()
            self._emit(step, planned)

    async def _sleep_until(self, planned: float) -> None:
        delay = planned - time.monotonic()
        await asyncio.sleep(max(0.0, delay))
        rest = planned - time.monotonic()
        if 0 < rest < FINE_S:
            time.sleep(rest)  # noqa: ASYNC251  (below the resolution of the loop's timers)
        elif rest > 0:
            await self._sleep_until(planned)

    def _duration(self, step: Step) -> float:
        prefilled = sum(tokens for _, tokens in step.prefill)
        seconds = step_seconds(self.settings, len(step.decoding), self.context, prefilled, self.drafted)
        self.steps += 1
        if self.steps <= self.settings.cold_steps:
            seconds *= self.settings.cold_factor
        if self.settings.step_jitter:
            seconds *= max(0.1, self._jitter.gauss(1.0, self.settings.step_jitter))
        return seconds

    def _plan(self) -> Step | None:
        """Decide the work of the next step, or None when there is none."""
        self._grow()
        decoding, prefill = [], []
        budget = self.budget
        for job in self.running:
            if job.computed >= job.target:
                decoding.append(job)
                budget -= 1 + self.drafted
        for job in self.running:
            if job.computed < job.target and budget > 0:
                tokens = min(budget, job.target - job.computed)
                prefill.append((job, tokens))
                budget -= tokens
        while self.waiting and budget > 0 and len(self.running) < self.max_num_seqs:
            job = self.waiting[0]
            if not self._admit(job):
                break
            tokens = min(budget, job.target - job.computed)
            prefill.append((job, tokens))
            budget -= tokens
        return Step(decoding, prefill) if decoding or prefill else None

    def _admit(self, job: Job) -> bool:
        blocks = min(self.kv.blocks_for(job.target + 1 + self.drafted), self.kv.total)
        if blocks > self.kv.free:
            return False
        self.waiting.popleft()
        self.running.append(job)
        self.kv.free -= blocks
        job.blocks = blocks
        if not job.admitted:
            job.admitted = time.monotonic()
            self.metrics.queue.observe(job.admitted - job.arrival)
        job.computed = 0
        if self.prefix is not None:
            job.computed = job.cached = self.prefix.lookup(job.hashes, job.prompt_tokens)
            if not job.preemptions:
                self.metrics.prefix_queries += job.prompt_tokens
                self.metrics.prefix_hits += job.cached
                self.metrics.cached_tokens += job.cached
        self.context += job.computed
        return True

    def _grow(self) -> None:
        """Give every decoding job room for its next tokens; preempt the youngest while there is none."""
        size = self.kv.block_size
        for job in list(self.running):
            need = job.prompt_tokens + job.generated + 1 + self.drafted
            if need <= job.blocks * size or job.computed < job.target:
                continue
            wanted = min(self.kv.blocks_for(need), self.kv.total) - job.blocks
            while wanted > self.kv.free and job in self.running:
                self._preempt(self.running[-1])
            if job in self.running and wanted > 0:
                self.kv.free -= wanted
                job.blocks += wanted

    def _preempt(self, job: Job) -> None:
        self._release(job)
        self.metrics.preemptions += 1
        job.preemptions += 1
        job.target = job.prompt_tokens + job.generated
        self.waiting.appendleft(job)

    def _release(self, job: Job) -> None:
        self.running.remove(job)
        self.kv.free += job.blocks
        self.context -= job.computed
        job.blocks = job.computed = 0

    def _emit(self, step: Step, planned: float) -> None:
        """Carry the step out at its planned end."""
        metrics, rates = self.metrics, self.rates
        if self.injector.collapse_after is not None and metrics.generation_tokens >= self.injector.collapse_after:
            rates = ()
        for job, tokens in step.prefill:
            if job.finished:
                continue
            job.computed += tokens
            self.context += tokens
            if job.computed >= job.target:
                self._prefilled(job)
                self._generate(job, 1, planned)
        for job in step.decoding:
            if job.finished:
                continue
            accepted = 0
            if self.drafted:
                accepted = accepted_drafts(job.draws.random(), rates)
                metrics.drafts += 1
                metrics.draft_tokens += self.drafted
                for position in range(accepted):
                    metrics.accepted_per_position[position] += 1
            self._generate(job, 1 + accepted, planned)
        mode = self.injector.death(metrics.generation_tokens)
        if mode is not None:
            self._die(mode)

    def _prefilled(self, job: Job) -> None:
        if job.generated:
            return  # recomputed after a preemption: counted already
        self.metrics.prompt_tokens += job.prompt_tokens
        if self.prefix is not None:
            self.prefix.remember(job.hashes)

    def _generate(self, job: Job, tokens: int, planned: float) -> None:
        """Give the job its tokens of this step, and finish it when they are its last."""
        now = time.monotonic()
        parts = job.script.take(min(tokens, job.max_tokens - job.generated))
        number = sum(part[2] for part in parts)
        finish = None
        if job.script.exhausted:
            finish = job.script.finish
        elif job.generated + number >= job.max_tokens:
            finish = "length"
        if job.stop and finish is None:
            finish = _apply_stop(job, parts)
        if job.generated:
            self.metrics.inter_token.observe(now - job.last_token)
        else:
            job.first_token = now
            self.metrics.ttft.observe(now - job.arrival)
        job.generated += number
        job.computed += number
        job.target += number
        job.last_token = now
        self.context += number
        self.metrics.generation_tokens += number
        if self._sabotaged(job):
            return
        job.sink.deliver(parts, number, planned, finish)
        if finish is not None:
            self._close(job, "stop" if finish == "tool_calls" else finish)

    def _sabotaged(self, job: Job) -> bool:
        """Whether a fault takes this job out of the loop now."""
        stall, error = job.sabotage.stall_after, job.sabotage.error_after
        if stall is not None and job.generated > stall:
            self._release(job)
            self.held.add(job)
            return True
        if error is not None and job.generated > error:
            job.sink.fail("EngineCore encountered an issue. See stack trace (above) for the root cause.")
            self._close(job, "error")
            return True
        return False

    def _close(self, job: Job, reason: str) -> None:
        """Forget a job and count how it ended."""
        job.finished = True
        if job in self.running:
            self._release(job)
        elif job in self.held:
            self.held.discard(job)
        else:
            self.waiting.remove(job)
        if not self.jobs():
            self.drained.set()
        self._awake.set()
        metrics = self.metrics
        metrics.finished[reason] += 1
        if not job.first_token or reason == "abort":
            return
        metrics.request_prompt.observe(job.prompt_tokens)
        metrics.request_generation.observe(job.generated)
        metrics.e2e.observe(job.last_token - job.arrival)
        metrics.prefill.observe(job.first_token - job.admitted)
        metrics.decode.observe(job.last_token - job.first_token)
        if job.generated > 1:
            metrics.time_per_output_token.observe((job.last_token - job.first_token) / (job.generated - 1))


def _apply_stop(job: Job, parts: list[Part]) -> str | None:
    """Look for a stop string in the visible answer; cut the last part before it. Text already sent is not recalled."""
    for at, (kind, text, tokens) in enumerate(parts):
        if kind != "content":
            continue
        seen = job.tail + text
        hits = [place for place in (seen.find(stop) for stop in job.stop) if place >= 0]
        if hits:
            parts[at] = (kind, seen[len(job.tail) : max(min(hits), len(job.tail))], tokens)
            del parts[at + 1 :]
            return "stop"
        job.tail = seen[-64:]
    return None
