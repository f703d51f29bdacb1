"""What happens in a run as typed values, in the past tense, and the two forms that need no screen: plain lines and JSON lines.

The conductor and what it acts on tell events to ``run.reporter``, which hands each one to everything that shows it. No effects and
no clock here: ``at`` (seconds since the run's start) comes from whoever tells. A figure that is not known is ``NoData`` with its
reason; as JSON it is ``{"missing": reason}``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from audition.units import NoData, format_duration

if TYPE_CHECKING:  # the screen's process reads events, and must start quickly
    from audition.spike.model import Spike
    from audition.swap.plan import Step

Figure = float | NoData
Production = Literal["running", "draining", "stopped", "parked", "starting", "being restored", "back and verified", "not back"]


@dataclass(frozen=True)
class PlannedStep:
    """One step of the plan, see ``swap.plan.Step``. ``leg`` counts from 1; None: it belongs to no leg."""

    key: str
    kind: str
    text: str
    arm: str | None
    leg: int | None


@dataclass(frozen=True)
class PlannedLeg:
    """One leg of the plan. ``workloads`` by name, in order."""

    number: int
    arm: str
    role: str
    workloads: tuple[str, ...]


@dataclass(frozen=True)
class RunPlanned:
    """The plan is known. ``production``: its arm's name; ``records``: the run folder."""

    spike: str
    question: str
    production: str
    steps: tuple[PlannedStep, ...]
    legs: tuple[PlannedLeg, ...]
    records: str


@dataclass(frozen=True)
class GuardArmed:
    """The way back is secured. ``restore_by``: Unix seconds at which restoring begins at the latest."""

    restore_by: Figure


@dataclass(frozen=True)
class StepBegan:
    """A step of the plan began."""

    step: PlannedStep


@dataclass(frozen=True)
class StepEnded:
    """A step of the plan ended well after ``seconds``."""

    step: PlannedStep
    seconds: float


@dataclass(frozen=True)
class ProductionChanged:
    """Production does something else now. Derived from the other events by ``production_after``."""

    state: Production
    arm: str


@dataclass(frozen=True)
class BootLogged:
    """A line of the log of a server that boots. Of lines that come faster than they can be shown only the latest is told."""

    arm: str
    line: str


@dataclass(frozen=True)
class LegProgressed:
    """How far the running workload is. ``planned`` None: until its time is over. ``elapsed_s`` of this phase.

    ``tokens``: received so far; ``output_tok_s``: tokens / elapsed, so far; ``ttft_p50_s``: median over the requests that ended.
    ``acceptance_rate`` = accepted / draft tokens and ``acceptance_length`` = 1 + accepted / drafts, from the engine's counters.
    """

    leg: int
    arm: str
    role: str
    workload: str
    phase: str
    done: int
    planned: int | None
    failed: int
    elapsed_s: float
    tokens: Figure
    output_tok_s: Figure
    ttft_p50_s: Figure
    acceptance_rate: Figure
    acceptance_length: Figure


@dataclass(frozen=True)
class WorkloadMeasured:
    """A workload ended after ``seconds``. ``complete`` False: it was cut short. Figures as in ``LegProgressed``, at its end."""

    leg: int
    arm: str
    role: str
    workload: str
    complete: bool
    seconds: float
    requests: int | NoData
    output_tok_s: Figure
    ttft_p50_s: Figure
    acceptance_rate: Figure
    acceptance_length: Figure


@dataclass(frozen=True)
class EndedEarly:
    """No more legs are measured: production comes back now. ``ended``: early-end, interrupted or failed."""

    ended: str
    reason: str


@dataclass(frozen=True)
class SignalHeard:
    """Somebody asked the run to end. ``before``: signals before this one; ``text``: what will happen now."""

    signal: str
    before: int
    text: str


@dataclass(frozen=True)
class RestoreStepped:
    """A line about a step of bringing production back."""

    text: str


@dataclass(frozen=True)
class RestoreEnded:
    """Bringing production back ended, well or not."""

    verified: bool
    problems: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class VerdictReached:
    """The run was judged and its records are written. ``production_back`` None: nothing was touched."""

    verdict: str
    exit_code: int
    reasons: tuple[str, ...]
    production_back: bool | None
    run_dir: str


@dataclass(frozen=True)
class Said:
    """A line of progress that is nothing else."""

    text: str


@dataclass(frozen=True)
class Warned:
    """Something that a person should know, shown even when quiet."""

    text: str


Event = (
    RunPlanned | GuardArmed | StepBegan | StepEnded | ProductionChanged | BootLogged | LegProgressed | WorkloadMeasured | EndedEarly
    | SignalHeard | RestoreStepped | RestoreEnded | VerdictReached | Said | Warned
)  # fmt: skip

LATEST_ONLY: tuple[type[Event], ...] = (BootLogged, LegProgressed)
"""Events of which only the latest one matters: those that wait are replaced."""


def planned_step(step: Step) -> PlannedStep:
    """A step of the plan as part of an event."""
    return PlannedStep(step.key, step.kind.value, step.text, step.arm, step.leg)


