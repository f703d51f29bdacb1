"""The run's end of the screen: starts the process that draws, feeds it events, and falls back to plain lines when it is gone.

The screen is a process of its own, so that drawing takes the interpreter's lock from no loop that measures, a terminal's whims stay
out of the run, and somebody is there to give the cursor back when the run is killed. What must not live here: drawing.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections import deque

from audition.run.events import Event
from audition.run.reporter import LinesWriter, Reporter, encoded, write_all

LAST_FRAME_S = 2.0  # longest wait for the last frame
CLOSED = b'{"event": "closed"}\n'  # the last line of a run that ended by itself
_REMEMBERED = 100  # lines that are written again when the screen turns out to be gone
_TERMINAL_BACK = b"\x1b[?25h\x1b[0m\r\n"  # cursor shown, no colours


class ScreenWriter:
    """Feeds the screen's process. ``descriptor``: the terminal. ``lines``: who writes when there is no screen (any more)."""

    def __init__(self, reporter: Reporter, descriptor: int, lines: LinesWriter, *, rehearsal: bool) -> None:
        self._reporter, self._terminal, self._lines, self._rehearsal = reporter, descriptor, lines, rehearsal
        self._child: subprocess.Popen[bytes] | None = None
        self._over = False
        self._told: deque[tuple[float, Event, int]] = deque(maxlen=_REMEMBERED)

    def wants(self, event: Event) -> bool:
        """Everything while there is a screen, then what has a line."""
        return not self._over or self._lines.wants(event)

    def write(self, at: float, event: Event, dropped: int) -> None:
        """Pass an event on."""
        if not self._over:
            if self._lines.wants(event):
                self._told.append((at, event, dropped))
            try:
                self._feed(encoded(self._reporter, at, event, rehearsal=self._rehearsal))
            except OSError:
                self._fall_back()
        elif self._lines.wants(event):
            self._lines.write(at, event, dropped)

    def idle(self) -> None:
        """See whether the screen is still there."""
        if not self._over and self._child is not None and self._child.poll() is not None:
            self._fall_back()

    def close(self) -> None:
        """Let the screen draw its last frame and end."""
        self.idle()
        if self._over or self._child is None:
            return
        try:
            self._feed(CLOSED)
        except OSError:
            self._fall_back()
            return
        self._over = True
        self._end()
        if self._child.returncode != 0:
            self._give_terminal_back()

    def _feed(self, data: bytes) -> None:
        if self._child is None:
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", "audition.run.screen"],
                stdin=subprocess.PIPE,
                stdout=self._terminal,
                stderr=subprocess.DEVNULL,
            )
        assert self._child.stdin is not None
        write_all(self._child.stdin.fileno(), data)

    def _fall_back(self) -> None:
        """The screen is gone, for whatever reason: say again what it may have swallowed, and go on in plain lines."""
        self._over = True
        if self._child is not None:
            self._end()
        self._give_terminal_back()
        while self._told:
            self._lines.write(*self._told.popleft())

    def _end(self) -> None:
        assert self._child is not None
        assert self._child.stdin is not None
        with contextlib.suppress(OSError):
            self._child.stdin.close()
        try:
            self._child.wait(LAST_FRAME_S)
        except subprocess.TimeoutExpired:  # its terminal takes nothing
            self._child.kill()
            self._child.wait()

    def _give_terminal_back(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._terminal, _TERMINAL_BACK)
