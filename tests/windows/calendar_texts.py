"""iCalendar texts for tests: short event descriptions in, a whole calendar out."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from audition.spike.window import CalendarRule
from audition.windows.ics import Calendar, parse_calendar
from audition.windows.intervals import Interval

DATA = Path(__file__).parent / "data"


def event(*lines: str, uid: str = "one@test", summary: str = "Exam") -> str:
    """A VEVENT with the given content lines."""
    return "\r\n".join(["BEGIN:VEVENT", f"UID:{uid}", "DTSTAMP:20260101T000000Z", f"SUMMARY:{summary}", *lines, "END:VEVENT"])


def calendar_text(*parts: str, name: str = "") -> str:
    """A VCALENDAR around events and time zones."""
    head = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//test//EN", *([f"X-WR-CALNAME:{name}"] if name else [])]
    return "\r\n".join([*head, *parts, "END:VCALENDAR", ""])


def calendar(*parts: str, zone: str | None = "Europe/Berlin", name: str = "") -> Calendar:
    return parse_calendar(calendar_text(*parts, name=name), "classes", zone)


def rule(kind: str = "never during", **keys: Any) -> CalendarRule:
    return CalendarRule.model_validate({"name": "classes", "file": "classes.ics", "rule": kind, **keys})


NEVER, ONLY = rule(), rule("only during")


def utc(text: str) -> datetime:
    """An instant from ``2026-03-29 01:30``, which is in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def shown(intervals: list[Interval]) -> list[str]:
    """Intervals in UTC, short: ``03-29 01:00/02:00``, with the date of the end when it is another one."""
    out = []
    for one in intervals:
        start, end = one.start.astimezone(UTC), one.end.astimezone(UTC)
        out.append(f"{start:%m-%d %H:%M}/{end:%H:%M}" if start.date() == end.date() else f"{start:%m-%d %H:%M}/{end:%m-%d %H:%M}")
    return out
