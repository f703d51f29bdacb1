"""Reads files of a run folder, which may hold anything: no pipe or device stops the reader, no file is read without a limit.

The one place of the judging and reporting rooms that opens records. What the bytes mean is ``load``'s.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

MOST_RECORD = 64 << 20
"""Bytes of a record that are read; the largest one known, ``probes.json`` with all answers, has less than 1 MiB."""

MOST_REQUESTS = 1 << 30
"""Bytes of a file of requests that are read: 100,000 requests of 1,000 events each, at 9.4 bytes an event."""

MOST_INSTANT = 1e11
"""Unix seconds below which an instant of a record must lie (the year 5138); calendars end in the year 9999."""


class NotRegular(OSError):
    """A pipe, a socket, a device or a folder where a file was expected."""


class TooLarge(OSError):
    """A file with more bytes than its limit."""


def _open(path: str, flags: int) -> int:
    """For ``open``: waits for no writer of a pipe. Raises NotRegular for what is no regular file; links are followed."""
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegular(f"{Path(path).name} is no regular file")
    return descriptor


def open_regular(path: Path) -> BinaryIO:
    """A regular file, opened for reading bytes. Raises NotRegular for anything else, OSError when it cannot be opened."""
    return open(path, "rb", opener=_open)


def read_limited(path: Path, most: int = MOST_RECORD) -> bytes:
    """The content of a regular file of at most ``most`` bytes. Raises NotRegular, TooLarge or another OSError."""
    with open_regular(path) as file:
        data = file.read(most + 1) if os.fstat(file.fileno()).st_size <= most else None
    if data is None or len(data) > most:
        raise TooLarge(f"it has more than {most >> 20} MiB")
    return data
