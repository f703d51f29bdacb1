"""The kill matrix: kill {runner, guard, both, engine, runner + engine} at every point of every step: production comes back.

As a script it runs many rounds and prints the report that ``docs/results/kill-matrix.md`` keeps:
    python tests/crash/kill_matrix.py --rounds 7 --workers 2 > report.md
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from world import World, world

VICTIMS = {"runner": "runner", "guard": "guard", "both": "guard,runner", "engine": "engine", "runner + engine": "engine,runner"}


@dataclass(frozen=True)
class Trial:
    """One kill and what came of it. ``restore_after``: seconds from the runner's death to the guard's first restore step."""

    step: str
    point: str
    victims: str
    struck: bool
    problems: list[str]
    restore_after: float | None
    seconds: float


def all_points(base: Path) -> list[tuple[str, str]]:
    """Every (step, point) that an undisturbed run passes, in order."""
    with world(base / "record") as here:
        listing = here.folder / "points"
        done = here.run("--record", str(listing))
        if done.returncode not in (0, 3, 4):
            raise RuntimeError(f"the undisturbed run ended with {done.returncode}: {done.stderr}")
        here.wait(here.quiet, 30, "the guard did not stand down")
        if here.problems():
            raise RuntimeError(f"the undisturbed run left: {here.problems()}")
        seen = [tuple(line.split(" ", 1)) for line in listing.read_text().splitlines()]
        return list(dict.fromkeys((step, point) for step, point in seen))


def restore_delay(here: World) -> float | None:
    """Seconds from the strike to the guard's word that it begins to restore (Unix time in its log), None when no guard restored."""
    struck = here.folder / "struck"
    if not struck.exists():
        return None
    for log in (here.folder / "state").glob("runs/*/guard.log"):
        for line in log.read_text(errors="replace").splitlines():
            if "the runner died: acts" in line:
                return float(line.split()[0]) - float(struck.read_text())
    return None


def trial(base: Path, step: str, point: str, victims: str) -> Trial:
    """One kill in a world of its own."""
    begun = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="t", dir=base))
    with world(folder) as here:
        try:
            here.run("--kill", step, point, VICTIMS[victims])
            struck = (here.folder / "struck").exists()
            if victims == "both":
                recovered = here.audition("recover")
                problems = [] if recovered.returncode == 0 else [f"recover: {recovered.returncode} {recovered.stderr[-300:]}"]
            else:
                problems = []
            here.wait(here.quiet, 60, "the guard is still busy")
            problems += here.problems()
        except (AssertionError, subprocess.TimeoutExpired) as stuck:
            problems, struck = [str(stuck)], True
        delay = restore_delay(here)
    if not problems:
        shutil.rmtree(folder, ignore_errors=True)
    return Trial(step, point, victims, struck, problems, delay, time.monotonic() - begun)


def run_matrix(base: Path, rounds: int, workers: int, only: str | None = None) -> list[Trial]:
    """All points, all victims, ``rounds`` times."""
    points = all_points(base)
    jobs = [(s, p, v) for _ in range(rounds) for s, p in points for v in VICTIMS if only is None or s.startswith(only)]
    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(trial, base, *job) for job in jobs]
        out = []
        for number, future in enumerate(futures, start=1):
            out.append(future.result())
            if out[-1].problems:
                print(f"FAILED {out[-1]}", file=sys.stderr)
            if number % 50 == 0:
                print(f"{number}/{len(jobs)}", file=sys.stderr)
        return out


def report(trials: list[Trial], rounds: int, seconds: float) -> str:
    """The Markdown table of one matrix."""
    steps = list(dict.fromkeys(t.step for t in trials))
    failed = [t for t in trials if t.problems]
    delays = [t.restore_after for t in trials if t.restore_after is not None]
    lines = [
        f"Made by `python tests/crash/kill_matrix.py --rounds {rounds}` on {datetime.datetime.now(tz=datetime.UTC).date()}: "
        f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}. "
        "Process engine; real processes, real SIGKILL.",
        "",
        f"- Trials: {len(trials)} in {seconds:.0f} s. "
        f"Production back: {len(trials) - len(failed)} ({(1 - len(failed) / len(trials)):.2%}).",
    ]
    if delays:
        lines.append(
            f"- Restore begins after the runner's death: median {statistics.median(delays) * 1000:.0f} ms, "
            f"worst {max(delays) * 1000:.0f} ms ({len(delays)} trials in which the guard restored)."
        )
    lines += ["", "| step | " + " | ".join(VICTIMS) + " |", "|---" * (len(VICTIMS) + 1) + "|"]
    for step in steps:
        cells = []
        for victims in VICTIMS:
            mine = [t for t in trials if t.step == step and t.victims == victims]
            cells.append(f"{sum(not t.problems for t in mine)}/{len(mine)}")
        lines.append(f"| {step} | " + " | ".join(cells) + " |")
    lines += ["", *[f"- FAILED: {t.step} {t.point} {t.victims}: {'; '.join(t.problems)}" for t in failed]]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", help="only steps that begin with this")
    arguments = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="audition-kill-"))
    begun = time.monotonic()
    trials = run_matrix(base, arguments.rounds, arguments.workers, arguments.only)
    print(report(trials, arguments.rounds, time.monotonic() - begun))
    if any(t.problems for t in trials):
        print(f"worlds of failed trials are kept under {base}", file=sys.stderr)
        return 1
    shutil.rmtree(base, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
