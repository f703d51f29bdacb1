"""How much GPU memory is in use, and waiting until it is back at its baseline. Memory in MiB.

Sources: nvidia-smi; the simulated server's ledger (a folder of JSON files, each locked by its live holder); none.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from audition.wayback.plan import GpuPlan
from audition.wayback.server import WaybackError

SMI_S = 30.0


@dataclass(frozen=True)
class Holder:
    """A process that holds GPU memory. ``gpu`` is the index."""

    pid: int
    gpu: str
    mib: int
    name: str = ""


@dataclass(frozen=True)
class Usage:
    """Memory in use by GPU index, and by process (as far as the source names processes)."""

    used_mib: dict[str, int]
    holders: list[Holder]


@dataclass(frozen=True)
class Settled:
    """Whether every watched GPU is back at its baseline; ``detail`` says what is not, and who holds it."""

    ok: bool
    seconds: float
    detail: str
    used_mib: dict[str, int]


def read_usage(plan: GpuPlan) -> Usage:
    """Memory in use on the GPUs of the plan. Raises WaybackError when the source cannot be read."""
    if plan.source == "none":
        return Usage({}, [])
    usage = _ledger(plan.ledger_dir) if plan.source == "ledger" else _nvidia_smi()
    names = [str(gpu) for gpu in plan.gpus]
    if plan.source == "nvidia-smi":
        missing = [name for name in names if name not in usage.used_mib]
        if missing:
            raise WaybackError(f"nvidia-smi does not list GPU {', '.join(missing)}")
    return Usage({name: usage.used_mib.get(name, 0) for name in names}, [holder for holder in usage.holders if holder.gpu in names])


def _smi(query: str) -> list[list[str]]:
    import subprocess  # noqa: PLC0415 - keeps the sleeping guard small

    command = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SMI_S, check=False, start_new_session=True)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WaybackError(f"cannot read GPU memory: {' '.join(command)}: {error}") from error
    if done.returncode != 0:
        raise WaybackError(f"cannot read GPU memory: {' '.join(command)}: {(done.stderr or done.stdout).strip()[:300]}")
    return [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines() if line.strip()]


def _nvidia_smi() -> Usage:
    index_of, used = {}, {}
    for row in _smi("--query-gpu=index,uuid,memory.used"):
        index_of[row[1]] = row[0]
        used[row[0]] = int(row[2])
    holders = []
    for row in _smi("--query-compute-apps=gpu_uuid,pid,used_memory,process_name"):
        mib = int(row[2]) if row[2].isdigit() else 0  # "[N/A]" in some virtual machines
        holders.append(Holder(int(row[1]), index_of.get(row[0], "?"), mib, ",".join(row[3:])))
    return Usage(used, holders)


def _ledger(folder: str) -> Usage:
    used: dict[str, int] = {}
    holders = []
    for path in sorted(Path(folder).glob("*.json")):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # free: its holder is dead, whatever the file says
            continue
        except BlockingIOError:
            entry = _entry(descriptor)
        finally:
            os.close(descriptor)
        for gpu, mib in entry[1].items():
            used[gpu] = used.get(gpu, 0) + mib
            holders.append(Holder(entry[0], gpu, mib, "simulated"))
    return Usage(used, holders)


def _entry(descriptor: int) -> tuple[int, dict[str, int]]:
    for _ in range(50):
        try:
            data = json.loads(os.pread(descriptor, 65536, 0))
            return int(data["pid"]), {str(gpu): int(mib) for gpu, mib in data["gpus"].items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            time.sleep(0.001)  # being written
    return 0, {}


def baseline_without(usage: Usage, pids: set[int]) -> dict[str, int]:
    """What would be in use by GPU without the processes ``pids`` (production's own): the baseline to come back to after a stop."""
    baseline = dict(usage.used_mib)
    for holder in usage.holders:
        if holder.pid in pids:
            baseline[holder.gpu] = max(0, baseline[holder.gpu] - holder.mib)
    return baseline


def above_baseline(plan: GpuPlan, usage: Usage) -> list[str]:
    """One sentence for each GPU that holds more than its baseline and the tolerance. GPUs without a recorded baseline are left
    out."""
    texts = []
    for gpu, used in sorted(usage.used_mib.items()):
        baseline = plan.baseline_mib.get(gpu)
        if baseline is not None and used > baseline + plan.tolerance_mib:
            held = ", ".join(f"pid {h.pid} {h.name} {h.mib} MiB" for h in usage.holders if h.gpu == gpu) or "no process is named"
            texts.append(f"GPU {gpu} holds {used} MiB, baseline {baseline} MiB ({held})")
    return texts


def wait_settled(plan: GpuPlan, give_up: Callable[[], bool] = lambda: False, poll_s: float = 0.25) -> Settled:
    """Wait at most ``plan.settle_s`` seconds for every GPU to be within its tolerance. An unreadable source is not settled."""
    began = time.monotonic()
    while True:
        try:
            usage = read_usage(plan)
            high = above_baseline(plan, usage)
        except WaybackError as error:
            usage, high = Usage({}, []), [str(error)]
        seconds = time.monotonic() - began
        if not high:
            return Settled(True, seconds, "", usage.used_mib)
        if seconds >= plan.settle_s or give_up():
            return Settled(False, seconds, "; ".join(high), usage.used_mib)
        time.sleep(poll_s if plan.source == "ledger" else max(poll_s, 0.5))
