"""What to do next on the way back: one pure function of what is seen and what was done. Doing it lives in ``restore``.

The order: stop every other arm, wait for the GPU, start production (or resume it where it is parked), wait until it works, verify
it, start the sidecars again, open the entry, hold. What was found out about a boot of production counts for that boot only.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from audition.wayback.plan import RestorePlan
from audition.wayback.server import ServerView

STOP_TRIES = 3
UNPARK_TRIES = 1
"""A driver that failed to restore a process does not promise a usable one: then production is killed and started anew."""
HOLD_TRIES = 3
MOST_STEPS = 80
CHECK_STARTS = 1
"""After how many starts a check that fails on a boot that answers completions earns a restart: after the first of this restore. The
same failure again is no accident; and a server that this restore did not start is not taken down for it, or every retry of a guard
would take it down."""


@dataclass(frozen=True)
class Look:
    """What is seen now. ``trouble``: why looking failed ("" when it did not)."""

    production: ServerView
    others: dict[str, ServerView]
    trouble: str = ""


@dataclass(frozen=True)
class Progress:
    """What was done in this restore. ``*_boot``: the boot of production for which it holds. ``stops``: tries by arm."""

    steps: int = 0
    stops: dict[str, int] = field(default_factory=dict)
    stopped: frozenset[str] = frozenset()
    looked_in_vain: int = 0
    settled: bool = False
    waited_for_port: bool = False
    starts: int = 0
    ready_boot: str = ""
    verified_boot: str = ""
    bad_boots: frozenset[str] = frozenset()
    refused: str = ""
    sidecars: bool = False
    entry: bool = False
    held_boot: str = ""
    holds: int = 0
    unparks: int = 0


@dataclass(frozen=True)
class Step:
    """The next step. ``arm`` names the arm of a stop."""

    name: str
    arm: str = ""

    def __str__(self) -> str:
        return f"{self.name}:{self.arm}" if self.arm else self.name


@dataclass(frozen=True)
class Done:
    """Everything is done."""


@dataclass(frozen=True)
class Stuck:
    """Nothing more can be done without a person; ``why`` in one sentence."""

    why: str


def next_step(plan: RestorePlan, look: Look, done: Progress, *, start_tries: int = 3, look_tries: int = 60) -> Step | Done | Stuck:
    """The next step towards a verified production, ``Done``, or ``Stuck``. Total: has an answer for everything that can be seen."""
    if done.steps >= MOST_STEPS:
        return Stuck(f"gave up after {done.steps} steps")
    if look.trouble:
        return Step("look") if done.looked_in_vain < look_tries else Stuck(f"cannot see what runs: {look.trouble}")
    for arm in sorted(look.others):
        if _to_stop(arm, look.others[arm], done):
            return Step("stop", arm)
    return _production_step(plan, look.production, done, start_tries)


def _to_stop(arm: str, view: ServerView, done: Progress) -> bool:
    """Whether another arm still has to be stopped: it runs, or something of it is left and no stop was proved yet."""
    left = view.state in ("running", "parked") or (view.state == "stopped" and arm not in done.stopped)
    return left and done.stops.get(arm, 0) < STOP_TRIES


def _production_step(plan: RestorePlan, view: ServerView, done: Progress, start_tries: int) -> Step | Done | Stuck:
    name = plan.production.arm
    if view.state == "running":
        if view.boot_id in done.bad_boots:
            spoilt = view.parkable and not done.starts  # it may be wrong because it was parked, which a restart undoes
            if done.ready_boot == view.boot_id and done.starts != CHECK_STARTS and not spoilt:
                again = ", also after a restart" if done.starts else ""
                return Stuck(f"production works, but fails a check{again}: {done.refused or view.detail}")
            if done.starts >= start_tries or done.stops.get(name, 0) >= STOP_TRIES + start_tries:
                return Stuck(f"production runs, but does not work, after {done.starts} starts: {done.refused or view.detail}")
            return Step("stop", name)
        return _running_step(view.boot_id, done)
    if view.state == "parked":
        if done.unparks < UNPARK_TRIES:
            return Step("unpark") if done.settled else Step("gpu")
        if done.stops.get(name, 0) >= STOP_TRIES + start_tries:
            return Stuck(f"production is parked, could not be resumed and cannot be ended: {view.detail}; a reboot may be needed")
        return Step("stop", name)
    if view.state == "foreign":
        return Stuck(f"cannot start production: {view.detail}") if done.waited_for_port else Step("port")
    if view.state == "stopped" and plan.production.process is not None and name not in done.stopped:
        if done.stops.get(name, 0) >= STOP_TRIES + start_tries:
            return Stuck(f"cannot clear what is left of production: {view.detail}; reboot needed if it cannot be killed")
        return Step("stop", name)
    if done.starts >= start_tries:
        return Stuck(f"production did not come up in {done.starts} starts: {done.refused or view.detail}")
    return Step("start") if done.settled else Step("gpu")


def _running_step(boot: str, done: Progress) -> Step | Done | Stuck:
    if done.ready_boot != boot:
        return Step("ready")
    if done.verified_boot != boot:
        return Step("verify") if not done.refused else Stuck(done.refused)
    if not done.sidecars:
        return Step("sidecars")
    if not done.entry:
        return Step("entry")
    if done.held_boot != boot:
        return Step("hold") if done.holds < HOLD_TRIES else Stuck(f"production restarted in each of {done.holds} hold times")
    return Done()
