"""GPUs while a leg runs, read through NVML by a light thread: memory, use, power, energy, heat, throttling, and whose processes.

NVML comes with ``nvidia-ml-py``, an optional extra that is imported only here, and with NVIDIA's driver. Where either is missing,
that is said (``problem``), and no figure is made up. What must not live here: judging, the host itself (see ``host``).
"""

from __future__ import annotations

import importlib
import pwd
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from audition.judge.records import Caveat

SAMPLE_S = 1.0  # between two samples; NVML's own averages of use and power cover about as much
MIB = 2**20

THROTTLE_NOTE_SHARE = 0.01
"""Share of samples with a slowdown for heat or power supply from which on it is told. One sample in a hundred is more than
chance."""

THROTTLE_VOID_SHARE = 0.20
"""Above it the leg's speed is that of the cooling, not of the server: six identical runs spread by 6.9 %, and a card that is held
back a fifth of the time at three quarters of its clock loses about that much. Own choice."""

_THROTTLES = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
"""Bits of nvmlClocksEventReasons* that mean trouble (nvml.h). Not among them: idle (0x1), set clocks (0x2), the power cap (0x4),
which a busy card reaches all the time, sync boost (0x10) and display clocks (0x100)."""
POWER_CAP = 0x04


@dataclass(frozen=True)
class GpuProcess:
    """A compute process on a GPU. ``owner``: user name, "" when it cannot be seen from here. ``memory_mib`` None: not told.

    ``group``: its control group, which tells containers apart.
    """

    pid: int
    owner: str
    name: str
    group: str
    memory_mib: int | None


@dataclass(frozen=True)
class GpuSample:
    """One look at one GPU. None: the card does not tell. ``use``: share of time with a kernel running; ``energy_j`` since the
    driver was loaded; ``reasons``: NVML's bits of why clocks are held down."""

    index: int
    at: float
    memory_used_mib: int
    memory_total_mib: int
    use: float | None
    power_w: float | None
    energy_j: float | None
    temperature_c: int | None
    reasons: int | None
    processes: tuple[GpuProcess, ...] = ()


@dataclass(frozen=True)
class GpuSummary:
    """One GPU over a leg. Shares 0 to 1, ``energy_j`` used over the leg, ``throttled``: share of samples by reason."""

    index: int
    name: str
    samples: int
    memory_used_mib_max: int
    memory_total_mib: int
    use_mean: float | None
    power_w_mean: float | None
    power_w_max: float | None
    energy_j: float | None
    temperature_c_max: int | None
    power_capped: float | None
    throttled: dict[str, float] = field(default_factory=dict)
    processes: list[GpuProcess] = field(default_factory=list)

    def as_facts(self) -> dict[str, object]:
        """The figures as JSON values."""
        return asdict(self)


class Gpus(Protocol):
    """Where samples come from."""

    def names(self) -> dict[int, str]:
        """Name of each GPU by its index."""

    def driver(self) -> str | None:
        """Version of the driver; None when it is not told."""

    def sample(self, index: int) -> GpuSample:
        """One look at one GPU. Raises GpuError."""


class GpuError(Exception):
    """NVML cannot be used; the message says why in one phrase."""


