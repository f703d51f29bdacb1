"""A production that somebody else started: found by its port, described so that it can be started again exactly.

Only looks. What would make a restart differ from the original, or a stop hit strangers, becomes a ``Doubt``.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from audition.wayback.plan import ProcessRef, ProcessTarget
from audition.wayback.proctable import (
    Proc,
    command_line,
    credentials,
    describe,
    environment,
    is_alive,
    link,
    listeners,
    own_lineage,
    ref_of,
    scan,
)

LIMITS = (
    "RLIMIT_NOFILE", "RLIMIT_MEMLOCK", "RLIMIT_NPROC", "RLIMIT_STACK", "RLIMIT_CORE", "RLIMIT_AS", "RLIMIT_DATA", "RLIMIT_FSIZE",
    "RLIMIT_CPU", "RLIMIT_NICE", "RLIMIT_RTPRIO", "RLIMIT_RTTIME", "RLIMIT_SIGPENDING", "RLIMIT_MSGQUEUE",
)  # fmt: skip


@dataclass(frozen=True)
class Doubt:
    """Something about a found production. ``blocking`` ones forbid to stop it."""

    level: Literal["warning", "blocking"]
    text: str
    next_step: str = ""


@dataclass(frozen=True)
class Found:
    """What listens on the port. ``root`` None: nothing does, or it cannot be looked at. ``env`` None: unreadable or overwritten."""

    root: ProcessRef | None
    argv: list[str] = field(default_factory=list)
    env: dict[str, str] | None = None
    cwd: str = ""
    executable: str = ""
    log_file: str = ""
    members: list[ProcessRef] = field(default_factory=list)
    uid: int | None = None
    gid: int | None = None
    groups: list[int] = field(default_factory=list)
    umask: int | None = None
    limits: dict[str, list[int]] = field(default_factory=dict)
    doubts: list[Doubt] = field(default_factory=list)


def root_of(pid: int, table: Mapping[int, Proc], never: frozenset[int]) -> int:
    """The topmost ancestor of ``pid`` in the same process group that is not in ``never`` (this process and its ancestors)."""
    while True:
        parent = table.get(table[pid].ppid)
        if parent is None or parent.pid in never or parent.dead or parent.pgid != table[pid].pgid:
            return pid
        pid = parent.pid


def below(root: int, table: Mapping[int, Proc]) -> set[int]:
    """``root`` and all its live descendants."""
    found, grew = {root}, True
    while grew:
        more = {pid for pid, proc in table.items() if pid not in found and proc.ppid in found and not proc.dead}
        found |= more
        grew = bool(more)
    return found


def beside(root: int, holders: list[int], table: Mapping[int, Proc]) -> set[int]:
    """Descendants of ``root`` that are neither below a holder of the port nor between the two: perhaps no part of production."""
    part: set[int] = set()
    for holder in holders:
        part |= below(holder, table)
        pid = holder
        while pid != root:
            pid = table[pid].ppid
            part.add(pid)
    return below(root, table) - part


def same_server(target: ProcessTarget, pids: list[int]) -> ProcessRef | None:
    """The root of the processes ``pids`` when it equals the target in command, working folder and user; None otherwise."""
    table = scan()
    never = own_lineage()
    for pid in pids:
        if pid not in table or pid in never:
            continue
        root = root_of(pid, table, never)
        who = credentials(root)
        same_user = target.uid is None or (who is not None and who[0] == target.uid)
        if command_line(root) == target.argv and os.path.realpath(link(root, "cwd")) == os.path.realpath(target.cwd) and same_user:
            return ref_of(table[root])
    return None


def find(port: int) -> Found:
    """Look at what listens on the port. Reads the environment of the process: the result holds secrets."""
    pids, complete = listeners(port)
    if not pids:
        if complete:
            return Found(None)
        text = f"port {port} is held by a process of another user that cannot be looked at"
        return Found(None, doubts=[Doubt("blocking", text, "run audition as the user of that process, or as root")])
    table, never = scan(), own_lineage()
    pids = [pid for pid in pids if pid in table]
    own = [pid for pid in pids if pid in never]
    if own or not pids:
        text = (
            f"port {port} is held by {describe(own[0])}, an ancestor of audition itself"
            if own
            else f"port {port} changes hands now"
        )
        return Found(None, doubts=[Doubt("blocking", text, f"look who listens: ss -ltnp 'sport = :{port}'")])
    roots = {root_of(pid, table, never) for pid in pids}
    if len(roots) > 1:
        names = "; ".join(describe(root) for root in sorted(roots))
        text = f"port {port} is held by several unrelated processes: {names}"
        return Found(None, doubts=[Doubt("blocking", text, "leave one of them running")])
    return _describe_root(roots.pop(), pids, port, table)


def _describe_root(root: int, holders: list[int], port: int, table: Mapping[int, Proc]) -> Found:
    doubts = _doubts(root, holders, port, table)
    ref = ref_of(table[root])
    argv, env, cwd = command_line(root), environment(root), link(root, "cwd")
    exe, log = link(root, "exe"), link(root, "fd/1")
    if exe.endswith(" (deleted)"):
        text = f"the executable of production was replaced or removed since it started: {exe}"
        doubts.append(Doubt("blocking", text, "restart production with the present files first"))
    if cwd.endswith(" (deleted)") or not cwd:
        doubts.append(
            Doubt("blocking", f"the working folder of production is gone: {cwd or 'unreadable'}", "restart production first")
        )
    if not os.path.isfile(log):
        text = (
            f"production writes its output to {log or 'an unreadable place'}, which a restart cannot reopen; it will go to a file"
        )
        doubts.append(Doubt("warning", text))
        log = ""
    who = credentials(root)
    if who is None:
        doubts.append(Doubt("blocking", "the user of production's process cannot be read", "run audition as root"))
    elif who[0] != os.geteuid() and os.geteuid() != 0:
        text = f"production runs as user {who[0]}, audition as user {os.geteuid()}"
        doubts.append(Doubt("blocking", text, "run audition as production's user, or as root"))
    uid, gid, groups, umask = who or (None, None, [], None)
    parts = [ref_of(table[pid], ref.boot_id) for pid in sorted(below(root, table))]
    found = Found(ref, argv, env, cwd, _executable(argv, env, cwd, exe), log, parts, uid, gid, groups, umask, _limits(root), doubts)
    if not is_alive(ref):
        return Found(None, doubts=[Doubt("blocking", "production ended while it was looked at", "look again")])
    return found


def _doubts(root: int, holders: list[int], port: int, table: Mapping[int, Proc]) -> list[Doubt]:
    doubts = []
    others = beside(root, holders, table)
    if others:
        names = "; ".join(describe(pid) for pid in sorted(others)[:5])
        text = f"the process that holds port {port} shares its parent {describe(root)} with others that a stop would hit: {names}"
        doubts.append(Doubt("blocking", text, "start production on its own, e.g. with setsid"))
    for space in ("mnt", "pid", "net"):
        if link(root, f"ns/{space}") != link(os.getpid(), f"ns/{space}"):
            text = f"production runs in another {space} namespace (a container)"
            doubts.append(Doubt("blocking", text, "describe it with `kind: compose` instead of `kind: process`"))
            break
    unit = _unit_with_main(root)
    if unit:
        text = f"production is the main process of the systemd unit {unit}, which may restart it during the spike"
        doubts.append(
            Doubt("blocking", text, f"stop the unit and start production outside it, or mask restarts of {unit} for the window")
        )
    return doubts


def _unit_with_main(pid: int) -> str:
    """The systemd service whose main process this is; "" when there is none or systemd cannot be asked."""
    import subprocess  # noqa: PLC0415 - keeps the sleeping guard small

    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8") as file:
            unit = file.read().strip().rpartition("/")[2]
        if not unit.endswith(".service"):
            return ""
        answer = subprocess.run(
            ["systemctl", "show", "-p", "MainPID", "--value", unit], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return unit if answer.stdout.strip() == str(pid) else ""


def _executable(argv: list[str], env: dict[str, str] | None, cwd: str, exe: str) -> str:
    """``argv[0]`` as a path when it leads to the running file (a virtual environment is told by that path), else the file
    itself."""
    if argv:
        if "/" in argv[0]:
            candidates = [os.path.join(cwd, argv[0])]
        else:
            candidates = [os.path.join(cwd, folder, argv[0]) for folder in (env or {}).get("PATH", os.defpath).split(os.pathsep)]
        for file in candidates:
            if os.path.isfile(file) and os.path.realpath(file) == exe:
                return file
    return exe


def _limits(pid: int) -> dict[str, list[int]]:
    limits = {}
    for name in LIMITS:
        try:
            limits[name] = list(resource.prlimit(pid, getattr(resource, name)))
        except (OSError, ValueError):
            continue
    return limits
