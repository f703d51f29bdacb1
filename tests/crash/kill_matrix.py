"""The kill matrix: kill {runner, guard, both, engine, runner + engine} at every point of every step: production comes back.

As a script it runs many rounds and prints the report that ``docs/results/kill-matrix.md`` keeps; see the Makefile.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import functools
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from crash.world import World, recorded_points

VICTIMS = {
    "runner": ["runner"],
    "guard": ["guard"],
    "both": ["guard", "runner"],
    "engine": ["engine"],
    "runner + engine": ["engine", "runner"],
}
Job = tuple[str, str, str]
MakeWorld = Callable[[Path], World]


@dataclass(frozen=True)
class Trial:
    """One kill and what came of it. ``delay``: seconds from the strike to the guard acting, None when no guard acted."""

    step: str
    point: str
    victims: str
    struck: bool
    problems: list[str]
    delay: float | None
    seconds: float


def guard_delay(here: World) -> float | None:
    """From the strike to the guard's own word that it acts (both Unix time)."""
    struck = here.folder / "struck"
    for log in (here.folder / "state").glob("runs/*/guard.log"):
        for line in log.read_text(errors="replace").splitlines():
            if "the runner died" in line and struck.exists():
                return float(line.split()[0]) - float(struck.read_text())
    return None


def trial(make: MakeWorld, base: Path, job: Job) -> Trial:
    """One kill in a world of its own. Killing both is followed by ``audition recover``, as the boot unit would run it."""
    step, point, victims = job
    begun = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="t", dir=base))
    problems: list[str] = []
    with make(folder) as here:

        def strike(at: str, where: str) -> None:
            if (at, where) == (step, point) and not (folder / "struck").exists():
                here.strike(VICTIMS[victims])

        try:
            here.run(strike)
            struck = (folder / "struck").exists()
            if victims == "both":
                recovered = here.audition("recover")
                if recovered.returncode != 0:
                    problems.append(f"recover: exit {recovered.returncode} {recovered.stderr[-500:]}")
            here.wait(here.quiet, 120, "the guard is still busy")
            problems += here.problems()
        except (AssertionError, TimeoutError) as stuck:
            problems, struck = [str(stuck)], True
        delay = guard_delay(here)
    if not problems:
        shutil.rmtree(folder, ignore_errors=True)
    return Trial(step, point, victims, struck, problems, delay, time.monotonic() - begun)


def all_jobs(make: MakeWorld, base: Path) -> list[Job]:
    """Every point of an undisturbed run with every set of victims.

    The engine is a victim from the moment the guard is armed until it has stood down. Before that nothing was touched, and a server
    that dies by itself makes the run refuse; after that the run is over, and a server that somebody kills is nobody's to restore.
    """
    with make(base / "undisturbed") as here:
        points = recorded_points(here)
    armed, over = points.index(("arm-guard", "after-effect")), points.index(("stand-down", "after-effect"))
    return [
        (step, point, victims)
        for place, (step, point) in enumerate(points)
        for victims, names in VICTIMS.items()
        if armed <= place < over or "engine" not in names
    ]


def run_matrix(make: MakeWorld, base: Path, jobs: list[Job], workers: int) -> list[Trial]:
    """All jobs, several at a time. Each worker is a process of its own that forks its runners."""
    out: list[Trial] = []
    with ProcessPoolExecutor(workers) as pool:
        for done in pool.map(trial, [make] * len(jobs), [base] * len(jobs), jobs):
            out.append(done)
            if done.problems:
                print(f"FAILED {done}", file=sys.stderr, flush=True)
            if len(out) % 100 == 0:
                print(f"{len(out)}/{len(jobs)}", file=sys.stderr, flush=True)
    return out


