"""What a container printed since a given start, kept in a file that outlives the container. No judgement of the lines.

The file holds the first and the last bytes of a log of any size; a line between them says how much was left out.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Generator
from itertools import islice
from pathlib import Path
from typing import IO, Any

from audition.wayback.docker_cli import Docker
from audition.wayback.docker_log import stamped_lines
from audition.wayback.files import PIECE

PULL_S = 60.0
"""Time limit of one pull, in seconds; a week of a chatty server's log is read within a few. The next pull goes on from there."""
HEAD, TAIL = 2 * 2**20, 6 * 2**20  # bytes kept: the boot stands at the beginning, a death at the end
SLACK = 2**20  # bytes by which the tail may outgrow its size before the file is written anew
LINES_TOLD = 2000


class LogFile:
    """Copies a container's log piece by piece. ``pull`` is cheap when there is little that is new."""

    def __init__(self, path: Path, cli: Docker, *, head: int = HEAD, tail: int = TAIL, slack: int = SLACK) -> None:
        self.path, self._cli = path, cli
        self._head, self._tail, self._slack = head, tail, slack
        self._boot = ""
        self._newest = ""
        self._gap: tuple[int, int, int] | None = None  # where the line about the gap begins and ends, bytes left out there

    def pull(self, container: dict[str, Any] | None) -> list[str]:
        """New lines since the last pull, of very many the last ones; a new boot of the container, or another container, begins the
        file anew.

        Nothing is new when the container is gone; the file stays. Raises WaybackError when the engine does not answer.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if container is None:
            with self._open():
                return []
        started = str(container["State"]["StartedAt"])
        boot = f"{container['Id']} {started}"
        if boot != self._boot:
            with self._open(os.O_TRUNC):
                self._boot, self._newest, self._gap = boot, "", None
        before = self._newest
        told: deque[str] = deque(maxlen=LINES_TOLD)
        with self._open() as file, contextlib.closing(self._new(container["Id"], before or started, before)) as lines:
            if self._gap and file.seek(0, os.SEEK_END) < self._gap[1]:
                self._gap = None  # somebody has removed the file
            file.seek(0, os.SEEK_END)
            while block := list(islice(lines, 1000)):
                told.extend(block)
                file.write("".join(f"{text}\n" for text in block).encode())
                self._trim(file)
        return list(told)

    def _new(self, container_id: str, since: str, before: str) -> Generator[str, None, None]:
        for stamp, text in stamped_lines(self._cli, container_id, since, PULL_S):
            if stamp > before:
                self._newest = max(self._newest, stamp)
                yield text

    def _open(self, more: int = 0) -> IO[bytes]:
        """Open the file; it is private from its first moment, because a server may print its own key."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | more, 0o600)
        os.fchmod(descriptor, 0o600)
        return os.fdopen(descriptor, "r+b")

    def _trim(self, file: IO[bytes]) -> None:
        """Leave out what lies between the first and the last bytes once the file has outgrown them."""
        size = file.seek(0, os.SEEK_END)
        begin, end, left_out = self._gap or (0, 0, 0)
        if size <= (end or self._head) + self._tail + self._slack:
            return
        if self._gap is None:
            begin = end = self._line_end(file, max(0, self._head - PIECE), self._head) or self._head
        start = self._line_end(file, size - self._tail, size - self._tail, first=True)
        file.seek(start)
        last = file.read()
        left_out += start - end
        note = f"[{left_out} bytes of the log are left out here]\n".encode()
        file.seek(begin)
        file.write(note + last)
        file.truncate()
        self._gap = (begin, begin + len(note), left_out)

    @staticmethod
    def _line_end(file: IO[bytes], low: int, high: int, *, first: bool = False) -> int:
        """Where the last line that ends between two places ends; ``first``: where the first one that ends after ``low`` does."""
        file.seek(low)
        data = file.read(PIECE if first else high - low)
        at = data.find(b"\n") if first else data.rfind(b"\n")
        return low + at + 1 if at >= 0 else (low if first else 0)
