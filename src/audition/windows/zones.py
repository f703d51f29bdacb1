"""Time zones of calendars: IANA names, definitions inside a file (VTIMEZONE), and how a clock time becomes an instant.

The rule for clock times that do not exist or exist twice is that of RFC 5545, section 3.3.5: a time in the gap is read with the
offset from before the gap, and of two equal times the first one is meant. Reading iCalendar text is ``ics``'s.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_FIRST, _LAST = datetime.min, datetime.max  # noqa: DTZ901 - naive on purpose, as all clock times here


class Zone(Protocol):
    """A time zone. Local times are naive datetimes, instants are in UTC."""

    def instant(self, local: datetime) -> datetime:
        """The instant of a clock time, by the rule of RFC 5545, section 3.3.5."""
        ...

    def local(self, instant: datetime) -> datetime:
        """The clock time at an instant."""
        ...


@dataclass(frozen=True)
class IanaZone:
    """A zone of the time zone database. ``fold=0`` of PEP 495 is the rule of RFC 5545 in gaps and overlaps alike."""

    info: ZoneInfo

    def instant(self, local: datetime) -> datetime:
        """See ``Zone``."""
        return local.replace(tzinfo=self.info, fold=0).astimezone(UTC)

    def local(self, instant: datetime) -> datetime:
        """See ``Zone``."""
        return instant.astimezone(self.info).replace(tzinfo=None, fold=0)


UTC_ZONE: Zone = IanaZone(ZoneInfo("UTC"))


def iana(name: str) -> Zone | None:
    """The zone of an IANA name, or None when the database has none."""
    try:
        return IanaZone(ZoneInfo(name))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


@dataclass(frozen=True)
class Onset:
    """A change of offset: ``local`` clock time before the change, offsets before and after it."""

    local: datetime
    before: timedelta
    after: timedelta


class TableZone:
    """A zone that a calendar file defines itself, as a table of changes. Before the first change its ``before`` holds."""

    def __init__(self, onsets: Iterable[Onset]) -> None:
        """ValueError when there is no change at all."""
        rows = sorted({(one.local - one.before, one.after): one.before for one in onsets}.items(), key=lambda row: row[0])
        if not rows:
            raise ValueError("a time zone without any offset")
        self._begins = [_FIRST, *(at for (at, _), _ in rows)]  # naive UTC
        self._offsets = [rows[0][1], *(after for (_, after), _ in rows)]

    def instant(self, local: datetime) -> datetime:
        """See ``Zone``."""
        near = bisect_right(self._begins, local)
        gap: datetime | None = None
        for at in range(max(0, near - 3), min(len(self._begins), near + 3)):
            moment = _minus(local, self._offsets[at])
            end = self._begins[at + 1] if at + 1 < len(self._begins) else _LAST
            if self._begins[at] <= moment < end:
                return moment.replace(tzinfo=UTC)
            if moment >= end:
                gap = moment
        if gap is None:
            raise ValueError(f"{local} has no meaning in a time zone of the file")
        return gap.replace(tzinfo=UTC)

    def local(self, instant: datetime) -> datetime:
        """See ``Zone``."""
        moment = instant.astimezone(UTC).replace(tzinfo=None)
        return moment + self._offsets[bisect_right(self._begins, moment) - 1]


def _minus(local: datetime, offset: timedelta) -> datetime:
    try:
        return local - offset
    except OverflowError:
        return _FIRST if offset > timedelta(0) else _LAST
