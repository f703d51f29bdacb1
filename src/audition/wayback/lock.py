"""One spike per host and per GPU set: flock on files in the state root, with the holder's name inside and a fencing number.

The kernel drops a flock when its holder dies, so a stale lock does not exist; only stale writing does, and it is overwritten. Lock
files are never removed. Whoever restores takes the same locks.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from audition.wayback.files import spare_path, write_atomic
from audition.wayback.plan import ProcessRef
from audition.wayback.proctable import is_alive, own_ref
from audition.wayback.server import WaybackError

PEEK_S = 0.3  # a look by `audition status` holds a free lock for an instant, which must not make a start fail
_HELD: set[int] = set()


def _drop_in_child() -> None:
    """A forked child must not keep the lock alive after its parent's death."""
    for descriptor in list(_HELD):
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _HELD.clear()


os.register_at_fork(after_in_child=_drop_in_child)


@dataclass(frozen=True)
class Holder:
    """Who holds a lock. ``role``: run, guard, recover. ``since`` and ``deadline`` in Unix seconds."""

    run_id: str
    spike: str
    role: str
    process: ProcessRef
    since: float
    deadline: float | None
    fence: int


class LockHeld(WaybackError):
    """The lock is held by somebody else. ``holder`` None: it could not be read."""

    def __init__(self, path: str, holder: Holder | None) -> None:
        self.path = path
        self.holder = holder
        if holder is None:
            who = "a process that has not written its name"
        else:
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holder.since))
            who = f"{holder.role} of run {holder.run_id} (spike {holder.spike}, pid {holder.process.pid}), since {since}"
        super().__init__(f"the lock {path} is held by {who}; `audition status` tells more, `fuser -v {path}` names the process")


class Lock:
    """Held locks; released by ``release``, at the end of a ``with`` block, or by the kernel when the process dies."""

    def __init__(self, descriptors: list[int], holder: Holder, notes: list[str]) -> None:
        self.holder = holder
        self.notes = notes
        self._descriptors = descriptors

    def release(self) -> None:
        """Let go. Safe to call again."""
        while self._descriptors:
            descriptor = self._descriptors.pop()
            _HELD.discard(descriptor)
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def state_root() -> Path:
    """AUDITION_STATE, else /var/lib/audition for root, else ~/.local/state/audition."""
    given = os.environ.get("AUDITION_STATE")
    if given:
        return Path(given).absolute()
    return Path("/var/lib/audition") if os.geteuid() == 0 else Path.home() / ".local/state/audition"


def lock_files_for(root: Path, gpus: list[int]) -> list[str]:
    """The lock files of a spike, in the order in which they are taken. No GPUs: the host alone, exclusively."""
    host = str(root / "locks" / "host.lock")
    return [host, *(str(root / "locks" / f"gpu-{gpu}.lock") for gpu in sorted(set(gpus)))]


def next_fence(root: Path) -> int:
    """A number greater than every one given before, also after a crash. Raises OSError when it cannot be kept."""
    path = root / "fence"
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(root / "fence.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            last = int(path.read_text(encoding="ascii"))
        except FileNotFoundError:
            last = 0
        except (OSError, ValueError):
            last = int(time.time())  # unreadable: no count of spikes ever reaches the present second
        write_atomic(path, str(last + 1))
        return last + 1
    finally:
        os.close(descriptor)


def read_holder(path: str) -> Holder | None:
    """What the last holder wrote; it may be dead. None when nothing can be read."""
    for place in (path, spare_path(path)):
        try:
            with open(place, encoding="utf-8") as file:
                data = json.loads(file.read(65536))
            return Holder(**{**data, "process": ProcessRef(**data["process"])})
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None


def current_holder(lock_files: list[str]) -> Holder | None:
    """The live holder of these locks, None when they are free. Never waits and never takes them for longer than a look."""
    for number, path in enumerate(lock_files):
        shared = number == 0 and len(lock_files) > 1
        descriptor = _open(path)
        if descriptor is None:
            continue
        try:
            if not _try(descriptor, shared):
                return read_holder(path) or Holder("unknown", "unknown", "unknown", ProcessRef(0, 0, ""), 0.0, None, 0)
        finally:
            os.close(descriptor)
    return None


def acquire(
    lock_files: list[str], *, run_id: str, spike: str, role: str, deadline: float | None, fence: int, wait_s: float = 0.0
) -> Lock:
    """Take all locks: the host's shared when GPU locks follow it, else exclusively; every other one exclusively.

    Raises LockHeld when they are not free within ``wait_s`` seconds. Where a lock file cannot be opened, its stand-in in memory is
    locked.
    """
    holder = Holder(run_id, spike, role, own_ref(), time.time(), deadline, fence)
    until = time.monotonic() + max(wait_s, PEEK_S)
    held: list[int] = []
    notes: list[str] = []
    try:
        for number, path in enumerate(lock_files):
            shared = number == 0 and len(lock_files) > 1
            held.append(_take(path, shared, until))
            _HELD.add(held[-1])
            trouble = "" if shared else _sign(held[-1], holder)
            notes += [f"{path}: {trouble}"] if trouble else []
    except BaseException:
        Lock(held, holder, []).release()
        raise
    return Lock(held, holder, notes)


def _open(path: str) -> int | None:
    for place in (path, spare_path(path)):
        if not place:
            continue
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
        for flags in (os.O_RDWR | os.O_CREAT, os.O_RDONLY):
            try:
                return os.open(place, flags | os.O_CLOEXEC, 0o600)
            except OSError:
                continue
    return None


def _try(descriptor: int, shared: bool) -> bool:
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _take(path: str, shared: bool, until: float) -> int:
    while True:
        descriptor = _open(path)
        if descriptor is None:
            raise WaybackError(f"the lock file {path} cannot be opened, nor its stand-in")
        if _try(descriptor, shared):
            if _still_there(descriptor, path):
                return descriptor
            os.close(descriptor)  # somebody removed the file while we waited: lock the new one
            continue
        os.close(descriptor)
        if time.monotonic() >= until:
            raise LockHeld(path, read_holder(path))
        time.sleep(0.05)


def _still_there(descriptor: int, path: str) -> bool:
    mine = os.fstat(descriptor)
    for place in (path, spare_path(path)):
        try:
            info = os.stat(place)
        except OSError:
            continue
        if (info.st_dev, info.st_ino) == (mine.st_dev, mine.st_ino):
            return True
    return False


def _sign(descriptor: int, holder: Holder) -> str:
    """Write the holder's name into the locked file; returns what went wrong (the lock counts, not the writing)."""
    text = json.dumps(asdict(holder)).encode()
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text, 0)
    except OSError as error:
        return f"the holder's name could not be written: {error}"
    return ""


def holder_lives(holder: Holder) -> bool:
    """Whether the process that wrote its name still runs."""
    return is_alive(holder.process)


def holder_data(holder: Holder) -> dict[str, Any]:
    """The holder as plain data, with whether it lives."""
    return {**asdict(holder), "alive": holder_lives(holder)}
