"""What was looked at, as frozen values: the arms, the machine, earlier runs, the time. Nothing is looked at or judged here.

Values of variables and arguments may hold secrets; rules show names, and values only of arguments that are no secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from audition.checkpoint.facts import Facts as Checkpoint
from audition.engines.base import Finding as EngineFinding
from audition.spike.model import Spike
from audition.units import NoData
from audition.windows.ics import Calendar


@dataclass(frozen=True)
class Neighbour:
    """A container that could restart the server. ``running``: as seen on the engine; it is named in a profile otherwise."""

    name: str
    why: str
    running: bool | NoData


@dataclass(frozen=True)
class Container:
    """A compose service as its profile resolves now. Sizes in bytes, times in seconds.

    ``own_name``: the profile's ``container_name``, empty when compose makes one up. ``ports``: published on the host, None with the
    host's network. ``gpus``: device ids, or ``all``. ``image_id``: of the image on the engine. ``lost``: variables that the running
    container has a value for and the profile has none; only of production. ``service``: the resolved service; ``variables``: what
    compose interpolated with.
    """

    service_name: str
    project: str
    files: tuple[str, ...]
    env_files: tuple[str, ...]
    image: str
    own_name: str
    ports: tuple[int, ...] | None
    restart: str
    start_period_s: float | NoData
    gpus: tuple[str, ...]
    shm_bytes: int | NoData
    host_ipc: bool
    image_id: str | NoData
    lost: tuple[str, ...] | NoData
    unset: tuple[str, ...]
    neighbours: tuple[Neighbour, ...]
    left_alone: tuple[str, ...]
    service: Mapping[str, Any]
    variables: Mapping[str, str]


@dataclass(frozen=True)
class Unreadable:
    """A checkpoint that is there and cannot be read; ``next_step`` says what to do."""

    what: str
    next_step: str


@dataclass(frozen=True)
class ArmFacts:
    """One arm. ``arguments``: its command line as far as it is known, secrets included. ``version``: of vLLM.

    ``assumed``: the arguments are those of the rehearsal, because the real ones cannot be read. ``engine``: what
    the engine itself found. ``boots``: seconds of earlier clean boots. ``running``: whether it runs now.
    ``checkpoint``: what its model is.
    """

    name: str
    role: Literal["production", "candidate", "control"]
    kind: str
    arguments: tuple[str, ...] | NoData
    assumed: bool
    version: str | NoData
    version_from: str
    variables: Mapping[str, str]
    container: Container | NoData
    checkpoint: Checkpoint | Unreadable | NoData
    engine: tuple[EngineFinding, ...] = ()
    boots: tuple[float, ...] = ()
    running: bool | NoData = field(default_factory=lambda: NoData("not looked at"))


@dataclass(frozen=True)
class Tenant:
    """A process on a GPU. ``ours``: it belongs to production; NoData when that cannot be told."""

    pid: int
    user: str
    name: str
    memory_mib: int | None
    ours: bool | NoData


@dataclass(frozen=True)
class GpuFacts:
    """One GPU. Memory in MiB. ``capability``: compute capability (major, minor)."""

    index: int
    name: str
    memory_total_mib: int
    memory_used_mib: int
    capability: tuple[int, int] | NoData
    tenants: tuple[Tenant, ...] | NoData


@dataclass(frozen=True)
class MachineFacts:
    """The machine now. Memory and disk in MiB, ``load1``: load average over one minute. ``clock``: whether it is synchronised."""

    gpus: tuple[GpuFacts, ...] | NoData
    driver: str | NoData
    cpus: int
    load1: float | NoData
    available_mib: int | NoData
    shm_mib: int | NoData
    records_free_mib: int | NoData
    state_free_mib: int | NoData
    docker_free_mib: int | NoData
    clock: bool | NoData


@dataclass(frozen=True)
class LegTimes:
    """Seconds that each workload took in earlier runs, by (arm, workload), the longest; and lengths of traces by file."""

    workloads: Mapping[tuple[str, str], float] = field(default_factory=dict)
    traces: Mapping[str, float | NoData] = field(default_factory=dict)


@dataclass(frozen=True)
class Facts:
    """Everything that the rules get. ``now``: Unix seconds. ``machine`` None: this is not the machine of the run.

    ``gpu_memory_mib``: of each GPU, where the caller knows better than this machine. ``calendars``: those in files, by name.
    """

    spike: Spike
    now: float
    arms: tuple[ArmFacts, ...]
    machine: MachineFacts | None
    times: LegTimes
    gpu_memory_mib: int | None = None
    calendars: Mapping[str, Calendar | NoData] = field(default_factory=dict)

    @property
    def production(self) -> ArmFacts:
        """The production arm."""
        return next(arm for arm in self.arms if arm.role == "production")

    @property
    def candidate(self) -> ArmFacts:
        """The candidate."""
        return next(arm for arm in self.arms if arm.role == "candidate")
