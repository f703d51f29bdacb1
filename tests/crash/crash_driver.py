"""Runs one spike and kills somebody at one point: the victim of the crash tests, always a process of its own.

usage: crash_driver.py SPIKE (--record FILE | --kill STEP POINT VICTIMS)

VICTIMS is a comma-separated list of runner, guard, engine. The hook is the conductor's ordinary ``on_point`` observer; nothing in
the product knows about it. ``--record`` writes every point that a whole run passes, one "step point" a line.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from world import engine_pids, guard_pids

from audition.errors import AuditionError
from audition.run.starting import Options, run_spike
from audition.spike.parse import load_spike


def kill(pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def main() -> int:
    spike, mode, *rest = sys.argv[1:]
    folder = Path(spike).resolve().parent
    fired = []

    def record(step: str, point: str) -> None:
        with open(rest[0], "a", encoding="utf-8") as stream:
            stream.write(f"{step} {point}\n")

    def strike(step: str, point: str) -> None:
        if fired or [step, point] != rest[:2]:
            return
        fired.append((step, point))
        victims = rest[2].split(",")
        if "engine" in victims:
            kill(engine_pids(folder))
        if "guard" in victims:
            kill(guard_pids(folder))
        (folder / "struck").write_text(str(time.time()))
        if "runner" in victims:
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        finished = run_spike(load_spike(Path(spike)), Options(quiet=True), on_point=record if mode == "--record" else strike)
    except AuditionError as error:
        print(f"{error.kind}: {error.what}; {error.seen}", file=sys.stderr)
        return error.exit_code
    return finished.exit_code


if __name__ == "__main__":
    sys.exit(main())
