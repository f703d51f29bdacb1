"""Bringing production back: look, take the next step, look again, until it is verified or a person is needed.

Idempotent: it may be killed at any point and begun again, and two of them at once converge. It never reads a verdict. Which step is
next is decided in ``nextstep``; every wait has a limit.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from audition.wayback.gpu import wait_settled
from audition.wayback.health import Check, Limits, NoAnswer, completion, verify, wait_ready, working_body
from audition.wayback.nextstep import Done, Look, Progress, Step, Stuck, next_step
from audition.wayback.plan import RestorePlan, redact
from audition.wayback.server import ServerView, WaybackError
from audition.wayback.servers import server_of, strangers_of

Point = Literal["before-intent", "after-intent", "after-effect", "after-done"]
Observer = Callable[[str, Point], None]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Pace:
    """Waiting times in seconds and numbers of tries; tests use shorter ones."""

    start_tries: int = 3
    backoff_s: float = 5.0
    port_s: float = 30.0
    look_s: float = 2.0
    look_tries: int = 60
    poll_s: float = 0.25
    command_s: float = 120.0
    call_s: float = 120.0


@dataclass(frozen=True)
class StepRecord:
    """One step that was taken. ``seconds`` it took; ``detail``: what came of it."""

    step: str
    seconds: float
    ok: bool
    detail: str


@dataclass
class RestoreReport:
    """How it went. ``verified``: production is back, equal to its snapshot and proved to work, and nothing else of the spike runs.

    ``began``, ``ready_at``, ``ended`` in Unix seconds (``ready_at`` None: it never became ready). ``problems`` forbid ``verified``;
    ``warnings`` do not. ``manual``: what a person types when it is not verified.
    """

    run_id: str
    verified: bool = False
    began: float = 0.0
    ended: float = 0.0
    ready_at: float | None = None
    boot_id: str = ""
    untouched: bool = True
    steps: list[StepRecord] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    manual: list[str] = field(default_factory=list)

    def to_data(self) -> dict[str, Any]:
        """The report as plain data for JSON."""
        return asdict(self)


class Restoring:
    """One restore under way: the plan, its servers, what was done, and the report."""

    def __init__(self, plan: RestorePlan, say: Say, pace: Pace) -> None:
        self.plan = plan
        self.say = say
        self.pace = pace
        self.production = server_of(plan.production, production=True)
        self.others = {arm.arm: (arm, server_of(arm, production=False)) for arm in plan.others}
        self.done = Progress()
        self.report = RestoreReport(plan.run_id, began=time.time())

    def look(self) -> Look:
        """See what runs, touching nothing."""
        try:
            return Look(self.production.view(), {name: server.view() for name, (_, server) in self.others.items()})
        except Exception as error:  # noqa: BLE001 - whatever goes wrong in looking, the way back goes on
            return Look(ServerView("absent", ""), {}, str(error) if isinstance(error, WaybackError) else repr(error))

    def note(self, **changes: Any) -> None:
        """Record progress."""
        self.done = replace(self.done, **changes)


_PACE = Pace()
Effect = Callable[[Restoring, Step], str]
"""Does one step and returns what came of it; raises WaybackError when it failed."""


def _look(run: Restoring, _: Step) -> str:
    run.note(looked_in_vain=run.done.looked_in_vain + 1)
    time.sleep(run.pace.look_s)
    return "looks again"


def _stop(run: Restoring, step: Step) -> str:
    production = step.arm == run.plan.production.arm
    arm, server = (run.plan.production, run.production) if production else run.others[step.arm]
    run.note(stops={**run.done.stops, step.arm: run.done.stops.get(step.arm, 0) + 1}, settled=False)
    report = server.stop(arm.stop_grace_s)
    if not report.proved:
        raise WaybackError(f"{step.arm} could not be stopped for certain: {report.detail}")
    run.note(stopped=run.done.stopped | {step.arm})
    return ("killed after its grace period" if report.killed else "stopped") + (f"; {report.detail}" if report.detail else "")


def _gpu(run: Restoring, _: Step) -> str:
    run.note(settled=True)
    if run.plan.gpu.source == "none":
        return "no GPU is watched"
    settled = wait_settled(run.plan.gpu)
    if not settled.ok:
        text = f"GPU memory is not back at its baseline after {settled.seconds:.0f} s: {settled.detail}"
        run.report.warnings.append(text + "; production is started all the same")
        return text
    return "GPU memory is at its baseline"


def _port(run: Restoring, _: Step) -> str:
    until = time.monotonic() + run.pace.port_s
    while run.look().production.state == "foreign" and time.monotonic() < until:
        time.sleep(run.pace.poll_s)
    run.note(waited_for_port=True)
    return "waited for the port"


def _start(run: Restoring, _: Step) -> str:
    if run.done.starts:
        time.sleep(run.pace.backoff_s * 2 ** (run.done.starts - 1))
    run.report.untouched = False
    run.note(starts=run.done.starts + 1, stopped=run.done.stopped - {run.plan.production.arm}, settled=False, waited_for_port=False)
    try:
        run.production.start()
    except WaybackError as error:
        run.note(refused=str(error))
        raise
    run.note(refused="")
    return f"start {run.done.starts} of {run.pace.start_tries}"


def _unpark(run: Restoring, _: Step) -> str:
    from audition.wayback.park import parker_of, unpark  # noqa: PLC0415 - keeps the sleeping guard small

    run.report.untouched = False
    run.note(unparks=run.done.unparks + 1, settled=False)
    target = run.plan.production.park
    try:
        if target is None:
            raise WaybackError("there is no plan to park it")
        moved = unpark(parker_of(target), target.processes, target.lock_s)
    except WaybackError as error:
        text = f"production was parked and COULD NOT BE RESUMED: {error}; if it does not work now, it is killed and started anew"
        run.report.warnings.append(text)
        raise WaybackError(text) from error
    return f"resumed after {moved.seconds:.1f} s ({target.parker})"


def _ready(run: Restoring, _: Step) -> str:
    check = run.plan.verify
    limits = Limits(check.boot_limit_s, check.silence_s, run.pace.poll_s, run.pace.call_s)
    got = wait_ready(run.production, check.endpoint, limits, strangers=lambda: strangers_of(run.production))
    if got.kind == "ready":
        run.report.ready_at = run.report.ready_at or time.time()
        run.note(ready_boot=got.boot_id, refused="")
        return f"works after {got.seconds:.1f} s"
    tail = run.production.log_tail(20)
    text = f"production's boot failed ({got.kind}): {got.detail}" + (f"\n{tail}" if tail else "")
    boot = run.look().production.boot_id
    run.note(refused=f"{got.kind}: {got.detail}", bad_boots=run.done.bad_boots | ({boot} if boot else set()))
    raise WaybackError(text)


def _verify(run: Restoring, _: Step) -> str:
    view = run.look().production
    boot = view.boot_id
    checks = verify(run.plan.verify.endpoint, run.plan.verify, run.pace.call_s)
    run.report.checks = checks
    bad = [check for check in checks if check.ok is False]
    if bad:
        text = "; ".join(f"{check.name}: {check.detail}" for check in bad)
        run.note(refused=f"production runs, but is not as before: {text}")
        # a restart can help against a broken server, and against another answer only where parking may have spoilt it
        if any(check.name != "greedy" for check in bad) or view.parkable:
            run.note(bad_boots=run.done.bad_boots | {boot})
        raise WaybackError(text)
    run.report.warnings += [f"{check.name}: {check.detail}" for check in checks if check.ok is None]
    run.report.problems += [f"production differs from its snapshot: {text}" for text in run.production.differences()]
    run.note(verified_boot=boot)
    return "; ".join(check.detail for check in checks)


def _sidecars(run: Restoring, _: Step) -> str:
    run.note(sidecars=True)
    failed = []
    if run.plan.sidecars:
        from audition.wayback.docker_beside import start_sidecar  # noqa: PLC0415 - keeps the sleeping guard small

        for sidecar in run.plan.sidecars:
            try:
                start_sidecar(sidecar)
            except WaybackError as error:
                failed.append(f"sidecar {sidecar.name} does not run again: {error}")
    if failed:
        run.report.problems += failed
        raise WaybackError("; ".join(failed))
    return f"{len(run.plan.sidecars)} sidecars run"


def _entry(run: Restoring, _: Step) -> str:
    run.note(entry=True)
    entry = run.plan.entry
    if entry is None:
        return "no entry to open"
    said = ""
    for _try in range(3):
        try:
            done = subprocess.run(
                entry.open,
                cwd=entry.cwd,
                capture_output=True,
                text=True,
                timeout=run.pace.command_s,
                check=False,
                start_new_session=True,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            said = str(error)
            continue
        if done.returncode == 0:
            return "the entry is open"
        said = f"exit code {done.returncode}: {(done.stderr or done.stdout).strip()[-500:]}"
    text = f"the entry could not be opened ({' '.join(entry.open)}): {said}"
    run.report.problems.append(text)
    raise WaybackError(text)


def _hold(run: Restoring, _: Step) -> str:
    run.note(holds=run.done.holds + 1)
    first = run.done.verified_boot
    until = time.monotonic() + run.plan.verify.hold_s
    while True:
        view = run.production.view()
        if view.state != "running" or view.boot_id != first:
            raise WaybackError(f"production did not hold: {view.detail}")
        if time.monotonic() >= until:
            break
        time.sleep(min(run.pace.poll_s, max(0.01, until - time.monotonic())))
    endpoint = run.plan.verify.endpoint
    try:
        completion(endpoint, working_body(endpoint, run.pace.call_s), run.pace.call_s)
    except NoAnswer as error:
        run.note(bad_boots=run.done.bad_boots | {first}, refused=str(error))
        raise WaybackError(f"production stopped working in its hold time: {error}") from error
    run.note(held_boot=first)
    run.report.boot_id = first
    return f"ran {run.plan.verify.hold_s:.0f} s without a restart"


EFFECTS: dict[str, Effect] = {
    "look": _look,
    "stop": _stop,
    "gpu": _gpu,
    "port": _port,
    "start": _start,
    "unpark": _unpark,
    "ready": _ready,
    "verify": _verify,
    "sidecars": _sidecars,
    "entry": _entry,
    "hold": _hold,
}


def restore(
    plan: RestorePlan,
    *,
    say: Say = lambda text: None,
    on_point: Observer = lambda step, point: None,
    pace: Pace = Pace(),
    effects: Mapping[str, Effect] = EFFECTS,
) -> RestoreReport:
    """Bring production back and prove it. Returns a report in every case; raises nothing for what the world can do.

    ``on_point(step, point)`` is called at before-intent, after-intent, after-effect and after-done of every step: a journal writes
    its intent inside before-intent and its done inside after-effect. Whatever it raises is a warning; restoring goes on. SIGINT,
    SIGTERM and SIGHUP are put off while this runs in the main thread.
    """
    run = Restoring(plan, lambda text: say(redact(text, plan.secrets)), pace)
    with _shielded(say):
        while True:
            look = run.look()
            step = next_step(plan, look, run.done, start_tries=pace.start_tries, look_tries=pace.look_tries)
            if not isinstance(step, Step):
                return _finish(run, look, step)
            _take(run, step, effects, on_point)


def _take(run: Restoring, step: Step, effects: Mapping[str, Effect], on_point: Observer) -> None:
    def point(name: Point) -> None:
        try:
            on_point(str(step), name)
        except Exception as error:  # noqa: BLE001 - nothing that an observer does may stop the way back
            text = f"the observer of the restore failed at {step}: {error!r}"
            if text not in run.report.warnings:
                run.report.warnings.append(text)

    began = time.monotonic()
    run.note(steps=run.done.steps + 1)
    if step.name == "stop":
        run.report.untouched = False
    point("before-intent")
    run.say(f"restore: {step} ...")
    point("after-intent")
    try:
        detail, ok = effects[step.name](run, step), True
    except Exception as error:  # noqa: BLE001 - a step that fails, for whatever reason, is tried again or reported; it never ends the way back
        detail, ok = str(error) if isinstance(error, WaybackError) else repr(error), False
    point("after-effect")
    run.report.steps.append(StepRecord(str(step), time.monotonic() - began, ok, detail))
    run.say(f"restore: {step}: {detail}")
    point("after-done")


def _finish(run: Restoring, look: Look, end: Done | Stuck) -> RestoreReport:
    report = run.report
    if isinstance(end, Stuck):
        report.problems.append(end.why)
    for name, view in look.others.items():
        if view.state in ("running", "parked") or (view.state == "stopped" and name not in run.done.stopped):
            report.problems.append(f"{name} is not gone: {view.detail}; if it cannot be killed, a reboot is needed")
    secrets = run.plan.secrets
    report.problems = list(dict.fromkeys(redact(text, secrets) for text in report.problems))
    report.warnings = [redact(text, secrets) for text in report.warnings]
    report.steps = [replace(step, detail=redact(step.detail, secrets)) for step in report.steps]
    report.checks = [replace(check, detail=redact(check.detail, secrets)) for check in report.checks]
    report.ended = time.time()
    report.verified = isinstance(end, Done) and not report.problems
    if not report.verified:
        again = f"python3 -I -S {run.plan.state_dir}/guard.pyz restore {run.plan.state_dir}/plan.json"
        report.manual = [
            *run.plan.manual,
            again,
            *([" ".join(run.plan.entry.open)] if run.plan.entry and not run.done.entry else []),
        ]
        report.manual = [redact(text, secrets) for text in report.manual]
    return report


@contextlib.contextmanager
def _shielded(say: Say) -> Iterator[None]:
    """Put SIGINT, SIGTERM and SIGHUP off, with a message. Does nothing outside the main thread, where Python gets no signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def put_off(number: int, _: object) -> None:
        say(f"{signal.Signals(number).name} is put off: production is being brought back")

    before = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            before[number] = signal.signal(number, put_off)
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)
