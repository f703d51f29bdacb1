"""The lines vLLM prints every few seconds: throughput and, with speculative decoding, acceptance.

Like vLLM, nothing is printed while the engine stays idle, except one last line after it became so.
What must not live here: counting.
"""

from __future__ import annotations

import asyncio
import os
import time

from audition.simulated.console import log
from audition.simulated.engine import Engine
from audition.simulated.settings import Settings


class StatLog:
    """Differences of the engine's counters between two lines. Rates in tokens a second."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self.engine = engine
        self.settings = settings
        self._at = self._spec_at = time.monotonic()
        self._prompt = self._generated = 0
        self._queries = self._hits = 0
        self._drafts = self._draft_tokens = 0
        self._accepted = [0] * engine.drafted
        self._was_idle = True

    async def run(self) -> None:
        """Print for ever, once in each interval."""
        while True:
            await asyncio.sleep(self.settings.stats_interval_s)
            for source, text in self.lines():
                log("APIServer", os.getpid(), "INFO", source, text)

    def lines(self) -> list[tuple[str, str]]:
        """The lines due now, as (source, text)."""
        metrics, now = self.engine.metrics, time.monotonic()
        prompt, generated = metrics.prompt_tokens - self._prompt, metrics.generation_tokens - self._generated
        idle = not prompt and not generated and not self.engine.running
        elapsed = now - self._at
        self._at, self._prompt, self._generated = now, metrics.prompt_tokens, metrics.generation_tokens
        if self.engine.paused or (idle and self._was_idle):
            self._was_idle = True
            return []
        self._was_idle = idle
        running, waiting = len(self.engine.running), len(self.engine.waiting)
        text = (
            f"Engine 000: Avg prompt throughput: {prompt / elapsed:.1f} tokens/s, Avg generation throughput: "
            f"{generated / elapsed:.1f} tokens/s, Running: {running} reqs, Waiting: {waiting} reqs, "
            f"GPU KV cache usage: {self.engine.kv.usage * 100:.1f}%, Prefix cache hit rate: {self._hit_rate():.1f}%"
        )
        spec = self._speculative(now)
        return [("loggers.py:259", text), *([("metrics.py:101", spec)] if spec else [])]

    def _hit_rate(self) -> float:
        """Per cent of the prompt tokens queried so far that were cached."""
        metrics = self.engine.metrics
        return 100.0 * metrics.prefix_hits / metrics.prefix_queries if metrics.prefix_queries else 0.0

    def _speculative(self, now: float) -> str:
        metrics = self.engine.metrics
        drafts = metrics.drafts - self._drafts
        if not drafts:
            return ""
        drafted = metrics.draft_tokens - self._draft_tokens
        accepted = [a - b for a, b in zip(metrics.accepted_per_position, self._accepted, strict=True)]
        elapsed = now - self._spec_at
        self._spec_at, self._drafts, self._draft_tokens = now, metrics.drafts, metrics.draft_tokens
        self._accepted = list(metrics.accepted_per_position)
        total = sum(accepted)
        length = 1 + total / drafts
        positions = ", ".join(f"{number / drafts:.3f}" for number in accepted)
        rate = 100.0 * total / drafted
        if self.settings.release < (0, 10):
            return (
                f"SpecDecoding metrics: Draft acceptance rate: {rate:.1f}%, Mean acceptance length: {length:.2f}, "
                f"Accepted: {total} tokens, Drafted: {drafted} tokens, Per-position acceptance rate: {positions}"
            )
        return (
            f"SpecDecoding metrics: Mean acceptance length: {length:.2f}, Accepted throughput: {total / elapsed:.2f} "
            f"tokens/s, Drafted throughput: {drafted / elapsed:.2f} tokens/s, Accepted: {total} tokens, Drafted: "
            f"{drafted} tokens, Per-position acceptance rate: {positions}, Avg Draft acceptance rate: {rate:.1f}%"
        )
