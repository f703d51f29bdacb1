"""Reading /proc and signalling: who runs, since when, in which session, with which marks, and who listens on a port.

A pid is never an identity here: a process is (boot id, pid, start time in ticks). Deciding who belongs to a server lives in
``membership``; starting and stopping lives in ``procs``. Linux only, kernel 5.3 or newer (pidfd).
"""

from __future__ import annotations

import errno
import os
import signal
import socket
from dataclasses import dataclass, replace

from audition.wayback.plan import ProcessRef
from audition.wayback.server import WaybackError

TOKEN = "AUDITION_TOKEN"
LAUNCHING = "AUDITION_LAUNCHING"
UNRECORDED = "AUDITION_UNRECORDED"
_LISTEN, _ESTABLISHED = "0A", "01"


@dataclass(frozen=True)
class Proc:
    """One process as /proc shows it. ``token``: its AUDITION_TOKEN, None when absent or unreadable. ``outputs``: (device, inode) of
    its standard output and standard error. ``threads`` counts live threads.
    ``launching``: a launcher that has not become its server yet."""

    pid: int
    ppid: int
    pgid: int
    sid: int
    start_ticks: int
    state: str = "S"
    threads: int = 1
    name: str = ""
    token: str | None = None
    outputs: frozenset[tuple[int, int]] = frozenset()
    launching: bool = False

    @property
    def dead(self) -> bool:
        """A zombie is dead, unless other threads of it still run behind an exited main thread."""
        return self.state in "XxZ" and self.threads <= 1


def current_boot_id() -> str:
    """The kernel's boot id; differs after each reboot."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def _read(path: str) -> bytes | None:
    """A file of /proc, or None when the process is gone or may not be looked at."""
    try:
        with open(path, "rb", buffering=0) as file:
            return b"".join(iter(lambda: file.read(65536), b""))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    except OSError as error:
        if error.errno in (errno.ESRCH, errno.EIO, errno.EINVAL):
            return None
        raise


def read_proc(pid: int, *, marks: bool = False) -> Proc | None:
    """One process, None when there is none. With ``marks`` the token and the outputs are read too (slower)."""
    stat = _read(f"/proc/{pid}/stat")
    if not stat:
        return None
    head, _, tail = stat.decode("utf-8", "replace").rpartition(")")
    part = tail.split()
    proc = Proc(pid, int(part[1]), int(part[2]), int(part[3]), int(part[19]), part[0], int(part[17]), head.partition("(")[2])
    if not marks:
        return proc
    token, launching = read_marks(pid)
    return replace(proc, token=token, launching=launching, outputs=_outputs(pid))


def read_marks(pid: int) -> tuple[str | None, bool]:
    """AUDITION_TOKEN in the environment that the process was started with (None when absent or unreadable), and whether it is a
    launcher."""
    token, launching = None, False
    for item in (_read(f"/proc/{pid}/environ") or b"").split(b"\0"):
        name, _, value = item.partition(b"=")
        if name == TOKEN.encode():
            token = value.decode("utf-8", "replace")
        launching = launching or name == LAUNCHING.encode()
    return token, launching


def unrecorded(token: str) -> ProcessRef | None:
    """A server of this token that was launched although its identity could be written nowhere: its environment says so (see
    ``launch``)."""
    for name in os.listdir("/proc"):
        items = (_read(f"/proc/{name}/environ") or b"").split(b"\0") if name.isdigit() else []
        if f"{UNRECORDED}={name}".encode() in items and f"{TOKEN}={token}".encode() in items:
            proc = read_proc(int(name))
            if proc is not None and not proc.dead:
                return ref_of(proc)
    return None


def _outputs(pid: int) -> frozenset[tuple[int, int]]:
    found = set()
    for number in (1, 2):
        try:
            info = os.stat(f"/proc/{pid}/fd/{number}")
        except OSError:
            continue
        found.add((info.st_dev, info.st_ino))
    return frozenset(found)


def scan(*, marks: bool = False) -> dict[int, Proc]:
    """Every process by pid, zombies included."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            proc = read_proc(int(name), marks=marks)
            if proc is not None:
                found[proc.pid] = proc
    return found


