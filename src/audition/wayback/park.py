"""Parking: a server suspended where it is, its GPU memory moved to host memory, and brought back at the same addresses.

Here are the order of things (all ranks are locked before any is checkpointed, all restored before any is unlocked), the stand-in
for machines without a GPU, and the choice between the two. The driver's calls live in ``park_cuda``. When is decided elsewhere.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from audition.wayback.plan import ParkTarget, ProcessRef
from audition.wayback.proctable import Proc, credentials, is_alive, listeners, read_proc, ref_of, send_signal
from audition.wayback.server import WaybackError

State = Literal["running", "locked", "moving", "parked", "failed", "gone"]
"""Of one process. locked: its calls to the GPU wait; moving: its memory is under way (newer drivers say so); parked: its GPU memory
is in host memory; failed: the driver gave it up."""

STOP_S = 10.0
"""How long a stopped process may take to show as stopped, in seconds. A signal takes well under a millisecond."""
_POLL_S = 0.005
_AGAIN_S = 0.5
_NVIDIA = "/dev/nvidia"
_ENGINE_NAMES = ("VLLM::EngineCor", "VLLM::Worker")
"""How vLLM names its engine processes; the kernel keeps 15 characters."""


class Parker(Protocol):
    """Parks single processes. Every call raises WaybackError with what the process or the driver said."""

    @property
    def kind(self) -> Literal["cuda", "stop"]:
        """How the records call it."""

    def state(self, ref: ProcessRef) -> State:
        """The state now, touching nothing."""

    def lock(self, ref: ProcessRef, limit_s: float) -> None:
        """running → locked, waiting at most ``limit_s`` seconds for work under way."""

    def checkpoint(self, ref: ProcessRef) -> None:
        """locked → parked."""

    def restore(self, ref: ProcessRef) -> None:
        """parked → locked."""

    def unlock(self, ref: ProcessRef) -> None:
        """locked → running."""


class StopParker:
    """The stand-in: SIGSTOP and SIGCONT. To clients a stopped engine looks as a checkpointed one does; no memory is moved.

    A stopped process shows no difference between locked and parked: it is ``parked`` from its lock to its unlock.
    """

    kind: Literal["cuda", "stop"] = "stop"

    def state(self, ref: ProcessRef) -> State:
        """From /proc: T is stopped by a signal."""
        proc = read_proc(ref.pid)
        if proc is None or not is_alive(ref):
            return "gone"
        return "parked" if proc.state == "T" else "running"

    def lock(self, ref: ProcessRef, limit_s: float) -> None:
        """SIGSTOP."""
        self._signal(ref, signal.SIGSTOP, "parked", min(limit_s, STOP_S))

    def checkpoint(self, ref: ProcessRef) -> None:
        """Nothing to move; a process that does not stand still is an error."""
        self._expect(ref)

    def restore(self, ref: ProcessRef) -> None:
        """Nothing to move; a process that does not stand still is an error."""
        self._expect(ref)

    def unlock(self, ref: ProcessRef) -> None:
        """SIGCONT."""
        self._signal(ref, signal.SIGCONT, "running", STOP_S)

    def _expect(self, ref: ProcessRef) -> None:
        seen = self.state(ref)
        if seen != "parked":
            raise WaybackError(f"process {ref.pid} is {seen}, not stopped")

    def _signal(self, ref: ProcessRef, number: signal.Signals, wanted: State, limit_s: float) -> None:
        if not send_signal(ref, number):
            raise WaybackError(f"process {ref.pid} is gone")
        until = time.monotonic() + limit_s
        while (seen := self.state(ref)) != wanted:
            if seen == "gone" or time.monotonic() > until:
                raise WaybackError(f"process {ref.pid} is {seen} after {number.name}")
            time.sleep(_POLL_S)


def parker_of(target: ParkTarget) -> Parker:
    """The parker of a plan. Raises WaybackError when the driver's calls cannot be used."""
    if target.parker == "stop":
        return StopParker()
    from audition.wayback.park_cuda import CudaParker  # noqa: PLC0415 - loads the driver

    return CudaParker(target.move_s)


