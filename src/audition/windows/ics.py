"""iCalendar text (RFC 5545) as events with clock times and zones. When they happen is ``events``' question.

icalendar splits the text into lines, parameters and values. Its own model of components is not used: it drops what it cannot read,
and its table of time zones is shared between files. Here, an event that cannot be read says so in ``problem``; a text that is no
calendar, or ends too early, is a ``BadCalendar``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta

from icalendar import vDDDTypes
from icalendar.parser import Contentline, Contentlines
from icalendar.timezone.windows_to_olson import WINDOWS_TO_OLSON

from audition.errors import BadInput
from audition.windows.recur import FAULTY, YEARS, Budget, OutOfSteps, Rule, expand, read_rule
from audition.windows.zones import UTC_ZONE, Onset, TableZone, Zone, iana

LONGEST_TEXT = 16 * 1024 * 1024  # characters
MOST_EVENTS = 20_000
_LAST_ONSET = datetime(2100, 1, 1, tzinfo=UTC)  # zones of files are worked out until then; later, their last offset holds
_READ = {
    "BEGIN", "END", "UID", "SUMMARY", "CATEGORIES", "STATUS", "TRANSP", "SEQUENCE", "DTSTART", "DTEND", "DURATION", "RRULE",
    "RDATE", "EXDATE", "EXRULE", "RECURRENCE-ID", "NAME", "X-WR-CALNAME", "TZID", "TZOFFSETFROM", "TZOFFSETTO",
}  # fmt: skip
_NAME = re.compile(r"[A-Za-z0-9-]+")
_DURATION = re.compile(r"([+-]?)P(?:(\d{1,6})W|(?:(\d{1,6})D)?(?:T(?:(\d{1,7})H)?(?:(\d{1,8})M)?(?:(\d{1,9})S)?)?)")
_OFFSET = re.compile(r"([+-])(\d\d)(\d\d)(\d\d)?")
_SHOWN = 80


class BadCalendar(BadInput):
    """A text that is no calendar. ``reason`` says why, without the calendar's name."""

    def __init__(self, name: str, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"calendar `{name}` cannot be read: {reason}",
            next_step="open it in a calendar program, or export it again as iCalendar (.ics)",
        )


@dataclass(frozen=True)
class Stamp:
    """A DATE or DATE-TIME as written. ``local``: naive clock time, midnight for a date. ``zone`` None: floating, or a date."""

    local: datetime
    zone: Zone | None
    whole_day: bool


@dataclass(frozen=True)
class Length:
    """A duration: ``days`` as the calendar counts them, ``rest`` in real time (RFC 5545, section 3.3.6)."""

    days: int
    rest: timedelta


@dataclass(frozen=True)
class Extra:
    """One RDATE; a period has an end or a length of its own."""

    start: Stamp
    end: Stamp | Length | None = None


@dataclass(frozen=True)
class Event:
    """One VEVENT. ``problem`` not empty: it could not be understood, and says why; the fields read so far are still set.

    ``instead_of``: the RECURRENCE-ID of a changed instance; ``and_later``: it changes all later ones, too. ``calendar``: the name
    of the VCALENDAR around it, None when it has none. ``untitled``: its title or categories cannot be read.
    """

    uid: str
    calendar: str | None
    summary: str = ""
    categories: tuple[str, ...] = ()
    cancelled: bool = False
    transparent: bool = False
    sequence: int = 0
    start: Stamp | None = None
    end: Stamp | Length | None = None
    rules: tuple[Rule, ...] = ()
    extras: tuple[Extra, ...] = ()
    excluded: tuple[Stamp, ...] = ()
    instead_of: Stamp | None = None
    and_later: bool = False
    problem: str = ""
    untitled: bool = False


@dataclass(frozen=True)
class Calendar:
    """A calendar file. ``zone``: of whole days and floating times, None when the spike file names none.

    ``names``: those of the VCALENDARs in the file.
    """

    name: str
    zone: Zone | None
    names: tuple[str, ...]
    events: tuple[Event, ...]


