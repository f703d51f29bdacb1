"""What a person sees while a run goes on: a screen or plain lines on standard error, and events as JSON lines where they are asked
for. Results go to standard output, elsewhere.

The one thing that the conductor and what it acts on talk to. A terminal that is closed, blocked or gone must never hold a run up:
what is told goes through a queue to a thread of its own for each place where it is shown, and is dropped when nobody reads it.
Everything is masked. What an event looks like lives in ``events``, the screen in a process of its own (``screen``).
"""

from __future__ import annotations

import io
import json
import os
import queue
import re
import sys
import threading
import time
from typing import Any, Protocol, TextIO

from audition.report.mask import mask
from audition.run.events import (
    LATEST_ONLY,
    Event,
    ProductionChanged,
    RunPlanned,
    Said,
    Warned,
    plain,
    production_after,
    timed,
    to_data,
)

MOST_WAITING = 2000  # events; more are dropped, with a count
LONGEST_TEXT = 65536  # characters of one text
FLUSH_S = 2.0
CLOSE_S = 4.0
IDLE_S = 1.0
_NO_ROOM_S = 0.05
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")


class Writer(Protocol):
    """One place where events are shown. All but ``wants`` is called by one thread alone, and may fail or block."""

    def wants(self, event: Event) -> bool:
        """Whether this event is shown here at all."""

    def write(self, at: float, event: Event, dropped: int) -> None:
        """Show an event that happened ``at`` seconds after the start, before which so many were dropped."""

    def idle(self) -> None:
        """Nothing was told for a while."""

    def close(self) -> None:
        """Nothing more will come."""


class Reporter:
    """Says what happens, with the time since the start. Safe to call from a signal handler; never blocks and never fails.

    ``secrets``: values that are never shown; may be set later. ``screen``: draw a screen where ``stream`` is a terminal that can
    show one. ``events``: an open file descriptor for JSON lines, one an event; ``stream`` stays silent when it is the same one.
    """

    def __init__(
        self, *, rehearsal: bool, quiet: bool = False, stream: TextIO | None = None, screen: bool = False, events: int | None = None
    ) -> None:  # fmt: skip
        self.secrets: list[str] = []
        self._production = ""
        self._start = time.monotonic()
        stream = stream or sys.stderr  # None: the process was started without a standard error
        lines = LinesWriter(self, stream, rehearsal=rehearsal, quiet=quiet)
        writers: list[Writer] = []
        if events is not None:
            writers.append(JsonWriter(self, events, rehearsal=rehearsal))
        if screen and not quiet and can_draw(stream):
            from audition.run.screen_link import ScreenWriter  # noqa: PLC0415 - only where there is a terminal

            assert stream is not None
            writers.append(ScreenWriter(self, stream.fileno(), lines, rehearsal=rehearsal))
        elif events is None or events != _descriptor(stream):
            writers.append(lines)
        self._outlets = [_Outlet(writer) for writer in writers]

    def also(self, writer: Writer) -> None:
        """Show what happens from now on there, too."""
        self._outlets.append(_Outlet(writer))

    def tell(self, event: Event) -> None:
        """Something happened."""
        at = time.monotonic() - self._start
        for outlet in self._outlets:
            outlet.put(at, event)
        if isinstance(event, RunPlanned):
            self._production = event.production
        state = production_after(event, self._production)
        if state is not None:
            self.tell(ProductionChanged(state, self._production))

    def say(self, text: str) -> None:
        """One line of progress."""
        self.tell(Said(text[:LONGEST_TEXT]))

    def warn(self, text: str) -> None:
        """One line that is shown even when quiet."""
        self.tell(Warned(text[:LONGEST_TEXT]))

    def done(self, text: str, seconds: float) -> None:
        """A step that ended, with its time."""
        self.say(timed(text, seconds))

    def flush(self, limit_s: float = FLUSH_S) -> None:
        """Wait until what was said is written, at most ``limit_s`` seconds."""
        _wait([outlet.mark() for outlet in self._outlets], limit_s)

    def close(self, limit_s: float = CLOSE_S) -> None:
        """The run is over: wait until everything is shown and the screen has given the terminal back, at most ``limit_s`` seconds.
        What is said afterwards still comes as plain lines."""
        _wait([outlet.close() for outlet in self._outlets], limit_s)

    def shown(self, text: str) -> str:
        """A text as it may be shown: without secrets."""
        return mask(text[:LONGEST_TEXT], self.secrets)


def can_draw(stream: TextIO | None) -> bool:
    """Whether a screen can be drawn there: a terminal that moves its cursor, and that is ours and not a shell's meanwhile."""
    try:
        if stream is None or not os.isatty(stream.fileno()) or os.environ.get("TERM", "") in ("", "dumb", "unknown"):
            return False
        return in_foreground(stream.fileno())
    except (OSError, ValueError):
        return False


def in_foreground(terminal: int) -> bool:
    """Whether this process may draw: a job in the background would write over the shell. A terminal of another session is ours."""
    try:
        return os.tcgetpgrp(terminal) in (os.getpgrp(), 0)
    except OSError:
        return True


def _descriptor(stream: TextIO | None) -> int | None:
    try:
        return stream.fileno() if stream is not None else None
    except (OSError, ValueError):
        return None