class Nvml:
    """Samples through NVML. Raises GpuError when it is not there."""

    def __init__(self) -> None:
        try:
            pynvml: Any = importlib.import_module("pynvml")
        except ImportError as error:
            raise GpuError("the Python package nvidia-ml-py is not installed") from error
        self._nvml = pynvml
        try:
            pynvml.nvmlInit()
            self._handles = {n: pynvml.nvmlDeviceGetHandleByIndex(n) for n in range(pynvml.nvmlDeviceGetCount())}
        except pynvml.NVMLError as error:
            raise GpuError(f"NVML does not work here: {error}") from error

    def names(self) -> dict[int, str]:
        """Name of each GPU by its index."""
        return {index: str(self._ask(self._nvml.nvmlDeviceGetName, handle) or "") for index, handle in self._handles.items()}

    def driver(self) -> str | None:
        """Version of the driver, e.g. ``580.65.06``; None when it is not told."""
        return self._ask(self._nvml.nvmlSystemGetDriverVersion) or None

    def _ask(self, question: Callable[..., Any], *arguments: Any) -> Any:
        """An answer, or None where this card or driver has none."""
        try:
            return question(*arguments)
        except self._nvml.NVMLError:
            return None

    def sample(self, index: int) -> GpuSample:
        """One look at one GPU. Raises GpuError for an index that is none, or a card that has fallen off the bus."""
        nvml, handle = self._nvml, self._handles.get(index)
        if handle is None:
            raise GpuError(f"there is no GPU {index}")
        memory = self._ask(nvml.nvmlDeviceGetMemoryInfo, handle)
        if memory is None:
            raise GpuError(f"GPU {index} does not answer")
        rates = self._ask(nvml.nvmlDeviceGetUtilizationRates, handle)
        power, energy = self._ask(nvml.nvmlDeviceGetPowerUsage, handle), self._ask(nvml.nvmlDeviceGetTotalEnergyConsumption, handle)
        running = self._ask(nvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
        return GpuSample(
            index=index,
            at=time.monotonic(),
            memory_used_mib=memory.used // MIB,
            memory_total_mib=memory.total // MIB,
            use=None if rates is None else rates.gpu / 100,
            power_w=None if power is None else power / 1000,
            energy_j=None if energy is None else energy / 1000,
            temperature_c=self._ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
            reasons=self._ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle),
            processes=tuple(
                process_of(p.pid, None if p.usedGpuMemory is None else p.usedGpuMemory // MIB) for p in running
            ),
        )  # fmt: skip


def process_of(pid: int, memory_mib: int | None, proc: Path = Path("/proc")) -> GpuProcess:
    """Who a process is, as far as it can be seen from here."""
    folder = proc / str(pid)
    try:
        uid = folder.stat().st_uid
        name = (folder / "comm").read_text().strip()
        group = (folder / "cgroup").read_text().splitlines()[0].rpartition(":")[2]
    except (OSError, IndexError):
        return GpuProcess(pid, "", "", "", memory_mib)
    try:
        owner = pwd.getpwuid(uid).pw_name
    except KeyError:
        owner = str(uid)
    return GpuProcess(pid, owner, name, group, memory_mib)


def summarise_gpu(name: str, samples: Sequence[GpuSample]) -> GpuSummary:
    """One GPU's samples, at least one, as figures."""
    reasons = [sample.reasons for sample in samples if sample.reasons is not None]
    shares = {text: sum(bool(r & bit) for r in reasons) / len(reasons) for bit, text in _THROTTLES.items()} if reasons else {}
    power, energy = _known(s.power_w for s in samples), _known(s.energy_j for s in samples)
    use, heat = _known(s.use for s in samples), _known(s.temperature_c for s in samples)
    processes: dict[int, GpuProcess] = {}
    for sample in samples:
        for process in sample.processes:
            processes[process.pid] = process
    return GpuSummary(
        index=samples[0].index,
        name=name,
        samples=len(samples),
        memory_used_mib_max=max(s.memory_used_mib for s in samples),
        memory_total_mib=samples[0].memory_total_mib,
        use_mean=sum(use) / len(use) if use else None,
        power_w_mean=sum(power) / len(power) if power else None,
        power_w_max=max(power, default=None),
        energy_j=energy[-1] - energy[0] if len(energy) > 1 and energy[-1] >= energy[0] else None,
        temperature_c_max=int(max(heat)) if heat else None,
        power_capped=sum(bool(r & POWER_CAP) for r in reasons) / len(reasons) if reasons else None,
        throttled={text: share for text, share in shares.items() if share > 0},
        processes=[processes[pid] for pid in sorted(processes)],
    )


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def energy_per_1000_tokens(summaries: Sequence[GpuSummary], tokens: float) -> float | None:
    """Joules of all these GPUs for 1,000 generated tokens; None when a card does not count or nothing was generated."""
    used = [summary.energy_j for summary in summaries]
    known = _known(used)
    return 1000 * sum(known) / tokens if tokens > 0 and known and len(known) == len(used) else None


def gpu_caveats(summaries: Sequence[GpuSummary], watched: Sequence[int], ours: Callable[[GpuProcess], bool] | None) -> list[Caveat]:
    """Throttling on the watched GPUs, and compute processes that are not ours on any. ``ours`` None: whose they are is not known,
    so a GPU with processes of more than one control group or owner is told."""
    out: list[Caveat] = []
    for one in summaries:
        if one.index in watched:
            for reason, share in one.throttled.items():
                if share >= THROTTLE_NOTE_SHARE:
                    effect = "void" if share > THROTTLE_VOID_SHARE else "note"
                    out.append(Caveat("gpu-throttled", effect, f"GPU {one.index}: {reason} in {share:.0%} of the samples"))  # type: ignore[arg-type]
        if ours is not None:
            strangers = [process for process in one.processes if not ours(process)]
        elif one.index in watched:
            strangers = one.processes if len({(p.owner, p.group) for p in one.processes}) > 1 else []
        else:
            strangers = one.processes
        if strangers:
            told = ", ".join(f"{p.name or 'pid'} {p.pid}{f' of {p.owner}' if p.owner else ''}" for p in strangers[:4])
            where = "shared" if one.index in watched else "at work beside"
            out.append(Caveat("other-tenants", "note", f"GPU {one.index} was {where}: {told}"))
    return out


class GpuSampler:
    """Samples all GPUs while it is open. Use as ``with``. Without NVML nothing is sampled and ``problem`` says why."""

    def __init__(self, source: Callable[[], Gpus] = Nvml, interval_s: float = SAMPLE_S) -> None:
        self.problem = ""
        self.driver: str | None = None
        self._samples: dict[int, list[GpuSample]] = {}
        self._names: dict[int, str] = {}
        self._interval, self._stop = interval_s, threading.Event()
        self._thread: threading.Thread | None = None
        self._source = source

    def __enter__(self) -> GpuSampler:
        try:
            gpus = self._source()
            self._names, self.driver = gpus.names(), gpus.driver()
        except GpuError as error:
            self.problem = str(error)
            return self
        self._thread = threading.Thread(target=self._run, args=(gpus,), name="gpu-sampler", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, gpus: Gpus) -> None:
        while True:
            for index in self._names:
                try:
                    self._samples.setdefault(index, []).append(gpus.sample(index))
                except GpuError as error:
                    self.problem = str(error)
            if self._stop.wait(self._interval):
                return

    def summaries(self) -> list[GpuSummary]:
        """What was seen so far, one entry a GPU."""
        return [summarise_gpu(self._names[index], list(samples)) for index, samples in sorted(self._samples.items()) if samples]
