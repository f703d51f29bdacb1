"""A production that somebody else started: found by its port, described so that it can be started again exactly.

Only looks. What would make a restart differ from the original, or a stop hit strangers, becomes a ``Doubt``.
"""

from __future__ import annotations

import contextlib
import os
import resource
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field

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
    status_field,
)
from audition.wayback.repeatable import Doubt, command_doubts, origin_doubts, rewritten, session_doubts, user_doubts

LIMITS = {
    "Max cpu time": "RLIMIT_CPU", "Max file size": "RLIMIT_FSIZE", "Max data size": "RLIMIT_DATA", "Max stack size": "RLIMIT_STACK",
    "Max core file size": "RLIMIT_CORE", "Max processes": "RLIMIT_NPROC", "Max open files": "RLIMIT_NOFILE",
    "Max locked memory": "RLIMIT_MEMLOCK", "Max address space": "RLIMIT_AS", "Max pending signals": "RLIMIT_SIGPENDING",
    "Max msgqueue size": "RLIMIT_MSGQUEUE", "Max nice priority": "RLIMIT_NICE", "Max realtime priority": "RLIMIT_RTPRIO",
    "Max realtime timeout": "RLIMIT_RTTIME",
}  # fmt: skip
"""Rows of /proc/PID/limits, which shows them for processes of every user and group (prlimit does not)."""
CAP_SYS_NICE, CAP_SYS_RESOURCE = 23, 24  # include/uapi/linux/capability.h

__all__ = ["Doubt", "Found", "find", "same_server"]


@dataclass(frozen=True)
class Found:
    """What listens on the port. ``root`` None: nothing does, or it cannot be looked at. ``env`` None: unreadable or overwritten.

    ``log_file``: the file that its log is read from; ``output_file`` and ``error_file``: what a restart opens for standard output
    and for errors.

    ``retitled``: ``argv`` is a title that was written over the command line; what it was started with is not known. ``limits``
    holds resource limits (RLIMIT_*) and the settings that ``launch`` knows: nice, affinity, oom_score_adj, no_new_privs.
    """

    root: ProcessRef | None
    argv: list[str] = field(default_factory=list)
    env: dict[str, str] | None = None
    cwd: str = ""
    executable: str = ""
    log_file: str = ""
    output_file: str = ""
    error_file: str = ""
    members: list[ProcessRef] = field(default_factory=list)
    uid: int | None = None
    gid: int | None = None
    groups: list[int] = field(default_factory=list)
    umask: int | None = None
    limits: dict[str, list[int]] = field(default_factory=dict)
    doubts: list[Doubt] = field(default_factory=list)
    retitled: bool = False


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
    exe = link(root, "exe")
    retitled = rewritten(argv, exe)
    if not retitled:
        doubts += command_doubts(root, argv, env or {}, cwd)
    if exe.endswith(" (deleted)"):
        text = f"the executable of production was replaced or removed since it started: {exe}"
        doubts.append(Doubt("blocking", text, "restart production with the present files first"))
    if cwd.endswith(" (deleted)") or not cwd:
        doubts.append(
            Doubt("blocking", f"the working folder of production is gone: {cwd or 'unreadable'}", "restart production first")
        )
    log, streams, unsure = _output(root)
    doubts += unsure
    who = credentials(root)
    if who is None:
        doubts.append(Doubt("blocking", "the user of production's process cannot be read", "run audition as root"))
    elif who[0] != os.geteuid() and os.geteuid() != 0:
        text = f"production runs as user {who[0]}, audition as user {os.geteuid()}"
        doubts.append(Doubt("blocking", text, "run audition as production's user, or as root"))
    elif os.geteuid() != 0 and (who[1] != os.getegid() or set(who[2]) - {who[1]} != set(os.getgroups()) - {who[1]}):
        seen, own = [who[1], *who[2]], [os.getegid(), *os.getgroups()]
        text = f"production runs with the groups {seen}, audition with {own}, and cannot set them"
        doubts.append(Doubt("blocking", text, "run audition with the same groups, or as root"))
    if who is not None:
        doubts += user_doubts(table[root], who[0], [] if retitled else argv, env or {}, cwd, port=port)
    uid, gid, groups, umask = who or (None, None, [], None)
    parts = [ref_of(table[pid], ref.boot_id) for pid in sorted(below(root, table))]
    limits = _limits(root)
    doubts += _limit_doubts(limits)
    executable = exe if retitled else _executable(argv, env, cwd, exe)
    found = Found(ref, argv, env, cwd, executable, log, *streams, parts, uid, gid, groups, umask, limits, doubts, retitled)
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
    doubts += session_doubts(root, below(root, table), table, own_lineage())
    doubts += origin_doubts(table[root], table, own_lineage())
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