def _wait(marks: list[threading.Event], limit_s: float) -> None:
    until = time.monotonic() + limit_s
    for mark in marks:
        mark.wait(max(0.0, until - time.monotonic()))


class _Outlet:
    """A queue and a thread for one writer. ``put`` is safe in signal handlers, never blocks and never fails."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._items: queue.SimpleQueue[tuple[float, Event] | type[Any] | tuple[threading.Event, bool]] = queue.SimpleQueue()
        self._latest: dict[type[Any], tuple[float, Event]] = {}
        self._announced: set[type[Any]] = set()
        self._dropped = 0
        threading.Thread(target=self._run, name="reporter", daemon=True).start()

    def put(self, at: float, event: Event) -> None:
        """Have an event shown. Of kinds in LATEST_ONLY the latest one alone waits."""
        if not self._writer.wants(event):
            return
        kind = type(event)
        if kind in LATEST_ONLY:
            self._latest[kind] = (at, event)
            if kind not in self._announced:
                self._announced.add(kind)
                self._items.put(kind)
        elif self._items.qsize() >= MOST_WAITING:
            self._dropped += 1
        else:
            self._items.put((at, event))

    def mark(self) -> threading.Event:
        """Set when everything before it is written."""
        written = threading.Event()
        self._items.put((written, False))
        return written

    def close(self) -> threading.Event:
        """The same, and the writer is closed by then."""
        closed = threading.Event()
        self._items.put((closed, True))
        return closed

    def _run(self) -> None:
        while True:
            try:
                self._one()
            except Exception:  # noqa: BLE001 - closed, gone, no stream at all: a run never fails because nobody can look on
                continue

    def _one(self) -> None:
        try:
            item = self._items.get(timeout=IDLE_S)
        except queue.Empty:
            self._writer.idle()
            return
        if isinstance(item, type):
            self._announced.discard(item)
            newest = self._latest.pop(item, None)
            if newest is not None:
                self._writer.write(*newest, 0)
        elif isinstance(item[0], threading.Event):
            try:
                if item[1]:
                    self._writer.close()
            finally:
                item[0].set()
        else:
            dropped = 0
            if self._dropped and self._items.qsize() < MOST_WAITING // 2:
                dropped, self._dropped = self._dropped, 0
            self._writer.write(item[0], item[1], dropped)


class LinesWriter:
    """Plain lines. ``stream`` None: they go nowhere."""

    def __init__(self, reporter: Reporter, stream: TextIO | None, *, rehearsal: bool, quiet: bool) -> None:
        self._reporter, self._stream, self._quiet = reporter, stream, quiet
        self._mark = "REHEARSAL " if rehearsal else ""

    def wants(self, event: Event) -> bool:
        """Events that have a line; when quiet, only the loud ones."""
        line = plain(event)
        return line is not None and (line.loud or not self._quiet)

    def write(self, at: float, event: Event, dropped: int) -> None:
        """Write the lines of an event."""
        line = plain(event)
        if line is not None:
            self._write(self._shown(at, line.text, dropped))

    def idle(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing is held."""

    def _shown(self, seconds: float, text: str, dropped: int) -> bytes:
        """The lines of a text as they are shown. Odd bytes and control characters are spelled out: no cursor moves."""
        minutes, whole = divmod(int(seconds), 60)
        head = f"{self._mark}{minutes:02d}:{whole:02d}  "
        lines = [head + printable(line) for line in self._reporter.shown(text).splitlines() or [""]]
        if dropped:
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
        write_all(descriptor, data)


class JsonWriter:
    """JSON lines, one an event, for programs that follow a run. The form is ``events.to_data``."""

    def __init__(self, reporter: Reporter, descriptor: int, *, rehearsal: bool) -> None:
        self._reporter, self._descriptor, self._rehearsal = reporter, descriptor, rehearsal

    def wants(self, _event: Event) -> bool:
        """All of them."""
        return True

    def write(self, at: float, event: Event, dropped: int) -> None:
        """Write one line; one more before it where events were dropped."""
        if dropped:
            write_all(
                self._descriptor, _line({"event": "dropped", "at": round(at, 3), "rehearsal": self._rehearsal, "count": dropped})
            )
        write_all(self._descriptor, encoded(self._reporter, at, event, rehearsal=self._rehearsal))

    def idle(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """The descriptor is its opener's."""


def encoded(reporter: Reporter, at: float, event: Event, *, rehearsal: bool) -> bytes:
    """An event as one JSON line, masked."""
    return _line({key: _masked(value, reporter) for key, value in to_data(event, at, rehearsal=rehearsal).items()})


def _line(data: dict[str, Any]) -> bytes:
    return json.dumps(data, ensure_ascii=True).encode() + b"\n"


def _masked(value: Any, reporter: Reporter) -> Any:
    if isinstance(value, str):
        return reporter.shown(value)
    if isinstance(value, list):
        return [_masked(part, reporter) for part in value]
    if isinstance(value, dict):
        return {key: _masked(part, reporter) for key, part in value.items()}
    return value


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it, however long that takes. Raises OSError."""
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:  # a pipe that does not block and has no room now; the queue's limit drops what is too much
            time.sleep(_NO_ROOM_S)


def printable(line: str) -> str:
    """A line with control characters spelled out."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", line)