@dataclass
class _Part:
    """A component: BEGIN to END."""

    kind: str
    lines: list[tuple[str, Mapping[str, str], str]] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    parts: list[_Part] = field(default_factory=list)

    def value(self, name: str) -> str | None:
        """The value of a property that may stand once; ValueError when it stands twice."""
        found = [value for key, _, value in self.lines if key == name]
        if len(found) > 1:
            raise ValueError(f"{name} stands {len(found)} times")
        return found[0] if found else None

    def one(self, name: str) -> tuple[Mapping[str, str], str] | None:
        """Parameters and value of a property that may stand once; ValueError when it stands twice."""
        self.value(name)
        return next(((params, value) for key, params, value in self.lines if key == name), None)

    def all(self, name: str) -> Iterator[tuple[Mapping[str, str], str]]:
        return ((params, value) for key, params, value in self.lines if key == name)


def parse_calendar(text: str, name: str, zone: str | None) -> Calendar:
    """The events of an iCalendar text. ``name``: what errors call it; ``zone``: IANA name for times without one.

    Raises BadCalendar when the text is no calendar, is cut off, or is longer than LONGEST_TEXT or MOST_EVENTS, or its time
    zones take more than MOST_STEPS to work out.
    """
    try:
        return _parsed(text, name, zone)
    except BadCalendar:
        raise
    except (OutOfSteps, *FAULTY) as error:
        raise BadCalendar(name, f"it cannot be understood: {error}") from error


def _parsed(text: str, name: str, zone: str | None) -> Calendar:
    roots = _tree(text, name)
    events: list[Event] = []
    names: list[str] = []
    budget = Budget()
    for root in roots:
        title = _title(root)
        names += [title] if title is not None else []
        zones = _Zones(root, budget)
        for part in root.parts:
            if part.kind == "VEVENT":
                events.append(_event(part, title, zones, len(events)))
            if len(events) > MOST_EVENTS:
                raise BadCalendar(name, f"it has more than {MOST_EVENTS} events")
    return Calendar(name, None if zone is None else iana(zone), tuple(names), tuple(events))


def _tree(text: str, name: str) -> list[_Part]:
    """The VCALENDARs of a text. Raises BadCalendar."""
    if len(text) > LONGEST_TEXT:
        raise BadCalendar(name, f"it is longer than {LONGEST_TEXT // 1024 // 1024} million characters")
    roots: list[_Part] = []
    open_parts: list[_Part] = []
    for line in Contentlines.from_ical(text.removeprefix("\ufeff")):  # type: ignore[no-untyped-call]
        found = _NAME.match(line)
        key = found[0].upper() if found else ""
        if not open_parts and line.strip() and (key != "BEGIN" or line.partition(":")[2].strip().upper() != "VCALENDAR"):
            raise BadCalendar(name, "it does not begin with BEGIN:VCALENDAR" + (" (it is a web page)" if "<" in line[:20] else ""))
        if key == "BEGIN":
            part = _Part(line.partition(":")[2].strip().upper())
            (open_parts[-1].parts if open_parts else roots).append(part)
            open_parts.append(part)
        elif key == "END":
            if open_parts[-1].kind != line.partition(":")[2].strip().upper():
                raise BadCalendar(name, f"END:{line.partition(':')[2].strip()[:_SHOWN]} closes a {open_parts[-1].kind}")
            open_parts.pop()
        elif key in _READ and open_parts:
            _read_line(open_parts[-1], key, line)
    if open_parts:
        raise BadCalendar(name, f"it is cut off inside a {open_parts[-1].kind}")
    if not roots:
        raise BadCalendar(name, "it is empty")
    return roots


def _read_line(part: _Part, key: str, line: Contentline) -> None:
    try:
        _, params, value = line.raw_parts() if hasattr(line, "raw_parts") else line.parts()
    except ValueError:
        part.broken.append(key)
        return
    part.lines.append((key, {str(k).upper(): str(v) for k, v in params.items()}, value.strip()))


def _title(root: _Part) -> str | None:
    found = {key: _text(value) for key, _, value in root.lines if key in ("NAME", "X-WR-CALNAME")}
    return found.get("NAME", found.get("X-WR-CALNAME"))


