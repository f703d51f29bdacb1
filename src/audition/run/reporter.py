"""What a person sees while a run goes on: plain lines on standard error. Results go to standard output, elsewhere.

A terminal that is closed, blocked or gone must never hold a run up: lines go through a queue to a thread of their own, and are
dropped when nobody reads them. Every line is masked.
"""

from __future__ import annotations

import io
import os
import queue
import re
import sys
import threading
import time
from typing import TextIO

from audition.report.mask import mask
from audition.units import format_duration

MOST_WAITING = 2000  # texts; more are dropped, with a count
LONGEST_TEXT = 65536  # characters of one text
FLUSH_S = 2.0
_NO_ROOM_S = 0.05
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")


class Reporter:
    """Says what happens, with the time since the start. Safe to call from a signal handler; never blocks and never fails.

    ``secrets``: values that are never shown; may be set later.
    """

    def __init__(self, *, rehearsal: bool, quiet: bool = False, stream: TextIO | None = None) -> None:
        self.secrets: list[str] = []
        self._mark = "REHEARSAL " if rehearsal else ""
        self._quiet = quiet
        self._stream: TextIO | None = stream or sys.stderr  # None: the process was started without a standard error
        self._start = time.monotonic()
        self._lines: queue.SimpleQueue[tuple[float, str] | threading.Event] = queue.SimpleQueue()  # put is safe in signal handlers
        self._dropped = 0
        threading.Thread(target=self._write_all, name="reporter", daemon=True).start()

    def say(self, text: str) -> None:
        """One line of progress."""
        if not self._quiet:
            self._put(text)

    def warn(self, text: str) -> None:
        """One line that is shown even when quiet."""
        self._put(f"warning: {text}")

    def done(self, text: str, seconds: float) -> None:
        """A step that ended, with its time."""
        if seconds >= 0.5:
            text = f"{text} ({format_duration(seconds)})"
        self.say(text)

    def flush(self, limit_s: float = FLUSH_S) -> None:
        """Wait until what was said is written, at most ``limit_s`` seconds."""
        written = threading.Event()
        self._lines.put(written)
        written.wait(limit_s)

    def _put(self, text: str) -> None:
        if self._lines.qsize() >= MOST_WAITING:
            self._dropped += 1
        else:
            self._lines.put((time.monotonic() - self._start, text[:LONGEST_TEXT]))

    def _write_all(self) -> None:
        while True:
            item = self._lines.get()
            if isinstance(item, threading.Event):
                item.set()
                continue
            try:
                self._write(self._shown(*item))
            except Exception:  # noqa: BLE001 - closed, gone, no stream at all: a run never fails because nobody can look on
                continue

    def _shown(self, seconds: float, text: str) -> bytes:
        """The lines of a text as they are shown. Odd bytes and control characters are spelled out: no cursor moves."""
        minutes, whole = divmod(int(seconds), 60)
        head = f"{self._mark}{minutes:02d}:{whole:02d}  "
        lines = [head + _printable(line) for line in mask(text, self.secrets).splitlines() or [""]]
        if self._dropped and self._lines.qsize() < MOST_WAITING // 2:
            dropped, self._dropped = self._dropped, 0
            lines.append(f"{head}({dropped} lines were not shown)")
        return "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")

    def _write(self, data: bytes) -> None:
        """Past the stream's own buffer where there is a file behind it: a thread that is stuck in a blocked pipe must not hold the
        buffer's lock, or the process could not even end."""
        if self._stream is None:
            return
        try:
            descriptor = self._stream.fileno()
        except io.UnsupportedOperation:
            self._stream.write(data.decode("utf-8"))
            self._stream.flush()
            return
        while data:
            try:
                data = data[os.write(descriptor, data) :]
            except BlockingIOError:  # a pipe that does not block and has no room now; the queue's limit drops what is too much
                time.sleep(_NO_ROOM_S)


def _printable(line: str) -> str:
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", line)
