"""The scheduler in process, under a crowd of requests: nothing is lost, counted twice or left behind."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from audition.simulated.answers import Ask, Part, compose
from audition.simulated.engine import Engine, Job
from audition.simulated.injection import Injector, Sabotage
from audition.simulated.settings import Settings


class Collector:
    """Takes the tokens of one job and notes what happened."""

    def __init__(self) -> None:
        self.tokens = 0
        self.text = ""
        self.finish: str | None = None
        self.planned: list[float] = []

    def deliver(self, parts: list[Part], tokens: int, planned: float, finish: str | None) -> None:
        assert self.finish is None
        self.tokens += tokens
        self.text += "".join(part[1] for part in parts)
        self.planned.append(planned)
        self.finish = finish

    def fail(self, message: str, finish: str = "error") -> None:
        self.finish = finish


def no_death(mode: str) -> None:
    raise AssertionError(mode)


def engine_of(settings: Settings, rates: tuple[float, ...], prefix_caching: bool = False) -> Engine:
    return Engine(settings, Injector(settings), rates=rates, max_num_seqs=8, budget=64, prefix_caching=prefix_caching, die=no_death)


def job_of(settings: Settings, engine: Engine, number: int, rng: Random) -> tuple[Job, Collector]:
    sink = Collector()
    prompt = f"question {number % 7} " + "word " * rng.randrange(1, 150)
    ask = Ask(last_user=prompt, thinking=False, reasoning_parsed=True, max_tokens=200, ignore_eos=number % 3 == 0)
    hashes = engine.prefix.hashes(prompt) if engine.prefix else ()
    length = prompt.count(" ")
    script = compose(settings, ask, prompt)
    job = Job(
        script, sink, length, rng.randrange(1, 200), hashes=hashes, draws=Random(number), stop=(), sabotage=Sabotage()
    )  # fmt: skip
    return job, sink


@pytest.mark.parametrize(("rates", "caching"), [((), False), ((0.85, 0.7, 0.55), False), ((0.5, 0.2), True)])
def test_a_crowd_is_served_without_a_trace(rates: tuple[float, ...], caching: bool) -> None:
    settings = Settings(
        step_base_ms=0.01, step_per_seq_ms=0, draft_ms=0, draft_per_seq_ms=0, prefill_tokens_s=1e9, kv_tokens=640,
        answer_tokens=60,
    )  # fmt: skip
    rng = Random(str(rates))

    async def serve() -> tuple[Engine, list[tuple[Job, Collector]]]:
        engine = engine_of(settings, rates, caching)
        loop = asyncio.get_running_loop()
        task = loop.create_task(engine.run())
        jobs = [job_of(settings, engine, number, rng) for number in range(60)]
        for at, (job, _) in enumerate(jobs):
            engine.submit(job)
            if at % 10 == 9:
                await asyncio.sleep(0.001)
                engine.abort(jobs[at - 3][0])
        await asyncio.wait_for(engine.drained.wait(), 20)
        task.cancel()
        return engine, jobs

    engine, jobs = asyncio.run(serve())
    assert engine.kv.free == engine.kv.total
    assert engine.context == 0
    assert engine.jobs() == []
    assert engine.metrics.preemptions > 0
    finished = [(job, sink) for job, sink in jobs if sink.finish is not None]
    assert len(finished) >= 54
    assert sum(sink.tokens for _, sink in jobs) == engine.metrics.generation_tokens
    assert sum(engine.metrics.finished.values()) == 60
    for job, sink in finished:
        assert sink.tokens == job.generated <= job.max_tokens
        assert (sink.finish == "length") is (not job.script.exhausted)
        assert sink.planned == sorted(sink.planned)
    assert engine.metrics.accepted_tokens <= engine.metrics.draft_tokens == len(rates) * engine.metrics.drafts


def test_words_are_the_same_whatever_the_drafts_and_preemptions() -> None:
    def texts(rates: tuple[float, ...], kv_tokens: int) -> list[str]:
        settings = Settings(step_base_ms=0.01, step_per_seq_ms=0, draft_ms=0, draft_per_seq_ms=0, kv_tokens=kv_tokens)

        async def serve() -> list[str]:
            engine = engine_of(settings, rates)
            task = asyncio.get_running_loop().create_task(engine.run())
            rng = Random(3)
            jobs = [job_of(settings, engine, number, rng) for number in range(12)]
            for job, _ in jobs:
                engine.submit(job)
            await asyncio.wait_for(engine.drained.wait(), 20)
            task.cancel()
            return [sink.text for _, sink in jobs]

        return asyncio.run(serve())

    assert texts((), 100_000) == texts((0.9, 0.8, 0.7), 640)
