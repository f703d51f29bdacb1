"""Small files that must survive a crash, and where they go when their own place is gone or cannot be written.

Large ones that a server wrote are read in pieces, and only their beginning and their end.

The spare place is a private folder in memory (/dev/shm); it is lost at a reboot, like every process that it speaks of.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any


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


PIECE = 2**18
_TORN = 2**16  # a cut is moved to an end of line within this many bytes, so that no line (no secret in it) is torn in two


def read_bounded(source: Path, start: int, head: int, tail: int) -> Iterator[bytes]:
    """A file from byte ``start`` on, in pieces; of more than ``head`` + ``tail`` bytes only the first and the last ones, with a
    line between them that says how many bytes were left out. Raises OSError."""
    with source.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = max(0, start)
        if size - start <= head + tail:
            yield from _range(file, start, size)
            return
        end, after = start + head, size - tail
        window = min(_TORN, head)
        end -= window - (_last_end(b"".join(_range(file, end - window, end))) or window)
        after += b"".join(_range(file, after, min(after + _TORN, size))).find(b"\n") + 1
        yield from _range(file, start, end)
        yield f"\n[{after - end} bytes of the log are left out here]\n".encode()
        yield from _range(file, after, size)


def copy_bounded(source: Path, start: int, target: Path, head: int, tail: int) -> int:
    """Copy what ``read_bounded`` gives to ``target`` (mode 0600, replaced whole); returns the bytes written. Raises OSError."""
    spare = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    descriptor = os.open(spare, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    written = 0
    try:
        with os.fdopen(descriptor, "wb") as file:
            for piece in read_bounded(source, start, head, tail):
                written += file.write(piece)
        os.replace(spare, target)
    except BaseException:
        spare.unlink(missing_ok=True)
        raise
    return written


def cut_lines(pieces: Iterable[bytes], most: int) -> Iterator[bytes]:
    """The lines of a stream without their ends, each cut to ``most`` bytes; CR ends a line, too (progress bars). Never holds more
    than a piece and a line."""
    rest = b""
    for piece in pieces:
        *whole, last = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for part in whole:
            yield (rest + part)[:most]
            rest = b""
        rest = (rest + last[:most])[:most]
    if rest:
        yield rest


def until(pieces: Iterable[bytes], stop: Callable[[], bool]) -> Iterator[bytes]:
    """The pieces until ``stop`` says so; asked before each."""
    for piece in pieces:
        if stop():
            return
        yield piece


def _range(file: IO[bytes], start: int, end: int) -> Iterator[bytes]:
    file.seek(start)
    while start < end and (piece := file.read(min(PIECE, end - start))):
        start += len(piece)
        yield piece


def _last_end(data: bytes) -> int:
    """How many bytes up to the last end of line, 0 without any."""
    return data.rfind(b"\n") + 1