def run_planned(spike: Spike, steps: Sequence[Step], records: str) -> RunPlanned:
    """The event for a plan made from a spike file."""
    legs = tuple(
        PlannedLeg(number, leg.arm, spike.arm(leg.arm).role, tuple(workload.name for workload in spike.leg_workloads(leg)))
        for number, leg in enumerate(spike.planned_legs(), start=1)
    )
    return RunPlanned(spike.name, spike.question, spike.production.name, tuple(map(planned_step, steps)), legs, records)


# -- what production does ------------------------------------------------------------------------------------------------


def production_after(event: Event, production: str) -> Production | None:
    """What production does after an event, None when the event does not change that. ``production``: its arm's name."""
    if isinstance(event, RestoreEnded):
        return "back and verified" if event.verified else "not back"
    if not isinstance(event, StepBegan | StepEnded):
        return None
    began, kind = isinstance(event, StepBegan), event.step.kind
    if kind == "restore":
        return "being restored" if began else None
    if event.step.arm != production:
        return None
    states: dict[tuple[str, bool], Production] = {
        ("snapshot", False): "running",
        ("drain", True): "draining",
        ("stop", False): "stopped",
        ("park", False): "parked",
        ("unpark", False): "running",
        ("start", True): "starting",
        ("await-ready", False): "running",
    }
    return states.get((kind, began))


# -- plain lines ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """A plain line. ``loud``: shown even when quiet."""

    text: str
    loud: bool = False


def timed(text: str, seconds: float) -> str:
    """The text of something that ended, with its time when that is worth saying."""
    return f"{text} ({format_duration(seconds)})" if seconds >= 0.5 else text


def _measured(event: WorkloadMeasured) -> Line:
    state = "measured" if event.complete else "cut short"
    return Line(timed(f"  {event.arm}: {event.workload} {state}", event.seconds))


_LINES: dict[type[Any], Callable[[Any], Line | None]] = {
    StepBegan: lambda event: Line(event.step.text),
    StepEnded: lambda event: Line(timed(f"{event.step.text}: done", event.seconds)) if event.seconds >= 1 else None,
    WorkloadMeasured: _measured,
    EndedEarly: lambda event: Line(f"ending early: {event.reason}"),
    SignalHeard: lambda event: Line(f"warning: {event.text}", loud=True),
    RestoreStepped: lambda event: Line(f"  {event.text}"),
    RestoreEnded: lambda event: Line(timed("production is back" if event.verified else "PRODUCTION IS NOT BACK", event.seconds)),
    Said: lambda event: Line(event.text),
    Warned: lambda event: Line(f"warning: {event.text}", loud=True),
}


def plain(event: Event) -> Line | None:
    """The plain line of an event; None for one that has none."""
    make = _LINES.get(type(event))
    return make(event) if make is not None else None


# -- JSON ----------------------------------------------------------------------------------------------------------------

_BY_NAME: dict[str, type[Any]] = {
    "run_planned": RunPlanned, "guard_armed": GuardArmed, "step_began": StepBegan, "step_ended": StepEnded,
    "production_changed": ProductionChanged,
    "boot_logged": BootLogged, "leg_progressed": LegProgressed, "workload_measured": WorkloadMeasured,
    "ended_early": EndedEarly, "signal_heard": SignalHeard, "restore_stepped": RestoreStepped, "restore_ended": RestoreEnded,
    "verdict_reached": VerdictReached, "said": Said, "warned": Warned,
}  # fmt: skip
_NAMES = {kind: name for name, kind in _BY_NAME.items()}
_NESTED: dict[str, Callable[[Any], Any]] = {
    "step": lambda data: _filled(PlannedStep, data),
    "steps": lambda rows: tuple(_filled(PlannedStep, row) for row in rows),
    "legs": lambda rows: tuple(_filled(PlannedLeg, row) for row in rows),
    "workloads": tuple,
    "problems": tuple,
    "reasons": tuple,
}


def to_data(event: Event, at: float, *, rehearsal: bool) -> dict[str, Any]:
    """An event as JSON values: ``event`` (its name), ``at`` (seconds since the start), ``rehearsal``, and its own fields."""
    return {"event": _NAMES[type(event)], "at": round(at, 3), "rehearsal": rehearsal, **_data(event)}


def from_data(data: dict[str, Any]) -> Event | None:
    """The event again; None for a name that is not known. Raises KeyError and TypeError for fields that do not fit."""
    kind = _BY_NAME.get(str(data.get("event")))
    if kind is None:
        return None
    event: Event = _filled(kind, data)
    return event


def _data(value: object) -> dict[str, Any]:
    return {field.name: _json(getattr(value, field.name)) for field in fields(value)}  # type: ignore[arg-type]


def _json(value: Any) -> Any:
    if isinstance(value, NoData):
        return {"missing": value.reason}
    if isinstance(value, tuple):
        return [_json(part) for part in value]
    return _data(value) if isinstance(value, PlannedStep | PlannedLeg) else value


def _filled(kind: type[Any], data: dict[str, Any]) -> Any:
    return kind(**{field.name: _value(field.name, data[field.name]) for field in fields(kind)})


def _value(name: str, value: Any) -> Any:
    if isinstance(value, dict) and set(value) == {"missing"}:
        return NoData(str(value["missing"]))
    return _NESTED[name](value) if name in _NESTED else value
