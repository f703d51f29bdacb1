"""The spike as data: what the user writes in ``spike.yaml``, validated. No files, no clock, no network here.

Each field's description is the documentation of its key; ``reference.yaml`` and the JSON schema are checked against it.
Parsing with line numbers and nearest keys lives in ``audition.spike.parse``.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from audition.spike.metrics import METRICS, PROBES, STATS
from audition.units import parse_duration


def _seconds(value: Any) -> float:
    """Seconds from a duration as people write it; ValueError, never another error, for everything else."""
    if isinstance(value, str | int | float):
        return parse_duration(value)
    raise ValueError("expected a duration such as 90s, 5m or 1h30m")


def _instant(value: Any) -> datetime:
    """An instant from ISO 8601 text. A bare number is refused: nobody writes an agreed slot as a count of seconds."""
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str):
        raise ValueError("expected an instant such as 2026-12-01T22:00:00+01:00")
    try:
        return datetime.fromisoformat(value)
    except ValueError as error:
        raise ValueError("expected an instant such as 2026-12-01T22:00:00+01:00") from error


_DURATION_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "number", "minimum": 0},
        {"type": "string", "pattern": r"^\s*(\d+(\.\d+)?\s*(ms|s|m|h|d)\s*)+$"},
    ]
}
Duration = Annotated[float, BeforeValidator(_seconds), Field(ge=0, allow_inf_nan=False), WithJsonSchema(_DURATION_SCHEMA)]
Instant = Annotated[datetime, BeforeValidator(_instant)]
Limit = Annotated[float, Field(allow_inf_nan=False)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]


def _split_words(value: Any) -> Any:
    """A command may be a list, or one text split as a POSIX shell splits words."""
    if isinstance(value, str):
        import shlex  # noqa: PLC0415 - only when a text is given

        return shlex.split(value)
    return value


def _format_version(value: Any) -> Any:
    """The version is a number; Python would take ``true`` for 1."""
    if isinstance(value, bool):
        raise ValueError("expected 1")
    return value


def _words_schema(least: int) -> dict[str, Any]:
    return {"anyOf": [{"type": "array", "items": {"type": "string"}, "minItems": least}, {"type": "string", "minLength": least}]}


Argv = Annotated[list[str], BeforeValidator(_split_words), Field(min_length=1), WithJsonSchema(_words_schema(1), mode="validation")]
Words = Annotated[list[str], BeforeValidator(_split_words), WithJsonSchema(_words_schema(0), mode="validation")]


class Strict(BaseModel):
    """Unknown keys are errors; values do not change after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ProcessEngine(Strict):
    """A server started as a process of this machine."""

    kind: Literal["process"] = Field(description="Engine kind: a process of this machine.")
    command: Argv = Field(description="Command line, as a list or as one text split like a shell does.")
    env: dict[str, str] = Field(default={}, description="Variables added to the environment of the server.")
    env_files: list[str] = Field(default=[], description="Files of NAME=value lines, read before `env`.")
    cwd: str = Field(default=".", description="Working folder, relative to the spike file.")


class ComposeEngine(Strict):
    """A server defined in docker compose profiles."""

    kind: Literal["compose"] = Field(description="Engine kind: docker compose profiles.")
    files: list[str] = Field(min_length=1, description="Compose files, in the order of `-f`.")
    env_files: list[str] = Field(default=[], description="Files given with `--env-file`, exactly as production was started.")
    project: str | None = Field(default=None, description="Compose project name; default: as compose derives it.")
    service: str = Field(description="The service that is the server.")
    container_name: Literal["own", "production"] = Field(
        default="own",
        description="Candidates: a name of their own, or production's name (production's container is renamed aside).",
    )
    context: str | None = Field(default=None, description="Docker context; default: the current one, or DOCKER_HOST.")