def _output(pid: int) -> tuple[str, tuple[str, str], list[Doubt]]:
    """(the file or device that holds the log, what a restart opens for output and for errors, what differs then).

    "" stands for none that can be opened again; such a stream goes where the other one goes, or to audition's own file.
    """
    places = [link(pid, f"fd/{number}") for number in (1, 2)]
    files = [place for place in places if os.path.isfile(place)]
    again = [place if place in files or is_device(place) else "" for place in places]
    chosen = next(iter(files), "") or again[0] or again[1]
    texts = [
        f"production writes its {name} to {place or 'an unreadable place'}, which a restart does not open again; it will go to "
        + (chosen or "a file")
        for name, place, opened in zip(("output", "errors"), places, again, strict=True)
        if not opened
    ]
    return chosen, (again[0] or chosen, again[1] or chosen), [Doubt("warning", text) for text in texts]


def is_device(path: str) -> bool:
    """Whether the path is a character device that anybody may open again (/dev/null and the like); terminals are not, they go
    away."""
    try:
        info = os.stat(path)
    except OSError:
        return False
    folder, name = os.path.split(path)
    return stat.S_ISCHR(info.st_mode) and folder == "/dev" and not name.startswith(("tty", "console"))


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
    limits: dict[str, list[int]] = {}
    with contextlib.suppress(OSError), open(f"/proc/{pid}/limits", encoding="ascii") as file:
        for line in file:
            name = LIMITS.get(line[:25].strip())
            if name:
                limits[name] = [resource.RLIM_INFINITY if word == "unlimited" else int(word) for word in line[25:].split()[:2]]
    with contextlib.suppress(OSError):
        limits["nice"] = [os.getpriority(os.PRIO_PROCESS, pid)]
    with contextlib.suppress(OSError):
        limits["affinity"] = sorted(os.sched_getaffinity(pid))
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/oom_score_adj", encoding="ascii") as file:
        limits["oom_score_adj"] = [int(file.read())]
    if status_field(pid, "NoNewPrivs") == "1":
        limits["no_new_privs"] = [1]
    return limits


def _limit_doubts(limits: dict[str, list[int]]) -> list[Doubt]:
    """What of the limits and the priority this process has not the right to set."""
    rights = int(status_field(os.getpid(), "CapEff") or "0", 16)
    above = []
    for name in LIMITS.values() if not rights >> CAP_SYS_RESOURCE & 1 else ():
        hard = resource.getrlimit(getattr(resource, name))[1]
        soft = limits.get(name, [0])[0]
        if hard != resource.RLIM_INFINITY and (soft == resource.RLIM_INFINITY or soft > hard):
            above.append(f"{name} {'unlimited' if soft == resource.RLIM_INFINITY else soft} (at most {hard})")
    nice = limits.get("nice", [0])[0]
    if nice < os.getpriority(os.PRIO_PROCESS, 0) and not rights >> CAP_SYS_NICE & 1:
        above.append(f"nice {nice}")
    if not above:
        return []
    text = f"production runs with settings that audition may not give it: {', '.join(above)}"
    return [Doubt("blocking", text, "raise the limits of audition's own shell (ulimit, nice) to those of production")]
