"""The host while a leg runs: CPU, load, memory, disk, sampled by a light thread from /proc; and its GPUs, where NVML is there.

What must not live here: how a GPU is read (see ``gpu``), judging.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from audition.judge.records import Caveat
from audition.observe.gpu import GpuError, GpuProcess, Gpus, GpuSampler, GpuSummary, Nvml, gpu_caveats

SAMPLE_S = 1.0  # between two samples


@dataclass(frozen=True)
class HostSample:
    """One look. ``busy_ticks`` and ``all_ticks``: clock ticks of all CPUs since boot. ``load1``: load average over one minute.

    Memory in MiB; ``available_mib`` as the kernel estimates it, ``swap_used_mib`` is total minus free.
    """

    busy_ticks: int
    all_ticks: int
    load1: float
    available_mib: int
    swap_used_mib: int


@dataclass(frozen=True)
class HostSummary:
    """A leg's host figures. ``cpu_share``: busy share of all CPUs, 0 to 1, mean and largest of a sample. Memory in MiB.

    ``disk_free_mib``: free on the disk of the working folder, at the end. ``gpus_missing``: why there is no GPU figure.
    ``driver``: version of the GPU driver, None when it is not told.
    """

    samples: int
    cpus: int
    cpu_share_mean: float
    cpu_share_max: float
    load1_max: float
    available_mib_min: int
    swap_used_mib_max: int
    disk_free_mib: int | None = None
    gpus: list[GpuSummary] = field(default_factory=list)
    gpus_missing: str = ""
    driver: str | None = None

    def as_facts(self) -> dict[str, object]:
        """The figures as JSON values for a leg's record."""
        return asdict(self)


def read_host(proc: Path = Path("/proc")) -> HostSample:
    """One sample. Raises OSError or ValueError when /proc is not Linux's."""
    ticks = [int(part) for part in (proc / "stat").read_text().splitlines()[0].split()[1:9]]
    idle = ticks[3] + ticks[4]  # idle, iowait (proc(5))
    memory: dict[str, int] = {}
    for line in (proc / "meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        memory[name] = int(value.split()[0]) // 1024 if value.split() else 0
    return HostSample(
        busy_ticks=sum(ticks) - idle,
        all_ticks=sum(ticks),
        load1=float((proc / "loadavg").read_text().split()[0]),
        available_mib=memory["MemAvailable"],
        swap_used_mib=memory.get("SwapTotal", 0) - memory.get("SwapFree", 0),
    )


def cpu_count(proc: Path = Path("/proc")) -> int:
    """CPUs that /proc/stat lists."""
    return sum(1 for line in (proc / "stat").read_text().splitlines() if line.startswith("cpu") and line[3:4].isdigit())


def summarise(samples: list[HostSample], cpus: int) -> HostSummary | None:
    """Summary of at least two samples, None with fewer."""
    pairs = [(a, b) for a, b in pairwise(samples) if b.all_ticks > a.all_ticks]
    if not pairs:
        return None
    shares = [(b.busy_ticks - a.busy_ticks) / (b.all_ticks - a.all_ticks) for a, b in pairs]
    first, last = pairs[0][0], pairs[-1][1]
    return HostSummary(
        samples=len(samples),
        cpus=cpus,
        cpu_share_mean=(last.busy_ticks - first.busy_ticks) / (last.all_ticks - first.all_ticks),
        cpu_share_max=max(shares),
        load1_max=max(sample.load1 for sample in samples),
        available_mib_min=min(sample.available_mib for sample in samples),
        swap_used_mib_max=max(sample.swap_used_mib for sample in samples),
    )


class HostSampler:
    """Samples while it is open. Use as ``with HostSampler() as host: ...``, then ``host.summary()``.

    ``gpus``: those that the leg uses; throttling and other tenants are told of them. None: figures of all, caveats of none.
    ``source``: where GPU samples come from.
    """

    def __init__(
        self,
        interval_s: float = SAMPLE_S,
        proc: Path = Path("/proc"),
        *,
        gpus: Sequence[int] | None = None,
        source: Callable[[], Gpus] = Nvml,
    ) -> None:
        self._gpus = gpus
        self._gpu_sampler = GpuSampler(source, interval_s)
        self._interval, self._proc = interval_s, proc
        self._samples: list[HostSample] = []
        self._problem = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="host-sampler", daemon=True)

    def __enter__(self) -> HostSampler:
        self._gpu_sampler.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._gpu_sampler.__exit__()

    def _run(self) -> None:
        while True:
            try:
                self._samples.append(read_host(self._proc))
            except (OSError, ValueError, KeyError, IndexError) as error:
                self._problem = f"{self._proc} could not be read: {error}"
                return
            if self._stop.wait(self._interval):
                return

    def summary(self) -> HostSummary | None:
        """Summary so far, None with fewer than two samples."""
        summary = summarise(list(self._samples), cpu_count(self._proc)) if self._samples else None
        if summary is None:
            return None
        gpus = self._gpu_sampler.summaries()
        missing = "" if gpus else self._gpu_sampler.problem
        return replace(summary, disk_free_mib=disk_free_mib(), gpus=gpus, gpus_missing=missing, driver=self._gpu_sampler.driver)

    def caveats(self, ours: Callable[[GpuProcess], bool] | None = None) -> list[Caveat]:
        """Notes when the host could not be watched, and what the GPUs of the leg had to bear. ``ours``: which GPU processes are the
        leg's own; None: not known."""
        out = [Caveat("no-host-telemetry", "note", self._problem)] if self._problem else []
        return out if self._gpus is None else out + gpu_caveats(self._gpu_sampler.summaries(), self._gpus, ours)


def disk_free_mib(folder: Path = Path(".")) -> int | None:
    """MiB free for this user on the disk of a folder; None when it does not say."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return None
    return disk.f_bavail * disk.f_frsize // 2**20


def gpu_caveat(gpus: list[int]) -> list[Caveat]:
    """A note that GPUs were named but could not be watched; nothing when none were named, or when NVML knows them all."""
    if not gpus:
        return []
    try:
        missing = sorted(set(gpus) - set(Nvml().names()))
        why = f"NVML knows no GPU {', '.join(map(str, missing))}" if missing else ""
    except GpuError as error:
        missing, why = gpus, str(error)
    if not missing:
        return []
    names = ", ".join(map(str, missing))
    text = f"no GPU telemetry ({why}): use, clocks, heat and other tenants of GPU {names} were not watched during the leg"
    return [Caveat("no-gpu-telemetry", "note", text)]