def report(trials: list[Trial], title: str, command: str, seconds: float) -> str:
    """One matrix as Markdown."""
    failed = [t for t in trials if t.problems]
    delays = sorted(t.delay for t in trials if t.delay is not None)
    lines = [
        f"## {title}",
        "",
        f"Made by `{command}` on {datetime.datetime.now(tz=datetime.UTC).date()}: Linux {platform.release()}, "
        f"{os.cpu_count()} cores, Python {platform.python_version()}. Real processes, real SIGKILL.",
        "",
        f"- Trials: {len(trials)} in {seconds:.0f} s. "
        f"Production back: {len(trials) - len(failed)} of {len(trials)} ({1 - len(failed) / len(trials):.2%}).",
    ]
    if delays:
        lines.append(
            f"- From the runner's death to the guard acting: median {statistics.median(delays) * 1000:.0f} ms, "
            f"worst {delays[-1] * 1000:.0f} ms ({len(delays)} trials in which the guard acted)."
        )
    lines += ["", "| step | " + " | ".join(VICTIMS) + " |", "|---" * (len(VICTIMS) + 1) + "|"]
    for step in dict.fromkeys(t.step for t in trials):
        cells = []
        for victims in VICTIMS:
            mine = [t for t in trials if t.step == step and t.victims == victims]
            cells.append(f"{sum(not t.problems for t in mine)}/{len(mine)}")
        lines.append(f"| {step} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *[f"- FAILED: {t.step} {t.point} {t.victims}: {'; '.join(t.problems)}" for t in failed]])


def every_point(jobs: list[Job]) -> list[Job]:
    """Every point of every step once; victims take turns, so that each step and each kind of point meets several of them."""
    points = list(dict.fromkeys((step, point) for step, point, _ in jobs))
    turns = [[job for job in jobs if job[:2] == place] for place in points]
    return [mine[number % len(mine)] for number, mine in enumerate(turns)]


def one_pass(jobs: list[Job]) -> list[Job]:
    """Every step once; points and victims take turns over the steps."""
    steps = list(dict.fromkeys(step for step, _, _ in jobs))
    turns = [[job for job in jobs if job[0] == step] for step in steps]
    return [mine[(number * 7) % len(mine)] for number, mine in enumerate(turns)]


def revision() -> str:
    """The commit that is tested, with a mark when files differ from it."""
    words = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(words, capture_output=True, text=True, check=False, cwd=Path(__file__).parent).stdout.strip() or "unknown"


@contextlib.contextmanager
def worlds(kind: str) -> Iterator[MakeWorld]:
    """How a world of that kind is made; for containers, with a private Docker engine that is gone afterwards."""
    if kind == "process":
        yield World
        return
    if kind == "park":
        from crash.parking import ParkWorld

        yield ParkWorld
        return
    from crash.containers import ContainerWorld
    from environments.docker_engine import DockerEngine

    engine = DockerEngine(Path(tempfile.mkdtemp(prefix="aud-", dir="/tmp")))
    try:
        engine.start()
        yield functools.partial(ContainerWorld, docker=engine)
    finally:
        engine.tear_down()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=["process", "compose", "park"], default="process")
    parser.add_argument("--rounds", type=int, default=1, help="0: one pass over all steps, points and victims taking turns")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--only", default="", help="only steps that begin with this")
    arguments = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="audition-kill-"))
    begun = time.monotonic()
    with worlds(arguments.engine) as make:
        jobs = [job for job in all_jobs(make, base) if job[0].startswith(arguments.only)]
        jobs = one_pass(jobs) if arguments.rounds == 0 else jobs * arguments.rounds
        if arguments.engine == "compose":  # trials share one engine, which a fork would not survive
            trials = [trial(make, base, job) for job in jobs]
        else:
            trials = run_matrix(make, base, jobs, arguments.workers)
    command = f"tests/crash/kill_matrix.py --engine {arguments.engine} --rounds {arguments.rounds}` at `{revision()}"
    print(report(trials, f"{arguments.engine.capitalize()} engine", command, time.monotonic() - begun))
    if any(t.problems for t in trials):
        print(f"worlds of failed trials are kept under {base}", file=sys.stderr)
        return 1
    shutil.rmtree(base, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
