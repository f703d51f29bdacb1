"""`audition recover` as plain functions: bring production back for every run that has not ended well. Safe at any time and twice at
once.

What to do is decided in ``swap.recovery``; how production comes back lives in ``wayback.restore``. The click wiring lives
elsewhere.
"""

from __future__ import annotations

import json
import signal
import sqlite3
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from audition.errors import EXIT_GO, EXIT_NOT_RESTORED, EXIT_REFUSED
from audition.run.journal import read_entries
from audition.swap.journal import IllegalEntry, JournalState, replay
from audition.swap.recovery import Ask, Corrupt, Decision, Done, Missing, Restore, Resume, Wait, WorldView, decide
from audition.wayback import state
from audition.wayback.files import read_json, write_atomic
from audition.wayback.health import verify
from audition.wayback.lock import Holder, LockHeld, acquire, current_holder, lock_files_for, state_root
from audition.wayback.plan import ProcessRef, RestorePlan
from audition.wayback.proctable import is_alive, send_signal
from audition.wayback.restore import Pace, RestoreReport, restore
from audition.wayback.server import ServerView, WaybackError
from audition.wayback.servers import server_of

Say = Callable[[str], None]
RUNNER_STOP_S = 10.0
RESTORER_WAIT_S = 3600.0
_PACE = Pace()


@dataclass
class RunRecovery:
    """What was done about one run. ``code``: exit code of this run alone."""

    run_id: str
    decision: str
    why: str
    code: int
    report: RestoreReport | None = None
    manual: list[str] = field(default_factory=list)


@dataclass
class RecoverReport:
    """What was done in all. ``exit_code``: 0 fine, 5 a live run was left alone, 7 production is not back somewhere."""

    runs: list[RunRecovery] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """The worst of the runs: 7, then 5, then 0."""
        codes = {run.code for run in self.runs}
        return next((code for code in (EXIT_NOT_RESTORED, EXIT_REFUSED) if code in codes), EXIT_GO)

    def __int__(self) -> int:
        return self.exit_code

    def to_data(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"exit_code": self.exit_code, "runs": [asdict(run) for run in self.runs]}


@dataclass(frozen=True)
class FoundRun:
    """One run's folder with what could be read of it. ``trouble``: why the plan is not readable."""

    folder: Path
    plan: RestorePlan | None
    trouble: str
    journal: JournalState | Missing | Corrupt


def read_run(folder: Path) -> FoundRun:
    """Read a run's folder; damage becomes part of the answer."""
    plan, trouble = None, "missing"
    try:
        plan, trouble = state.read_plan(folder), ""
    except FileNotFoundError:
        pass
    except (OSError, ValueError, RecursionError) as error:
        trouble = f"damaged: {error}"
    journal: JournalState | Missing | Corrupt
    try:
        journal = replay(read_entries(folder / "journal.sqlite"))
    except FileNotFoundError:
        journal = Missing()
    except (OSError, ValueError, KeyError, sqlite3.Error, IllegalEntry, RecursionError) as error:
        journal = Corrupt(str(error))
    return FoundRun(folder, plan, trouble, journal)


def observe(found: FoundRun, root: Path, *, ask: bool = True) -> tuple[WorldView, ServerView | None, Holder | None]:
    """The world as ``decide`` wants it, production's view, and the live holder of the run's locks. Touches nothing.

    ``ask``: send production a completion when that matters.
    """
    plan, folder = found.plan, found.folder
    holder = current_holder(plan.lock_files if plan else lock_files_for(root, []))
    lock: Literal["free", "own-run", "restorer", "other-run"] = "free"
    if holder is not None and is_alive(holder.process):
        if holder.role != "run":
            lock = "restorer"
        else:
            lock = "own-run" if holder.run_id in (folder.name, plan.run_id if plan else "") else "other-run"
    production, others, view = _servers(plan, ask=ask and lock == "free") if plan else ("unknown", "unknown", None)
    seen = WorldView(
        plan="readable" if plan else ("missing" if found.trouble == "missing" else "damaged"),
        armed=(folder / state.GUARD).exists(),
        closed=state.closed(folder),
        lock=lock,
        deadline=plan.deadline if plan else None,
        production=production,  # type: ignore[arg-type]
        others=others,  # type: ignore[arg-type]
    )
    return seen, view, holder


def _servers(plan: RestorePlan, *, ask: bool) -> tuple[str, str, ServerView | None]:
    try:
        server = server_of(plan.production, production=True)
        view = server.view()
        states = [server_of(arm, production=False).view().state for arm in plan.others]
    except WaybackError:
        return "unknown", "unknown", None
    others = "some" if any(seen in ("running", "parked", "stopped") for seen in states) else "none"
    if view.state != "running":
        return ("foreign" if view.state == "foreign" else "down"), others, view
    if ask and not server.differences() and all(check.ok is not False for check in verify(plan.verify.endpoint, plan.verify)):
        return "verified", others, view
    return "running", others, view


def recover(
    *, root: Path | None = None, force_deadline: bool = False, say: Say = lambda text: None, pace: Pace = _PACE
) -> RecoverReport:
    """Look at every run of the state root and bring production back where it is not. Fine when nothing is wrong.

    ``force_deadline``: end a live runner whose restore deadline has passed (what the timer does); without it such a run is left
    alone.
    """
    root = root or state_root()
    report = RecoverReport()
    for folder in state.run_folders(root):
        if state.closed(folder) and not (folder / state.PLAN).exists():
            continue
        try:
            done = _recover_run(folder, root, force_deadline, say, pace)
        except Exception as error:  # noqa: BLE001 - one damaged run must not keep the others from coming back
            why = f"this run could not be looked at: {error!r}"
            manual = [f"look into {folder}; start production as you did before"]
            done = RunRecovery(folder.name, "ask", why, EXIT_NOT_RESTORED, manual=manual)
        say(f"run {done.run_id}: {done.decision}: {done.why}")
        report.runs.append(done)
    if not state.run_folders(root):
        say(f"no run is recorded under {root}. If production is down, why cannot be known here: start it as you did before")
    elif not report.runs:
        say("no run is unfinished: there is nothing to bring back")
    return report


