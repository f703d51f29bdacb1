"""The guard: a small process in a session of its own that outlives the runner and brings production back.

It holds the restore plan in memory, watches the runner through a pidfd, and sleeps. When the runner dies, or the deadline passes,
or it gets SIGUSR1 (``kill -USR1 PID``: give the spike up and restore now), it restores. It stands down only when the run is
recorded as ended with production verified and its own look agrees. HUP, INT and TERM are ignored. It never reads a verdict.

Modules for restoring are imported when they are needed, so that the sleeping guard stays small.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import stat
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from audition.wayback import state
from audition.wayback.files import write_atomic
from audition.wayback.plan import ProcessRef, RestorePlan, redact
from audition.wayback.proctable import is_alive, own_ref, send_signal
from audition.wayback.server import ServerView, WaybackError

SPARED = "-900"
"""The guard's own ``oom_score_adj``: it is among the last to be killed when memory runs out (-1000 is never, 0 is usual)."""


@dataclass(frozen=True)
class Settings:
    """Waiting times of a guard in seconds. ``runner_stop_s``: from SIGTERM to SIGKILL of the runner at the deadline; ``retry_s``,
    ``retries``: after a restore that could not be verified; ``lock_wait_s``: for a lock that no live process seems to hold.
    ``pace``: fields of ``restore.Pace`` that differ from its defaults."""

    runner_stop_s: float = 10.0
    retry_s: float = 60.0
    retries: int = 120
    lock_wait_s: float = 5.0
    pace: dict[str, float] = field(default_factory=dict)


def log(text: str) -> None:
    """One line to the guard's log: Unix time, local time, text. A log that cannot be written never stops the guard."""
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")  # odd bytes must not cost the line
    with contextlib.suppress(OSError, ValueError):
        print(f"{time.time():.3f} {time.strftime('%Y-%m-%d %H:%M:%S')} {text}", flush=True)


def set_oom_score(value: str) -> str:
    """Set this process's ``oom_score_adj`` where that is allowed (proc(5)); returns what it was, "" when that cannot be read.

    Children inherit it, so it is set back before servers are started.
    """
    before = ""
    with contextlib.suppress(OSError):
        with open("/proc/self/oom_score_adj", encoding="ascii") as file:
            before = file.read().strip()
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write(value)
    return before


def look(plan: RestorePlan, *, ask: bool = False) -> ServerView:
    """Production as it is now; with ``ask``, a running one must also name the right model. Raises WaybackError."""
    from audition.wayback.servers import server_of  # noqa: PLC0415

    view = server_of(plan.production, production=True).view()
    if ask and view.state == "running":
        from audition.wayback.health import NoAnswer, served_models  # noqa: PLC0415

        endpoint = plan.verify.endpoint
        try:
            models = served_models(endpoint)
        except NoAnswer as error:
            return ServerView("stopped", f"production runs, but does not answer: {error}")
        if endpoint.model not in models:
            return ServerView("foreign", f"{endpoint.url} serves {', '.join(models)}, not {endpoint.model}")
    return view


