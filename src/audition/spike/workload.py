"""Workloads as the spike file writes them: what is sent, by how many users or when, and for how long. Sending lives elsewhere."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from audition.spike.values import Duration, Name, Strict


class Sampling(Strict):
    """Sampling parameters sent with every request of a workload; absent ones are left to the server."""

    temperature: float | None = Field(default=None, ge=0, description="0 is greedy.")
    top_p: float | None = Field(default=None, gt=0, le=1, description="Nucleus sampling.")
    top_k: int | None = Field(default=None, description="Top-k sampling.")
    min_p: float | None = Field(default=None, ge=0, le=1, description="Minimum probability.")
    seed: int | None = Field(default=None, description="Sampling seed.")


class Limits(Strict):
    """What one request must keep, all of it, to be counted by the metric `goodput` (DistServe, OSDI 2024)."""

    ttft: Duration | None = Field(default=None, description="Longest time from the scheduled send to the first token.")
    tpot: Duration | None = Field(default=None, description="Longest mean time a token after the first event.")
    e2e: Duration | None = Field(default=None, description="Longest time from the scheduled send to the end.")

    @model_validator(mode="after")
    def _any(self) -> Limits:
        if self.ttft is None and self.tpot is None and self.e2e is None:
            raise ValueError("give at least one of `ttft`, `tpot` and `e2e`")
        return self


class Workload(Strict):
    """A load: `users` streams, each sending its next request when the last one ends; or requests at a `rate` or after a `trace`."""

    name: Name = Field(description="Short name, used in gates and records.")
    users: int = Field(default=1, ge=1, le=4096, description="Concurrent users.")
    requests: int | None = Field(default=None, ge=1, description="Number of requests in all; or `duration`.")
    duration: Duration | None = Field(default=None, description="How long new requests are sent; or `requests`.")
    rate: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="Requests a second, sent when due whatever is still open (open loop)."
    )
    arrivals: Literal["constant", "poisson", "gamma"] = Field(
        default="poisson", description="Gaps between requests of a `rate`: all equal, exponential, or gamma."
    )
    burstiness: float = Field(
        default=1.0, gt=0, allow_inf_nan=False, description="Shape of gamma gaps: 1 is poisson, below 1 comes in bursts."
    )
    trace: str | None = Field(
        default=None, description="File of arrivals instead of a `rate`: a line each, seconds or a JSON object with `at`."
    )
    prompts: Literal["prose", "code", "dialogue", "reasoning", "tools", "long", "mixed"] = Field(
        default="mixed", description="Prompt class; `long` needs `prompt_tokens`, `mixed` is prose, code, dialogue and reasoning."
    )
    prompts_file: str | None = Field(
        default=None, description="Prompts of your own instead of a class: JSONL with `text` or `messages`, or ShareGPT's JSON."
    )
    prompt_tokens: int | None = Field(default=None, ge=64, description="Length of each `long` prompt, by the server's own count.")
    thinking: bool | None = Field(default=None, description="`chat_template_kwargs.enable_thinking`; absent: the server's default.")
    max_tokens: int = Field(default=256, ge=1, description="Longest answer in tokens; natural stop comes first.")
    ignore_eos: bool = Field(
        default=False, description="Force `max_tokens`; invalidates acceptance figures and is flagged in the result."
    )
    sampling: Sampling = Field(
        default=Sampling(), description="Sampling parameters; default: the server's own, as production's clients see."
    )
    warmup: int | None = Field(
        default=None, ge=0, description="Requests sent first at the same concurrency, never measured; default: `users`."
    )
    survival: bool = Field(default=False, description="Void the workload unless a short request is answered after it.")
    deadline: Duration = Field(default=600.0, description="Longest time for one request.")
    silence: Duration = Field(default=60.0, description="Longest time without a byte inside one request.")
    goodput: Limits | None = Field(
        default=None, description="Limits for single requests; the metric `goodput` counts who keeps them."
    )
    processes: int | None = Field(
        default=None, ge=1, le=64, description="Processes that send; default: one, and one more for every 1,024 users."
    )

    @property
    def open_loop(self) -> bool:
        """Whether requests are sent when due, whatever is still open."""
        return self.rate is not None or self.trace is not None

    def _changed(self, key: str) -> bool:
        """Whether a key has another value than its default: a resolved spike states every key, and must be read again."""
        return bool(getattr(self, key) != type(self).model_fields[key].default)

    @model_validator(mode="after")
    def _one_length(self) -> Workload:
        if sum(value is not None for value in (self.requests, self.duration, self.trace)) != 1:
            raise ValueError("give exactly one of `requests`, `duration` and `trace`")
        return self

    @model_validator(mode="after")
    def _open_loop(self) -> Workload:
        if self.rate is not None and self.trace is not None:
            raise ValueError("a trace has its own times, leave `rate` out")
        if self.open_loop and self.users > 1:
            raise ValueError("`users` belongs to a closed loop, leave it out beside `rate` or `trace`")
        if self.rate is None and (self._changed("arrivals") or self._changed("burstiness")):
            raise ValueError("`arrivals` and `burstiness` need a `rate`")
        if self.arrivals != "gamma" and self._changed("burstiness"):
            raise ValueError("`burstiness` needs `arrivals: gamma`")
        return self

    @model_validator(mode="after")
    def _which_prompts(self) -> Workload:
        if self.prompts_file is not None and self._changed("prompts"):
            raise ValueError("give at most one of `prompts` and `prompts_file`")
        if (self.prompts == "long") != (self.prompt_tokens is not None):
            raise ValueError("`prompts: long` and `prompt_tokens` need each other")
        return self