def _recover_run(folder: Path, root: Path, force_deadline: bool, say: Say, pace: Pace) -> RunRecovery:
    until = time.monotonic() + RESTORER_WAIT_S
    told = False
    while True:
        found = read_run(folder)
        seen, view, holder = observe(found, root)
        decision = decide(found.journal, seen, time.time())
        waits = isinstance(decision, Wait) and seen.lock == "restorer"
        if not waits or time.monotonic() >= until:
            done = _follow(decision=decision, found=found, seen=seen, view=view, force_deadline=force_deadline, say=say, pace=pace)
            if done is not None:
                return done
        elif not told:
            told = True
            who = f"pid {holder.process.pid}" if holder else "another process"
            say(f"run {folder.name}: {decision.why} ({who}): waiting for it")
        time.sleep(0.5)


def _follow(
    *, decision: Decision, found: FoundRun, seen: WorldView, view: ServerView | None, force_deadline: bool, say: Say, pace: Pace
) -> RunRecovery | None:
    """Act on a decision; None: somebody else began to restore meanwhile, so look again."""
    run_id, name = found.folder.name, type(decision).__name__.lower()
    if isinstance(decision, Done):
        if found.plan is not None and not seen.closed:
            state.close(found.plan, "recover", {"untouched": True, "boot_id": view.boot_id if view else ""})
        elif seen.closed:
            state.shred(found.folder)  # the recorder died between the record and the removal of the secrets
        return RunRecovery(run_id, name, decision.why, EXIT_GO)
    if isinstance(decision, Resume):
        return RunRecovery(run_id, name, f"{decision.why}; it is left alone", EXIT_REFUSED)
    if isinstance(decision, Wait):
        return RunRecovery(run_id, name, decision.why, EXIT_REFUSED)
    if isinstance(decision, Ask) or found.plan is None:
        manual = found.plan.manual if found.plan else [f"start production as you did before, then remove {found.folder}"]
        return RunRecovery(run_id, "ask", decision.why, EXIT_NOT_RESTORED, manual=manual)
    if decision.end_runner and not force_deadline:
        why = f"{decision.why}; it is left alone (end it with: audition recover --force-deadline)"
        return RunRecovery(run_id, "resume", why, EXIT_REFUSED)
    return _restore(decision, found.plan, say, pace)


def _restore(decision: Restore, plan: RestorePlan, say: Say, pace: Pace) -> RunRecovery | None:
    if decision.end_runner:
        _end(plan.runner, say)
    say(f"run {plan.run_id}: {decision.why}: bringing production back")
    try:
        lock = acquire(
            plan.lock_files,
            run_id=plan.run_id,
            spike=plan.spike,
            role="recover",
            deadline=None,
            fence=plan.fence,
            wait_s=RUNNER_STOP_S,
        )
    except LockHeld as error:
        if error.holder is not None and is_alive(error.holder.process):
            return RunRecovery(plan.run_id, "wait", str(error), EXIT_REFUSED) if error.holder.role == "run" else None
        say(f"goes on without the lock, no live process answers for it: {error}")
        lock = None
    except WaybackError as error:
        say(f"goes on without the lock: {error}")
        lock = None
    try:
        if state.closed(Path(plan.state_dir)) and not (Path(plan.state_dir) / state.PLAN).exists():
            return RunRecovery(plan.run_id, "done", "another process has brought production back meanwhile", EXIT_GO)
        report = restore(plan, say=say, pace=pace)
        if not report.verified:
            state.write_failure(plan, report.to_data())
            why = "; ".join(report.problems) or "production could not be verified"
            return RunRecovery(plan.run_id, "restore", why, EXIT_NOT_RESTORED, report, report.manual)
        why = "production is back and verified"
        try:
            state.close(plan, "recover", report.to_data())
            _tell_the_records(plan, report)
        except OSError as error:
            why += f"; that could not be recorded: {error}"
        return RunRecovery(plan.run_id, "restore", why, EXIT_GO, report)
    finally:
        if lock is not None:
            lock.release()


def _tell_the_records(plan: RestorePlan, report: RestoreReport) -> None:
    """A note in the run folder, if there still is one: its other records were written before production was back."""
    folder = Path(plan.run_dir)
    if folder.is_dir():
        write_atomic(folder / "restored-by-recover.json", json.dumps(report.to_data(), indent=1) + "\n", 0o644)


def _end(runner: ProcessRef, say: Say) -> None:
    """End a runner that is past its deadline: SIGTERM, 10 s, SIGKILL, by identity."""
    say(f"ending the runner, pid {runner.pid}, which is past its restore deadline")
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            send_signal(runner, number)
        except WaybackError as error:
            say(str(error))
        until = time.monotonic() + RUNNER_STOP_S
        while is_alive(runner) and time.monotonic() < until:
            time.sleep(0.05)


def guard_of(folder: Path) -> ProcessRef | None:
    """The live guard of a run, None when there is none."""
    data = read_json(folder / state.GUARD)
    try:
        ref = ProcessRef(**data) if data else None
    except TypeError:
        return None
    return ref if is_alive(ref) else None
