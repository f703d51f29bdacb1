"""A server that is a process: look, start, stop with proof, compare.

Starting goes through ``launch`` (identity on disk before the exec). Whom a stop may touch is decided by ``membership``. How a
production that somebody else started is found lives in ``found``.

Longer than others: looking, starting, stopping and the log rest on one state, the identities and members seen so far.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import signal
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from audition.wayback import launch
from audition.wayback.compare import env_differences, user_differences, via_interpreter
from audition.wayback.files import read_json, spare_path
from audition.wayback.found import below, is_device, same_server
from audition.wayback.membership import Marks, members
from audition.wayback.plan import ArmTarget, ProcessRef, ProcessTarget
from audition.wayback.proctable import (
    LAUNCHING,
    TOKEN,
    Proc,
    command_line,
    credentials,
    current_boot_id,
    describe,
    environment,
    is_alive,
    link,
    listeners,
    own_lineage,
    port_answers,
    read_marks,
    read_proc,
    redacted,
    ref_of,
    scan,
    send_signal,
    unrecorded,
    written_bytes,
)
from audition.wayback.repeatable import rewritten
from audition.wayback.server import ServerView, StopReport, WaybackError

KILL_WAIT_S = 10.0  # from SIGKILL until a process counts as unkillable; the kernel needs time to take down GPU mappings
ORPHAN_GRACE_S = 10.0  # processes that outlive their leader get no more than this of the grace period
LAUNCH_WAIT_S = 60.0
LAUNCH_LOOK_S = 5.0
_LAUNCHER: str = launch.__loader__.get_source(launch.__name__)  # type: ignore[union-attr]  # in memory: the file may go away later
_CHILDREN: dict[ProcessRef, subprocess.Popen[bytes]] = {}
_EXITS: dict[ProcessRef, int] = {}


def base_python() -> str:
    """The interpreter outside any virtual environment."""
    return str(getattr(sys, "_base_executable", "") or sys.executable)


def reap() -> None:
    """Collect servers started by this process that have exited, and keep their exit codes."""
    for ref, child in list(_CHILDREN.items()):
        code = child.poll()
        if code is not None:
            _EXITS[ref] = code
            del _CHILDREN[ref]


def resolve_executable(target: ProcessTarget) -> str | None:
    """The file that a start executes, None when there is none."""
    if target.executable:
        candidates = [target.executable]
    elif "/" in target.argv[0]:
        candidates = [os.path.join(target.cwd, target.argv[0])]
    else:
        path = target.env.get("PATH", os.defpath)
        candidates = [os.path.join(target.cwd, folder, target.argv[0]) for folder in path.split(os.pathsep)]
    return next((file for file in candidates if os.path.isfile(file) and os.access(file, os.X_OK)), None)


def digest(target: ProcessTarget) -> str:
    """Fingerprint of what a start uses; the token salts it, so that it tells nothing about secrets in the environment."""
    parts = json.dumps([target.token, target.argv, sorted(target.env.items()), target.cwd, target.executable])
    return hashlib.sha256(parts.encode("utf-8", "surrogateescape")).hexdigest()


class ProcessServer:
    """A server that is a process. ``adopt``: a process on the port that equals the target in command, folder and file counts as
    running although somebody else started it (production under a supervisor); it is looked at, never signalled."""

    def __init__(self, target: ArmTarget, *, adopt: bool = False) -> None:
        if target.process is None:
            raise WaybackError(f"arm {target.arm} is not a process")
        self.arm = target
        self.target = target.process
        self._adopt = adopt
        self._known: set[ProcessRef] = set(self.target.members)
        self._launched: list[ProcessRef] = []
        self._unwritten = ""

    # ---- looking

    def _places(self, path: str) -> list[str]:
        return [place for place in (path, spare_path(path)) if place]

    def _identities(self) -> list[dict[str, Any]]:
        found = [read_json(Path(place)) for place in self._places(self.target.identity_file)]
        return sorted((entry for entry in found if entry), key=lambda entry: float(entry.get("launched", 0)), reverse=True)

    def _own(self) -> list[ProcessRef]:
        """Identities of launches by audition, newest first, dead ones included."""
        refs = list(reversed(self._launched))
        for entry in self._identities():
            try:
                refs.append(ProcessRef(int(entry["pid"]), int(entry["start_ticks"]), str(entry["boot_id"])))
            except (KeyError, TypeError, ValueError):
                continue
        return list(dict.fromkeys(refs))

    def leaders(self) -> list[ProcessRef]:
        """Identities of this server, those launched by audition first, dead ones included."""
        return [*self._own(), *([self.target.running] if self.target.running else [])]

    def leader(self) -> ProcessRef | None:
        """The live server process, None when there is none."""
        known = next((ref for ref in self.leaders() if is_alive(ref)), None)
        return known or (unrecorded(self.target.token) if self._adopt and self.target.token else None)

    def members(self) -> list[Proc]:
        """Every live process that provably belongs to this server."""
        logs = set()
        for place in self._places(self.target.log_file):
            try:
                info = os.stat(place)
            except OSError:
                continue
            if stat.S_ISREG(info.st_mode):  # whoever writes to /dev/null proves nothing
                logs.add((info.st_dev, info.st_ino))
        seen = (self.target.running,) if self.target.running else ()
        marks = Marks(tuple(self._own()), frozenset(self._known), self.target.token, frozenset(logs), seen)
        boot_id = current_boot_id()
        found = members(scan(marks=True), marks, boot_id, own_lineage())
        self._known |= {ref_of(proc, boot_id) for proc in found}
        return found

    def strangers(self) -> list[str]:
        """Who listens on the port without belonging to this server, described."""
        pids, complete = listeners(self.arm.port)
        if not pids and complete:
            return []
        own = {proc.pid for proc in self.members()}
        others = [describe(pid) for pid in pids if pid not in own]
        return others if complete else [*others, "a process of another user"]

    def view(self) -> ServerView:
        """Look, touching nothing."""
        reap()
        until = time.monotonic() + LAUNCH_LOOK_S
        while True:
            leader = self.leader()
            if leader:
                view = ServerView("running", f"pid {leader.pid}{self._unwritten}", _boot(leader), restarts=0)
                return self._with_parking(view) if self.arm.park is not None else view
            left = self.members()
            launching = any(proc.launching for proc in left)
            if time.monotonic() > until or not (launching or self.leader()):  # asked again after the scan: it may be new
                break
            time.sleep(0.02)  # another process launches it right now: see what comes of that
        code = next((_EXITS[ref] for ref in self.leaders() if ref in _EXITS), None)
        if left:
            names = ", ".join(describe(proc.pid) for proc in left[:5])
            return ServerView("stopped", f"the server is gone, but {len(left)} of its processes are left: {names}", exit_code=code)
        pids, complete = listeners(self.arm.port)
        if self._adopt:
            again = same_server(self.target, pids)
            if again and read_marks(again.pid)[0] in (None, self.target.token):  # not another arm with the same command
                return ServerView("running", f"pid {again.pid}, started by somebody else with the same command", _boot(again))
        if pids or not complete:
            who = ", ".join(describe(pid) for pid in pids) or "a process of another user"
            return ServerView("foreign", f"port {self.arm.port} is held by {who}", exit_code=code)
        return ServerView("absent", "no process of it runs", exit_code=code)

    def _with_parking(self, view: ServerView) -> ServerView:
        assert self.arm.park is not None
        if parked := self.parked():
            return replace(view, state="parked", detail=f"{view.detail}: {parked}", parkable=True)
        named = self.arm.park.processes
        return replace(view, parkable=any(is_alive(ref) for ref in named))

    def parked(self) -> str:
        """What says that it is parked; "" when it is not, or no plan to park it was made."""
        if self.arm.park is None:
            return ""
        from audition.wayback.park import parked_detail  # noqa: PLC0415 - keeps the sleeping guard small

        return parked_detail(self.arm.park, lambda: [ref_of(proc) for proc in self.members()])

    # ---- starting

    def start(self) -> None:
        """Launch it; a no-op when it runs already. Raises WaybackError."""
        view = self.view()
        if view.state == "running":
            return
        if view.state != "absent":
            raise WaybackError(f"cannot start {self.arm.arm}: {view.detail}")
        executable = resolve_executable(self.target)
        if executable is None:
            raise WaybackError(f"cannot start {self.arm.arm}: no executable file {self.target.executable or self.target.argv[0]!r}")
        spec = {
            "argv": self.target.argv,
            "executable": executable,
            "env": {**self.target.env, **({TOKEN: self.target.token} if self.target.token else {})},
            "cwd": self.target.cwd,
            "output_files": self._places(self.target.output_file or self.target.log_file),
            "error_files": self._places(self.target.error_file or self.target.log_file),
            "identity_files": self._places(self.target.identity_file),
            "digest": digest(self.target),
            "parent": os.getpid(),
            "uid": self.target.uid,
            "gid": self.target.gid,
            "groups": self.target.groups,
            "umask": self.target.umask,
            "limits": self.target.limits,
            "last_resort": self._adopt,  # production comes up even when its identity can be written nowhere
        }
        self._launch(json.dumps(spec).encode())

    def _launch(self, spec: bytes) -> None:
        reading, writing = os.pipe2(os.O_CLOEXEC)
        mark = {TOKEN: self.target.token} if self.target.token else {}
        try:
            child = subprocess.Popen(
                [base_python(), "-I", "-S", "-c", _LAUNCHER, str(writing)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={"PATH": os.defpath, LAUNCHING: "1", **mark},
                cwd="/",
                pass_fds=(writing,),
                start_new_session=True,
            )
        except OSError as error:
            os.close(reading)
            raise WaybackError(f"cannot start {self.arm.arm}: the launcher did not start: {error}") from error
        finally:
            os.close(writing)
        try:
            proc = read_proc(child.pid)
            said = _hand_over(child, spec, reading)
        finally:
            os.close(reading)
        if said.startswith("exec") and proc is not None:
            _CHILDREN[ref_of(proc)] = child
            self._launched.append(ref_of(proc))
            self._unwritten = said.removeprefix("exec").replace(" ", "; ", 1)
        else:
            if not said:
                child.kill()
            child.wait()
            if not said.startswith("running"):
                raise WaybackError(f"cannot start {self.arm.arm}: {said.removeprefix('failed ') or 'the launcher said nothing'}")

    # ---- stopping

    def stop(self, grace_s: float) -> StopReport:
        """SIGTERM, ``grace_s`` seconds, SIGKILL, then proof. Touches members only, each through a pidfd. A parked server cannot end
        by itself and gets no grace."""
        began = time.monotonic()
        grace_s = 0.0 if self.parked() else grace_s
        troubles: set[str] = set()
        left = self._terminate(began + grace_s, troubles)
        killed = bool(left)
        until = time.monotonic() + KILL_WAIT_S
        while left and time.monotonic() < until:
            for proc in left:
                _signal(proc, signal.SIGKILL, troubles)
            time.sleep(0.05)
            reap()
            left = self.members()
        left = left or self.members()  # a second look: a process that was being forked during the first one is seen now
        seconds = time.monotonic() - began
        if left:
            stuck = [f"{describe(proc.pid)} in state {proc.state}" for proc in left]
            detail = "still there after SIGKILL: " + ", ".join(stuck) + ("; " + "; ".join(sorted(troubles)) if troubles else "")
            if any(proc.state == "D" for proc in left):
                detail += "; a process in uninterruptible sleep (D) goes away only with a reboot: reboot needed"
            return StopReport(False, killed, seconds, detail)
        others = self.strangers()
        if not others and port_answers(self.arm.port):
            others = ["something outside this network namespace"]
        detail = f"port {self.arm.port} is held by {', '.join(others)}, which is not of {self.arm.arm}" if others else ""
        return StopReport(True, killed, seconds, detail)

    def _terminate(self, until: float, troubles: set[str]) -> list[Proc]:
        """SIGTERM to the leader, and to the others once it is gone; returns who is left when the time is over."""
        told: set[ProcessRef] = set()
        boot_id = current_boot_id()
        orphaned = False
        left = self.members()
        while left:
            leader = self.leader()
            if leader is None and not orphaned:
                orphaned = True
                until = min(until, time.monotonic() + ORPHAN_GRACE_S)
            for proc in left:
                ref = ref_of(proc, boot_id)
                if ref not in told and (leader is None or ref == leader):
                    told.add(ref)
                    _signal(proc, signal.SIGTERM, troubles)
            while leader is not None and is_alive(leader) and time.monotonic() < until:
                time.sleep(0.02)
                reap()
            if time.monotonic() >= until:
                return self.members()
            time.sleep(0.02)
            reap()
            left = self.members()
        return left

    # ---- comparing

    def differences(self) -> list[str]:
        """How the running server differs from the target: command, folder, executable, user, environment. Values are never
        shown."""
        leader = self.leader() or (same_server(self.target, listeners(self.arm.port)[0]) if self._adopt else None)
        if leader is None:
            return [f"{self.arm.arm} does not run"]
        ours = leader in (self.target.running, *self._launched) or any(
            entry.get("digest") == digest(self.target) and entry.get("pid") == leader.pid for entry in self._identities()
        )
        found = []
        argv = command_line(leader.pid)
        exe = link(leader.pid, "exe")
        renamed = via_interpreter(argv, self.target.argv) or rewritten(argv, exe)
        if argv != self.target.argv and not (ours and renamed):
            found.append(f"the command is {redacted(argv)!r} instead of {redacted(self.target.argv)!r}")
        if os.path.realpath(link(leader.pid, "cwd")) != os.path.realpath(self.target.cwd):
            found.append(f"the working folder is {link(leader.pid, 'cwd')} instead of {self.target.cwd}")
        if self.target.executable and exe != os.path.realpath(self.target.executable) and argv[:1] == self.target.argv[:1]:
            found.append(f"the executable is {exe} instead of {os.path.realpath(self.target.executable)}")
        found += user_differences(credentials(leader.pid), self.target)
        env = environment(leader.pid)
        if env is None:
            if not ours:
                found.append("the environment cannot be compared: the process has overwritten it or belongs to another user")
        else:
            found += env_differences(env, self.target.env)
        return found

    # ---- the log

    def _log_files(self) -> list[Path]:
        return [Path(place) for place in self._places(self.target.log_file) if os.path.isfile(place)]

    def log_size(self) -> int:
        """Bytes in the log. Output that goes to a device is told by what the server's processes have written to anything."""
        if is_device(self.target.log_file):
            leader = self.leader()
            return sum(written_bytes(pid) for pid in below(leader.pid, scan())) if leader else 0
        return sum(file.stat().st_size for file in self._log_files())

    def log_from(self, start: int, most: int | None = None) -> bytes:
        """The log from byte ``start`` on, counted as ``log_size`` counts; at most ``most`` bytes."""
        data = b""
        for file in self._log_files():
            size = file.stat().st_size
            if start < size and (most is None or len(data) < most):
                with file.open("rb") as opened:
                    opened.seek(max(0, start))
                    data += opened.read(-1 if most is None else most - len(data))
            start -= size
        return data

    def log_tail(self, lines: int) -> str:
        """The last lines of the log (of its last 256 KiB)."""
        files = sorted(self._log_files(), key=lambda file: file.stat().st_mtime)
        if not files:
            return ""
        with files[-1].open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 262144))
            text = file.read().decode("utf-8", "replace")
        return "\n".join(text.splitlines()[-lines:])


def _boot(ref: ProcessRef) -> str:
    return f"{ref.boot_id[:8]}:{ref.pid}:{ref.start_ticks}"


def _signal(proc: Proc, number: signal.Signals, troubles: set[str]) -> None:
    try:
        send_signal(ref_of(proc), number)
    except WaybackError as error:
        troubles.add(str(error))


def _hand_over(child: subprocess.Popen[bytes], spec: bytes, reading: int) -> str:
    """Give the launcher its specification; returns its last word: "exec" (with a note when no identity is on disk), "running PID",
    "failed ...", "" for none in time."""
    assert child.stdin is not None
    try:
        child.stdin.write(spec)
        child.stdin.close()
    except BrokenPipeError:
        return "failed the launcher died"
    said, until = b"", time.monotonic() + LAUNCH_WAIT_S
    while time.monotonic() < until:
        ready, _, _ = select.select([reading], [], [], 0.2)
        if ready:
            part = os.read(reading, 65536)
            said += part
            if not part:
                break
        elif child.poll() is not None or (said.startswith(b"exec") and said.endswith(b"\n")):
            break
    return said.decode("utf-8", "replace").strip().rpartition("\n")[2]
