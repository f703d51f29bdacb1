"""Small files that must survive a crash, and where they go when their own place is gone or cannot be written.

The spare place is a private folder in memory (/dev/shm); it is lost at a reboot, like every process that it speaks of.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any


def write_atomic(path: Path, text: str, mode: int = 0o600) -> None:
    """Write a file so that after a crash there is the old or the new one, on disk, never a mixture. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    spare = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(spare, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(spare, path)
    except BaseException:
        spare.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a rename or removal in the folder durable. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object from a file; None when the file is missing, unreadable or no JSON object."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def spare_path(path: str) -> str:
    """The stand-in for a file whose own place cannot be used; the same for everyone who asks. "" when there is no safe place.

    The folder must belong to this user and be closed to others: /dev/shm is writable for everybody.
    """
    import hashlib  # noqa: PLC0415 - keeps the sleeping guard small

    folder = f"/dev/shm/audition-{os.geteuid()}"
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        info = os.lstat(folder)
    except OSError:
        return ""
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o077:
        return ""
    return f"{folder}/{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}-{os.path.basename(path)}"
