"""Plain files, opened without ever hanging and read with a bound: checkpoints, calendars and run folders may hold anything.

A pipe or a device under the name of a file is refused instead of waited for; a file that grows, or a link to an endless device,
takes no more memory than the bound.

What must not live here: meaning of what is read.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


class NotPlain(OSError):
    """What has the name is a pipe, a device, a socket or a folder."""


class TooLong(OSError):
    """The file has more bytes than its limit."""


@contextmanager
def opened(path: Path) -> Iterator[tuple[int, os.stat_result]]:
    """A descriptor and the status of a plain file. Raises OSError, NotPlain for anything but a plain file."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:  # a zero byte in the name
        raise OSError(errno.EINVAL, str(error)) from error
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise NotPlain(errno.EINVAL, "it is not a plain file")
        yield handle, status
    finally:
        os.close(handle)


def open_plain(path: Path) -> BinaryIO:
    """A plain file, opened for reading bytes. Raises OSError, NotPlain for anything but a plain file."""
    with opened(path) as (handle, _):
        return os.fdopen(os.dup(handle), "rb")


def read_bytes(path: Path, limit: int) -> bytes:
    """The whole of a plain file of at most ``limit`` bytes. Raises OSError, TooLong for a longer one."""
    parts: list[bytes] = []
    left = limit + 1
    with opened(path) as (handle, status):
        if status.st_size > limit:
            left = 0
        while left > 0 and (part := os.read(handle, min(left, 2**20))):
            parts.append(part)
            left -= len(part)
    if left <= 0:
        raise TooLong(errno.EFBIG, f"it is longer than {limit // 1024:,} KiB")
    return b"".join(parts)


def read_text(path: Path, limit: int) -> str:
    """The same as text. Raises OSError, and UnicodeDecodeError (a ValueError) for what is no UTF-8."""
    return read_bytes(path, limit).decode("utf-8-sig")