class SimulatedEngine(Strict):
    """The simulated server shipped with audition: vLLM-shaped, no GPU."""

    kind: Literal["simulated"] = Field(description="Engine kind: the simulated server.")
    args: Words = Field(default=[], description="vLLM's arguments.")
    settings: dict[str, Any] = Field(default={}, description="Settings of the simulation; see `audition.simulated.settings`.")


EngineSpec = Annotated[ProcessEngine | ComposeEngine | SimulatedEngine, Field(discriminator="kind")]


class Simulation(Strict):
    """How a rehearsal imagines this arm. It says nothing about the real server."""

    args: Words = Field(default=[], description="vLLM's arguments for the simulated server.")
    settings: dict[str, Any] = Field(default={}, description="Settings of the simulation.")


class Endpoint(Strict):
    """Where the server answers and under which model name."""

    url: str = Field(pattern=r"^https?://[^/\s]+$", description="Base URL without a path, e.g. http://127.0.0.1:5002.")
    model: str = Field(description="The model name that the server must report; anything else is not this server.")
    api_key_env: str | None = Field(
        default=None, description="Name of the variable that holds the API key (environment or env_files)."
    )


class Boot(Strict):
    """Limits of a start."""

    limit: Duration = Field(default=1800.0, description="Longest boot; after that the boot has overrun.")
    silence: Duration = Field(default=600.0, description="Longest time without a new log line during boot; after that it hangs.")


class Stop(Strict):
    """Limits of a stop."""

    grace: Duration = Field(
        default=120.0, description="Time between SIGTERM and SIGKILL; production's must not be shorter than the drain."
    )


class Arm(Strict):
    """One configuration of the server."""

    name: Name = Field(description="Short name, used in legs, gates and records.")
    role: Literal["production", "candidate", "control"] = Field(
        description="Exactly one arm is production, exactly one is the candidate."
    )
    engine: EngineSpec = Field(description="How the server is started, stopped and observed.")
    endpoint: Endpoint = Field(description="Where the server answers.")
    boot: Boot = Field(default=Boot(), description="Limits of a start.")
    stop: Stop = Field(default=Stop(), description="Limits of a stop.")
    simulated: Simulation = Field(default=Simulation(), description="How a rehearsal imagines this arm.")


def _short_leg(value: Any) -> Any:
    """A leg may be written as the name of its arm alone."""
    return {"arm": value} if isinstance(value, str) else value


class Leg(Strict):
    """One turn of one arm: boot (or already running), warm-up, workloads."""

    arm: str = Field(description="Name of the arm.")
    workloads: list[str] | None = Field(default=None, description="Names of the workloads; default: all.")


class Sampling(Strict):
    """Sampling parameters sent with every request of a workload; absent ones are left to the server."""

    temperature: float | None = Field(default=None, ge=0, description="0 is greedy.")
    top_p: float | None = Field(default=None, gt=0, le=1, description="Nucleus sampling.")
    top_k: int | None = Field(default=None, description="Top-k sampling.")
    min_p: float | None = Field(default=None, ge=0, le=1, description="Minimum probability.")
    seed: int | None = Field(default=None, description="Sampling seed.")


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


