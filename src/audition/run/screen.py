"""The screen's process: reads events as JSON lines from standard input and draws them on the terminal that is standard output.

``python -m audition.run.screen``; started by ``screen_link``. It ends with its input, whatever became of the run, and gives the
terminal back. Signals that are meant for the run are ignored here. What must not live here: what is known (``screen_state``), and
how it looks (``screen_view``).
"""

from __future__ import annotations

import codecs
import contextlib
import io
import json
import locale
import os
import select
import signal
import sys
import time
from types import FrameType
from typing import Any

from rich.console import Console
from rich.text import Text

from audition.run.events import from_data
from audition.run.reporter import printable
from audition.run.screen_figures import clock
from audition.run.screen_marks import ASCII, UNICODE, Marks
from audition.run.screen_state import ScreenState
from audition.run.screen_terminal import Terminal
from audition.run.screen_view import View, rows, summary_rows

FRAME_S = 0.25
LAST_FRAME_S = 1.5
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTTOU, signal.SIGPIPE)


class Screen:
    """What was told so far, and the terminal that shows it."""

    def __init__(self, terminal: Terminal, marks: Marks) -> None:
        self.state = ScreenState()
        self._terminal, self._marks = terminal, marks
        self._start: float | None = None  # of the run, on this clock
        self._console: Console | None = None

    def take(self, line: bytes) -> None:
        """One event. A line that is none is passed over."""
        try:
            data = _clean(json.loads(line))
            if data["event"] == "closed":
                self.state.closed = True
                return
            event, at = from_data(data), float(data["at"])
        except (ValueError, KeyError, TypeError, AttributeError):
            return
        if event is None:
            return
        begun = time.monotonic() - at
        self._start = begun if self._start is None else min(begun, self._start)
        self.state.rehearsal = self.state.rehearsal or data.get("rehearsal") is True
        for text in self.state.take(event, at):
            self._keep(at, text)

    def paint(self) -> None:
        """A frame; nothing before the plan is known, but for the lines that stay."""
        view = self._view()
        drawn = rows(self.state, view) if self.state.plan is not None else []
        self._terminal.paint([self._ansi(row, view) for row in drawn])

    def finish(self) -> None:
        """The summary in place of the last frame."""
        view = self._view()
        drawn = summary_rows(self.state, view)
        self._terminal.finish([self._ansi(row, view) for row in drawn], LAST_FRAME_S)

    def _view(self) -> View:
        columns, lines = self._terminal.size()
        now = 0.0 if self._start is None else time.monotonic() - self._start
        if self.state.verdict is not None:
            now = self.state.at
        return View(max(1, columns - 1), max(1, lines - 1), now, time.time(), self._marks)

    def _keep(self, at: float, text: str) -> None:
        mark = "REHEARSAL " if self.state.rehearsal else ""
        style = "yellow" if text.startswith("warning") else ""
        row = Text.assemble((f"{mark}{clock(at)}  ", "dim"), (text, style))
        self._terminal.keep(self._ansi(row, self._view(), whole=True))

    def _ansi(self, row: Text, view: View, *, whole: bool = False) -> str:
        console = self._console
        if console is None or console.width != view.width:
            console = self._console = Console(
                file=io.StringIO(), width=view.width, force_terminal=True, highlight=False, markup=False, emoji=False
            )
        with console.capture() as captured:
            console.print(row, end="", soft_wrap=whole, no_wrap=True, crop=not whole)
        return captured.get()


def _clean(value: Any) -> Any:
    """The same with control characters in texts spelled out: what a server logs moves no cursor here."""
    if isinstance(value, str):
        return "\n".join(printable(line) for line in value.splitlines())
    if isinstance(value, list):
        return [_clean(part) for part in value]
    if isinstance(value, dict):
        return {key: _clean(part) for key, part in value.items()}
    return value


def marks_for_terminal() -> Marks:
    """Plain signs where the locale names another encoding than UTF-8, and on the kernel's own console."""
    if os.environ.get("TERM") == "linux":
        return ASCII
    named = next((value for name in ("LC_ALL", "LC_CTYPE", "LANG") if (value := os.environ.get(name))), "")
    if "." not in named:
        return UNICODE
    with contextlib.suppress(LookupError):
        return UNICODE if codecs.lookup(named.partition(".")[2].partition("@")[0]).name == "utf-8" else ASCII
    return UNICODE if locale.getpreferredencoding(False).lower() == "utf-8" else ASCII


def run(source: int, terminal: Terminal) -> None:
    """Draw until the input ends."""
    screen = Screen(terminal, marks_for_terminal())
    rest, last = b"", 0.0
    try:
        while True:
            wait = max(0.0, last + FRAME_S - time.monotonic())
            if select.select([source], [], [], wait)[0]:
                data = os.read(source, 2**18)
                if not data:
                    break
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    screen.take(line)
            if time.monotonic() - last >= FRAME_S:
                last = time.monotonic()
                screen.paint()
    except BaseException:
        terminal.finish([], LAST_FRAME_S)
        raise
    screen.finish()


def main() -> int:
    """The whole process. Returns 1 when it could not draw; the run then goes on with plain lines."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    terminal = Terminal(sys.__stdout__.fileno() if sys.__stdout__ is not None else 1)

    def stopped(number: int, _frame: FrameType | None) -> None:
        terminal.show_cursor()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def goes_on(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGTSTP, stopped)
        terminal.draw_anew()

    signal.signal(signal.SIGTSTP, stopped)
    signal.signal(signal.SIGCONT, goes_on)
    try:
        run(0, terminal)
    except Exception:  # noqa: BLE001 - the run says it in plain lines then
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