def ref_of(proc: Proc, boot_id: str | None = None) -> ProcessRef:
    """The identity of a process of the present boot."""
    return ProcessRef(proc.pid, proc.start_ticks, boot_id or current_boot_id())


def own_ref(pid: int | None = None) -> ProcessRef:
    """The identity of this process, or of a running ``pid``. Raises WaybackError when there is no such process."""
    proc = read_proc(os.getpid() if pid is None else pid)
    if proc is None:
        raise WaybackError(f"there is no process {pid}")
    return ref_of(proc)


def is_alive(ref: ProcessRef | None) -> bool:
    """Whether exactly this process still runs: same boot, same start time, not a zombie."""
    if ref is None or ref.boot_id != current_boot_id():
        return False
    proc = read_proc(ref.pid)
    return proc is not None and proc.start_ticks == ref.start_ticks and not proc.dead


def send_signal(ref: ProcessRef, number: signal.Signals) -> bool:
    """Signal exactly this process through a pidfd, which cannot hit a reused pid. False when it is gone.

    Raises WaybackError when signalling is forbidden.
    """
    try:
        descriptor = os.pidfd_open(ref.pid)
    except (ProcessLookupError, FileNotFoundError):
        return False
    except OSError as error:
        if error.errno == errno.EINVAL:
            return False
        raise WaybackError(f"cannot open process {ref.pid} for signalling: {error}") from error
    try:
        if not is_alive(ref):  # the pidfd holds whatever has the pid now: look who that is before signalling
            return False
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    except PermissionError as error:
        raise WaybackError(f"may not send {number.name} to process {ref.pid}: {error}") from error
    finally:
        os.close(descriptor)
    return True


def own_lineage() -> frozenset[int]:
    """This process and all its ancestors; never to be signalled."""
    seen: set[int] = {1}
    pid = os.getpid()
    while pid > 0 and pid not in seen:
        seen.add(pid)
        proc = read_proc(pid)
        pid = proc.ppid if proc else 0
    return frozenset(seen)


def listening_inodes(port: int) -> set[int]:
    """Socket inodes that listen on the TCP port on any address, IPv4 or IPv6, in this network namespace."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in (_read(table) or b"").decode("ascii", "replace").splitlines()[1:]:
            part = line.split()
            if len(part) > 9 and part[3] == _LISTEN and int(part[1].rpartition(":")[2], 16) == port:
                inodes.add(int(part[9]))
    return inodes


def connections(port: int) -> int:
    """Established TCP connections to the port on this side, in this network namespace. Idle keep-alive connections count too."""
    count = 0
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in (_read(table) or b"").decode("ascii", "replace").splitlines()[1:]:
            part = line.split()
            count += len(part) > 9 and part[3] == _ESTABLISHED and int(part[1].rpartition(":")[2], 16) == port
    return count


def listeners(port: int) -> tuple[list[int], bool]:
    """Pids that hold a listening socket of the port, and whether every such socket has a known holder (fds of other users are
    unreadable)."""
    inodes = listening_inodes(port)
    if not inodes:
        return [], True
    wanted = {f"socket:[{inode}]" for inode in inodes}
    pids, seen = [], set()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            numbers = os.listdir(f"/proc/{name}/fd")
        except OSError:
            continue
        held = set()
        for number in numbers:
            try:
                held.add(os.readlink(f"/proc/{name}/fd/{number}"))
            except OSError:
                continue
        if held & wanted:
            pids.append(int(name))
            seen |= held & wanted
    return sorted(pids), seen == wanted


def port_answers(port: int, timeout_s: float = 1.0) -> bool:
    """Whether something accepts connections on 127.0.0.1 at the port."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=timeout_s):
            return True
    except TimeoutError:
        return True  # dropped, not refused: something is there
    except OSError:
        return False


def command_line(pid: int) -> list[str]:
    """The arguments as the process shows them now; empty when unreadable."""
    raw = _read(f"/proc/{pid}/cmdline") or b""
    return [os.fsdecode(part) for part in raw.removesuffix(b"\0").split(b"\0")] if raw.strip(b"\0") else []