class Gate(Strict):
    """One criterion: a metric against a limit, a probe that must pass, or a group of criteria."""

    name: str | None = Field(default=None, description="How the gate is called in records; default: its rule.")
    metric: str | None = Field(default=None, description="A metric of the catalogue.")
    stat: Literal["mean", "p50", "p90", "p95", "p99"] | None = Field(
        default=None, description="For metrics over requests; default p50."
    )
    workload: str | None = Field(default=None, description="Name of the workload; needed unless the metric belongs to a leg.")
    arm: str | None = Field(default=None, description="Name of the arm; default: the candidate.")
    ratio_to: str | None = Field(default=None, description="Name of the arm to divide by; the limits then apply to the ratio.")
    at_least: Limit | None = Field(default=None, description="Lower limit.")
    at_most: Limit | None = Field(default=None, description="Upper limit.")
    probe: str | None = Field(default=None, description="A probe that must pass, instead of a metric.")
    one_pair_suffices: bool = Field(
        default=False,
        description="Accept a ratio from one pair of legs, or a figure from one leg (else one leg is unknown); the record says so.",
    )
    shadow: bool = Field(default=False, description="Reported, never decides.")
    all: list[Gate] | None = Field(default=None, min_length=1, description="Group: holds when all hold.")
    any: list[Gate] | None = Field(default=None, min_length=1, description="Group: holds when at least one holds.")

    @model_validator(mode="after")
    def _one_form(self) -> Gate:
        forms = [f for f in ("metric", "probe", "all", "any") if getattr(self, f) is not None]
        if len(forms) != 1:
            raise ValueError("give exactly one of `metric`, `probe`, `all` and `any`")
        if self.metric is not None:
            if (self.at_least is None) and (self.at_most is None):
                raise ValueError("a metric gate needs `at_least` or `at_most`")
            metric = METRICS.get(self.metric)
            if metric is not None and metric.scope != "leg" and self.workload is None:
                raise ValueError(f"metric `{self.metric}` needs a `workload`")
            if metric is not None and metric.scope != "requests" and self.stat is not None:
                raise ValueError(f"`stat` ({', '.join(STATS)}) applies to metrics over requests, not to `{self.metric}`")
        elif self.at_least is not None or self.at_most is not None or self.ratio_to is not None:
            raise ValueError("`at_least`, `at_most` and `ratio_to` belong to a metric gate")
        return self


class Hypothesis(Strict):
    """A suspicion that the spike settles on the way."""

    name: Name = Field(description="Short name.")
    claim: str = Field(description="The suspicion, as one sentence.")
    arm: str | None = Field(default=None, description="The arm whose boots tell; default: the candidate.")
    refuted_by: str = Field(description="Fault signature that refutes the claim when a boot shows it.")
    supported_by_clean_boots: int = Field(default=1, ge=1, description="Clean boots that support the claim.")
    when_supported: str = Field(default="", description="What to write then.")
    when_refuted: str = Field(default="", description="What to write then.")


class Drain(Strict):
    """How requests in flight end before production is stopped."""

    budget: Duration = Field(default=120.0, description="Longest wait for running requests to end.")
    close: Argv | None = Field(default=None, description="Command that closes the entry (e.g. takes the server out of the proxy).")
    open: Argv | None = Field(default=None, description="Command that opens it again; must be safe to run twice.")

    @model_validator(mode="after")
    def _both(self) -> Drain:
        if (self.close is None) != (self.open is None):
            raise ValueError("give both `close` and `open`, or neither")
        return self


class Restore(Strict):
    """What bringing production back means."""

    strategy: Literal["restart"] = Field(default="restart", description="How production comes back.")
    hold: Duration = Field(default=30.0, description="Production must run this long without a restart before it counts as back.")
    gpu_tolerance_mib: int = Field(default=256, ge=0, description="GPU memory must be this near its baseline before a start.")
    gpu_settle: Duration = Field(default=60.0, description="Longest wait for GPU memory to come back to its baseline after a stop.")
    slowest_cold_start: Duration = Field(
        default=1500.0, description="Production's slowest known cold start; sets the restore deadline."
    )
    greedy: Literal["require", "report"] = Field(
        default="require", description="Whether a greedy answer must equal the one recorded before."
    )
    if_not_running: Literal["refuse", "start"] = Field(
        default="refuse", description="When production does not run at the start: refuse, or start it."
    )


