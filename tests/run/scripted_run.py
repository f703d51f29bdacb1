"""The events of a made-up run; as a program, it tells them to a reporter with a screen and waits for a line before it goes on.

Argument: what happens in the middle (go-on, interrupt, kill-screen, be-killed, raise).
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import termios
import time
from pathlib import Path

from audition.run.events import (
    BootLogged,
    EndedEarly,
    Event,
    GuardArmed,
    LegProgressed,
    PlannedLeg,
    PlannedStep,
    ProductionChanged,
    RestoreEnded,
    RestoreStepped,
    RunPlanned,
    Said,
    SignalHeard,
    StepBegan,
    StepEnded,
    VerdictReached,
    Warned,
    WorkloadMeasured,
)
from audition.run.interrupts import Interrupts
from audition.run.reporter import Reporter
from audition.units import NoData

NONE = NoData("nothing was drafted")
SNAPSHOT = PlannedStep("snapshot", "snapshot", "look at old", "old", None)
MEASURE_OLD = PlannedStep("leg-1.measure", "measure", "measure old", "old", 1)
DRAIN = PlannedStep("leg-2.drain", "drain", "let requests of old end", "old", 2)
STOP = PlannedStep("leg-2.stop", "stop", "stop old", "old", 2)
START = PlannedStep("leg-2.start", "start", "start new", "new", 2)
READY = PlannedStep("leg-2.ready", "await-ready", "wait until new answers", "new", 2)
MEASURE_NEW = PlannedStep("leg-2.measure", "measure", "measure new", "new", 2)
RESTORE = PlannedStep("restore", "restore", "bring old back and verify it", "old", None)
STEPS = (SNAPSHOT, MEASURE_OLD, DRAIN, STOP, START, READY, MEASURE_NEW, RESTORE)
PLAN = RunPlanned(
    "spike-of-words", "Is new better?", "old", STEPS,
    (PlannedLeg(1, "old", "production", ("single", "many")), PlannedLeg(2, "new", "candidate", ("single", "many"))),
    "/records/here",
)  # fmt: skip


def progress(leg: int, arm: str, role: str, tokens: int) -> LegProgressed:
    return LegProgressed(leg, arm, role, "many", "measuring", 16, 32, 0, 3.0, tokens, tokens / 3.0, 0.031, 0.58, 2.74)


def measured(leg: int, arm: str, role: str, workload: str, rate: float) -> WorkloadMeasured:
    return WorkloadMeasured(leg, arm, role, workload, True, 2.0, 32, rate, 0.02, NONE, NONE)


BEFORE: list[Event] = [
    Said("records: /records/here"), PLAN, StepBegan(SNAPSHOT), StepEnded(SNAPSHOT, 0.2), GuardArmed(time.time() + 3600),
    StepBegan(MEASURE_OLD), progress(1, "old", "production", 2000),
    measured(1, "old", "production", "single", 111.5), measured(1, "old", "production", "many", 730.25),
    StepEnded(MEASURE_OLD, 8.0),
    StepBegan(DRAIN), StepEnded(DRAIN, 0.1), StepBegan(STOP), StepEnded(STOP, 0.4), StepBegan(START), StepEnded(START, 0.1),
    StepBegan(READY), BootLogged("new", "Loading \x1b[2J weights: 60%"),
]  # fmt: skip
MIDDLE: list[Event] = [
    StepEnded(READY, 1.5), StepBegan(MEASURE_NEW), measured(2, "new", "candidate", "single", 153.6),
    progress(2, "new", "candidate", 2200), Warned("the key is s3cr3t-word"),
]  # fmt: skip
AFTER: list[Event] = [
    EndedEarly("early-end", "nothing can change the verdict"), StepBegan(RESTORE), RestoreStepped("restore: start old ..."),
    RestoreEnded(True, (), 2.0), VerdictReached("NO-GO", 3, ("many-users failed",), True, "/records/here"),
]  # fmt: skip
ALL_KINDS: list[Event] = [
    *BEFORE, *MIDDLE, SignalHeard("SIGINT", 0, "SIGINT: ending the leg"), *AFTER, ProductionChanged("stopped", "old"),
]  # fmt: skip


def screen_process() -> int:
    """The pid of the one child that draws."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and b"audition.run.screen" in (folder / "cmdline").read_bytes():
                return int(folder.name)
        except OSError:  # it ended meanwhile
            continue
    raise LookupError("there is no screen")


def main(middle: str) -> None:
    fcntl.ioctl(2, termios.TIOCSCTTY, 0)
    reporter = Reporter(rehearsal=True, screen=True)
    reporter.secrets = ["s3cr3t-word"]
    interrupts = Interrupts(lambda name, before: reporter.tell(SignalHeard(name, before, f"{name}: ending the leg, says the test")))
    interrupts.install()
    try:
        for events in (BEFORE, MIDDLE):
            for event in events:
                reporter.tell(event)
            sys.stdin.readline()
        if middle == "interrupt":
            while not interrupts.requested:
                time.sleep(0.02)
        elif middle == "kill-screen":
            os.kill(screen_process(), signal.SIGKILL)
            reporter.say("a line that finds no screen")
        elif middle == "be-killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif middle == "raise":
            raise RuntimeError("from the middle of a run")
        for events in (AFTER[:3], AFTER[3:]):
            for event in events:
                reporter.tell(event)
            sys.stdin.readline()
    finally:
        reporter.close()
        reporter.say("a line after the end")
        reporter.flush()
    print("done")


if __name__ == "__main__":
    main(sys.argv[1])
