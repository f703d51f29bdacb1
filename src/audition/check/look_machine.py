"""Looking at the machine: GPUs and who is on them, driver, load, memory, disks, clock. An edge of the room: it judges nothing."""

from __future__ import annotations

import csv
import ctypes
import importlib
import io
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from audition.check.facts import GpuFacts, MachineFacts, Tenant
from audition.engines.base import Engine
from audition.engines.process import ProcessEngine
from audition.observe.gpu import GpuError, GpuProcess, Nvml, process_of
from audition.observe.host import cpu_count, disk_free_mib, read_host
from audition.units import NoData

SMI_S = 3.0
"""Longest wait for nvidia-smi, in seconds. With the driver's persistence mode off it takes one to two seconds a GPU."""
TIME_ERROR = 5
"""adjtimex(2): the return value when the clock is not synchronised."""

Ours = Callable[[GpuProcess], bool | NoData]


@dataclass(frozen=True)
class _Cards:
    gpus: tuple[GpuFacts, ...] | NoData
    driver: str | NoData


def look_at_machine(ours: Ours, *, records: Path, state: Path, docker_root: str | NoData) -> MachineFacts:
    """The machine now. ``ours``: whether a GPU process belongs to production. Nothing here raises."""
    try:
        sample = read_host()
        load1: float | NoData = sample.load1
        available: int | NoData = sample.available_mib
        cpus = cpu_count()
    except (OSError, ValueError, KeyError, IndexError) as error:
        load1 = available = NoData(f"/proc cannot be read: {error}")
        cpus = os.cpu_count() or 1
    cards = look_at_gpus(ours)
    return MachineFacts(
        gpus=cards.gpus,
        driver=cards.driver,
        cpus=cpus,
        load1=load1,
        available_mib=available,
        shm_mib=_free(Path("/dev/shm")),
        records_free_mib=_free(records),
        state_free_mib=_free(state),
        docker_free_mib=docker_root if isinstance(docker_root, NoData) else _free(Path(docker_root)),
        clock=clock_synchronised(),
    )


def ours_of(engine: Engine, container_id: str) -> Ours:
    """Tells production's GPU processes from others: by its container's id in their control group, or as members of its process."""
    if container_id:
        return lambda process: container_id in process.group if process.group else NoData("its control group cannot be read")
    if not isinstance(engine, ProcessEngine):
        return lambda _process: NoData("production was not found")
    target = engine.target().process
    if target is None or target.running is None:
        return lambda _process: NoData("production does not run, or was not recognised")
    pids = {target.running.pid, *(member.pid for member in target.members)}
    return lambda process: process.pid in pids


def _free(path: Path) -> int | NoData:
    """MiB free on the disk of a folder that may not exist yet."""
    while not path.exists() and path != path.parent:
        path = path.parent
    found = disk_free_mib(path)
    return found if found is not None else NoData(f"the disk of {path} does not tell")


def clock_synchronised() -> bool | NoData:
    """Whether the kernel holds the clock for synchronised with a time source (adjtimex(2)); needs no service to be asked."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        room = ctypes.create_string_buffer(512)  # struct timex is 208 bytes; modes 0 only reads
        status = int(libc.adjtimex(room))
    except (OSError, AttributeError) as error:
        return NoData(f"the kernel cannot be asked: {error}")
    return NoData("the kernel does not tell") if status < 0 else status != TIME_ERROR


def look_at_gpus(ours: Ours) -> _Cards:
    """All GPUs through NVML, else through nvidia-smi; NoData with the reason where neither works."""
    try:
        return _through_nvml(Nvml(), ours)
    except GpuError as error:
        return _through_smi(str(error), ours)


def _through_nvml(source: Nvml, ours: Ours) -> _Cards:
    nvml: Any = importlib.import_module("pynvml")
    found = []
    for index, name in source.names().items():
        sample = source.sample(index)
        tenants = tuple(_tenant(process, ours) for process in sample.processes)
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
            capability: tuple[int, int] | NoData = (int(major), int(minor))
        except nvml.NVMLError as error:
            capability = NoData(str(error))
        found.append(GpuFacts(index, name, sample.memory_total_mib, sample.memory_used_mib, capability, tenants))
    try:
        driver: str | NoData = str(nvml.nvmlSystemGetDriverVersion())
    except nvml.NVMLError as error:
        driver = NoData(str(error))
    return _Cards(tuple(found), driver)


def _tenant(process: GpuProcess, ours: Ours) -> Tenant:
    return Tenant(process.pid, process.owner, process.name, process.memory_mib, ours(process))


def _through_smi(why_no_nvml: str, ours: Ours) -> _Cards:
    try:
        cards = _smi("--query-gpu=index,uuid,name,driver_version,compute_cap,memory.total,memory.used")
        running = _smi("--query-compute-apps=gpu_uuid,pid,used_memory")
        return parse_smi(cards, running, lambda pid, memory: _tenant(process_of(pid, memory), ours))
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        why = "nvidia-smi is not installed" if isinstance(error, FileNotFoundError) else f"nvidia-smi: {error}"
        reason = NoData(f"{why_no_nvml}; {why}")
        return _Cards(reason, reason)


def _smi(query: str) -> str:
    program = shutil.which("nvidia-smi")
    if program is None:
        raise FileNotFoundError("nvidia-smi")
    done = subprocess.run(
        [program, query, "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=SMI_S, check=True
    )
    return done.stdout


def parse_smi(cards: str, running: str, tenant: Callable[[int, int | None], Tenant]) -> _Cards:
    """GPUs from nvidia-smi's two tables. Raises ValueError for anything else. Pure."""
    of_card: dict[str, list[Tenant]] = {}
    for uuid, pid, memory in _rows(running, 3):
        of_card.setdefault(uuid, []).append(tenant(int(pid), int(memory) if memory.isdigit() else None))
    found, driver = [], ""
    for index, uuid, name, driver, capability, total, used in _rows(cards, 7):  # noqa: B007 - all cards have one driver
        major, _, minor = capability.partition(".")
        known = (int(major), int(minor)) if major.isdigit() and minor.isdigit() else NoData("nvidia-smi does not tell")
        found.append(GpuFacts(int(index), name, int(total), int(used), known, tuple(of_card.get(uuid, []))))
    if not found:
        raise ValueError("it lists no GPU")
    return _Cards(tuple(found), driver)


def _rows(text: str, width: int) -> Iterable[list[str]]:
    for row in csv.reader(io.StringIO(text), skipinitialspace=True):
        if not row:
            continue
        if len(row) != width:
            raise ValueError(f"a row of {len(row)} columns, expected {width}")
        yield [cell.strip() for cell in row]
