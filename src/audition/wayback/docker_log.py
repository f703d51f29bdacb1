"""A container's log: how much it has printed, cheaply, its lines one by one, and its last lines. No judgement of what they mean."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from audition.wayback.docker_cli import Docker, EngineDown
from audition.wayback.files import PIECE, cut_lines
from audition.wayback.server import WaybackError

LOG_S = 30.0
LONGEST_LINE = 8192  # bytes of a line that are kept, its time stamp included
_STAMP = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")


def stamped_lines(cli: Docker, container_id: str, since: str, timeout_s: float) -> Iterator[tuple[str, str]]:
    """Lines that a container has printed since a time stamp ("" for all), as (time stamp, text), read as a stream: a log of any
    size needs little memory. A line without a stamp of its own belongs to the one before.

    Ends after ``timeout_s`` seconds at the latest; the caller goes on from the last stamp. Raises EngineDown when nothing came
    until then or when the engine does not answer, WaybackError without a docker command.
    """
    argv = [*cli.docker, "logs", "--timestamps", *(["--since", since] if since else []), container_id]
    try:
        child = subprocess.Popen(
            argv, env=cli.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )
    except OSError as fault:
        raise WaybackError(f"cannot run {argv[0]}: {fault.strerror}") from fault
    stamp = ""
    try:
        for line in cut_lines(_pieces(child, time.monotonic() + timeout_s), LONGEST_LINE):
            first, _, text = line.partition(b" ")
            if _STAMP.fullmatch(first):
                stamp = first.decode("ascii")
                yield stamp, text.decode("utf-8", "replace")
            elif stamp and line:
                yield stamp, line.decode("utf-8", "replace")
        ended = _ended(child)
    finally:
        with contextlib.suppress(ProcessLookupError):
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)  # its own session: nothing that it started stays
        child.wait()
        if child.stdout:
            child.stdout.close()
    if ended is None and not stamp:
        raise EngineDown(f"Docker engine does not answer: its logs took more than {timeout_s:.0f} s")
    if ended:  # not zero: a container that is gone, or an engine that is down; the short question tells which
        cli.call([*cli.docker, "logs", "--tail", "0", container_id], timeout_s=timeout_s, merge=True)


def _ended(child: subprocess.Popen[bytes]) -> int | None:
    """The exit code of a child whose output has ended, None when it still runs."""
    try:
        return child.wait(0.5)
    except subprocess.TimeoutExpired:
        return None


def _pieces(child: subprocess.Popen[bytes], until: float) -> Iterator[bytes]:
    assert child.stdout is not None
    descriptor = child.stdout.fileno()
    while (left := until - time.monotonic()) > 0:
        if select.select([descriptor], [], [], left)[0]:
            piece = os.read(descriptor, PIECE)
            if not piece:
                return
            yield piece


class ContainerLog:
    """Counts the bytes of whatever container is given, across rotations and new containers."""

    def __init__(self, cli: Docker) -> None:
        self.cli = cli
        self._total = 0
        self._file = ("", 0)
        self._since = ("", "")

    def size(self, container: dict[str, Any] | None) -> int:
        """A number that grows with each byte printed: the log file's size where that can be read, else what the engine has new (of
        very long lines only what is kept of them)."""
        if container is None:
            return self._total
        if self.cli.local() and (path := container.get("LogPath")):
            try:
                now = Path(path).stat().st_size
            except OSError:
                return self._asked(container)
            known = self._file[1] if self._file[0] == path else 0
            self._total += now - known if now >= known else now  # smaller: the file was rotated away
            self._file = (path, now)
            return self._total
        return self._asked(container)

    def tail(self, container: dict[str, Any] | None, lines: int) -> str:
        """The last lines, stdout and stderr as they came."""
        if container is None:
            return "(no log: the container is gone)"
        argv = [*self.cli.docker, "logs", "--tail", str(lines), container["Id"]]
        ran = self.cli.call(argv, timeout_s=LOG_S, merge=True)
        return ran.out if ran.rc == 0 else f"(no log: {ran.said})"

    def _asked(self, container: dict[str, Any]) -> int:
        """Count what came after the last time stamp seen. Stamps are the engine's own, so clocks need not agree."""
        last = newest = self._since[1] if self._since[0] == container["Id"] else ""
        for stamp, text in stamped_lines(self.cli, container["Id"], last, LOG_S):
            if stamp > last:
                self._total += len(text) + 1
                newest = max(newest, stamp)
        self._since = (container["Id"], newest)
        return self._total