@dataclass(frozen=True)
class Moved:
    """How long a park or an unpark took, in seconds: the locks (or unlocks) and the moves."""

    locks_s: float
    moves_s: float

    @property
    def seconds(self) -> float:
        """Both together."""
        return self.locks_s + self.moves_s


class ParkFailedError(WaybackError):
    """A park that did not succeed. ``resumed``: every process runs again, as before."""

    def __init__(self, text: str, *, resumed: bool) -> None:
        super().__init__(text)
        self.resumed = resumed


def park(parker: Parker, refs: Sequence[ProcessRef], lock_s: float) -> Moved:
    """Lock all, then checkpoint all, then see that all are parked. Parks what is left of a half-done park, too.

    ``lock_s``: limit of one lock in seconds. Raises ParkFailedError, after having tried to resume everything.
    """
    began = time.monotonic()
    locked = began
    try:
        if not refs:
            raise WaybackError("there is no process to park")
        for ref in refs:
            if parker.state(ref) == "running":
                parker.lock(ref, lock_s)
        locked = time.monotonic()
        for ref in refs:
            if parker.state(ref) == "locked":
                parker.checkpoint(ref)
        for ref in refs:
            if (seen := parker.state(ref)) != "parked":
                raise WaybackError(f"process {ref.pid} is {seen} after its checkpoint")
    except WaybackError as error:
        try:
            unpark(parker, refs)
        except WaybackError as second:
            raise ParkFailedError(f"{error}; nor could it be resumed: {second}", resumed=False) from error
        raise ParkFailedError(str(error), resumed=True) from error
    return Moved(locked - began, time.monotonic() - locked)


def unpark(parker: Parker, refs: Sequence[ProcessRef], patience_s: float = 0.0) -> Moved:
    """Restore all, then unlock all, then see that all run. Safe to call in every state, and by two at once: what another caller
    has done meanwhile counts as done.

    ``patience_s``: how long to try again, in seconds. A move that a killed caller began goes on without it, and a driver that does
    not tell refuses the next call until it is over. Raises WaybackError when a process is gone, was given up by the driver, or does
    not run afterwards.
    """
    until = time.monotonic() + patience_s
    while True:
        try:
            return _unpark_once(parker, refs)
        except WaybackError:
            lost = any(parker.state(ref) in ("failed", "gone") for ref in refs)
            if lost or time.monotonic() >= until:
                raise
            time.sleep(_AGAIN_S)


def _unpark_once(parker: Parker, refs: Sequence[ProcessRef]) -> Moved:
    began = time.monotonic()
    for ref in refs:
        _step(parker, ref, ("parked",), parker.restore)
    restored = time.monotonic()
    for ref in refs:
        _step(parker, ref, ("locked", "parked"), parker.unlock)
    for ref in refs:
        if (seen := parker.state(ref)) != "running":
            raise WaybackError(f"process {ref.pid} is {seen} after its unlock")
    return Moved(time.monotonic() - restored, restored - began)


def _step(parker: Parker, ref: ProcessRef, states: tuple[State, ...], act: Callable[[ProcessRef], None]) -> None:
    before = parker.state(ref)
    if before not in states:
        return
    try:
        act(ref)
    except WaybackError:
        if parker.state(ref) in (before, "failed", "gone"):
            raise


def parked_detail(target: ParkTarget, members: Callable[[], Iterable[ProcessRef]]) -> str:
    """What says that a server is parked, wholly or half; "" when it runs. ``members``: asked when the plan names no processes.

    Where the driver cannot be asked, the server counts as running: whether it works is then found out by asking it.
    """
    try:
        parker = parker_of(target)
    except WaybackError:
        return ""
    seen = []
    for ref in target.processes or members():
        try:
            state = parker.state(ref)
        except WaybackError:
            continue  # a process that the driver does not know
        if state not in ("running", "gone"):
            seen.append(f"process {ref.pid} is {state}")
    return ", ".join(seen)


