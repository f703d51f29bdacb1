"""The runner's side of the guard: arm it and have it prove that it is armed, ask whether it lives, have it stand down.

What the guard does when the runner is gone lives in ``audition.wayback.guard``. Nothing may be stopped before ``arm`` has returned.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import subprocess
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from audition.errors import Refused
from audition.wayback import state
from audition.wayback.bundle import build
from audition.wayback.files import write_atomic
from audition.wayback.guard import Settings
from audition.wayback.plan import ProcessRef, RestorePlan
from audition.wayback.procs import base_python
from audition.wayback.proctable import TOKEN, is_alive

ARM_S = 20.0
ANSWER_S = 20.0


class ArmedGuard:
    """A guard that has proved to be armed. Safe to use from several threads."""

    def __init__(self, plan: RestorePlan, process: ProcessRef, channel: socket.socket, production: dict[str, Any]) -> None:
        self.plan = plan
        self.process = process
        self.production = production
        self._channel = channel
        self._lock = threading.Lock()

    def confirm(self) -> bool:
        """Tell the guard that its proof was accepted; from now on it acts when the runner dies. Part of ``arm``."""
        return self._ask({"ask": "confirm"}, ANSWER_S).get("ok") is True

    def alive(self) -> bool:
        """Whether the guard lives and answers. When it does not, arm another one at once."""
        nonce = secrets.token_hex(8)
        return is_alive(self.process) and self._ask({"ask": "ping", "nonce": nonce}, 5.0).get("nonce") == nonce

    def restoring(self, seconds: float) -> bool:
        """Tell the guard that the runner itself restores now and may take so many seconds before the guard steps in. False: no
        answer."""
        return self._ask({"ask": "restoring", "seconds": seconds}, ANSWER_S).get("ok") is True

    def replaced_by(self, other: ArmedGuard) -> bool:
        """Dismiss this guard in favour of another armed one, e.g. with a newer plan. False: it stays."""
        return self._ask({"ask": "replaced", "by": asdict(other.process)}, ANSWER_S).get("ok") is True

    def stand_down(self) -> str:
        """Ask the guard to end: "" when it did, else its reason to stay. Only after ``wayback.state.close``."""
        answer = self._ask({"ask": "stand down"}, 60.0)
        if answer.get("ok") is True:
            self._channel.close()
            return ""
        return str(answer.get("why") or "the guard gave no answer")

    def _ask(self, message: dict[str, Any], limit_s: float) -> dict[str, Any]:
        with self._lock:
            try:
                self._channel.settimeout(limit_s)
                self._channel.sendall(json.dumps(message).encode() + b"\n")
                return _read_line(self._channel)
            except (OSError, ValueError):
                return {}


def _read_line(channel: socket.socket) -> dict[str, Any]:
    data = b""
    while not data.endswith(b"\n"):
        part = channel.recv(65536)
        if not part:
            raise OSError("the guard closed the channel")
        data += part
    message = json.loads(data)
    if not isinstance(message, dict):
        raise ValueError("not a message")
    return message


def arm(plan: RestorePlan, settings: Settings | None = None) -> ArmedGuard:
    """Write the plan, start a guard for this runner, and return once it has proved that it holds the plan, watches and sees
    production.

    Raises Refused when any of that fails; then nothing was touched and no guard is left.
    """
    settings = settings or Settings()
    folder = Path(plan.state_dir)
    again = (folder / state.PLAN).exists()
    try:
        application = build()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomic(folder / "guard.pyz", "", 0o600)
        (folder / "guard.pyz").write_bytes(application)
    except OSError as error:
        raise _refused(f"its files cannot be written to {folder}: {error}") from error
    ours, theirs = socket.socketpair()
    nonce = secrets.token_hex(16)
    try:
        _spawn(plan, theirs, application)
        theirs.close()  # the guard alone holds it now: when it dies at birth, reading ends at once
        ours.settimeout(ARM_S)
        request: dict[str, Any] = {"plan": plan.to_json(), "nonce": nonce, "settings": asdict(settings)}
        ours.sendall(json.dumps(request).encode() + b"\n")
        reply = _read_line(ours)
        guard = _proved(plan, reply, nonce, state.plan_digest(request["plan"]), ours)
        write_atomic(folder / state.GUARD, json.dumps(reply["guard"]))
        state.write_plan(plan)  # not before a guard holds it: a run that dies earlier has touched nothing and leaves no secrets
        if not guard.confirm():
            raise OSError("it did not answer the confirmation")
    except (OSError, ValueError, KeyError, TypeError) as error:
        ours.close()  # a guard whose proof was not confirmed ends when the channel closes
        _forget(folder, again)
        raise _refused(f"it gave no proof: {error!r}; see {folder}/guard.log") from error
    except Refused:
        ours.close()
        _forget(folder, again)
        raise
    finally:
        theirs.close()
    return guard


def _forget(folder: Path, again: bool) -> None:
    """Remove the secrets of a run that was not armed. A run that is armed ``again`` keeps its plan: it is the way back."""
    if again:
        return
    with contextlib.suppress(OSError):
        state.shred(folder)


def _proved(plan: RestorePlan, reply: dict[str, Any], nonce: str, digest: str, channel: socket.socket) -> ArmedGuard:
    """The guard behind a reply that proves everything. Raises Refused with what it does not prove."""
    if reply.get("armed") is not True:
        raise _refused(str(reply.get("why") or "no reason given"))
    process = ProcessRef(**reply["guard"])
    faults = [
        (reply.get("nonce") != nonce, "its answer is not to this request"),
        (reply.get("plan_sha256") != digest, "it holds another plan"),
        (not is_alive(process), "it does not live"),
        (reply.get("sid") in (os.getsid(0), None), "it has no session of its own"),
    ]
    for wrong, text in faults:
        if wrong:
            raise _refused(text)
    return ArmedGuard(plan, process, channel, dict(reply["production"]))


def _spawn(plan: RestorePlan, channel: socket.socket, application: bytes) -> None:
    """Start the guard from a copy in memory, so that it needs no file of this project any more."""
    memory = os.memfd_create("audition-guard", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(memory), "wb") as file:
            file.write(application)
        with contextlib.ExitStack() as stack:
            log = stack.enter_context(open(Path(plan.state_dir) / "guard.log", "ab"))
            child = subprocess.Popen(
                [base_python(), "-I", "-S", f"/proc/self/fd/{memory}", "guard", str(channel.fileno()), plan.state_dir],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env={name: value for name, value in os.environ.items() if name != TOKEN},
                pass_fds=(memory, channel.fileno()),
                start_new_session=True,
            )
        if child.wait(timeout=ARM_S) != 0:
            raise OSError(f"the guard's first process ended with {child.returncode}")
    except subprocess.TimeoutExpired as error:
        child.kill()
        child.wait()
        raise OSError("the guard did not detach in time") from error
    finally:
        os.close(memory)


def _refused(why: str) -> Refused:
    return Refused(
        "The guard that brings production back is not armed, so nothing is stopped.",
        tried="to start the guard and have it prove that it holds the restore plan",
        seen=why,
        production="untouched",
        next_step="put the cause right and start again",
    )
