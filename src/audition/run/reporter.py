"""What a person sees while a run goes on: plain lines on standard error. Results go to standard output, elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from audition.units import format_duration


class Reporter:
    """Says what happens, with the time since the start. Never fails: a closed terminal does not stop a restore."""

    def __init__(self, *, rehearsal: bool, quiet: bool = False, stream: TextIO | None = None) -> None:
        self._mark = "REHEARSAL " if rehearsal else ""
        self._quiet = quiet
        self._stream = stream or sys.stderr
        self._start = time.monotonic()

    def say(self, text: str) -> None:
        """One line of progress."""
        if not self._quiet:
            self._write(text)

    def warn(self, text: str) -> None:
        """One line that is shown even when quiet."""
        self._write(f"warning: {text}")

    def done(self, text: str, seconds: float) -> None:
        """A step that ended, with its time."""
        if seconds >= 0.5:
            text = f"{text} ({format_duration(seconds)})"
        self.say(text)

    def _write(self, text: str) -> None:
        minutes, seconds = divmod(int(time.monotonic() - self._start), 60)
        try:
            for line in text.splitlines() or [""]:
                self._stream.write(f"{self._mark}{minutes:02d}:{seconds:02d}  {line}\n")
            self._stream.flush()
        except (OSError, ValueError):
            self._quiet = True
