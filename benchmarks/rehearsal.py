"""How long a rehearsal of the reference spike takes and how much memory all of its processes hold together.

Prints Markdown; ``make bench-rehearsal`` writes it to ``docs/results/rehearsal.md``. Memory is the sum of the resident set sizes of
every process that inherited this run's mark (runner, guard, servers, workers), sampled every 50 ms; shared pages count once for
each process.
"""

from __future__ import annotations

import datetime
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

RUNS = int(os.environ.get("RUNS", "3"))
HELP_RUNS = 11


def resident_mib(mark: bytes) -> float:
    """Resident memory of all processes that carry the mark, in MiB."""
    total = 0
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            if mark in Path(f"/proc/{entry}/environ").read_bytes():
                total += int(Path(f"/proc/{entry}/statm").read_text().split()[1]) * resource.getpagesize()
        except (OSError, IndexError, ValueError):
            continue
    return total / 2**20


def rehearse(folder: Path) -> tuple[float, float, int]:
    """(seconds, peak MiB, exit code) of one rehearsal."""
    mark = f"REHEARSAL_MARK={uuid.uuid4()}"
    env = {**os.environ, "REHEARSAL_MARK": mark.partition("=")[2]}
    begun, peak = time.monotonic(), 0.0
    child = subprocess.Popen(
        [sys.executable, "-m", "audition", "rehearse", "mtp-k3", "--quiet"],
        cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    while child.poll() is None:
        peak = max(peak, resident_mib(mark.encode()))
        time.sleep(0.05)
    return time.monotonic() - begun, peak, child.returncode


def help_seconds() -> list[float]:
    """Wall seconds of ``audition --help``, a few times."""
    out = []
    for _ in range(HELP_RUNS):
        begun = time.monotonic()
        subprocess.run([sys.executable, "-m", "audition", "--help"], capture_output=True, check=True)
        out.append(time.monotonic() - begun)
    return out


def main() -> int:
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        rows = [rehearse(Path(folder)) for _ in range(RUNS)]
    shown = help_seconds()
    print("# A rehearsal of the reference spike\n")
    print(
        f"Made by `make bench-rehearsal` on {datetime.datetime.now(tz=datetime.UTC).date()}: Linux {platform.release()}, "
        f"{os.cpu_count()} cores, Python {platform.python_version()}, load average before: {load:.1f}.\n"
    )
    print("| rehearsal | seconds | peak of all processes together, MiB | exit code |\n|---|---|---|---|")
    for number, (seconds, peak, code) in enumerate(rows, start=1):
        print(f"| {number} | {seconds:.1f} | {peak:.0f} | {code} |")
    print(f"\n`audition --help`: median {statistics.median(shown):.3f} s, worst {max(shown):.3f} s of {HELP_RUNS}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
