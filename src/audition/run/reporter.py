"""What a person sees while a run goes on: plain lines on standard error. Results go to standard output, elsewhere.

A terminal that is closed, blocked or gone must never hold a run up: lines go through a queue to a thread of their own, and are
dropped when nobody reads them. Every line is masked.
"""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
import time
from typing import TextIO

from audition.report.mask import mask
from audition.units import format_duration

MOST_WAITING = 2000  # lines; more are dropped, with a count
FLUSH_S = 2.0


class Reporter:
    """Says what happens, with the time since the start. Safe to call from a signal handler; never blocks and never fails.

    ``secrets``: values that are never shown; may be set later.
    """

    def __init__(self, *, rehearsal: bool, quiet: bool = False, stream: TextIO | None = None) -> None:
        self.secrets: list[str] = []
        self._mark = "REHEARSAL " if rehearsal else ""
        self._quiet = quiet
        self._stream = stream or sys.stderr
        self._start = time.monotonic()
        self._lines: queue.SimpleQueue[str | threading.Event] = queue.SimpleQueue()  # its put may be called from a signal handler
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
        minutes, seconds = divmod(int(time.monotonic() - self._start), 60)
        if self._lines.qsize() >= MOST_WAITING:
            self._dropped += 1
            return
        for line in mask(text, self.secrets).splitlines() or [""]:
            self._lines.put(f"{self._mark}{minutes:02d}:{seconds:02d}  {line}\n")

    def _write_all(self) -> None:
        while True:
            item = self._lines.get()
            if isinstance(item, threading.Event):
                item.set()
                continue
            if self._dropped and self._lines.qsize() < MOST_WAITING // 2:
                item, self._dropped = f"{item}{self._mark}({self._dropped} lines were not shown)\n", 0
            with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, gone, or no stream at all
                self._stream.write(item.encode("utf-8", "backslashreplace").decode("utf-8"))
                self._stream.flush()
