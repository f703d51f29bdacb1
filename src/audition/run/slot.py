"""The slot of a run: found in the calendars before anything is touched, waited for with ``--at``, handed on as the window's end.

When a slot is free is decided in ``audition.windows``; calendars are fetched by ``calendar_source``. Nothing is touched here.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from types import FrameType
from typing import TextIO
from zoneinfo import ZoneInfo

from audition.check.timing import restore_s
from audition.errors import BadInput, Refused
from audition.run.calendar_source import read_calendars
from audition.spike.parse import LoadedSpike
from audition.spike.values import in_range
from audition.units import format_duration
from audition.windows.slots import NoSlot, Slot, show_instant, slot_for

RECHECK_S = 600.0
"""While waiting, calendars are looked at this often. Own choice: soon enough to go home early, seldom enough for any server."""

_STEP_S = 2.0  # wall clock against monotonic clock: beyond this the clock was set
_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?")
_MILESTONES = (5, 10, 30, 60, 300, 600, 1800)


@dataclass(frozen=True)
class Clock:
    """What waiting needs: the wall clock in Unix seconds, a clock that is never set, and sleep. Tests bring their own."""

    wall: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def find_slot(loaded: LoadedSpike, at: datetime, needed_s: float | None = None) -> Slot | NoSlot:
    """The slot that is free at an instant, by calendars fetched now. ``needed_s``: default, what bringing production back may take.

    Raises BadInput when a calendar has times without a zone and the spike file names none.
    """
    window = loaded.spike.window
    calendars = read_calendars(window, loaded.folder, os.environ)
    return slot_for(window, calendars, at, restore_s(loaded.spike) if needed_s is None else needed_s)


def require_slot(loaded: LoadedSpike, now: float, needed_s: float | None = None) -> Slot:
    """The slot that is free now (Unix seconds). Raises Refused when there is none, or none long enough to bring production back."""
    found = find_slot(loaded, datetime.fromtimestamp(now, UTC), needed_s)
    if isinstance(found, NoSlot):
        raise refused_slot(loaded, found)
    return found


def in_slot(loaded: LoadedSpike, slot: Slot) -> LoadedSpike:
    """The spike whose window closes when the slot ends: all deadlines follow from that."""
    if slot.end is None:
        return loaded
    window = loaded.spike.window
    closes = slot.end if window.closes is None or slot.end < window.closes else window.closes
    spike = loaded.spike.model_copy(update={"window": window.model_copy(update={"closes": closes})})
    return replace(loaded, spike=spike)


def say_slot(loaded: LoadedSpike, slot: Slot) -> str:
    """The slot as a line of progress, or "" when nothing limits it."""
    if slot.end is None:
        return ""
    return f"production must be back by {show_instant(slot.end, loaded.spike.window)}: {slot.until or 'the free slot ends'}"


def parse_at(text: str, zone: str | None, now: float) -> datetime:
    """The instant that ``--at`` names, in UTC: ``22:00`` is the next one on the clocks of ``zone`` (None: this machine's), anything
    else an ISO 8601 instant with its offset. ``now`` in Unix seconds.

    A clock time that does not exist that day is taken as if the clock had not been set, one that exists twice is the first (as in
    RFC 5545, section 3.3.5). Raises BadInput, also for an instant that has passed.
    """
    clock = _CLOCK.fullmatch(text.strip())
    if clock is not None:
        hour, minute, second = int(clock[1]), int(clock[2]), int(clock[3] or 0)
        info = ZoneInfo(zone) if zone is not None else None
        today = datetime.fromtimestamp(now, UTC).astimezone(info).date()
        for days in (0, 1, 2):
            day = today + timedelta(days=days)
            local = datetime(day.year, day.month, day.day, hour, minute, second)  # noqa: DTZ001 - a clock time
            instant = (local.replace(tzinfo=info) if info is not None else local).astimezone(UTC)
            if instant.timestamp() > now:
                return instant
    try:
        instant = datetime.fromisoformat(text.strip())
    except ValueError as error:
        hint = "write a time such as 22:00, or an instant such as 2026-12-01T22:00:00+01:00"
        raise BadInput(f"--at {text!r} is no time", next_step=hint) from error
    if instant.tzinfo is None:
        raise BadInput(
            f"--at {text!r} needs a time zone", next_step=f"for example {text.strip()}+01:00, or a time alone such as 22:00"
        )
    if not in_range(instant):
        raise BadInput(f"--at {text!r} is outside of the years 2000 to 2199", next_step="write an instant of the agreed slot")
    if instant.timestamp() <= now:
        raise BadInput(f"--at {text!r} has passed", next_step="leave --at out to start now")
    return instant.astimezone(UTC)


def wait_for(
    at: datetime,
    look: Callable[[datetime], Slot | NoSlot],
    *,
    loaded: LoadedSpike,
    tell: Callable[[float], None] = lambda left_s: None,
    warn: Callable[[str], None] = lambda text: None,
    clock: Clock = Clock(),
) -> Slot:
    """Wait for an instant whose slot is free now and still is then; the slot as it is when the wait is over.

    ``look`` answers whether the slot at an instant is free; it is asked at once, every RECHECK_S, and at the end for that moment.
    ``tell`` hears the seconds left about once a second. The wall clock is read again each second, so that a clock that is set, or a
    machine that slept, changes the wait and not the instant. A calendar that cannot be read meanwhile is only warned of, at the end
    it counts. Raises Refused, with nothing touched, when the slot is lost; Ctrl-C goes through as KeyboardInterrupt.
    """
    found = look(at)
    if isinstance(found, NoSlot):
        raise refused_slot(loaded, found, f"no slot is free at {show_instant(at, loaded.spike.window)}")
    asked, offset = clock.steady(), clock.wall() - clock.steady()
    while (left := at.timestamp() - clock.wall()) > 0:
        tell(left)
        clock.sleep(min(1.0, left))
        moved, offset = clock.wall() - clock.steady() - offset, clock.wall() - clock.steady()
        if abs(moved) > _STEP_S:
            warn(f"the clock was set by {moved:+.0f} s, or the machine slept; still waiting for the same instant")
        if clock.steady() - asked >= RECHECK_S:
            asked = clock.steady()
            _still_free(look(at), loaded, at, warn)
    found = look(datetime.fromtimestamp(clock.wall(), UTC))
    if isinstance(found, NoSlot):
        raise refused_slot(loaded, found, "the slot was lost while waiting for it")
    return found


def _still_free(found: Slot | NoSlot, loaded: LoadedSpike, at: datetime, warn: Callable[[str], None]) -> None:
    if isinstance(found, Slot):
        return
    if not found.unknown:
        raise refused_slot(loaded, found, "the slot was lost while waiting for it")
    warn(f"{found.reason}; it is asked again, and must be known at {show_instant(at, loaded.spike.window)}")


def refused_slot(loaded: LoadedSpike, found: NoSlot, what: str = "no slot is free now", *, verb: str = "run") -> Refused:
    """Why there is no slot, as the refusal of a verb that takes ``--at``, with the next free slot to type."""
    following, window = found.next_free, loaded.spike.window
    needed = f"bringing production back may take {format_duration(restore_s(loaded.spike))} (slowest cold start x 1.5 + 60 s)"
    if following is None:
        said, hint = "", "agree another slot" if not found.unknown else "put the calendar right, or decide: `unreachable: ignore`"
    else:
        end = "" if following.end is None else f" to {show_instant(following.end, window)}"
        said = f"; the next free slot: {show_instant(following.start, window)}{end}"
        hint = f"audition {verb} {loaded.path} --at {following.start.isoformat(timespec='seconds')}"
    return Refused(f"{what}: {found.reason}", seen=f"{needed}{said}", production="untouched", next_step=hint)


class Countdown:
    """Shows the seconds left: one line that counts on a terminal, else a line now and then. ``stream`` None: nowhere."""

    def __init__(self, until: str, stream: TextIO | None = None) -> None:
        self._until, self._stream, self._last = until, stream or sys.stderr, float("inf")
        try:
            self._terminal = self._stream is not None and self._stream.isatty()
        except ValueError:
            self._terminal = False

    def __call__(self, left_s: float) -> None:
        """So many seconds are left."""
        if self._terminal:
            self._write(f"\r\x1b[Kwaiting for {self._until}: {_hours(left_s)} left; Ctrl-C ends it, nothing is touched")
        elif self._last == float("inf") or self._milestone(left_s) < self._milestone(self._last):
            self._write(f"waiting for {self._until}: {_hours(left_s)} left\n")
        self._last = left_s

    def warn(self, text: str) -> None:
        """A line above the count."""
        self.end()
        self._write(f"warning: {text}\n")

    def end(self) -> None:
        """Leave the line."""
        if self._terminal and self._last != float("inf"):
            self._write("\r\x1b[K")

    @staticmethod
    def _milestone(left_s: float) -> float:
        """The step of the count that this many seconds belong to."""
        return next((at for at in _MILESTONES if left_s <= at), 3600 * (left_s // 3600 + 1))

    def _write(self, text: str) -> None:
        try:
            if self._stream is not None:
                self._stream.write(text)
                self._stream.flush()
        except (OSError, ValueError):  # nobody looks on any more
            self._stream = None


def _hours(seconds: float) -> str:
    whole = max(0, round(seconds))
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def wait_at(loaded: LoadedSpike, text: str, *, quiet: bool, stream: TextIO | None = None) -> Slot:
    """What ``--at TEXT`` does before a run: wait with a countdown on ``stream`` (None: standard error), warnings there, too.

    Main thread only: SIGTERM and SIGHUP end the wait as Ctrl-C does. Raises as ``parse_at`` and ``wait_for``.
    """
    at = parse_at(text, loaded.spike.window.zone, time.time())
    countdown = Countdown(show_instant(at, loaded.spike.window), stream)
    before = {number: signal.signal(number, _give_up) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        return wait_for(
            at,
            lambda instant: find_slot(loaded, instant),
            loaded=loaded,
            tell=(lambda left_s: None) if quiet else countdown,
            warn=countdown.warn,
        )
    finally:
        countdown.end()
        for number, handler in before.items():
            signal.signal(number, handler)


def _give_up(_number: int, _frame: FrameType | None) -> None:
    """SIGTERM and SIGHUP end a wait as Ctrl-C does: nothing is touched yet."""
    raise KeyboardInterrupt
