"""The conductor: the one place where a spike's steps are carried out, each journalled as intent, effect, done.

It decides nothing that a pure room can decide: the plan comes from ``swap.plan``, the reason for an early end from ``judge``, the
way back from ``wayback.restore``. Whatever happens between arming the guard and the end, ``conduct`` restores production before it
returns. It does not compute figures and does not print results.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from audition.engines.base import BootOutcome, Engine
from audition.errors import AuditionError, InternalError, Refused
from audition.judge.records import BootRecord, LegRecord
from audition.run.events import BootLogged, EndedEarly, RestoreEnded, StepBegan, StepEnded, planned_step
from audition.run.interrupts import Interrupts
from audition.run.journal import Journal
from audition.run.reporter import Reporter
from audition.spike.model import Leg, Spike
from audition.swap.plan import Step, StepKind, closing_steps
from audition.wayback.restore import RestoreReport
from audition.wayback.server import WaybackError

OnPoint = Callable[[str, str], None]
"""Called with (step key, point) around every effect; points are before-intent, after-intent, after-effect, after-done."""

Ended = Literal["complete", "early-end", "interrupted", "failed"]
BEFORE_TOUCHING = (StepKind.TAKE_LOCK, StepKind.SNAPSHOT, StepKind.ARM_GUARD)


def no_point(_step: str, _point: str) -> None:
    """The observer that does nothing."""


class Surroundings(Protocol):
    """What the conductor needs beyond engines: slot, guard, drain, sidecars, measuring, restoring; see ``run.surroundings``."""

    def take_lock(self) -> dict[str, Any]:
        """Reserve the slot; raises Refused when somebody else holds it."""

    def snapshot(self) -> dict[str, Any]:
        """Look at production and record what it answers; raises Refused when it is not as the spike file says."""

    def arm_guard(self) -> dict[str, Any]:
        """Write the restore plan, arm the guard, prove it armed; raises Refused."""

    def check_guard(self) -> None:
        """Arm a new guard when the present one has died; raises InternalError when that fails."""

    def close_entry(self) -> dict[str, Any]:
        """Run the command that closes the entry; raises InternalError when it fails."""

    def stop_sidecars(self) -> dict[str, Any]:
        """Stop the sidecars of the restore plan."""

    def drain(self, give_up: Callable[[], bool]) -> dict[str, Any]:
        """Wait for production's running requests to end, within the budget; says how many are left."""

    def park(self, engine: Engine) -> dict[str, Any] | None:
        """Park an arm; None when it cannot be parked and nothing was done. Raises InternalError when it was tried and failed."""

    def unpark(self, engine: Engine) -> dict[str, Any] | None:
        """Resume a parked arm and see that it works; None when it is not parked. Raises InternalError."""

    def settle(self) -> dict[str, Any]:
        """Wait until GPU memory is back at its baseline after a stop; raises InternalError when it is not."""

    def measure(self, number: int, leg: Leg, boot: BootRecord, give_up: Callable[[], bool]) -> LegRecord:
        """Probes and workloads of one leg; the record is on disk when this returns."""

    def record_failed_boot(self, number: int, leg: Leg, boot: BootRecord) -> LegRecord:
        """The record of a leg whose engine did not start; on disk when this returns."""

    def diagnose_boot(self, arm: str, outcome: BootOutcome) -> BootRecord:
        """What the boot log says about a failed boot."""

    def early_end_reason(self) -> str | None:
        """Why nothing can change the verdict any more, or None."""

    def past_deadline(self) -> bool:
        """Whether restoring must begin now."""

    def restore(self, on_point: OnPoint) -> RestoreReport:
        """Bring production back and verify it. Never raises for what it finds; the report says it."""

    def stand_down(self, report: RestoreReport | None) -> dict[str, Any]:
        """Close the run: mark it closed when verified, end the guard, keep it when not. None: nothing was touched."""

    def release_lock(self) -> dict[str, Any]:
        """Give the slot back."""