def workers(members: Sequence[Proc], port: int) -> list[ProcessRef]:
    """The processes of a server that compute: vLLM's own where they are named so, else all but those that listen on the port and
    those that these descend from. Empty for a server that is one process: to stop it would cut its clients off."""
    front, _ = listeners(port)
    by_pid = {proc.pid: proc for proc in members}
    kept: set[int] = set()
    for listener in front:
        above = listener
        while above in by_pid and above not in kept:
            kept.add(above)
            above = by_pid[above].ppid
    rest = [proc for proc in members if proc.pid not in kept]
    if not kept:
        return []
    named = [proc for proc in rest if proc.name.startswith(_ENGINE_NAMES)]
    return [ref_of(proc) for proc in named or rest]


def opens_nvidia(pid: int) -> bool:
    """Whether a process holds a device file of the NVIDIA driver. Unreadable counts as no."""
    try:
        numbers = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    for number in numbers:
        try:
            if os.readlink(f"/proc/{pid}/fd/{number}").startswith(_NVIDIA):
                return True
        except OSError:
            continue
    return False


@dataclass(frozen=True)
class Choice:
    """How a server would be parked: the target, or None and ``why_not``. ``said``: how, in words for the records."""

    target: ParkTarget | None
    said: str = ""
    why_not: str = ""


def choose(members: Sequence[Proc], port: int, *, holders: Sequence[int] = (), watched: bool = False) -> Choice:
    """How a running server would be parked, by what its processes are. Touches nothing.

    ``holders``: pids that hold GPU memory, as far as they are known; ``watched``: GPU memory is watched in this run, and must fall
    when the server is parked, which the stand-in cannot do.
    """
    if any(opens_nvidia(proc.pid) for proc in members):
        return _choose_cuda(members, holders)
    if watched or any(proc.pid in holders for proc in members):
        return Choice(None, why_not="none of its processes holds a CUDA context, and the stand-in (SIGSTOP) frees no GPU memory")
    refs = workers(members, port)
    if not refs:
        return Choice(None, why_not="it has no engine process beside the one that answers clients")
    if foreign := _not_ours(refs):
        return Choice(None, why_not=foreign)
    pids = ", ".join(str(ref.pid) for ref in refs)
    return Choice(
        ParkTarget("stop", refs),
        f"by the stand-in (SIGSTOP, SIGCONT; process {pids}), as none of its processes holds a CUDA context: no memory is freed",
    )


def _not_ours(refs: Sequence[ProcessRef]) -> str:
    """Why the rights do not suffice: only the same user or root may park a process; "" when they do."""
    me = os.geteuid()
    others = [ref.pid for ref in refs if me != 0 and (seen := credentials(ref.pid)) is not None and seen[0] != me]
    return f"process {others[0]} belongs to another user, and you are not root" if others else ""


def _choose_cuda(members: Sequence[Proc], holders: Sequence[int]) -> Choice:
    from audition.wayback.park_cuda import CudaParker  # noqa: PLC0415 - loads the driver

    try:
        parker = CudaParker()
    except WaybackError as error:
        return Choice(None, why_not=str(error))
    refs = []
    for proc in members:
        try:
            if parker.state(ref_of(proc)) == "running":
                refs.append(ref_of(proc))
        except WaybackError:
            continue  # it uses the driver (NVML, say), but holds no CUDA context
    refs = [ref for ref in refs if ref.pid in holders] or refs
    if not refs:
        return Choice(None, why_not="the driver knows no CUDA context of its processes")
    if foreign := _not_ours(refs):
        return Choice(None, why_not=foreign)
    pids = ", ".join(str(ref.pid) for ref in refs)
    return Choice(ParkTarget("cuda", refs), f"by the driver's checkpoint calls (process {pids})")
