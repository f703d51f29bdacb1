"""What audition itself adds to production's downtime, and how soon the guard acts when the runner is killed.

Prints Markdown: ``PYTHONPATH=tests .venv/bin/python benchmarks/overhead.py > docs/results/overhead.md``. Real processes in the
crash tests' small world; times come from the journal of each run. Ends with 1 when a goal is missed. Nothing is decided here
about restoring itself.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import shutil
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from audition.swap.journal import Entry
from audition.wayback.proctable import listening_inodes
from crash.kill_matrix import revision
from crash.variants import journal_of
from crash.world import World

OVERHEAD_GOAL_S = 5.0
"""Issue "Production always comes back": overhead of the tool in production's downtime beyond boots and measuring."""
BEGIN_GOAL_S = 2.0
"""The same: restoring begins so soon after the runner's death."""
STRUCK_AT = ("leg-2.measure", "after-intent")


@dataclass(frozen=True)
class Downtime:
    """Seconds of one run's downtime: from the first step that takes something from production's users to the reopened entry.

    ``boots``: from a start to the server's listening port. ``noticing``: from there to the run's own knowledge that completions
    work. ``other``: everything else, gaps between steps included. ``own``: noticing + other.
    """

    total: float
    boots: float
    measuring: float
    drain: float
    stop: float
    noticing: float
    other: float

    @property
    def own(self) -> float:
        """The tool's own share."""
        return self.noticing + self.other


def split(entries: list[Entry], opened: list[float]) -> Downtime:
    """The downtime of an undisturbed run. ``opened``: Unix times at which production's port was seen to open. Pure."""
    intents = {entry.step: entry.at for entry in entries if entry.mark == "intent"}
    ends = {entry.step: entry.at for entry in entries if entry.mark == "done"}
    begin = min(
        at for step, at in intents.items() if step in ("close-entry", "stop-sidecars") or step.endswith((".drain", ".stop"))
    )
    end = ends["restore.entry"]

    def spent(*suffixes: str) -> float:
        return sum(ends[step] - at for step, at in intents.items() if at >= begin and step.endswith(suffixes))

    boots = noticing = 0.0
    for step, at in intents.items():
        if step.endswith(".start"):
            ready = ends[step.removesuffix("start") + "ready"]
            seen = next(moment for moment in opened if at <= moment <= ready)
            boots += seen - at
            noticing += ready - seen
    measuring, drain = spent(".measure"), spent(".drain")
    stop = spent(".stop") + sum(ends[step] - at for step, at in intents.items() if step.startswith("restore.stop"))
    total = end - begin
    return Downtime(total, boots, measuring, drain, stop, noticing, total - boots - measuring - drain - stop - noticing)


class PortWatch(threading.Thread):
    """Notes when the port opens, by the kernel's table, every 5 ms; the servers do not notice."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.port, self.opened, self.over = port, list[float](), False

    def run(self) -> None:
        """Until ``over``."""
        before = True
        while not self.over:
            now = bool(listening_inodes(self.port))
            if now and not before:
                self.opened.append(time.time())
            before = now
            time.sleep(0.005)


def undisturbed(folder: Path) -> Downtime:
    """One undisturbed run in a world of its own."""
    with World(folder) as here:
        watch = PortWatch(here.port)
        watch.start()
        code = here.run(lambda step, point: None)
        watch.over = True
        watch.join()
        here.wait(here.quiet, 60, "the guard did not stand down")
        if code not in (0, 3, 4) or here.problems():
            raise RuntimeError(f"exit code {code}, {here.problems()}: {(here.folder / 'runner.log').read_text()}")
        return split(journal_of(here), watch.opened)


def delay_after_a_kill(folder: Path) -> tuple[float, float]:
    """Seconds from the runner's SIGKILL in the candidate's leg until the guard begins to restore, and until production is back."""
    with World(folder) as here:

        def strike(step: str, point: str) -> None:
            if (step, point) == STRUCK_AT:
                here.strike(["runner"])

        here.run(strike)
        here.wait(here.quiet, 60, "the guard is still busy")
        if here.problems():
            raise RuntimeError(f"{here.problems()}")
        died = float((here.folder / "struck").read_text())
        [log] = [file.read_text() for file in (here.folder / "state").glob("runs/*/guard.log")]
        said = {line.split(" ", 3)[3]: float(line.split()[0]) for line in log.splitlines()}
        back = next(at for text, at in said.items() if text.startswith("restored: True"))
        return said["restore begins"] - died, back - died


def row(name: str, values: list[float]) -> str:
    """One line of the table."""
    return f"| {name} | {statistics.median(values):.2f} | {max(values):.2f} |"


def report(runs: list[Downtime], delays: list[tuple[float, float]], load: float) -> str:
    """Both parts as Markdown."""
    own = [run.own for run in runs]
    begins, backs = [begin for begin, _ in delays], [back for _, back in delays]
    today = datetime.datetime.now(tz=datetime.UTC).date()
    host = f"Linux {platform.release()}, {os.cpu_count()} cores, Python {platform.python_version()}, load {load:.1f} at the start"
    return "\n".join(
        [
            "# What audition adds to production's downtime",
            "",
            f"Made by `benchmarks/overhead.py` at `{revision()}` on {today}: {host}. Real processes, legs production, candidate, "
            "production; the servers are tiny ones that boot in a moment, so that what remains is the tool's.",
            "",
            f"## Downtime of {len(runs)} undisturbed runs",
            "",
            "From the first step that takes something from users (drain or closing the entry) to the reopened entry after "
            "production is verified, from journal times. Seconds.",
            "",
            "| part | median | worst |",
            "|---|---|---|",
            row("boots (start until the port listens)", [run.boots for run in runs]),
            row("measuring", [run.measuring for run in runs]),
            row("drain", [run.drain for run in runs]),
            row("stop", [run.stop for run in runs]),
            row("noticing that a server works", [run.noticing for run in runs]),
            row("everything else: gaps, checks, verifying", [run.other for run in runs]),
            row("whole downtime", [run.total for run in runs]),
            row("**the tool's own: noticing and everything else**", own),
            "",
            f"Goal: at most {OVERHEAD_GOAL_S:.0f} s. {'Reached' if max(own) <= OVERHEAD_GOAL_S else 'MISSED'}.",
            "",
            f"## {len(delays)} kills of the runner (SIGKILL in the candidate's leg)",
            "",
            "| seconds after the kill | median | worst |",
            "|---|---|---|",
            f"| restoring begins | {statistics.median(begins):.3f} | {max(begins):.3f} |",
            row("production is back and verified", backs),
            "",
            f"Goal: restoring begins within {BEGIN_GOAL_S:.0f} s. {'Reached' if max(begins) <= BEGIN_GOAL_S else 'MISSED'}.",
        ]
    )


def main() -> int:
    """Exit code 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--kills", type=int, default=50)
    arguments = parser.parse_args()
    base, load = Path(tempfile.mkdtemp(prefix="audition-overhead-")), os.getloadavg()[0]
    runs = [undisturbed(base / f"run-{number}") for number in range(arguments.runs)]
    delays = [delay_after_a_kill(base / f"kill-{number}") for number in range(arguments.kills)]
    print(report(runs, delays, load))
    shutil.rmtree(base)
    missed = max(run.own for run in runs) > OVERHEAD_GOAL_S or max(begin for begin, _ in delays) > BEGIN_GOAL_S
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
