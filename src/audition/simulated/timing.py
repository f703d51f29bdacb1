"""The timing model and the acceptance model, as pure functions.

What must not live here: a clock, sleeping, sequences.
"""

from __future__ import annotations

from collections.abc import Sequence

from audition.simulated.settings import Settings


def step_seconds(settings: Settings, decoding: int, context_tokens: int, prefill_tokens: int, drafted: int) -> float:
    """Seconds of one engine step; the formula stands in the docstring of Settings.

    decoding: sequences that decode in this step. context_tokens: tokens they hold together. prefill_tokens: prompt tokens
    computed in this step. drafted: k, drafted tokens a sequence (0 without speculative decoding).
    """
    milliseconds = settings.step_base_ms + 1000.0 * prefill_tokens / settings.prefill_tokens_s
    if decoding:
        milliseconds += settings.step_per_seq_ms * decoding + settings.step_per_ktoken_ms * context_tokens / 1000.0
        milliseconds += drafted * (settings.draft_ms + settings.draft_per_seq_ms * decoding)
    return milliseconds / 1000.0


def accepted_drafts(uniform: float, rates: Sequence[float]) -> int:
    """How many drafted tokens are accepted, for one uniform draw in [0, 1).

    Position i is accepted when the draw is below rates[i]. As the rates do not increase, the accepted positions form a
    prefix, and position i is accepted with probability rates[i], which is what vLLM reports per position.
    """
    accepted = 0
    for rate in rates:
        if uniform >= rate:
            break
        accepted += 1
    return accepted
