"""What to do about a run that was found: a pure function of its journal, the observed world and the time.

It has an answer for everything. It never says Done while production is not verified, and never Restore while a live runner holds
the lock before its deadline. Looking at the world and acting live in the command line and in ``wayback``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from audition.swap.journal import JournalState


@dataclass(frozen=True)
class Missing:
    """There is no journal."""


@dataclass(frozen=True)
class Corrupt:
    """The journal cannot be read or makes no sense; ``why`` in one sentence."""

    why: str


@dataclass(frozen=True)
class WorldView:
    """What is seen of a run.

    plan: its restore plan. ``armed``: a guard was armed for it once. ``closed``: it is recorded as ended with production verified.
    lock: free; own-run, held by the live runner of this run; restorer, held by a live guard or recover; other-run, held by the live
    runner of another run. ``deadline``: Unix seconds, None without one. production: verified means that it runs as in its snapshot
    and that completions work now; unknown that it could not be looked at.
    """

    plan: Literal["readable", "damaged", "missing"]
    armed: bool
    closed: bool
    lock: Literal["free", "own-run", "restorer", "other-run"]
    deadline: float | None
    production: Literal["verified", "running", "down", "foreign", "unknown"]
    others: Literal["none", "some", "unknown"]


@dataclass(frozen=True)
class Resume:
    """The run goes on under its own runner: leave it alone."""

    why: str


@dataclass(frozen=True)
class Restore:
    """Bring production back from the plan. ``end_runner``: its live runner is past the deadline and has to be ended first."""

    why: str
    end_runner: bool = False


@dataclass(frozen=True)
class Done:
    """There is nothing to do."""

    why: str


@dataclass(frozen=True)
class Ask:
    """Only a person can go on."""

    why: str


@dataclass(frozen=True)
class Wait:
    """Somebody else is at it, or has to end first: look again later."""

    why: str


Decision = Resume | Restore | Done | Ask | Wait


def decide(journal: JournalState | Missing | Corrupt, world: WorldView, now: float) -> Decision:
    """The answer for one run. ``now`` in Unix seconds."""
    if world.lock == "restorer":
        return Wait("production is being brought back by another process")
    if world.lock == "own-run":
        return _with_live_runner(world, now)
    if world.lock == "other-run":
        return Wait("another run holds the lock and answers for production now")
    if world.closed:
        return Done("the run ended with production verified")
    if world.plan == "readable":
        return _with_plan(journal, world)
    return _without_plan(journal, world)


def _with_live_runner(world: WorldView, now: float) -> Decision:
    if world.deadline is None or now < world.deadline:
        return Resume("its runner lives and is within its time")
    if world.plan == "readable":
        return Restore("its runner lives, but the restore deadline has passed", end_runner=True)
    return Ask("its runner lives past the restore deadline, and the restore plan cannot be read")


def _with_plan(journal: JournalState | Missing | Corrupt, world: WorldView) -> Decision:
    untouched = isinstance(journal, JournalState) and not journal.touched
    if untouched and world.production == "verified" and world.others == "none":
        return Done("nothing was touched, and production is verified")
    if isinstance(journal, Missing):
        return Restore("the run was armed and has no journal")
    if isinstance(journal, Corrupt):
        return Restore(f"the run was armed and its journal cannot be used: {journal.why}")
    return Restore("the run has not ended with production verified")


def _without_plan(journal: JournalState | Missing | Corrupt, world: WorldView) -> Decision:
    touched = not isinstance(journal, JournalState) or journal.touched or journal.armed
    if world.plan == "missing" and not world.armed and (isinstance(journal, Missing) or not touched):
        return Ask("the run never began, but something of it runs") if world.others == "some" else Done("the run never began")
    if world.production == "verified" and world.others == "none":
        return Done("the restore plan is gone, but production is verified")
    return Ask(f"the restore plan is {world.plan}, and production is {world.production}")
