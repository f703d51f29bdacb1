"""The spike as data: what the user writes in ``spike.yaml``, validated. No files, no clock, no network here.

Each field's description is the documentation of its key; ``reference.yaml`` and the JSON schema are checked against it.
Parsing with line numbers and nearest keys lives in ``audition.spike.parse``; types of values in ``values``, engines in ``engines``,
workloads in ``workload``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from audition.spike.engines import ComposeEngine, EngineSpec, ProcessEngine, SimulatedEngine
from audition.spike.metrics import METRICS, PROBES, STATS
from audition.spike.values import Argv, Duration, Limit, Name, Strict, Words, format_version
from audition.spike.window import Agreement, Window
from audition.spike.workload import Sampling, Workload

__all__ = [
    "KNOWN_PROBES", "Agreement", "Argv", "Arm", "Boot", "ComposeEngine", "Drain", "Duration", "Endpoint", "EngineSpec", "Gate",
    "Hypothesis", "Leg", "Note", "ProcessEngine", "Records", "Restore", "Sampling", "SimulatedEngine", "Simulation", "Spike",
    "Stop", "Strict", "Window", "Words", "Workload",
]  # fmt: skip


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

    strategy: Literal["restart", "park"] = Field(
        default="restart",
        description="How arms give way: stopped and booted again, or parked (suspended to host memory, on ports of their own).",
    )
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

    audition: Annotated[Literal[1], BeforeValidator(format_version)] = Field(description="Version of the spike file format.")
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
    agreement: Agreement = Field(default=Agreement(), description="Who shares the GPUs, whom to call, where the slot is announced.")
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
