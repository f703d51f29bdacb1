"""Times ``audition history`` and ``audition compare`` on many run folders, and prints docs/results/history.md.

Run folders are copies of the committed records of the H200 (``result.json`` of about 300 kB), each with a run id of its own.
RUNS: how many (default 1,000 and 10,000 for the listing).
"""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "docs" / "results" / "h200-mtp-k3" / "run"
REPEAT = 7


def make(folder: Path, count: int) -> None:
    run = json.loads((SOURCE / "run.json").read_text())
    result = (SOURCE / "result.json").read_text()
    for number in range(count):
        place = folder / f"run_{number:05d}"
        place.mkdir(parents=True)
        name = f"{run['run_id']}-{number}"
        (place / "run.json").write_text(json.dumps({**run, "run_id": name, "started_at": run["started_at"] + number}))
        (place / "result.json").write_text(result.replace(f'"run_id": "{run["run_id"]}"', f'"run_id": "{name}"', 1))
        for file in ("summary.txt", "decision.md", "spike.resolved.json"):
            os.link(SOURCE / file, place / file) if _same_disk(place) else shutil.copyfile(SOURCE / file, place / file)


def _same_disk(place: Path) -> bool:
    return place.stat().st_dev == SOURCE.stat().st_dev


def seconds(*words: str) -> tuple[float, float]:
    """(wall-clock seconds, CPU seconds) of one whole command, start of the interpreter included."""
    began, used = time.perf_counter(), cpu()
    subprocess.run([sys.executable, "-m", "audition", *words], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began, cpu() - used


def cpu() -> float:
    """CPU seconds of all commands that ended so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def row(what: str, times: list[tuple[float, float]], goal: str) -> str:
    wall, used = zip(*times, strict=True)
    return (
        f"| {what} | {statistics.median(wall):.2f} | {min(wall):.2f} | {max(wall):.2f} | {statistics.median(used):.2f} | {goal} |"
    )


def listing(count: int, goal: str) -> list[str]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "_iteration_log"
        make(folder, count)
        cold: list[tuple[float, float]] = []
        for _ in range(3):
            (folder / ".audition-history.json").unlink(missing_ok=True)
            cold.append(seconds("history", str(folder)))
        warm = [seconds("history", str(folder)) for _ in range(REPEAT)]
        as_json = [seconds("history", str(folder), "--json") for _ in range(REPEAT)]
        return [
            row(f"`audition history`, {count:,} runs, cache written before", warm, goal),
            row(f"the same with `--json`, {count:,} runs", as_json, goal),
            row(f"the same without a cache file, {count:,} runs", cold, "-"),
        ]


def comparing() -> str:
    with tempfile.TemporaryDirectory() as place:
        make(Path(place), 2)
        runs = [str(Path(place) / f"run_{n:05d}") for n in range(2)]
        return row("`audition compare` of two runs", [seconds("compare", *runs) for _ in range(REPEAT)], "-")


def main() -> None:
    nothing = [seconds("--version") for _ in range(REPEAT)]
    counts = [int(n) for n in os.environ.get("RUNS", "1000,10000").split(",")]
    lines = [row("`audition --version`, for comparison", nothing, "-")]
    for count in counts:
        lines += listing(count, "0.50" if count <= 1000 else "-")
    lines.append(comparing())
    size = (SOURCE / "result.json").stat().st_size
    print(
        "# Time of the history\n\n"
        "Written by `make bench-history`. Seconds of the whole command, the interpreter's start included: median, least and most\n"
        f"of {REPEAT} (of 3 without a cache file), and the median CPU time. Each run has a `result.json` of {size:,} bytes.\n\n"
        f"Machine: {os.cpu_count()} CPUs, {platform.machine()}, Python {platform.python_version()}; load before: "
        f"{os.getloadavg()[0]:.1f}.\n\n"
        "| what | median | least | most | CPU | goal |\n|---|---|---|---|---|---|\n" + "\n".join(lines)
    )


if __name__ == "__main__":
    main()
