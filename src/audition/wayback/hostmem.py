"""Whether host memory can hold what is parked. Memory in MiB. GPU memory itself is read in ``gpu``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from audition.wayback.gpu import read_usage
from audition.wayback.plan import GpuPlan

MARGIN_MIB = 4096
"""Host memory that must stay available beside a parked server: a machine that begins to swap parks at a crawl."""
MEMINFO = Path("/proc/meminfo")


def available_mib(meminfo: Path = MEMINFO) -> int | None:
    """Host memory that can be had without swapping (MemAvailable of /proc/meminfo); None when it cannot be read."""
    try:
        for line in meminfo.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) // 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def memory_short(needed_mib: int, available: int | None) -> str:
    """Why host memory does not suffice to park a server that holds ``needed_mib`` of GPU memory; "" when it does."""
    if available is None:
        return "the machine does not say how much memory is available"
    if available < needed_mib + MARGIN_MIB:
        return (
            f"its {needed_mib} MiB of GPU memory do not fit into host memory: {available} MiB are available, "
            f"and {MARGIN_MIB} MiB are to stay free"
        )
    return ""


def held_mib(gpu: GpuPlan, pids: Sequence[int]) -> int:
    """GPU memory of some processes; where the source names none of them (another pid namespace, say), all that is in use.

    Raises WaybackError when the source cannot be read.
    """
    if gpu.source == "none":
        return 0
    usage = read_usage(gpu)
    own = sum(holder.mib for holder in usage.holders if holder.pid in pids)
    return own or sum(usage.used_mib.values())
