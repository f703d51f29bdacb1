"""Which arms of a run may be parked instead of stopped, and doing it: memory looked at first, clients counted, proof at the end.

How processes are parked lives in ``wayback.park``. When is the plan's business, and what else is done when an arm cannot be parked
the conductor's: it stops and starts it, as without parking.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from audition.errors import InternalError
from audition.run.draining import drain
from audition.wayback.gpu import read_usage
from audition.wayback.health import Check, precheck, verify
from audition.wayback.hostmem import available_mib, held_mib, memory_short
from audition.wayback.park import Choice, ParkFailedError, choose, park, parker_of, unpark
from audition.wayback.park_trial import try_out
from audition.wayback.plan import ArmTarget, EndpointPlan, GpuPlan, ParkTarget, Verification
from audition.wayback.procs import ProcessServer
from audition.wayback.proctable import connections
from audition.wayback.server import WaybackError

Note = Callable[[str, bool], None]
"""Says a text now, and puts it into the record of the next leg. The flag: it is a warning."""


@dataclass(frozen=True)
class Served:
    """How an arm is asked whether it works. ``verification``: of production, else None."""

    endpoint: EndpointPlan
    verification: Verification | None = None


class Parking:
    """The parking of one run."""

    def __init__(self, gpu: Callable[[], GpuPlan], note: Note) -> None:
        self._gpu, self._note = gpu, note
        self._targets: dict[str, ArmTarget] = {}
        self._production = ""
        self._parked: set[str] = set()

    # -- the plan

    def planned(self, production: ArmTarget, others: list[ArmTarget]) -> tuple[ArmTarget, list[ArmTarget]]:
        """The arms for the restore plan, with how they may be parked; unchanged, and why noted, where production cannot be parked.

        Raises WaybackError when production cannot be looked at.
        """
        choice = self._tried(self._choice(production))
        if choice.target is None:
            self._note(f"{production.arm} cannot be parked: {choice.why_not}; it is stopped and started instead", True)
            return production, others
        self._note(f"{production.arm} is parked {choice.said}; requests sent to it meanwhile are answered late, not refused", False)
        self._production = production.arm
        production = replace(production, park=choice.target)
        others = [
            replace(arm, park=replace(choice.target, processes=[])) if arm.process is not None else arm for arm in others
        ]  # found when they run
        self._targets = {arm.arm: arm for arm in (production, *others) if arm.park is not None}
        return production, others

    def _tried(self, choice: Choice) -> Choice:
        """The driver's calls are tried on a throw-away process before production meets them."""
        if choice.target is None or choice.target.parker != "cuda":
            return choice
        gpus = self._gpu().gpus
        failed = try_out(gpus[0] if gpus else 0)
        return Choice(None, why_not=failed) if failed else choice

    def _choice(self, arm: ArmTarget) -> Choice:
        if arm.process is None:
            return Choice(None, why_not="containers are not parked yet")
        members = ProcessServer(arm, adopt=arm.arm == self._production).members()
        gpu = self._gpu()
        holders = [] if gpu.source == "none" else [holder.pid for holder in read_usage(gpu).holders]
        choice = choose(members, arm.port, holders=holders, watched=gpu.source != "none")
        if choice.target is not None and choice.target.parker == "cuda":
            pids = [ref.pid for ref in choice.target.processes]
            if short := memory_short(held_mib(gpu, pids), available_mib()):
                return Choice(None, why_not=short)
        return choice

    # -- parking

    def park(self, arm: str, served: Served) -> dict[str, Any] | None:
        """Park an arm; what was seen, for the journal. None: it cannot be parked, why is noted, and nothing was done to it.

        Raises InternalError when parking it was tried and failed; it was resumed then, or the text says that it was not.
        """
        target = self._targets.get(arm)
        if target is None or target.park is None:
            return None
        try:
            chosen = self._now(target)
        except WaybackError as error:
            chosen = Choice(None, why_not=str(error))
        if chosen.target is None:
            self._note(f"{arm} cannot be parked now: {chosen.why_not}; it is stopped and will be booted for its next leg", True)
            return None
        waiting = drain(served.endpoint, 0.0, lambda: True) if arm == self._production else None
        refs = chosen.target.processes
        try:
            moved = park(parker_of(chosen.target), refs, chosen.target.lock_s)
        except ParkFailedError as error:
            running = "resumed, as before" if error.resumed else "parked, and could not be resumed"
            raise InternalError(f"{arm} could not be parked", seen=str(error), production=running) from error
        except WaybackError as error:
            raise InternalError(f"{arm} could not be parked", seen=str(error)) from error
        self._targets[arm] = replace(target, park=chosen.target)
        self._parked.add(arm)
        if waiting is not None:
            count = "an unknown number of" if waiting.left is None else str(waiting.left)
            self._note(f"{arm} was parked in {moved.seconds:.1f} s with {count} requests under way, which now wait", False)
        return {"parked": chosen.target.parker, "seconds": moved.seconds, "processes": [ref.pid for ref in refs]}

    def _now(self, target: ArmTarget) -> Choice:
        """How a running arm is parked now: production as the restore plan says, another arm as it runs."""
        assert target.park is not None
        if target.arm != self._production:
            return self._choice(replace(target, park=None))
        view = ProcessServer(target, adopt=True).view()
        if not view.parkable or view.state != "running":
            return Choice(None, why_not="it is another boot than the one that the restore plan names")
        if target.park.parker == "cuda":
            pids = [ref.pid for ref in target.park.processes]
            if short := memory_short(held_mib(self._gpu(), pids), available_mib()):
                return Choice(None, why_not=short)
        return Choice(target.park)

    # -- resuming

    def unpark(self, arm: str, served: Served) -> dict[str, Any] | None:
        """Resume an arm and prove that it works; what was seen, for the journal. None: it is not parked.

        Raises InternalError when it cannot be resumed or does not work as before.
        """
        target = self._targets.get(arm)
        if target is None or target.park is None or arm not in self._parked:
            return None
        self._parked.remove(arm)
        view = ProcessServer(target, adopt=arm == self._production).view()
        if view.state != "parked":
            text = f"{arm} is not parked any more ({view.detail}): somebody resumed or ended it, so the leg before was disturbed"
            self._note(text, True)
            return None
        waiting = connections(target.port) if arm == self._production else 0
        moved = self._resume(arm, target.park)
        began = time.monotonic()
        checks = self._checks(served)
        seconds = time.monotonic() - began
        bad = [check for check in checks if check.ok is False]
        if bad:
            text = "; ".join(f"{check.name}: {check.detail}" for check in bad)
            raise InternalError(f"{arm} was resumed, but does not work as before", seen=text)
        self._note(f"{arm} was resumed in {moved.seconds:.1f} s and worked {seconds:.1f} s later; this leg has no boot", False)
        if waiting:
            self._note(f"{waiting} connections to {arm} were open when it was resumed: waiting requests or idle clients", False)
        if arm != self._production:
            self._targets[arm] = replace(target, park=replace(target.park, processes=[]))
        return {"resumed": target.park.parker, "seconds": moved.seconds, "checked_seconds": seconds, "connections": waiting}

    def _resume(self, arm: str, target: ParkTarget) -> Any:
        try:
            return unpark(parker_of(target), target.processes)
        except WaybackError as error:
            raise InternalError(f"{arm} could not be resumed", seen=str(error)) from error

    def _checks(self, served: Served) -> list[Check]:
        if served.verification is not None:
            return verify(served.endpoint, served.verification)
        return precheck(served.endpoint)
