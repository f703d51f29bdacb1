"""`audition status` as plain functions: what runs, who holds the lock, since when, until when, and what to type. Touches
nothing."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from audition.run.recovering import guard_of, observe, read_run
from audition.swap.recovery import Ask, Done, Restore, Resume, Wait, WorldView, decide
from audition.units import format_duration
from audition.wayback import state
from audition.wayback.files import read_json
from audition.wayback.lock import holder_lives, read_holder, state_root
from audition.wayback.server import ServerView

NEXT = {
    Resume: "nothing: the run goes on; `kill -TERM {runner}` ends it and brings production back",
    Restore: "audition recover",
    Done: "nothing",
    Ask: "start production by hand, see the manual commands",
    Wait: "wait, then: audition status",
}


@dataclass
class RunStatus:
    """One unfinished run. Times in Unix seconds; ``guard`` None: no live guard."""

    run_id: str
    spike: str
    runner: int | None
    runner_lives: bool
    guard: int | None
    deadline: float | None
    production: str
    decision: str
    why: str
    next_step: str
    failure: str
    manual: list[str] = field(default_factory=list)


@dataclass
class Status:
    """The whole answer."""

    root: str
    locks: list[dict[str, Any]] = field(default_factory=list)
    runs: list[RunStatus] = field(default_factory=list)
    ended: int = 0
    at: float = 0.0

    def to_data(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def status(*, root: Path | None = None) -> Status:
    """Look at the state root: locks with their live holders, and every run that has not ended."""
    root = root or state_root()
    answer = Status(str(root), at=time.time())
    for path in sorted((root / "locks").glob("*.lock")) if (root / "locks").is_dir() else []:
        holder = read_holder(str(path))
        if holder is not None and holder_lives(holder):
            answer.locks.append({"file": str(path), **asdict(holder)})
    for folder in state.run_folders(root):
        if state.closed(folder):
            answer.ended += 1
            continue
        run = _run_status(folder, root)
        if run is not None:
            answer.runs.append(run)
    return answer


def _run_status(folder: Path, root: Path) -> RunStatus | None:
    found = read_run(folder)
    seen, view, _ = observe(found, root, ask=False)
    decision = decide(found.journal, seen, time.time())
    if isinstance(decision, Done) and found.plan is None:
        return None
    plan = found.plan
    guard = guard_of(folder)
    runner = plan.runner.pid if plan else None
    failure = read_json(folder / state.FAILED)
    problems = (failure or {}).get("report", {}).get("problems", []) if failure else []
    return RunStatus(
        run_id=folder.name,
        spike=plan.spike if plan else "unknown",
        runner=runner,
        runner_lives=seen.lock == "own-run",
        guard=guard.pid if guard else None,
        deadline=plan.deadline if plan else None,
        production=_production_text(seen, view),
        decision=type(decision).__name__.lower(),
        why=decision.why,
        next_step=NEXT[type(decision)].format(runner=runner),
        failure="; ".join(str(problem) for problem in problems),
        manual=list(plan.manual) if plan else [],
    )


def _production_text(seen: WorldView, view: ServerView | None) -> str:
    if seen.lock == "own-run" and seen.others == "some":
        if view is not None and view.state == "parked":
            return "parked for the spike: it listens, and requests to it wait; another arm of it runs"
        return "stopped for the spike: another arm of it runs"
    return f"{seen.production}: {view.detail}" if view else seen.production


def status_text(answer: Status) -> str:
    """The status as lines for a terminal."""
    lines = []
    for lock in answer.locks:
        since = format_duration(max(0.0, answer.at - lock["since"]))
        who = "held by run" if lock["role"] == "run" else f"held by {lock['role']} of run"
        lines.append(f"lock     {who} {lock['run_id']} (spike {lock['spike']}, pid {lock['process']['pid']}), for {since}")
    if not answer.locks:
        lines.append("lock     free")
    for run in answer.runs:
        lines.append(f"run      {run.run_id} (spike {run.spike})")
        lines.append(f"  runner      {'pid ' + str(run.runner) if run.runner_lives else 'does not live'}")
        lines.append(f"  guard       {'pid ' + str(run.guard) if run.guard else 'none'}")
        lines.append(f"  deadline    {_deadline(run.deadline, answer.at)}")
        lines.append(f"  production  {run.production}")
        if run.failure:
            lines.append(f"  last try    NOT RESTORED: {run.failure}")
        lines.append(f"  state       {run.why}")
        lines.append(f"  type        {run.next_step}")
        if run.decision == "ask" or run.failure:
            lines += [f"              {command}" for command in run.manual]
    if not answer.runs:
        lines.append(f"runs     none unfinished, {answer.ended} ended with production verified")
    return "\n".join(lines)


def _deadline(deadline: float | None, now: float) -> str:
    if deadline is None:
        return "none (the spike has no window)"
    when = time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(deadline))
    return f"{when} (in {format_duration(deadline - now)})" if deadline > now else f"{when} (passed)"