def environment(pid: int) -> dict[str, str] | None:
    """The environment that the process was started with; None when unreadable or overwritten (setproctitle writes over it)."""
    raw = _read(f"/proc/{pid}/environ")
    if not raw or not raw.strip(b"\0"):
        return None
    items = raw.removesuffix(b"\0").split(b"\0")
    if any(b"=" not in item or item.startswith(b"=") for item in items):
        return None
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in (item.partition(b"=") for item in items)}


def link(pid: int, name: str) -> str:
    """Target of /proc/PID/NAME (cwd, exe, fd/1); empty when unreadable."""
    try:
        return os.readlink(f"/proc/{pid}/{name}")
    except OSError:
        return ""


def credentials(pid: int) -> tuple[int, int, list[int], int] | None:
    """Effective user, effective group, further groups and umask; None when unreadable."""
    fields: dict[str, list[str]] = {}
    for line in (_read(f"/proc/{pid}/status") or b"").decode("utf-8", "replace").splitlines():
        name, _, value = line.partition(":")
        fields[name] = value.split()
    try:
        return int(fields["Uid"][1]), int(fields["Gid"][1]), [int(g) for g in fields["Groups"]], int(fields["Umask"][0], 8)
    except (KeyError, IndexError, ValueError):
        return None


def real_ids(pid: int) -> tuple[list[int], list[int], list[int]] | None:
    """Real, effective and saved users, the same of groups, and the further groups; None when unreadable."""
    fields: dict[str, list[str]] = {}
    for line in (_read(f"/proc/{pid}/status") or b"").decode("utf-8", "replace").splitlines():
        name, _, value = line.partition(":")
        fields[name] = value.split()
    try:
        return [int(i) for i in fields["Uid"][:3]], [int(i) for i in fields["Gid"][:3]], [int(i) for i in fields["Groups"]]
    except (KeyError, ValueError):
        return None


def flags(pid: int) -> int:
    """The kernel's flags of a process (PF_*, field 9 of /proc/PID/stat); 0 when it is gone."""
    part = (_read(f"/proc/{pid}/stat") or b"").rpartition(b")")[2].split()
    return int(part[6]) if len(part) > 6 else 0


def status_field(pid: int, name: str) -> str:
    """One field of /proc/PID/status; empty when unreadable."""
    for line in (_read(f"/proc/{pid}/status") or b"").decode("utf-8", "replace").splitlines():
        if line.startswith(name + ":"):
            return line.partition(":")[2].strip()
    return ""


def written_bytes(pid: int) -> int:
    """Bytes that a process has written so far, to whatever (wchar of /proc/PID/io); 0 when unreadable."""
    for line in (_read(f"/proc/{pid}/io") or b"").decode("ascii", "replace").splitlines():
        if line.startswith("wchar:"):
            return int(line.split()[1])
    return 0


_SECRET_FLAG = ("key", "token", "secret", "password", "passwd", "credential")


def redacted(argv: list[str]) -> list[str]:
    """A command line for a message: values of options whose names speak of keys are left out; short numbers are none."""
    out: list[str] = []
    for word in argv:
        flag, equals, value = word.partition("=")
        before = out[-1] if out else ""
        if equals and _speaks_of_keys(flag) and not _is_count(value):
            out.append(f"{flag}=***")
        elif "=" not in before and _speaks_of_keys(before) and not _is_count(word):
            out.append(word if word.startswith("-") else "***")
        else:
            out.append(word)
    return out


def _speaks_of_keys(flag: str) -> bool:
    """``--api-key``, ``--hf-token`` and the like; not the tokenizer's options."""
    name = flag.lower().replace("tokenizer", "")
    return flag.startswith("-") and any(part in name for part in _SECRET_FLAG)


def _is_count(value: str) -> bool:
    """A number of up to seven digits, as of ``--max-num-batched-tokens 4096``."""
    return value.isascii() and value.isdigit() and len(value) <= 7


def describe(pid: int) -> str:
    """A process for a message: pid, name, first arguments without values of secret options. No environment."""
    proc = read_proc(pid)
    if proc is None:
        return f"pid {pid} (gone)"
    words = " ".join(redacted(command_line(pid)))
    shown = words if len(words) <= 100 else words[:97] + "..."
    return f"pid {pid} ({proc.name}{': ' + shown if shown else ''})"