class Window(Strict):
    """The agreed slot, as instants with a time zone."""

    opens: Instant | None = Field(default=None, description="Not before this instant.")
    closes: Instant | None = Field(default=None, description="Production is back by this instant.")

    @model_validator(mode="after")
    def _zones(self) -> Window:
        for key in ("opens", "closes"):
            value = getattr(self, key)
            if value is not None and value.tzinfo is None:
                raise ValueError(f"`{key}` needs a time zone, e.g. 2026-12-01T22:00:00+01:00")
        if self.opens and self.closes and self.opens >= self.closes:
            raise ValueError("`opens` must be before `closes`")
        return self


class Note(Strict):
    """A notes file that gains a dated entry."""

    file: str = Field(description="Markdown file, relative to the spike file.")
    heading: str = Field(description="Heading under which the entry goes.")
    on: list[Literal["GO", "NO-GO", "INCONCLUSIVE"]] = Field(
        default=["GO", "NO-GO", "INCONCLUSIVE"], description="Verdicts that write the entry."
    )


class Records(Strict):
    """What the spike leaves behind."""

    folder: str = Field(default="_iteration_log", description="Folder of run folders, relative to the spike file.")
    notes: list[Note] = Field(default=[], description="Notes files that gain an entry.")


class Spike(Strict):
    """A whole spike."""

    audition: Annotated[Literal[1], BeforeValidator(_format_version)] = Field(description="Version of the spike file format.")
    name: Name = Field(description="Short name; the run folder is called after it.")
    question: str = Field(min_length=1, description="The question that the spike answers.")
    gpus: list[Annotated[int, Field(ge=0)]] = Field(
        default=[], description="GPU indices that the spike uses; empty: no GPU is watched."
    )
    arms: list[Arm] = Field(min_length=2, description="Production, candidate, optional controls.")
    legs: list[Annotated[Leg, BeforeValidator(_short_leg)]] | None = Field(
        default=None,
        min_length=1,
        description="Turns in order; default: production, candidate, production, candidate, production.",
    )
    workloads: list[Workload] = Field(min_length=1, description="What is measured in every leg.")
    probes: list[str] = Field(default=["canary"], description="Pass/fail checks made in every leg, before the workloads.")
    gates: list[Gate] = Field(min_length=1, description="Criteria, written beforehand.")
    hypotheses: list[Hypothesis] = Field(default=[], description="Suspicions to settle on the way.")
    drain: Drain = Field(default=Drain(), description="How requests in flight end before production is stopped.")
    sidecars: Literal["stop", "refuse", "ignore"] = Field(
        default="stop",
        description="Sidecars that could restart the server (docker.sock holders, autoheal): stop for the window, refuse, ignore.",
    )
    restore: Restore = Field(default=Restore(), description="What bringing production back means.")
    window: Window = Field(default=Window(), description="The agreed slot.")
    records: Records = Field(default=Records(), description="What the spike leaves behind.")
    early_end: bool = Field(
        default=True, description="End the spike as soon as nothing can change the verdict: no boot, bad answers, a gate lost."
    )
    secrets: list[str] = Field(default=[], description="Names of further variables whose values are masked everywhere.")

    @property
    def production(self) -> Arm:
        """The one arm whose role is production."""
        return next(arm for arm in self.arms if arm.role == "production")

    @property
    def candidate(self) -> Arm:
        """The one arm whose role is candidate."""
        return next(arm for arm in self.arms if arm.role == "candidate")

    def arm(self, name: str) -> Arm:
        """The arm of that name; KeyError if there is none."""
        for arm in self.arms:
            if arm.name == name:
                return arm
        raise KeyError(name)

    def planned_legs(self) -> list[Leg]:
        """The legs as written, or production, candidate, production, candidate, production."""
        if self.legs is not None:
            return list(self.legs)
        p, c = Leg(arm=self.production.name), Leg(arm=self.candidate.name)
        return [p, c, p, c, p]

    def leg_workloads(self, leg: Leg) -> list[Workload]:
        """The workloads of one leg, in the order of the spike file."""
        return [w for w in self.workloads if leg.workloads is None or w.name in leg.workloads]


KNOWN_PROBES = tuple(PROBES)