@dataclass
class RunEnd:
    """How a run ended. ``restored`` None: nothing was touched. ``error``: what cut the run, if something did."""

    ended: Ended = "complete"
    reason: str = ""
    restored: RestoreReport | None = None
    error: Exception | None = None
    legs: list[LegRecord] = field(default_factory=list)


class Conductor:
    """Carries out one plan. One instance, one run."""

    def __init__(
        self,
        spike: Spike,
        *,
        steps: list[Step],
        engines: dict[str, Engine],
        around: Surroundings,
        open_journal: Callable[[], Journal],
        reporter: Reporter,
        interrupts: Interrupts,
        on_point: OnPoint = no_point,
    ) -> None:
        self._spike, self._steps, self._engines, self._around = spike, steps, engines, around
        self._open_journal, self._reporter, self._interrupts, self._on_point = open_journal, reporter, interrupts, on_point
        self._journal: Journal | None = None
        self._boots: dict[str, BootRecord] = {}
        self._end = RunEnd()

    def conduct(self) -> RunEnd:
        """Run the plan. Raises an AuditionError only when nothing was touched; otherwise production is restored."""
        before = [step for step in self._steps if step.kind in BEFORE_TOUCHING]
        closing = closing_steps(self._spike.production.name)
        begun: list[Step] = []
        try:
            for step in before:
                begun.append(step)
                self._perform(step)
        except InternalError as cause:  # a journal that cannot be written, say: nothing was touched, so it is a refusal
            self._abandon(begun)
            hint = cause.next_step or "put the cause right and start again"
            raise Refused(cause.what, tried=cause.tried, seen=cause.seen, production="untouched", next_step=hint) from cause
        except BaseException:
            self._abandon(begun)
            raise
        try:
            self._middle([s for s in self._steps if s not in before and s.kind not in {c.kind for c in closing}])
        except Exception as cause:  # noqa: BLE001 - whatever it is, production comes first; it is kept and shown
            self._end.ended, self._end.error = "failed", cause
            self._end.reason = cause.what if isinstance(cause, AuditionError) else f"{type(cause).__name__}: {cause}"
            self._reporter.warn(f"{self._end.reason}: bringing production back")
            if not isinstance(cause, AuditionError | WaybackError):
                self._reporter.warn(traceback.format_exc())
        self._close(closing)
        return self._end

    # -- the steps between arming and restoring --------------------------------------------------------------------

    def _middle(self, steps: list[Step]) -> None:
        legs = self._spike.planned_legs()
        for step in steps:
            if self._give_up():
                self._given_up()
                return
            self._around.check_guard()
            leg = legs[step.leg - 1] if step.leg else None
            self._perform(step, leg)
            if self._end.ended != "complete":
                return
            if step.kind is StepKind.MEASURE and self._spike.early_end and step.leg != len(legs):
                reason = self._around.early_end_reason()
                if reason:
                    self._stop_early("early-end", reason)
                    return

    def _stop_early(self, ended: Ended, reason: str) -> None:
        self._end.ended, self._end.reason = ended, reason
        self._reporter.tell(EndedEarly(ended, reason))

    def _effect(self, step: Step, leg: Leg | None) -> dict[str, Any]:
        around = self._around
        simple: dict[StepKind, Callable[[], dict[str, Any]]] = {
            StepKind.TAKE_LOCK: around.take_lock,
            StepKind.SNAPSHOT: around.snapshot,
            StepKind.ARM_GUARD: around.arm_guard,
            StepKind.CLOSE_ENTRY: around.close_entry,
            StepKind.STOP_SIDECARS: around.stop_sidecars,
            StepKind.DRAIN: lambda: around.drain(self._give_up),
            StepKind.RELEASE_LOCK: around.release_lock,
        }
        if step.kind in simple:
            return simple[step.kind]()
        if step.arm is None or leg is None or step.leg is None:
            raise InternalError(f"step {step.key} has no leg")
        engine = self._engines[step.arm]
        if step.kind is StepKind.STOP:
            return self._stop(engine)
        if step.kind is StepKind.PARK:
            return self._around.park(engine) or {"parked": "", **self._stop(engine)}
        if step.kind is StepKind.UNPARK:
            return self._unpark(step.leg, leg, engine)
        if step.kind is StepKind.START:
            engine.start()
            return {"boot_id": engine.boot_id()}
        if step.kind is StepKind.AWAIT_READY:
            return self._await_ready(step.leg, leg, engine)
        if step.kind is StepKind.MEASURE:
            return self._measure(step.leg, leg, engine)
        raise InternalError(f"step {step.key}: no effect for {step.kind}")

    def _stop(self, engine: Engine) -> dict[str, Any]:
        outcome = engine.stop()
        if not outcome.proved:
            raise InternalError(f"{engine.arm} could not be proved stopped", seen=outcome.detail)
        if outcome.killed:
            self._reporter.warn(f"{engine.arm} did not stop within its grace period and was killed")
        return {"seconds": outcome.seconds, "killed": outcome.killed, **self._around.settle()}

    def _unpark(self, number: int, leg: Leg, engine: Engine) -> dict[str, Any]:
        """Resume the arm; one that could not be parked is booted again."""
        done = self._around.unpark(engine)
        if done is not None:
            self._boots[leg.arm] = BootRecord("already-running", engine.boot_id(), None, clean=True)
            return done
        engine.start()
        return {"resumed": "", **self._await_ready(number, leg, engine)}

    def _await_ready(self, number: int, leg: Leg, engine: Engine) -> dict[str, Any]:
        outcome = engine.wait_ready(self._give_up, lambda line: self._reporter.tell(BootLogged(leg.arm, line)))
        if outcome.kind == "ready":
            self._boots[leg.arm] = BootRecord("booted", engine.boot_id(), outcome.seconds, clean=True)
            return {"seconds": outcome.seconds}
        if outcome.kind == "interrupted":
            self._given_up(f" while {leg.arm} was starting")
            return {"interrupted": True}
        boot = self._around.diagnose_boot(leg.arm, outcome)
        self._end.legs.append(self._around.record_failed_boot(number, leg, boot))
        role = self._spike.arm(leg.arm).role
        self._stop_early("failed" if role == "production" else "early-end", f"{leg.arm} did not start: {boot.failure}")
        return {"boot": outcome.kind}

    def _measure(self, number: int, leg: Leg, engine: Engine) -> dict[str, Any]:
        boot = self._boots.get(leg.arm) or BootRecord("already-running", engine.boot_id(), None, clean=True)
        record = self._around.measure(number, leg, boot, self._give_up)
        self._end.legs.append(record)
        if record.outcome == "cut" and self._give_up():
            self._given_up()
        elif record.outcome == "cut":
            self._stop_early("early-end", record.detail)
        elif record.outcome == "engine-died":
            role = self._spike.arm(leg.arm).role
            self._stop_early("failed" if role == "production" else "early-end", record.detail)
        return {"outcome": record.outcome}

    def _give_up(self) -> bool:
        return self._interrupts.requested or self._around.past_deadline()

    def _given_up(self, when: str = "") -> None:
        """End early with the reason. The deadline goes first: when it passes, the guard sends SIGTERM, too."""
        if self._around.past_deadline():
            self._stop_early("early-end", f"the window leaves no more time{when}: restoring must begin now")
        else:
            self._stop_early("interrupted", f"{self._interrupts.name} received{when}")

    # -- the end ------------------------------------------------------------------------------------------------------

    def _close(self, closing: list[Step]) -> None:
        restore, stand_down, release = closing
        if self._journal is not None:
            self._journal.tolerate()
        report = self._restore(restore)
        self._end.restored = report
        self._finish(stand_down, lambda: self._around.stand_down(report))
        self._finish(release, self._around.release_lock)
        if self._journal is not None:
            if self._journal.broken:
                self._reporter.warn(f"the journal could not be written to its end: {self._journal.broken}")
            self._journal.close()

    def _restore(self, step: Step) -> RestoreReport:
        self._reporter.tell(StepBegan(planned_step(step)))
        begun = time.monotonic()
        self._point(step, "before-intent")
        self._write(step, "intent")
        self._point(step, "after-intent")
        report = self._around.restore(self._restore_point)
        self._point(step, "after-effect")
        self._write(step, "done", {"verified": report.verified, "problems": report.problems})
        self._point(step, "after-done")
        self._reporter.tell(RestoreEnded(report.verified, tuple(report.problems), time.monotonic() - begun))
        return report

    def _restore_point(self, inner: str, point: str) -> None:
        """Inner steps of restoring are journalled too, under ``restore.<step>``; a journal that fails does not stop them."""
        self._on_point(f"restore.{inner}", point)
        marks = {"before-intent": "intent", "after-effect": "done"}
        if point in marks and self._journal is not None:
            self._journal.write(f"restore.{inner}", "restore-step", marks[point])  # type: ignore[arg-type]

    def _finish(self, step: Step, effect: Callable[[], dict[str, Any]]) -> None:
        self._point(step, "before-intent")
        self._write(step, "intent")
        self._point(step, "after-intent")
        try:
            data = effect()
        except (AuditionError, WaybackError, OSError) as cause:
            self._write(step, "failed", {"error": str(cause)})
            self._reporter.warn(f"{step.text}: {cause}")
            return
        self._point(step, "after-effect")
        self._write(step, "done", data)
        self._point(step, "after-done")

    def _abandon(self, begun: list[Step]) -> None:
        """Undo what was begun before anything was touched; undoing what was not reached does nothing."""
        kinds = {step.kind for step in begun}
        if StepKind.TAKE_LOCK in kinds:
            undoing: list[Callable[[], dict[str, Any]]] = [lambda: self._around.stand_down(None), self._around.release_lock]
            for undo in undoing:
                try:
                    undo()
                except (AuditionError, WaybackError, OSError) as cause:
                    self._reporter.warn(str(cause))
        if self._journal is not None:
            self._journal.close()

    # -- one step -----------------------------------------------------------------------------------------------------

    def _perform(self, step: Step, leg: Leg | None = None) -> None:
        if step.kind in BEFORE_TOUCHING and self._interrupts.requested:
            raise Refused(f"{self._interrupts.name} received before anything was touched")
        self._reporter.tell(StepBegan(planned_step(step)))
        begun = time.monotonic()
        self._point(step, "before-intent")
        self._write(step, "intent")
        self._point(step, "after-intent")
        try:
            data = self._effect(step, leg)
        except Exception as cause:
            self._write_quietly(step, {"error": str(cause)})
            raise
        self._point(step, "after-effect")
        if step.kind is StepKind.SNAPSHOT and "boot_seconds" in data and step.arm is not None:
            boot_id = self._engines[step.arm].boot_id()
            self._boots[step.arm] = BootRecord("booted", boot_id, float(data["boot_seconds"]), clean=True)
        if step.kind is StepKind.TAKE_LOCK:
            self._journal = self._open_journal()
            self._write(step, "intent")
        self._write(step, "done", data)
        self._point(step, "after-done")
        self._reporter.tell(StepEnded(planned_step(step), time.monotonic() - begun))

    def _point(self, step: Step, point: str) -> None:
        self._on_point(step.key, point)

    def _write(self, step: Step, mark: str, data: dict[str, Any] | None = None) -> None:
        """An entry; before the lock is taken there is no journal yet, and nothing that could need one."""
        if self._journal is not None:
            self._journal.write(step.key, step.kind.value, mark, data)  # type: ignore[arg-type]

    def _write_quietly(self, step: Step, data: dict[str, Any]) -> None:
        try:
            self._write(step, "failed", data)
        except AuditionError as second:
            self._reporter.warn(str(second))
