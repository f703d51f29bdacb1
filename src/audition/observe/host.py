"""The host while a leg runs: CPU, load, memory, sampled by a light thread from /proc.

What must not live here: GPUs (there is no GPU telemetry yet; ``gpu_caveat`` says so), judging.
"""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from audition.judge.records import Caveat

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
    """A leg's host figures. ``cpu_share``: busy share of all CPUs, 0 to 1, mean and largest of a sample. Memory in MiB."""

    samples: int
    cpus: int
    cpu_share_mean: float
    cpu_share_max: float
    load1_max: float
    available_mib_min: int
    swap_used_mib_max: int

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
    """Samples while it is open. Use as ``with HostSampler() as host: ...``, then ``host.summary()``."""

    def __init__(self, interval_s: float = SAMPLE_S, proc: Path = Path("/proc")) -> None:
        self._interval, self._proc = interval_s, proc
        self._samples: list[HostSample] = []
        self._problem = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="host-sampler", daemon=True)

    def __enter__(self) -> HostSampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

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
        return summarise(list(self._samples), cpu_count(self._proc)) if self._samples else None

    def caveats(self) -> list[Caveat]:
        """A note when the host could not be watched."""
        return [Caveat("no-host-telemetry", "note", self._problem)] if self._problem else []


def gpu_caveat(gpus: list[int]) -> list[Caveat]:
    """A note that GPUs were named but are not watched; nothing when none were named."""
    if not gpus:
        return []
    names = ", ".join(map(str, gpus))
    text = f"no GPU telemetry: use, clocks, heat and other tenants of GPU {names} were not watched during the leg"
    return [Caveat("no-gpu-telemetry", "note", text)]
