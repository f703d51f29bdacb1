"""The plan of a spike: every step with its undo, made from the spike file alone before anything is touched. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from audition.spike.model import Spike


class StepKind(StrEnum):
    """What a step does. The order here is the order in which kinds first appear in a plan."""

    TAKE_LOCK = "take-lock"
    SNAPSHOT = "snapshot"
    ARM_GUARD = "arm-guard"
    CLOSE_ENTRY = "close-entry"
    STOP_SIDECARS = "stop-sidecars"
    MEASURE = "measure"
    DRAIN = "drain"
    STOP = "stop"
    PARK = "park"
    START = "start"
    AWAIT_READY = "await-ready"
    UNPARK = "unpark"
    RESTORE = "restore"
    STAND_DOWN = "stand-down"
    RELEASE_LOCK = "release-lock"


UNDO: dict[StepKind, str] = {
    StepKind.TAKE_LOCK: "the kernel drops the lock when its holder ends",
    StepKind.SNAPSHOT: "nothing to undo: looking changes nothing",
    StepKind.ARM_GUARD: "stand the guard down once production is verified",
    StepKind.CLOSE_ENTRY: "open the entry",
    StepKind.STOP_SIDECARS: "start the sidecars again",
    StepKind.MEASURE: "nothing to undo: requests end with the leg",
    StepKind.DRAIN: "nothing to undo: waiting changes nothing",
    StepKind.STOP: "start the arm again if it is production",
    StepKind.PARK: "resume the arm if it is production, else stop it",
    StepKind.UNPARK: "stop the arm if it is not production",
    StepKind.START: "stop the arm if it is not production",
    StepKind.AWAIT_READY: "nothing to undo: waiting changes nothing",
    StepKind.RESTORE: "nothing to undo: this is the undoing",
    StepKind.STAND_DOWN: "nothing to undo: production is verified",
    StepKind.RELEASE_LOCK: "nothing to undo: the run is over",
}

TOUCHES_PRODUCTION = frozenset(
    {StepKind.CLOSE_ENTRY, StepKind.STOP_SIDECARS, StepKind.STOP, StepKind.PARK, StepKind.UNPARK, StepKind.START}
)
"""Kinds that change the world of production: all of them come after ARM_GUARD and before RESTORE."""


@dataclass(frozen=True)
class Step:
    """One step. ``key`` is unique within a plan and stable across runs of the same spike file. ``leg`` counts from 1."""

    key: str
    kind: StepKind
    text: str
    arm: str | None = None
    leg: int | None = None

    @property
    def undo(self) -> str:
        """How this step is undone, in words."""
        return UNDO[self.kind]


def make_plan(spike: Spike, *, sidecars: bool = False) -> list[Step]:
    """All steps in order. The plan always ends with restore, stand-down and release-lock, whatever the legs are.

    ``sidecars``: whether interfering sidecars were found and are to be stopped for the window.
    """
    production = spike.production.name
    steps = [
        Step("take-lock", StepKind.TAKE_LOCK, "reserve the slot"),
        Step("snapshot", StepKind.SNAPSHOT, f"record how {production} runs and what it answers", production),
        Step("arm-guard", StepKind.ARM_GUARD, "arm the guard that brings production back if audition dies"),
    ]
    if spike.drain.close is not None:
        steps.append(Step("close-entry", StepKind.CLOSE_ENTRY, "close the entry"))
    if sidecars:
        steps.append(Step("stop-sidecars", StepKind.STOP_SIDECARS, "stop sidecars that could interfere"))
    running, booted = production, {production}
    for number, leg in enumerate(spike.planned_legs(), start=1):
        if leg.arm != running:
            if spike.restore.strategy == "park":
                steps += _change(number, running, leg.arm, spike, again=leg.arm in booted)
            else:
                steps += _swap(number, running, leg.arm, production)
            running = leg.arm
            booted.add(running)
        steps.append(Step(f"leg-{number}.measure", StepKind.MEASURE, f"measure {leg.arm}", leg.arm, number))
    return [*steps, *closing_steps(production)]


def closing_steps(production: str) -> list[Step]:
    """The steps that end every run, also one that was cut."""
    return [
        Step("restore", StepKind.RESTORE, f"bring {production} back and verify it", production),
        Step("stand-down", StepKind.STAND_DOWN, "stand the guard down"),
        Step("release-lock", StepKind.RELEASE_LOCK, "give the slot back"),
    ]


def _swap(number: int, old: str, new: str, production: str) -> list[Step]:
    steps = []
    if old == production:
        steps.append(Step(f"leg-{number}.drain", StepKind.DRAIN, f"let requests of {old} end", old, number))
    return [
        *steps,
        Step(f"leg-{number}.stop", StepKind.STOP, f"stop {old}", old, number),
        Step(f"leg-{number}.start", StepKind.START, f"start {new}", new, number),
        Step(f"leg-{number}.ready", StepKind.AWAIT_READY, f"wait until {new} answers", new, number),
    ]


def _change(number: int, old: str, new: str, spike: Spike, *, again: bool) -> list[Step]:
    """Two arms change places by parking. Production is drained only behind a closed entry: otherwise its requests simply wait.

    ``again``: the new arm has run before and is parked; an arm's first leg boots it.
    """
    steps = []
    if old == spike.production.name and spike.drain.close is not None:
        steps.append(Step(f"leg-{number}.drain", StepKind.DRAIN, f"let requests of {old} end", old, number))
    steps.append(Step(f"leg-{number}.park", StepKind.PARK, f"park {old}", old, number))
    if again:
        return [*steps, Step(f"leg-{number}.unpark", StepKind.UNPARK, f"resume {new}", new, number)]
    return [
        *steps,
        Step(f"leg-{number}.start", StepKind.START, f"start {new}", new, number),
        Step(f"leg-{number}.ready", StepKind.AWAIT_READY, f"wait until {new} answers", new, number),
    ]