def _text(value: str) -> str:
    """A TEXT value without its escapes (RFC 5545, section 3.3.11); control characters become blanks."""
    plain = re.sub(r"\\(.)", lambda m: "\n" if m[1] in "nN" else m[1], value)
    return " ".join(re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", plain).split())


class _Zones:
    """The zones that one VCALENDAR may name."""

    def __init__(self, root: _Part, budget: Budget) -> None:
        self._budget = budget
        self._defined: dict[str, _Part] = {}
        self._made: dict[str, Zone | str] = {}
        for part in root.parts:
            if part.kind == "VTIMEZONE":
                for _, value in part.all("TZID"):
                    self._defined[value] = part

    def find(self, name: str) -> Zone:
        """A zone by its TZID: an IANA name of the form Area/City, else the file's own definition, else IANA, else Windows' name.

        An area's name goes before the file's definition, which often covers a few years only. ValueError when there is none.
        """
        if name not in self._made:
            try:
                self._made[name] = self._make(name)
            except FAULTY as error:  # kept, too: thousands of events may name it
                self._made[name] = str(error) or type(error).__name__
        made = self._made[name]
        if isinstance(made, str):
            raise ValueError(made)
        return made

    def _make(self, name: str) -> Zone:
        known = iana(name) if "/" in name else None
        if known is None and name in self._defined:
            known = _table(self._defined[name], self._budget)
        known = known or iana(name) or iana(WINDOWS_TO_OLSON.get(name, ""))
        if known is None:
            raise ValueError(f"the time zone {name[:_SHOWN]!r} is not known and the file does not define it")
        return known


def _table(zone: _Part, budget: Budget) -> Zone:
    """A VTIMEZONE as a table of changes until 2100. ValueError when it cannot be read."""
    onsets: list[Onset] = []
    for part in zone.parts:
        if part.kind not in ("STANDARD", "DAYLIGHT"):
            continue
        before, after = _offset(part.value("TZOFFSETFROM")), _offset(part.value("TZOFFSETTO"))
        start = _clock(part.value("DTSTART") or "")
        locals_ = {start, *(_clock(text) for _, value in part.all("RDATE") for text in value.split(","))}
        fixed = TableZone([Onset(start, before, before)])
        for _, text in part.all("RRULE"):
            begin = fixed.instant(start)
            rule = read_rule(text)
            locals_ |= set(expand(rule, start, fixed, begin, _LAST_ONSET, wide=True, whole_days=False, budget=budget))
        onsets += [Onset(local, before, after) for local in locals_]
    return TableZone(onsets)


def _clock(text: str) -> datetime:
    value = vDDDTypes.from_ical(text)  # type: ignore[no-untyped-call]
    if not isinstance(value, datetime) or value.year not in YEARS:
        raise ValueError(f"{text[:_SHOWN]!r} is no local time")
    return value.replace(tzinfo=None)


def _offset(text: str | None) -> timedelta:
    found = _OFFSET.fullmatch(text or "")
    if found is None:
        raise ValueError(f"{(text or 'nothing')[:_SHOWN]!r} is no offset from UTC")
    size = timedelta(hours=int(found[2]), minutes=int(found[3]), seconds=int(found[4] or 0))
    if size >= timedelta(days=1):
        raise ValueError(f"an offset of {found[0]} is a day or more")
    return -size if found[1] == "-" else size


def _event(part: _Part, calendar: str | None, zones: _Zones, number: int) -> Event:
    """One VEVENT; what cannot be understood is named in ``problem``, with everything else still read."""
    uid = next((value for _, value in part.all("UID") if value), f"\0{number}")
    summary = " ".join(_text(value) for _, value in part.all("SUMMARY"))[:500]
    categories = tuple(_text(word) for _, value in part.all("CATEGORIES") for word in re.split(r"(?<!\\),", value))
    status = {value.upper() for _, value in part.all("STATUS")}
    transparent = {value.upper() for _, value in part.all("TRANSP")} == {"TRANSPARENT"}
    plain = Event(
        uid, calendar, summary, categories, status == {"CANCELLED"}, transparent,
        untitled=bool({"SUMMARY", "CATEGORIES"} & set(part.broken)),
    )  # fmt: skip
    start: Stamp | None = None
    try:
        start = _stamp_of(part, "DTSTART", zones)
        instead = part.one("RECURRENCE-ID")
        if part.broken:
            raise ValueError(f"a line {part.broken[0]} cannot be read")
        if start is None:
            raise ValueError("it has no DTSTART")
        if any(part.all("EXRULE")):
            raise ValueError("EXRULE is not supported")
        return replace(
            plain,
            sequence=int(part.value("SEQUENCE") or 0),
            start=start,
            end=_end(part, start, zones),
            rules=tuple(read_rule(value) for _, value in part.all("RRULE")),
            extras=tuple(_extra(params, text, zones) for params, text in _each(part, "RDATE")),
            excluded=tuple(
                _stamp(params, text, zones) for params, value in part.all("EXDATE") for text in value.split(",") if text
            ),
            instead_of=_stamp_of(part, "RECURRENCE-ID", zones),
            and_later=instead is not None and instead[0].get("RANGE", "").upper() == "THISANDFUTURE",
        )
    except FAULTY as error:
        return replace(plain, start=start, problem=str(error)[:200] or type(error).__name__)


def _stamp_of(part: _Part, name: str, zones: _Zones) -> Stamp | None:
    found = part.one(name)
    return None if found is None else _stamp(*found, zones)


def _stamp(params: Mapping[str, str], text: str, zones: _Zones) -> Stamp:
    """A DATE or DATE-TIME. ValueError for anything else, and for years outside of YEARS."""
    value = vDDDTypes.from_ical(text.strip())  # type: ignore[no-untyped-call]
    if not isinstance(value, date) or value.year not in YEARS:
        raise ValueError(f"{text[:_SHOWN]!r} is no date or time")
    if not isinstance(value, datetime):
        return Stamp(datetime(value.year, value.month, value.day), None, True)  # noqa: DTZ001 - a clock time
    if params.get("VALUE", "").upper() == "DATE":
        raise ValueError(f"{text[:_SHOWN]!r} is no date")
    if value.tzinfo is not None:
        return Stamp(value.replace(tzinfo=None), UTC_ZONE, False)
    return Stamp(value, zones.find(params["TZID"]) if "TZID" in params else None, False)


def _length(text: str) -> Length:
    """A DURATION. ValueError when it is none, or negative."""
    found = _DURATION.fullmatch(text.strip().upper())
    if found is None or not any(found.groups()[1:]):
        raise ValueError(f"{text[:_SHOWN]!r} is no duration")
    weeks, days, hours, minutes, seconds = (int(number or 0) for number in found.groups()[1:])
    length = Length(weeks * 7 + days, timedelta(hours=hours, minutes=minutes, seconds=seconds))
    if found[1] == "-" and (length.days or length.rest):
        raise ValueError("its duration is negative")
    if length.days + length.rest.days > 3660:
        raise ValueError("it lasts longer than ten years")
    return length


def _end(part: _Part, start: Stamp, zones: _Zones) -> Stamp | Length | None:
    """DTEND or DURATION, checked against DTSTART. ValueError when they do not fit together."""
    end, duration = _stamp_of(part, "DTEND", zones), part.value("DURATION")
    if end is not None and duration is not None:
        raise ValueError("it has both DTEND and DURATION")
    if duration is not None:
        length = _length(duration)
        if start.whole_day and length.rest:
            raise ValueError("it begins with a date and its duration has hours")
        return length
    if end is not None and end.whole_day != start.whole_day:
        raise ValueError("DTSTART and DTEND are not both dates or both times")
    if end is not None and end.zone == start.zone and end.local < start.local:
        raise ValueError("it ends before it begins")
    if end is not None and end.local - start.local > timedelta(days=3661):
        raise ValueError("it lasts longer than ten years")
    return end


def _each(part: _Part, name: str) -> Iterator[tuple[Mapping[str, str], str]]:
    """Parameters and text of each value of a property that holds lists."""
    return ((params, text) for params, value in part.all(name) for text in value.split(",") if text)


def _extra(params: Mapping[str, str], text: str, zones: _Zones) -> Extra:
    start, slash, rest = text.partition("/")
    if not slash:
        return Extra(_stamp(params, start, zones))
    plain = {key: word for key, word in params.items() if key != "VALUE"}
    length = rest.upper().startswith(("P", "+P", "-P"))
    return Extra(_stamp(plain, start, zones), _length(rest) if length else _stamp(plain, rest, zones))
