"""When the spike may run: the window, less "never during" events, within "only during" events. Pure.

A calendar that could not be read is a ``NoData`` in ``calendars``; whether it then blocks is the spike file's ``unreachable``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from audition.spike.window import CalendarRule, Window
from audition.units import NoData, format_duration
from audition.windows.events import Wanted, occurrences
from audition.windows.ics import BadCalendar, Calendar, Event
from audition.windows.intervals import Interval, intersect, merge, subtract
from audition.windows.recur import FAULTY, OutOfSteps

Calendars = Mapping[str, Calendar | NoData]
"""The calendars of a window by name; NoData with the reason for one that could not be read."""

HORIZON = timedelta(days=31)
"""How far ahead a free slot is looked for, and the longest slot whose end is looked for. Own choice."""


@dataclass(frozen=True)
class Slot:
    """Free time. ``start`` and ``end`` are instants in UTC; ``end`` None: free for as long as HORIZON. ``until``: what ends it."""

    start: datetime
    end: datetime | None
    until: str = ""


@dataclass(frozen=True)
class NoSlot:
    """Why there is no slot now. ``blocking``: what stands in the way, if it is known. ``next_free``: the next long enough slot.

    ``unknown``: nothing is known to stand in the way, but a calendar could not be read.
    """

    reason: str
    blocking: Interval | None = None
    next_free: Slot | None = None
    unknown: bool = False


def busy(calendar: Calendar, rule: CalendarRule, start: datetime, end: datetime) -> list[Interval]:
    """The events that a rule means, between two instants, in order, not cut and not merged.

    Raises BadCalendar when the file has no calendar of the name that ``match`` asks for, or working its events out would take more
    than MOST_STEPS, ZoneNeeded as ``occurrences``.
    """
    wanted_name = rule.match.calendar
    if wanted_name is not None and wanted_name.casefold() not in {name.casefold() for name in calendar.names}:
        names = ", ".join(calendar.names) or "none with a name"
        raise BadCalendar(rule.name, f"it holds no calendar called {wanted_name!r}, but {names}")
    try:
        return occurrences(calendar, _wanted(rule), start, end, wide=rule.rule == "never during")
    except (OutOfSteps, *FAULTY) as error:
        raise BadCalendar(rule.name, f"it cannot be understood: {error}") from error


def free_slots(window: Window, calendars: Calendars, start: datetime, end: datetime) -> list[Interval]:
    """The free time between two instants: after ``opens``, before ``closes``, allowed by every calendar of the window.

    None of it when a calendar is missing from ``calendars``, or NoData, and its rule says that this blocks. Raises ZoneNeeded.
    """
    return _look(window, calendars, start, end).free


def slot_for(window: Window, calendars: Calendars, now: datetime, needed_s: float) -> Slot | NoSlot:
    """The slot that is free at ``now`` and lasts longer than ``needed_s`` seconds, or why there is none. Raises ZoneNeeded."""
    now = now.astimezone(UTC)
    last = now + max(HORIZON, timedelta(seconds=needed_s * 2))
    look = _look(window, calendars, now, last)
    here = next((one for one in look.free if one.start <= now < one.end), None)
    if here is not None and (here.end - now).total_seconds() > needed_s:
        return Slot(now, None if here.end >= last else here.end, look.what_ends(window, here.end))
    later = next((one for one in look.free if one.start > now and one.seconds > needed_s), None)
    following: Slot | None = None
    if later is not None:
        following = Slot(later.start, None if later.end >= last else later.end, look.what_ends(window, later.end))
    reason, blocking = look.why_not(window, now, here, needed_s)
    return NoSlot(reason, blocking, following, unknown=look.reason_is_unknown(window, now))


def lost(slot: Slot, window: Window, calendars: Calendars, needed_s: float) -> NoSlot | None:
    """Whether a slot that was found earlier is lost by what the calendars say now; None when it still holds."""
    again = slot_for(window, calendars, slot.start, needed_s)
    return again if isinstance(again, NoSlot) else None


def show_instant(instant: datetime, window: Window) -> str:
    """An instant as people of the window read it: in its zone, else in that of ``opens`` or ``closes``, else in UTC."""
    given = window.opens or window.closes
    zone = ZoneInfo(window.zone) if window.zone is not None else given.tzinfo if given is not None else UTC
    local = instant.astimezone(zone)
    return f"{local:%Y-%m-%d %H:%M}{f':{local:%S}' if local.second else ''} {local:%z}"


@dataclass(frozen=True)
class _Look:
    """What the calendars say about a stretch of time."""

    free: list[Interval]
    never: list[Interval]
    only: dict[str, list[Interval]]
    unknown: list[str]

    def what_ends(self, window: Window, end: datetime) -> str:
        """What begins or ends at the end of a free interval."""
        if window.closes is not None and end == window.closes:
            return "the window closes"
        for one in self.never:
            if one.start == end:
                return f"{one.why} begins"
        for name, rows in self.only.items():
            for one in rows:
                if one.end == end:
                    return f"{one.why} (calendar {name}) ends"
        return ""

    def reason_is_unknown(self, window: Window, now: datetime) -> bool:
        """Whether the reason is that a calendar could not be read: before the reasons of the window itself it does not matter."""
        too_early = window.opens is not None and now < window.opens
        too_late = window.closes is not None and now >= window.closes
        return bool(self.unknown) and not too_early and not too_late

    def why_not(self, window: Window, now: datetime, here: Interval | None, needed_s: float) -> tuple[str, Interval | None]:
        """The reason why nothing can begin at ``now``, with what blocks."""
        if window.opens is not None and now < window.opens:
            return f"the window opens at {show_instant(window.opens, window)}", None
        if window.closes is not None and now >= window.closes:
            return f"the window closed at {show_instant(window.closes, window)}", None
        if self.unknown:
            return "; ".join(self.unknown), None
        for one in self.never:
            if one.start <= now < one.end:
                return f"{one.why} is on, {_times(one, window)}", one
        for name, rows in self.only.items():
            if not any(one.start <= now < one.end for one in rows):
                following = next((one for one in rows if one.start > now), None)
                said = f"the next one is {following.why}, {_times(following, window)}" if following else "and none follows soon"
                return f"no event of calendar {name}, which allows the spike, is on; {said}", following
        if here is None:
            return "there is no free time now", None
        end, why = show_instant(here.end, window), self.what_ends(window, here.end)
        blocking = next((one for one in self.never if one.start == here.end), None)
        until = f"{why} at {end}" if blocking is None else f"{blocking.why} is on, {_times(blocking, window)}"
        left = format_duration((here.end - now).total_seconds())
        return f"the free slot is too short: {until}; {left} are left, more than {format_duration(needed_s)} are needed", blocking


def _times(one: Interval, window: Window) -> str:
    return f"{show_instant(one.start, window)} to {show_instant(one.end, window)}"


def _look(window: Window, calendars: Calendars, start: datetime, end: datetime) -> _Look:
    start, end = start.astimezone(UTC), end.astimezone(UTC)
    begin = max(start, window.opens.astimezone(UTC)) if window.opens is not None else start
    until = min(end, window.closes.astimezone(UTC)) if window.closes is not None else end
    look = _Look([Interval(begin, until)] if begin < until else [], [], {}, [])
    for rule in window.calendars:
        calendar = calendars.get(rule.name, NoData("it was not read"))
        try:
            rows = calendar if isinstance(calendar, NoData) else busy(calendar, rule, start, end)
        except BadCalendar as bad:
            rows = NoData(bad.reason)
        if isinstance(rows, NoData):
            if rule.unreachable == "block":
                look.unknown.append(f"calendar {rule.name} is not known, and unknown is not free: {rows.reason}")
        elif rule.rule == "never during":
            named = [replace(one, why=f"{one.why} (calendar {rule.name})") for one in rows]
            look.never.extend(named)
            look = replace(look, free=subtract(look.free, named))
        else:
            look.only[rule.name] = merge(rows)
            look = replace(look, free=intersect(look.free, rows))
    look.never.sort()
    return replace(look, free=[]) if look.unknown else look


def _wanted(rule: CalendarRule) -> Wanted:
    """Whether an event fulfils a rule's ``match``; an event whose title cannot be read is taken to fulfil it where that blocks."""
    pattern = None if rule.match.summary is None else re.compile(rule.match.summary, re.IGNORECASE)
    category = None if rule.match.category is None else rule.match.category.casefold()
    name = None if rule.match.calendar is None else rule.match.calendar.casefold()

    def wanted(event: Event) -> bool:
        if name is not None and (event.calendar or "").casefold() != name:
            return False
        if event.transparent and rule.transparent == "skip":
            return False
        if event.untitled and (pattern or category):
            return rule.rule == "never during"
        if pattern is not None and not pattern.search(event.summary):
            return False
        return category is None or category in {word.casefold() for word in event.categories}

    return wanted
