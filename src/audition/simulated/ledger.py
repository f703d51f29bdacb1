"""Who holds how much GPU memory, where there is no GPU: the reader of the ledger directory.

Each simulated EngineCore keeps an exclusively locked file `<ledger>/<pid>.json`, for example
{"pid": 4711, "gpus": {"0": 20000}} in MiB. The kernel drops the lock when the process dies, however it dies, so memory in
use is the sum over the files whose lock is held. The writer is `worker`. Standard library only.

What must not live here: writing a holding, and anything that kills a holder.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Holder:
    """A live process that holds GPU memory: its pid and MiB by GPU index."""

    pid: int
    gpus: dict[int, int]


@dataclass(frozen=True, slots=True)
class Ledger:
    """Memory in use: MiB by GPU index (a GPU nobody holds is absent), and the holders, by pid."""

    used_mib: dict[int, int]
    holders: list[Holder]


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def _read_holder(descriptor: int) -> Holder | None:
    """Decode one file; a half-written one is read again for at most 50 ms."""
    for _ in range(50):
        text = os.pread(descriptor, 65536, 0)
        try:
            entry = json.loads(text)
            return Holder(int(entry["pid"]), {int(gpu): int(mib) for gpu, mib in entry["gpus"].items()})
        except (ValueError, KeyError, TypeError, AttributeError):
            time.sleep(0.001)
    return None


def read_ledger(directory: str | os.PathLike[str]) -> Ledger:
    """Read who holds memory now. A directory that does not exist is an empty ledger. Deletes nothing."""
    holders = []
    for path in sorted(Path(directory).glob("*.json")):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            holder = _read_holder(descriptor) if _is_locked(descriptor) else None
        finally:
            os.close(descriptor)
        if holder is not None:
            holders.append(holder)
    used: dict[int, int] = {}
    for holder in holders:
        for gpu, mib in holder.gpus.items():
            used[gpu] = used.get(gpu, 0) + mib
    return Ledger(used, sorted(holders, key=lambda holder: holder.pid))


def sweep_ledger(directory: str | os.PathLike[str]) -> list[int]:
    """Delete the files whose holder is dead (no lock held) and return their pids. Never deletes a locked file."""
    swept = []
    for path in sorted(Path(directory).glob("*.json")):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            if not _is_locked(descriptor):
                path.unlink(missing_ok=True)
                swept.append(int(path.stem))
        finally:
            os.close(descriptor)
    return swept
