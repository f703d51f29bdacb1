"""What the screen knows: events folded into one value. Pure: no clock, no terminal, no colours.

Times are seconds since the run's start, as events carry them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from audition.run.events import (
    BootLogged,
    EndedEarly,
    Event,
    Figure,
    GuardArmed,
    LegProgressed,
    PlannedStep,
    Production,
    ProductionChanged,
    RestoreEnded,
    RestoreStepped,
    RunPlanned,
    SignalHeard,
    StepBegan,
    StepEnded,
    VerdictReached,
    Warned,
    WorkloadMeasured,
    plain,
)
from audition.units import NoData, format_duration

LAST_WARNINGS = 3
SHORTEST_RATE_S = 0.5  # a rate over less says nothing
LAST_RATES = 200  # points of the curve, one a second at most
_KEPT_STATES = ("stopped", "parked", "being restored", "back and verified", "not back")
_NOT_PLANNED = NoData("no plan is known yet")


@dataclass(frozen=True)
class Figures:
    """What was measured, or is so far, in one workload of one leg; see ``events.LegProgressed``."""

    output_tok_s: Figure
    ttft_p50_s: Figure
    acceptance_rate: Figure
    acceptance_length: Figure


@dataclass
class LegState:
    """One leg. ``began``, ``ended``: None while it has not. ``measured``: workload -> figures, in order."""

    number: int
    arm: str
    role: str
    workloads: tuple[str, ...]
    began: float | None = None
    ended: float | None = None
    measured: dict[str, Figures] = field(default_factory=dict)

    @property
    def started_measuring(self) -> bool:
        """Whether it has a figure."""
        return bool(self.measured)


@dataclass
class ScreenState:
    """Everything that is drawn."""

    rehearsal: bool = False
    plan: RunPlanned | None = None
    restore_by: Figure = _NOT_PLANNED
    guarded: bool = False
    legs: list[LegState] = field(default_factory=list)
    leg: LegState | None = None  # the one that runs, or ran last
    production: Production | None = None
    production_since: float = 0.0
    step: PlannedStep | None = None
    step_since: float = 0.0
    steps_done: dict[str, float] = field(default_factory=dict)  # key -> seconds
    progress: LegProgressed | None = None
    progress_at: float = 0.0
    rates: deque[float] = field(default_factory=lambda: deque(maxlen=LAST_RATES))
    boot: BootLogged | None = None
    ended_early: EndedEarly | None = None
    signal: SignalHeard | None = None
    restoring: str = ""
    restored: RestoreEnded | None = None
    verdict: VerdictReached | None = None
    warnings: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=LAST_WARNINGS))
    warned: int = 0
    at: float = 0.0
    closed: bool = False
    _tokens: tuple[float, Figure] = (0.0, _NOT_PLANNED)

    def take(self, event: Event, at: float) -> list[str]:
        """Fold an event in; returns lines that stay on the terminal above the screen."""
        self.at = max(self.at, at)
        if isinstance(event, RunPlanned):
            self.plan = event
            self.legs = [LegState(leg.number, leg.arm, leg.role, leg.workloads) for leg in event.legs]
        elif isinstance(event, GuardArmed):
            self.restore_by, self.guarded = event.restore_by, True
        elif isinstance(event, StepBegan):
            self._step_began(event.step, at)
        elif isinstance(event, StepEnded):
            return self._step_ended(event, at)
        elif isinstance(event, ProductionChanged):
            self.production, self.production_since = event.state, at
        elif isinstance(event, LegProgressed):
            self._progressed(event, at)
        elif isinstance(event, WorkloadMeasured):
            self._measured(event)
        else:
            self._told(event)
        return self._kept(event, at)

    def production_before(self, leg: LegState) -> LegState | None:
        """Production's latest leg with figures before this one."""
        found = [one for one in self.legs if one.role == "production" and one.number < leg.number and one.started_measuring]
        return found[-1] if found else None

    def leg_seconds(self, leg: LegState, now: float) -> float | None:
        """How long a leg took, or takes so far; None when it has not begun. Swapping counts with the leg that it leads to."""
        return None if leg.began is None else max(0.0, (leg.ended if leg.ended is not None else now) - leg.began)

    def share_of(self, leg: LegState) -> float:
        """How much of a leg's workloads is done, 0 to 1, by requests."""
        if leg.ended is not None and len(leg.measured) >= len(leg.workloads):
            return 1.0
        whole = max(1, len(leg.workloads))
        share = len(leg.measured) / whole
        now = self.progress
        if now is not None and now.leg == leg.number and now.workload not in leg.measured and now.planned:
            share += min(1.0, now.done / now.planned) / whole
        return min(1.0, share)

    def seconds_to_go(self, now: float) -> Figure:
        """What the legs to come may take, by the arm's earlier legs; restoring not counted."""
        known: dict[str, list[float]] = {}
        for leg in self.legs:
            if leg.began is not None and leg.ended is not None:
                known.setdefault(leg.arm, []).append(leg.ended - leg.began)
        total = 0.0
        for leg in self.legs:
            if leg.ended is not None:
                continue
            if leg.arm not in known:
                return NoData(f"{leg.arm} has not run a whole leg yet")
            mean = sum(known[leg.arm]) / len(known[leg.arm])
            total += max(0.0, mean - (self.leg_seconds(leg, now) or 0.0))
        return total

    # -- one kind of event each -------------------------------------------------------------------------------------------

    def _step_began(self, step: PlannedStep, at: float) -> None:
        self.step, self.step_since = step, at
        if step.kind == "start":
            self.boot = None
        if step.leg is not None and 1 <= step.leg <= len(self.legs):
            self.leg = self.legs[step.leg - 1]
            if self.leg.began is None:
                self.leg.began, self.progress = at, None

    def _step_ended(self, event: StepEnded, at: float) -> list[str]:
        step = event.step
        self.steps_done[step.key] = event.seconds
        if step.kind == "await-ready" and self.ended_early is None:
            boot = format_duration(event.seconds)
            return [f"{step.arm} answers after {boot}"]
        if step.kind == "measure" and self.leg is not None:
            self.leg.ended = at
            how = "measured in" if self.ended_early is None else "cut after"
            return [f"leg {step.leg} of {len(self.legs)}, {step.arm}: {how} {format_duration(event.seconds)}"]
        return []

    def _progressed(self, event: LegProgressed, at: float) -> None:
        last = self.progress
        if last is None or last.leg != event.leg:
            self.rates.clear()
        if last is None or (last.leg, last.workload, last.phase) != (event.leg, event.workload, event.phase):
            self._tokens = (0.0, 0.0)
        before_at, before = self._tokens
        if not isinstance(event.tokens, NoData):
            passed = event.elapsed_s - before_at
            if isinstance(before, NoData):
                self._tokens = (event.elapsed_s, event.tokens)
            elif passed >= SHORTEST_RATE_S:
                self.rates.append(max(0.0, (event.tokens - before) / passed))
                self._tokens = (event.elapsed_s, event.tokens)
        self.progress, self.progress_at = event, at

    def _measured(self, event: WorkloadMeasured) -> None:
        if 1 <= event.leg <= len(self.legs):
            figures = Figures(event.output_tok_s, event.ttft_p50_s, event.acceptance_rate, event.acceptance_length)
            self.legs[event.leg - 1].measured[event.workload] = figures

    def _told(self, event: Event) -> None:
        if isinstance(event, BootLogged) and event.line.strip():
            self.boot = event
        elif isinstance(event, EndedEarly):
            self.ended_early = event
            if self.leg is not None and self.leg.ended is None:
                self.leg.ended = self.at
        elif isinstance(event, SignalHeard):
            self.signal = event
        elif isinstance(event, RestoreStepped):
            self.restoring = event.text
        elif isinstance(event, RestoreEnded):
            self.restored = event
        elif isinstance(event, VerdictReached):
            self.verdict = event

    def _kept(self, event: Event, at: float) -> list[str]:
        """Lines that stay: what a person would look for afterwards."""
        if isinstance(event, Warned | SignalHeard):
            self.warned += 1
            self.warnings.append((at, event.text))
        if isinstance(event, ProductionChanged):
            return [f"production ({event.arm}): {event.state}"] if event.state in _KEPT_STATES else []
        if isinstance(event, StepBegan | WorkloadMeasured | RestoreStepped | RestoreEnded):
            return []
        line = plain(event)
        return line.text.splitlines() if line is not None else []
