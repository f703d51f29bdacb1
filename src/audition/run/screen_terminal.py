"""A terminal that is drawn on: frames written in one go below lines that stay, the cursor hidden and given back.

A terminal that takes nothing for a while gets no new frame until it has taken the last one; nothing here waits for it but the end,
for a moment. What must not live here: what is drawn.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections import deque
from collections.abc import Sequence

from audition.run.reporter import in_foreground

FALLBACK_SIZE = (80, 24)  # columns, rows of a terminal that says it has none
_HISTORY = 200  # lines above the screen that are known again after a resize
_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"  # synchronised output: terminals that know it show a frame in one go, others ignore it
_CLEAR, _REST_OF_LINE, _BELOW = "\x1b[2J\x1b[H", "\x1b[K", "\x1b[J"


class Terminal:
    """One terminal, by a descriptor of its own where it can be opened again, so that ours alone does not block."""

    def __init__(self, descriptor: int) -> None:
        self._shared = descriptor
        self._own = _reopened(descriptor)
        self._waiting = b""
        self._rows: list[str] = []  # of the present frame
        self._size = self.size()
        self._above: deque[str] = deque(maxlen=_HISTORY)
        self._new: deque[str] = deque(maxlen=_HISTORY)
        self._anew = False
        self.gone = False

    def size(self) -> tuple[int, int]:
        """Columns and rows as they are now."""
        try:
            columns, rows = os.get_terminal_size(self._shared)
        except OSError:
            return FALLBACK_SIZE
        return (columns, rows) if columns > 0 and rows > 0 else FALLBACK_SIZE

    def keep(self, line: str) -> None:
        """A line that stays above the frames; written with the next one."""
        self._new.append(line)

    def draw_anew(self) -> None:
        """Somebody else has written here: clear before the next frame."""
        self._anew = True

    def paint(self, rows: Sequence[str]) -> None:
        """Draw a frame in the place of the one before it; skipped while the terminal has not taken that one, or is not ours."""
        if not self._write() or not in_foreground(self._shared):
            return
        size = self.size()
        anew = self._anew or (size != self._size and bool(self._rows))
        text = self._frame(rows, size, anew=anew)
        self._size, self._anew = size, False
        if text:
            self._waiting = text.encode("utf-8", "backslashreplace")
            self._write()

    def finish(self, rows: Sequence[str], limit_s: float) -> None:
        """Put the last rows in the frame's place and give the cursor back; waits for the terminal at most ``limit_s`` seconds."""
        until = time.monotonic() + limit_s
        self._drain(until)
        text = self._frame(rows, self.size(), anew=False, force=True)
        self._waiting += (text + ("\r\n" if rows else "") + _SHOW).encode("utf-8", "backslashreplace")
        self._drain(until)

    def show_cursor(self) -> None:
        """The cursor alone, below the frame; for a process that is about to be stopped."""
        self._waiting += f"\r\n{_SHOW}".encode()
        self._anew = True
        self._write()

    def _frame(self, rows: Sequence[str], size: tuple[int, int], *, anew: bool, force: bool = False) -> str:
        """The codes for a frame, "" when it would change nothing. Rows that are as they were are passed over; the last one, where
        the cursor rests and a key that was pressed leaves its mark, is written again."""
        if not (anew or force or self._new or list(rows) != self._rows):
            return ""
        fresh, known = list(self._new), list[str]()
        self._new.clear()
        self._above.extend(fresh)
        if anew:
            room = max(0, size[1] - len(rows) - 1)
            head, fresh = _CLEAR, (list(self._above)[-room:] if room else [])
        else:
            up = len(self._rows) - 1
            head = "\r" + (f"\x1b[{up}A" if up > 0 else "")
            known = [] if fresh else self._rows[: len(rows) - 1]
        lines = "".join(f"{line}{_REST_OF_LINE}\r\n" for line in fresh)
        known += [""] * (len(rows) - len(known))
        body = "\r\n".join("" if row and row == before else row + _REST_OF_LINE for row, before in zip(rows, known, strict=True))
        self._rows = list(rows)
        return f"{_BEGIN}{_HIDE}{head}{lines}{body}{_BELOW}{_END}"

    def _drain(self, until: float) -> None:
        while not self._write() and not self.gone and time.monotonic() < until:
            with contextlib.suppress(OSError, ValueError):
                select.select([], [self._own], [], min(0.1, max(0.0, until - time.monotonic())))

    def _write(self) -> bool:
        """Write what waits, as far as there is room. True when nothing waits any more."""
        while self._waiting:
            try:
                self._waiting = self._waiting[os.write(self._own, self._waiting) :]
            except BlockingIOError:
                return False
            except OSError:  # hung up
                self.gone, self._waiting = True, b""
        return True


def _reopened(descriptor: int) -> int:
    try:
        return os.open(os.ttyname(descriptor), os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return descriptor
