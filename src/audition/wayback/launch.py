"""The launcher: becomes a server. Run on its own as ``python3 -I -S -c SOURCE FD``, so it imports nothing of audition.

Reads a JSON specification from standard input, writes the identity file (pid, start time, boot id) durably, makes sure that its
parent still lives, and only then turns into the server by exec. So there is never a server without an identity on disk, and a
launch whose launcher died with its parent never becomes a server that nobody knows. The exception is a specification with
``last_resort`` (production) when no place can be written: that server is told by AUDITION_UNRECORDED=PID in its environment.

FD: a pipe to the parent; "exec" (with a note when there is no identity on disk) or one line about a failure.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import resource
import signal
import socket
import sys
import time
from typing import Any, NoReturn

LOCK_WAIT_S = 30.0
PR_SET_NO_NEW_PRIVS = 38  # include/uapi/linux/prctl.h


def _alive(identity: dict[str, Any], boot_id: str) -> bool:
    try:
        if identity["boot_id"] != boot_id or identity["pid"] == os.getpid():
            return False
        with open(f"/proc/{identity['pid']}/stat", encoding="utf-8", errors="replace") as file:
            part = file.read().rpartition(")")[2].split()
    except (OSError, KeyError, TypeError):
        return False
    return int(part[19]) == identity["start_ticks"] and not (part[0] in "XxZ" and int(part[17]) <= 1)


def _earlier(paths: list[str], boot_id: str) -> int | None:
    """Pid of a server launched earlier for this identity that still lives."""
    for path in paths:
        try:
            with open(path, encoding="utf-8") as file:
                identity = json.load(file)
        except (OSError, ValueError):
            continue
        if isinstance(identity, dict) and _alive(identity, boot_id):
            return int(identity["pid"])
    return None


def _unrecorded(token: str) -> int | None:
    """Pid of a server launched earlier as a last resort, without an identity on disk, that still lives."""
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
            items = file.read().split(b"\0")
            if f"AUDITION_UNRECORDED={name}".encode() in items and f"AUDITION_TOKEN={token}".encode() in items:
                return int(name)
    return None


def _lock(paths: list[str], last_resort: bool) -> bool:
    """Hold the launch lock until exec or death, in the first place where a file can be opened; as a last resort in memory."""
    for path in paths:
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            descriptor = os.open(path + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            continue
        deadline = time.monotonic() + LOCK_WAIT_S
        while time.monotonic() < deadline:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.02)
            else:
                return True
        return False
    return last_resort and _lock_in_memory(paths[0])


def _lock_in_memory(path: str) -> bool:
    """A lock that needs no disk: an abstract socket address, free again after exec or death."""
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    name = "\0audition-launch-" + hashlib.sha256(os.fsencode(path)).hexdigest()
    deadline = time.monotonic() + LOCK_WAIT_S
    while time.monotonic() < deadline:
        try:
            holder.bind(name)
        except OSError:
            time.sleep(0.02)
        else:
            holder.detach()
            return True
    return False


def _write_identity(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    spare = f"{path}.{os.getpid()}.tmp"
    descriptor = os.open(spare, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        if os.write(descriptor, text.encode()) != len(text.encode()):
            raise OSError(f"short write to {spare}")
        os.fsync(descriptor)
    except OSError:
        os.unlink(spare)
        raise
    finally:
        os.close(descriptor)
    try:
        os.rename(spare, path)
    except OSError:
        os.unlink(spare)
        raise
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _identify(spec: dict[str, Any], boot_id: str) -> str:
    """Write the identity to its place, or to the spare one; returns "" or what went wrong."""
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
        start = int(file.read().rpartition(")")[2].split()[19])
    identity = {"pid": os.getpid(), "start_ticks": start, "boot_id": boot_id, "digest": spec["digest"], "launched": time.time()}
    trouble = ""
    for path in spec["identity_files"]:
        try:
            _write_identity(path, json.dumps(identity))
        except OSError as error:
            trouble = f"cannot write the identity file {path}: {error}"
            continue
        return ""
    return trouble


def _open_log(paths: list[str]) -> int:
    for path in paths:
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOCTTY, 0o640)
    return os.open(os.devnull, os.O_WRONLY)


def _set_limits(limits: dict[str, list[int]]) -> None:
    """Resource limits, niceness, processors and the out-of-memory score, as far as the rights suffice (raising needs root)."""
    for name, values in limits.items():
        with contextlib.suppress(OSError, ValueError):
            if name.startswith("RLIMIT_"):
                resource.setrlimit(getattr(resource, name), (values[0], values[1]))
            elif name == "nice":
                os.setpriority(os.PRIO_PROCESS, 0, values[0])
            elif name == "affinity":
                os.sched_setaffinity(0, values)
            elif name == "oom_score_adj":
                with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
                    file.write(str(values[0]))


def _set_user(uid: int | None, gid: int | None, groups: list[int]) -> None:
    """User, group and further groups exactly as given. Raises OSError when that is not allowed and they differ."""
    if uid is None or gid is None:
        return
    exact = sorted(os.getgroups()) == sorted(groups)
    if not exact and (os.geteuid() == 0 or {os.getegid(), *os.getgroups()} != {gid, *groups}):
        os.setgroups(groups)
    if os.getresgid() != (gid, gid, gid):
        os.setresgid(gid, gid, gid)
    if os.getresuid() != (uid, uid, uid):
        os.setresuid(uid, uid, uid)


def _become(spec: dict[str, Any], report: int, note: str = "") -> NoReturn:
    output, errors = _open_log(spec["output_files"]), _open_log(spec["error_files"])
    os.chdir(spec["cwd"])
    if spec["uid"] is None and "PWD" in spec["env"]:
        spec["env"]["PWD"] = spec["cwd"]  # of a declared process it is the caller's; a found one keeps what it was started with
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(errors, 2)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with contextlib.suppress(OSError):
                os.set_inheritable(int(name), False)
    _set_limits(spec["limits"])
    for number in signal.valid_signals():
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.umask(spec["umask"] if spec["umask"] is not None else 0o022)
    _set_user(spec["uid"], spec["gid"], spec["groups"])
    if spec["limits"].get("no_new_privs"):
        import ctypes  # noqa: PLC0415 - only where it is needed

        ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    os.write(report, f"exec {note}".strip().encode() + b"\n")
    os.execve(spec["executable"], spec["argv"], spec["env"])


def main() -> int:
    """Launch as standard input says. Exit codes: 0 already running, 125 not launched, 127 exec failed."""
    report = int(sys.argv[1])
    spec = json.load(sys.stdin)
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot_id = file.read().strip()
    if not _lock(spec["identity_files"], spec["last_resort"]):
        os.write(report, b"failed another launch of this server is under way, or its folder cannot be written\n")
        return 125
    token = spec["env"].get("AUDITION_TOKEN", "")
    earlier = _earlier(spec["identity_files"], boot_id) or (_unrecorded(token) if spec["last_resort"] and token else None)
    if earlier is not None:
        os.write(report, f"running {earlier}\n".encode())
        return 0
    trouble = _identify(spec, boot_id)
    if trouble and spec["last_resort"]:  # better a production that only its environment identifies than none
        spec["env"]["AUDITION_UNRECORDED"] = str(os.getpid())
    elif trouble:
        os.write(report, f"failed {trouble}\n".encode())
        return 125
    if os.getppid() != spec["parent"]:  # after the identity is on disk: a parent that dies later leaves a server that is known
        return 125
    try:
        _become(spec, report, trouble.replace("\n", " "))
    except OSError as error:
        os.write(report, f"failed {error}\n".encode())
        return 127


if __name__ == "__main__":
    sys.exit(main())
