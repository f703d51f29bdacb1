"""What can be known about parking before anything is touched, as findings of an engine's preflight. Parks nothing."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from audition.engines.base import Finding
from audition.spike.model import Arm, ComposeEngine, SimulatedEngine
from audition.wayback.gpu import read_usage
from audition.wayback.hostmem import available_mib, held_mib, memory_short
from audition.wayback.park import Choice, choose
from audition.wayback.park_cuda import driver_version
from audition.wayback.park_trial import try_out
from audition.wayback.plan import GpuPlan
from audition.wayback.procs import ProcessServer
from audition.wayback.server import WaybackError

_PTRACE = Path("/proc/sys/kernel/yama/ptrace_scope")
_INSTEAD = "it is stopped and started instead"


@dataclass(frozen=True)
class ParkBeside:
    """That a spike parks: its production arm, and the GPUs that it watches."""

    production: Arm
    gpus: list[int] = field(default_factory=list)


def clashes(arm: Arm, production: Arm) -> list[Finding]:
    """What an arm must not share with a parked production, which keeps its port and its container. Pure."""
    found = []
    ports = [urlsplit(one.endpoint.url).port for one in (arm, production)]
    if ports[0] == ports[1]:
        text = f"arm {arm.name} has production's port {ports[0]}, but a parked server keeps listening (restore.strategy: park)"
        found.append(Finding("blocking", text, f"give arm {arm.name} a port of its own, or set `restore.strategy: restart`"))
    if isinstance(arm.engine, ComposeEngine) and arm.engine.container_name == "production":
        text = f"arm {arm.name} has production's container name, but a parked container keeps it (restore.strategy: park)"
        found.append(Finding("blocking", text, f"leave `container_name` of arm {arm.name} out, or set `restore.strategy: restart`"))
    return found


def about_parking(arm: Arm, beside: ParkBeside, server: ProcessServer | None) -> list[Finding]:
    """Findings of one arm. ``server`` None: it is a container, which is not parked yet."""
    if arm.role != "production":
        return clashes(arm, beside.production)
    if server is None:
        return [Finding("warning", f"production cannot be parked: containers are not parked yet; {_INSTEAD}")]
    gpu = GpuPlan("nvidia-smi", beside.gpus) if beside.gpus else GpuPlan("none")
    try:
        members = server.members()
        holders = [holder.pid for holder in read_usage(gpu).holders]
        choice = choose(members, server.arm.port, holders=holders, watched=bool(beside.gpus)) if members else None
        return [] if choice is None else _about_choice(arm, choice, gpu)
    except WaybackError as error:
        return [Finding("warning", f"whether production can be parked cannot be seen: {error}")]


def _about_choice(arm: Arm, choice: Choice, gpu: GpuPlan) -> list[Finding]:
    if choice.target is None:
        return [Finding("warning", f"production cannot be parked: {choice.why_not}; {_INSTEAD}")]
    if choice.target.parker == "stop":
        found = [Finding("warning", f"production is parked {choice.said}")]
        if isinstance(arm.engine, SimulatedEngine):
            text = "a simulated server answers from its front process, so the stand-in does not silence it"
            found.append(Finding("warning", text))
        return found
    if failed := try_out(gpu.gpus[0] if gpu.gpus else 0):
        return [Finding("warning", f"production cannot be parked: {failed}; {_INSTEAD}"), *_about_ptrace()]
    version = driver_version()
    shown = ".".join(map(str, version)) if version else "unknown"
    found = [Finding("ok", f"production is parked {choice.said}; driver {shown}")]
    need, available = held_mib(gpu, [ref.pid for ref in choice.target.processes]), available_mib()
    if short := memory_short(need, available):
        found.append(Finding("warning", f"production cannot be parked: {short}; {_INSTEAD}"))
    elif memory_short(2 * need, available):
        text = f"host memory holds production ({need} MiB), but not a second arm as large: other arms are booted for each leg"
        found.append(Finding("warning", text))
    return [*found, *_about_ptrace()]


def _about_ptrace() -> list[Finding]:
    """Yama's ptrace scope: 0 any process of the same user, 1 descendants only, 2 administrators only, 3 nobody."""
    try:
        scope = int(_PTRACE.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return []
    if scope == 0 or os.geteuid() == 0:
        return []
    text = f"kernel.yama.ptrace_scope is {scope} and you are not root: the driver may refuse to park; {_INSTEAD} then"
    return [Finding("warning", text, "sysctl kernel.yama.ptrace_scope=0, or run as root")]