class Guard:
    """One guard: a plan, the channel to its runner, and the loop."""

    def __init__(self, plan: RestorePlan, channel: socket.socket, wake: int, settings: Settings, oom_score: str = "0") -> None:
        self.plan = plan
        self.oom_score = oom_score  # what servers that it starts begin with: only the guard itself is spared when memory runs out
        self.settings = settings
        self.channel: socket.socket | None = channel
        self.wake = wake
        self.deadline = plan.deadline
        self.runner_fd = self._watch()
        self._unread = b""
        self.confirmed = False  # until the runner has accepted the proof nothing was touched, and a closed channel ends the guard

    def log(self, text: str) -> None:
        """One line to the guard's log, without the plan's secret values."""
        log(redact(text, self.plan.secrets))

    def _watch(self) -> int:
        try:
            descriptor = os.pidfd_open(self.plan.runner.pid)
        except OSError as error:
            raise WaybackError(f"the runner (pid {self.plan.runner.pid}) cannot be watched: {error}") from error
        if not is_alive(self.plan.runner):
            os.close(descriptor)
            raise WaybackError(f"pid {self.plan.runner.pid} is not the runner of the plan")
        return descriptor

    # ---- sleeping

    def watch(self) -> int:
        """Sleep until there is something to do, do it, and return the exit code of the guard."""
        while True:
            poll = select.poll()
            for descriptor in (self.runner_fd, self.wake, *([self.channel.fileno()] if self.channel else [])):
                poll.register(descriptor, select.POLLIN)
            wait_ms = None
            if self.deadline is not None:  # looked at once a minute at least, because the clock may be set
                wait_ms = int(min(max(0.0, self.deadline - time.time()), 60.0) * 1000) + 1
            ready = {descriptor for descriptor, _ in poll.poll(wait_ms)}
            if self.runner_fd in ready:
                armed = self.confirmed or (Path(self.plan.state_dir) / state.PLAN).exists()
                return self.act("the runner died") if armed else 0
            if self.channel is not None and self.channel.fileno() in ready and self._converse(self.channel):
                return 0
            if self.wake in ready and signal.SIGUSR1 in os.read(self.wake, 64) and self.end_runner():
                return self.act("asked by SIGUSR1 to restore now")
            if self.deadline is not None and time.time() >= self.deadline and self.end_runner():
                return self.act("the restore deadline has passed")

    def _converse(self, channel: socket.socket) -> bool:
        """Read from the runner and answer; True: stand down."""
        try:
            data = channel.recv(65536)
        except OSError:
            data = b""
        if not data:  # the channel is gone; the runner itself is watched through its pidfd
            channel.close()
            self.channel = None
            return not self.confirmed
        self._unread += data
        while b"\n" in self._unread:
            line, _, self._unread = self._unread.partition(b"\n")
            try:
                message = json.loads(line)
                reply, end = self.answer(message if isinstance(message, dict) else {})
            except (ValueError, WaybackError) as error:
                reply, end = {"ok": False, "why": str(error)}, False
            with contextlib.suppress(OSError):
                channel.sendall(json.dumps(reply).encode() + b"\n")
            if end:
                return True
        return False

    def answer(self, message: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        """The reply to one message of the runner, and whether the guard stands down."""
        ask = message.get("ask")
        if ask == "ping":
            return {"ok": True, "nonce": message.get("nonce")}, False
        if ask == "confirm":
            self.confirmed = True
            return {"ok": True}, False
        if ask == "restoring":  # the runner restores by itself: let it, within a limit
            allowed = time.time() + float(message.get("seconds", 0))
            self.deadline = max(self.deadline, allowed) if self.deadline is not None else allowed
            return {"ok": True, "deadline": self.deadline}, False
        if ask == "replaced":
            ref = ProcessRef(**message["by"])
            if not is_alive(ref) or ref == own_ref():
                return {"ok": False, "why": "the guard that shall take over does not live"}, False
            self.log(f"replaced by the guard with pid {ref.pid}")
            return {"ok": True}, True
        if ask == "stand down":
            why = self.why_not_stand_down()
            self.log(f"stand down: {why or 'agreed'}")
            return {"ok": not why, "why": why}, not why
        return {"ok": False, "why": f"unknown message {ask!r}"}, False

    def why_not_stand_down(self) -> str:
        """ "" when the run is recorded as ended with production verified and production looks like it; else the reason to stay."""
        if not state.closed(Path(self.plan.state_dir)):
            return f"{self.plan.state_dir}/{state.CLOSED} does not say that the run ended with production verified"
        try:
            view = look(self.plan, ask=True)
        except WaybackError as error:
            return redact(f"production cannot be looked at: {error}", self.plan.secrets)
        return "" if view.state == "running" else redact(f"production does not run: {view.detail}", self.plan.secrets)

    # ---- acting

    def end_runner(self) -> bool:
        """SIGTERM to the runner, 10 s, SIGKILL; it is signalled through its identity only.

        False: it heeded the SIGTERM and restores by itself, within the limit that it named.
        """
        self.log(f"ends the runner, pid {self.plan.runner.pid}")
        for number, wait_s in ((signal.SIGTERM, self.settings.runner_stop_s), (signal.SIGKILL, 10.0)):
            before = self.deadline
            try:
                if not send_signal(self.plan.runner, number):
                    return True
            except WaybackError as error:
                self.log(str(error))
            if self._runner_ends(wait_s):
                return True
            if self.deadline != before:
                self.log("the runner restores by itself")
                return False
        self.log("the runner cannot be ended; restoring all the same")
        return True

    def _runner_ends(self, wait_s: float) -> bool:
        """Wait for the runner's end, and listen to it meanwhile: when it names a new limit, waiting is over."""
        until, before = time.monotonic() + wait_s, self.deadline
        while self.deadline == before and (left := until - time.monotonic()) > 0:
            poll = select.poll()
            for descriptor in (self.runner_fd, *([self.channel.fileno()] if self.channel else [])):
                poll.register(descriptor, select.POLLIN)
            ready = {descriptor for descriptor, _ in poll.poll(left * 1000)}
            if self.runner_fd in ready:
                return True
            if self.channel is not None and self.channel.fileno() in ready:
                self._converse(self.channel)
        return False

    def act(self, why: str) -> int:
        """Restore, again and again within a limit; returns 0 when production is verified, 7 when it is not."""
        self.log(why)
        tries = self.settings.retries + 1
        for number in range(tries):
            if number:
                self.log(f"tries again in {self.settings.retry_s:.0f} s ({number} of {tries - 1})")
                time.sleep(self.settings.retry_s)
                if state.closed(Path(self.plan.state_dir)):
                    self.log("somebody else has brought production back and closed the run: nothing more to do")
                    return 0
            try:
                if self.try_once():
                    return 0
            except Exception as error:  # noqa: BLE001 - whatever happens, the guard tries again
                self.log(f"restoring failed: {error!r}")
        self.log("gives up: production could not be verified; `audition recover` tries again")
        return 7

    def try_once(self) -> bool:
        """One restore under the locks; True when there is nothing left to do."""
        from audition.wayback.restore import Pace, restore  # noqa: PLC0415

        lock = self._lock()
        try:
            if state.closed(Path(self.plan.state_dir)) and not self.why_not_stand_down():
                self.log("the run has ended with production verified: nothing to do")
                return True
            self.log("restore begins")
            pace = Pace(**self.settings.pace)  # type: ignore[arg-type]  # tries are whole numbers
            set_oom_score(self.oom_score)
            try:
                report = restore(self.plan, say=self.log, pace=pace)
            finally:
                set_oom_score(SPARED)
            data = report.to_data()
            self.log(f"restored: {report.verified}; problems: {report.problems}")
            if not report.verified:
                self.log(f"left {state.write_failure(self.plan, data) or 'no file'}; by hand: {report.manual}")
                return False
            try:
                state.close(self.plan, "guard", data)
            except OSError as error:
                self.log(f"production is back, but that could not be recorded: {error}")
            with contextlib.suppress(OSError):
                write_atomic(Path(self.plan.run_dir) / "restored-by-guard.json", json.dumps(data, indent=1), 0o644)
            return True
        finally:
            if lock is not None:
                lock.release()

    def _lock(self) -> Any:
        """The locks, or None when they cannot be had although no live process is known to hold them: restoring twice is harmless.

        A live restorer is waited for, it does the same work. A dead holder whose children keep the lock is not. Raises WaybackError
        while the runner of another run holds it: that run found production in order when it began, and answers for it now.
        """
        from audition.wayback.lock import LockHeld, acquire, holder_lives  # noqa: PLC0415

        plan, told = self.plan, ""
        while True:
            try:
                return acquire(
                    plan.lock_files,
                    run_id=plan.run_id,
                    spike=plan.spike,
                    role="guard",
                    deadline=None,
                    fence=plan.fence,
                    wait_s=self.settings.lock_wait_s,
                )
            except LockHeld as error:
                holder = error.holder
                if holder is None or not holder_lives(holder) or holder.process == plan.runner:
                    self.log(f"goes on without the lock: {error}")
                    return None
                if holder.role == "run" and holder.run_id != plan.run_id:
                    raise WaybackError(f"another run answers for production now: {error}") from error
                if told != str(error):
                    told = str(error)
                    self.log(f"waits: {error}")
            except WaybackError as error:
                self.log(f"goes on without the lock: {error}")
                return None


def serve(channel: socket.socket) -> int:
    """Be the guard of the plan that comes over the channel as one line of JSON: {"plan": text, "nonce": text, "settings": {}}."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.signal(signal.SIGUSR1, lambda *_: None)
    signal.set_wakeup_fd(writing)
    with contextlib.suppress(OSError):
        if stat.S_ISREG(os.fstat(1).st_mode):  # its log: what it says is nobody else's
            os.fchmod(1, 0o600)
    before = set_oom_score(SPARED)
    data = b""
    while not data.endswith(b"\n"):
        part = channel.recv(65536)
        if not part:
            return 1
        data += part
    message = json.loads(data)
    try:
        guard = Guard(RestorePlan.from_json(message["plan"]), channel, reading, Settings(**message["settings"]), before or "0")
        view = look(guard.plan)
    except (WaybackError, OSError, ValueError, KeyError, TypeError) as error:
        channel.sendall(json.dumps({"armed": False, "why": f"{error}"}).encode() + b"\n")
        return 1
    reply = {
        "armed": True,
        "nonce": message["nonce"],
        "plan_sha256": state.plan_digest(message["plan"]),
        "guard": asdict(own_ref()),
        "sid": os.getsid(0),
        "production": asdict(view),
    }
    del message, data
    log(f"armed for run {guard.plan.run_id}, runner pid {guard.plan.runner.pid}, deadline {guard.deadline}")
    channel.sendall(json.dumps(reply).encode() + b"\n")
    return guard.watch()


def _detach() -> None:
    """Leave the parent: a second fork and a session of its own."""
    if os.fork():
        os._exit(0)
    os.setsid()
    os.chdir("/")


def main(arguments: list[str]) -> int:
    """``guard FD STATE_DIR`` | ``restore PLAN`` | ``look PLAN``. Exit codes: 0 verified, 7 not restored, 2 usage."""
    if len(arguments) == 3 and arguments[0] == "guard":
        _detach()
        return serve(socket.socket(fileno=int(arguments[1])))
    if len(arguments) == 2 and arguments[0] in ("restore", "look"):
        text = Path(arguments[1]).read_text(encoding="utf-8")
        plan = RestorePlan.from_json(text)
        if arguments[0] == "look":
            print(json.dumps(asdict(look(plan, ask=True)), indent=1))
            return 0
        from audition.wayback.restore import restore  # noqa: PLC0415

        report = restore(plan, say=log)
        print(json.dumps(report.to_data(), indent=1))
        if report.verified:
            with contextlib.suppress(OSError):
                state.close(plan, "hand", report.to_data())
        return 0 if report.verified else 7
    print("usage: guard.pyz restore PLAN | look PLAN", file=sys.stderr)
    return 2
