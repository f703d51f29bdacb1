"""Whether a process that runs can be started again as it runs: what it was started with, and what of that is gone.

Only looks. A production for which this cannot be shown must never be stopped, so doubts here are found before anything is touched.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from audition.wayback.proctable import Proc, command_line, describe, flags, link, real_ids

PF_FORKNOEXEC = 0x40  # include/linux/sched.h: forked, and has executed nothing since
FOREGROUND = "start it in the foreground, under audition (a command of the spike) or compose"
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash", "fish", "busybox"})
_INTERPRETERS = re.compile(r"^(python|pypy|perl|ruby|node|php|lua|Rscript)[0-9.]*$")
_TAKE_A_VALUE = {"python": ("-W", "-X", "--check-hash-based-pycs"), "shell": ("-o", "+o", "-O", "+O", "--rcfile", "--init-file")}
_INITS = frozenset({"systemd", "init", "tini", "dumb-init", "docker-init", "catatonit", "containerd-shim", "conmon"})
_TERMINALS = ("tmux", "screen", "SCREEN", "sshd", "login", "gnome-terminal", "konsole", "xterm", "kitty", "alacritty")
_DESCRIPTOR = re.compile(r"/(dev/fd|proc/(self|thread-self|\d+)/fd)/\d+")


@dataclass(frozen=True)
class Doubt:
    """Something about a found production. ``blocking`` ones forbid to stop it."""

    level: Literal["warning", "blocking"]
    text: str
    next_step: str = ""


def is_shell(name: str) -> bool:
    """Whether a program of this name is a shell."""
    return os.path.basename(name).lstrip("-") in _SHELLS


def rewritten(argv: list[str], exe: str) -> bool:
    """Whether a command line is no longer what the process was started with: a title was written over it.

    A title leaves one word, perhaps with empty ones behind it (setproctitle fills the old arguments with NULs), or a first word
    that no program could have. ``exe``: the file that runs.
    """
    if not argv:
        return True
    first, rest = argv[0], argv[1:]
    if not any(rest) and (rest or not _names(first, exe)):
        return True
    return not _names(first, exe) and ("::" in first or ": " in first or first.endswith(":"))


def _names(word: str, exe: str) -> bool:
    """Whether the first word of a command line may mean the file ``exe``: by path, or by a name that one begins the other with."""
    if "/" in word and os.path.exists(word) and os.path.realpath(word) == os.path.realpath(exe):
        return True
    said, runs = os.path.basename(word).lstrip("-"), os.path.basename(exe.removesuffix(" (deleted)"))
    return bool(said) and not re.search(r"\s", said) and (runs.startswith(said) or said.startswith(runs))


def script_of(argv: list[str]) -> tuple[Literal["none", "inline", "module", "file", "input"], str]:
    """What an interpreter was told to run, by its command line: (kind, word). ``none``: the program is no interpreter. ``input``:
    its standard input."""
    name = os.path.basename(argv[0]).lstrip("-") if argv else ""
    shell = is_shell(name)
    if not shell and not _INTERPRETERS.match(name):
        return "none", ""
    valued = _TAKE_A_VALUE["shell" if shell else "python"]
    skip = False
    for position, word in enumerate(argv[1:], 1):
        if skip:
            skip = False
        elif word in valued:
            skip = True
        elif word == "-":
            return "input", word
        elif word == "--":
            return ("file", argv[position + 1]) if position + 1 < len(argv) else ("input", "")
        elif word.startswith("--") or (word.startswith("+") and shell):
            continue
        elif word.startswith("-"):
            if "c" in word[1:] or (not shell and "e" in word[1:] and not name.startswith(("python", "pypy"))):
                return "inline", word
            if "m" in word[1:] and name.startswith(("python", "pypy")):
                return "module", argv[position + 1] if position + 1 < len(argv) and word.endswith("m") else word.partition("m")[2]
            if shell and "s" in word[1:]:
                return "input", word
        else:
            return "file", word
    return "input", ""


def running_file(program: str, search: str) -> str:
    """The file that runs when ``program`` is executed: its interpreter when it is a script with a first line ``#!``.

    ``search``: PATH, for ``#!/usr/bin/env NAME``. Returns a real path, "" when there is none.
    """
    for _ in range(5):  # BINPRM recursion limit of Linux (fs/exec.c)
        try:
            with open(program, "rb") as file:
                head = file.read(512)
        except OSError:
            return ""
        if not head.startswith(b"#!"):
            return os.path.realpath(program)
        words = os.fsdecode(head[2:].partition(b"\n")[0]).split()
        if words and os.path.basename(words[0]) == "env":
            names = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
            program = shutil.which(names[0], path=search) or "" if names else ""
        else:
            program = words[0] if words else ""
    return ""


def command_doubts(pid: int, argv: list[str], env: Mapping[str, str], cwd: str) -> list[Doubt]:
    """Why the command of process ``pid`` may not give the same server a second time."""
    stdin = link(pid, "fd/0")
    fed = stdin.startswith("pipe:") or (stdin.startswith("/") and _is_regular(f"/proc/{pid}/fd/0"))
    kind, script = script_of(argv)
    doubts = []
    if kind == "input" or (fed and any(word in ("-", "/dev/stdin") for word in argv[1:])):
        text = f"production reads its program or settings from its standard input ({stdin or 'closed'}); it cannot be given again"
        doubts.append(Doubt("blocking", text, "start production from a file"))
    elif fed and not stdin.startswith("pipe:"):
        doubts.append(Doubt("warning", f"production's standard input is the file {stdin}; after a restart it is /dev/null"))
    for word in argv[1:]:
        if _DESCRIPTOR.search(word):
            text = f"production was given the open file {word!r}, which is gone once it ends"
            doubts.append(Doubt("blocking", text, "start production from a file with a name"))
    if kind == "file" and not _DESCRIPTOR.search(script) and not os.path.exists(os.path.join(cwd, script)):
        text = f"the script that production runs, {script!r}, is not there (looked from its present working folder {cwd})"
        doubts.append(Doubt("blocking", text, "restart production with a script that is there, by its absolute path"))
        return doubts
    return doubts + _path_doubts(argv, env, cwd, script if kind == "module" else "", kind == "inline")


def _path_doubts(argv: list[str], env: Mapping[str, str], cwd: str, module: str, inline: bool) -> list[Doubt]:
    """Path words that led somewhere at the start (``PWD`` of the environment) and do not now."""
    doubts = []
    began = env.get("PWD", "")
    moved = os.path.isabs(began) and os.path.isdir(began) and os.path.realpath(began) != os.path.realpath(cwd)
    words = [] if inline else argv[1:]
    for before, word in zip(argv, words, strict=False):
        path = word.partition("=")[2] if word.startswith("-") else word
        if not path or len(path) > 4096 or "\n" in path:
            continue
        if os.path.isabs(path):
            if not word.startswith("-") and not before.startswith("-") and not os.path.exists(path):
                text = f"production was started with {path!r}, which is no longer there"
                doubts.append(Doubt("blocking", text, "put it back, or restart production without it"))
        elif not os.path.exists(os.path.join(cwd, path)):
            dotted = path.startswith(("./", "../")) and not word.startswith("-") and not before.startswith("-")
            if dotted or (moved and os.path.exists(os.path.join(began, path))):
                text = f"production was started with {path!r}, which is not there from its present working folder {cwd}"
                doubts.append(Doubt("blocking", text, "restart production with absolute paths"))
    if module and moved:
        first = module.partition(".")[0]
        there = [os.path.join(began, first), os.path.join(began, first + ".py")]
        here = [os.path.join(cwd, first), os.path.join(cwd, first + ".py")]
        if any(map(os.path.exists, there)) and not any(map(os.path.exists, here)):
            text = f"production runs the module {module} of {began}, and its working folder is {cwd} now"
            doubts.append(Doubt("blocking", text, "restart production with an absolute path"))
    return doubts


def _is_regular(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False


def origin_doubts(proc: Proc, table: Mapping[int, Proc], never: frozenset[int]) -> list[Doubt]:
    """Why whoever started ``proc`` matters: it would restart production, end with it, or production made itself a daemon."""
    parent = table.get(proc.ppid)
    forked = bool(flags(proc.pid) & PF_FORKNOEXEC)
    adopted = parent is None or parent.pid == 1 or parent.dead or parent.name in _INITS
    if adopted:
        if not forked:
            return []
        text = f"production ({describe(proc.pid)}) made itself a daemon: started again, its first process would end at once"
        return [Doubt("blocking", text, FOREGROUND)]
    assert parent is not None
    if parent.pid in never or parent.name.startswith(_TERMINALS):
        return []
    words = command_line(parent.pid)
    typed = link(parent.pid, "fd/0").startswith(("/dev/pts/", "/dev/tty", "/dev/console"))
    if words and is_shell(words[0]) and script_of(words)[0] == "input" and typed and not forked:
        return []  # a shell at a terminal
    text = (
        f"production ({describe(proc.pid)}) was started by {describe(parent.pid)}, which still runs: it may start production again"
        " during the spike, or end with it"
    )
    return [Doubt("blocking", text, f"stop pid {parent.pid} and {FOREGROUND}")]


def session_doubts(root: int, parts: set[int], table: Mapping[int, Proc], never: frozenset[int]) -> list[Doubt]:
    """Processes in the session that ``root`` leads that do not descend from it: of production or strangers, nobody can tell."""
    others = [pid for pid, proc in table.items() if proc.sid == root and pid not in parts and pid not in never and not proc.dead]
    if not others:
        return []
    names = "; ".join(describe(pid) for pid in sorted(others)[:5])
    text = f"production shares its session with processes that do not descend from it: {names}"
    return [Doubt("blocking", text, "end them, or start production in a session of its own (setsid)")]


def user_doubts(proc: Proc, uid: int, argv: list[str], env: Mapping[str, str], cwd: str, *, port: int) -> list[Doubt]:
    """Signs that production was started as another user than it runs as. ``uid``: the effective user."""
    ids = real_ids(proc.pid)
    if ids is not None and len(set(ids[0])) + len(set(ids[1])) > 2:
        text = f"production's real, effective and saved users or groups differ ({ids[0]}, {ids[1]}), which a start cannot give it"
        return [Doubt("blocking", text, "start production as the user that it shall run as")]
    if uid == 0:
        return []
    step = "start production as the user that it runs as (systemd, setpriv, su), with files that this user can read"
    unreadable = [word for word in argv[1:] if ids is not None and _forbidden(os.path.join(cwd, word), uid, ids[1][1], ids[2])]
    if unreadable:
        text = f"production dropped its privileges after its start: as user {uid} it cannot read {unreadable[0]!r} of its command"
        return [Doubt("blocking", text, step)]
    try:
        shielded = os.stat(f"/proc/{proc.pid}/environ").st_uid != uid  # proc(5): owned by root while a process is not "dumpable"
    except OSError:
        shielded = False
    if shielded and os.geteuid() == 0:
        text = f"production became user {uid} after its start (it is shielded from that user): it may have needed root until then"
        return [Doubt("blocking", text, step)]
    if 0 < port < _first_free_port():
        text = f"production runs as user {uid} and listens on port {port}, which only root may open: it dropped its privileges"
        return [Doubt("blocking", text, step)]
    if os.geteuid() == 0 and (env.get("HOME") == "/root" or env.get("USER") == "root"):
        text = f"production runs as user {uid} with root's environment: it may have dropped its privileges; it is started as {uid}"
        return [Doubt("warning", text, step)]
    return []


def _first_free_port() -> int:
    try:
        with open("/proc/sys/net/ipv4/ip_unprivileged_port_start", encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 1024


def _forbidden(path: str, uid: int, gid: int, groups: list[int]) -> bool:
    """Whether the regular file exists and this user may not read it, by the mode bits of the file and its folders (no ACLs)."""
    if not _is_regular(path):
        return False
    steps = [(path, 4)]
    while os.path.dirname(path) != path:
        path = os.path.dirname(path)
        steps.append((path, 1))
    for place, need in steps:
        try:
            info = os.stat(place)
        except OSError:
            return False
        shift = 6 if info.st_uid == uid else 3 if info.st_gid in (gid, *groups) else 0
        if not (info.st_mode >> shift) & need:
            return True
    return False
