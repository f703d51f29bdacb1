"""Recurrence rules (RFC 5545, section 3.3.10) as clock times, always bounded. Which instances are moved or cancelled: ``events``.

The expansion is python-dateutil's. What it is given here is checked first, because a calendar is somebody else's text: a rule
outside the RFC, or one that would go on for millions of instances, is a ValueError in plain words, never a wrong answer and never a
hang.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal

from dateutil import rrule as dr
from icalendar import vRecur

from audition.windows.zones import Zone

MOST_INSTANCES = 50_000
"""Instances looked at for one rule and one question: five years of hours, or 14 hours of seconds. Own choice."""

MOST_STEPS = 200_000
"""Instances and changes looked at for a whole calendar and one question: some seconds of work. Own choice: 300 events every day of
ten months are 90,000."""

YEARS = range(1601, 2400)
"""Years that stamps and horizons may have: from the beginning of Windows' calendar to where ``_CYCLES`` still fits."""

_CYCLES = 7600  # years: 19 whole cycles of the Gregorian calendar (400 years, 20,871 weeks), so that weekdays and leap years stay
_WITHIN_A_DAY = timedelta(hours=3)  # changes of a zone's offset beside the horizon; whole days have two days
Frequency = Literal[0, 1, 2, 3, 4, 5, 6]
_FREQUENCIES: dict[str, Frequency] = {
    "YEARLY": dr.YEARLY, "MONTHLY": dr.MONTHLY, "WEEKLY": dr.WEEKLY, "DAILY": dr.DAILY, "HOURLY": dr.HOURLY,
    "MINUTELY": dr.MINUTELY, "SECONDLY": dr.SECONDLY,
}  # fmt: skip
_STEP = {dr.WEEKLY: 604800, dr.DAILY: 86400, dr.HOURLY: 3600, dr.MINUTELY: 60, dr.SECONDLY: 1}
_DAY = timedelta(days=1)  # dateutil leaps over days that do not fit
_END = datetime(9999, 12, 31)  # noqa: DTZ001 - a clock time
_LENGTH = {dr.YEARLY: timedelta(days=91), dr.MONTHLY: timedelta(days=30), dr.WEEKLY: timedelta(days=7)}
"""Time that one step covers; dateutil looks at each day of a year."""
_DAYS = {"MO": dr.MO, "TU": dr.TU, "WE": dr.WE, "TH": dr.TH, "FR": dr.FR, "SA": dr.SA, "SU": dr.SU}
_NUMBERS = {
    "BYSECOND": ("bysecond", 0, 59), "BYMINUTE": ("byminute", 0, 59), "BYHOUR": ("byhour", 0, 23), "BYMONTH": ("bymonth", 1, 12),
    "BYMONTHDAY": ("bymonthday", -31, 31), "BYYEARDAY": ("byyearday", -366, 366), "BYWEEKNO": ("byweekno", -53, 53),
    "BYSETPOS": ("bysetpos", -366, 366),
}  # fmt: skip
_KNOWN = {"FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYDAY", *_NUMBERS}


FAULTY = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What code that reads somebody else's text may raise: it means that this text cannot be understood."""


class OutOfSteps(Exception):
    """A calendar would take more work than MOST_STEPS."""


@dataclass
class Budget:
    """The work that is left for a calendar, in steps. One for a question, shared by all of its events."""

    left: int = MOST_STEPS

    def spend(self, steps: int) -> None:
        """Raises OutOfSteps when so many are not left."""
        self.left -= steps
        if self.left < 0:
            raise OutOfSteps(f"working it out would take more than {MOST_STEPS} steps")


@dataclass(frozen=True)
class Rule:
    """One checked rule. ``until``: the last moment, a date, a clock time, or an instant in UTC; ``count``: at most so many."""

    freq: Frequency
    interval: int
    count: int | None
    until: datetime | date | None
    parts: Mapping[str, Any] = field(default_factory=dict)


def read_rule(text: str) -> Rule:
    """A rule from its text. ValueError, in plain words, for what RFC 5545 does not allow or what is not supported here."""
    given = dict(vRecur.from_ical(text.strip().rstrip(";")))
    if unknown := sorted(set(given) - _KNOWN):
        raise ValueError(f"rule part {unknown[0]} is not supported")
    name = str(_one(given, "FREQ", "")).upper()
    if name not in _FREQUENCIES:
        raise ValueError(f"a rule needs FREQ, found {name or 'none'}")
    freq, interval, count = _FREQUENCIES[name], int(_one(given, "INTERVAL", 1)), _one(given, "COUNT", None)
    if interval < 1 or (count is not None and int(count) < 1):
        raise ValueError("INTERVAL and COUNT must be 1 or more")
    parts: dict[str, Any] = {}
    for key, (argument, least, most) in _NUMBERS.items():
        if key in given:
            numbers = [_number(value, key, least, most) for value in given[key]]
            parts[argument] = numbers
    if "WKST" in given:
        parts["wkst"] = _DAYS[str(_one(given, "WKST", "MO")).upper()]
    if "BYDAY" in given:
        parts["byweekday"] = [_weekday(str(day), freq) for day in given["BYDAY"]]
    _allowed(freq, parts)
    until = _one(given, "UNTIL", None)
    if until is not None and not isinstance(until, date):  # the library also reads durations, periods and times of day
        raise ValueError("UNTIL is no date or time")
    return Rule(freq, interval, None if count is None else int(count), until, parts)


def expand(
    rule: Rule, start: datetime, zone: Zone, begin: datetime, end: datetime, *, wide: bool, whole_days: bool, budget: Budget
) -> Iterator[datetime]:
    """Clock times of the instances whose instants lie in [begin, end); ``start`` is DTSTART as a naive clock time.

    ``begin`` and ``end`` are instants. ``wide``: an UNTIL that can be read in two ways is read as the later one. ``whole_days``:
    DTSTART is a date. ValueError when more than MOST_INSTANCES instances would have to be looked at, or a year outside of YEARS;
    OutOfSteps when ``budget`` is spent.
    """
    beyond = _WITHIN_A_DAY if rule.freq in (dr.HOURLY, dr.MINUTELY, dr.SECONDLY) else timedelta(days=2)
    first, last = zone.local(begin) - beyond, zone.local(end) + beyond
    if rule.until is not None and _day(rule.until) < first.date() - timedelta(days=2):
        budget.spend(1)
        return
    for number, local in enumerate(_locals(rule, _forward(rule, start, first), last, budget)):
        if number >= MOST_INSTANCES:
            raise ValueError(f"a rule with more than {MOST_INSTANCES} instances")
        instant = zone.instant(local)
        if not _after_until(rule.until, local, instant, wide, whole_days) and begin <= instant < end:
            yield local


def _locals(rule: Rule, start: datetime, last: datetime, budget: Budget) -> Iterator[datetime]:
    """Clock times until ``last``.

    dateutil goes on to the year 9999 when a rule yields nothing, such as 30 February: the rule is moved by whole cycles of the
    calendar so that this end is near, and its instances are moved back.
    """
    budget.spend(1)
    if start > last:
        return
    if start.year not in YEARS or last.year not in YEARS:
        raise ValueError(f"a recurrence outside of the years {YEARS.start} to {YEARS.stop - 1}")
    parts = dict(rule.parts)
    if "byweekno" in parts and not {"byweekday", "byyearday", "bymonthday"} & set(parts):
        parts["byweekday"] = [dr.weekday(start.weekday())]  # RFC 5545: what is not said comes from DTSTART; dateutil: all seven
    limit: dict[str, Any] = {"count": rule.count} if rule.count else {}
    found, at, length = 0, _moved(start, _CYCLES), _LENGTH.get(rule.freq, _DAY) * rule.interval
    for local in dr.rrule(rule.freq, dtstart=at, interval=rule.interval, **limit, **parts):
        budget.spend(1 + (local - at) // length)  # what lies between two instances was looked at, too
        found, at, back = found + 1, local, _moved(local, -_CYCLES)
        if back > last:
            return
        yield back
    if found != rule.count:  # dateutil went on to its end, and found nothing more
        budget.spend((_END - at) // length)


def _moved(local: datetime, years: int) -> datetime:
    return local.replace(year=local.year + years)


def _forward(rule: Rule, start: datetime, first: datetime) -> datetime:
    """DTSTART moved by whole intervals to just before ``first``, where that changes no later instance."""
    step = _STEP.get(rule.freq)
    if rule.count is not None or step is None or start >= first:
        return start
    each = step * rule.interval
    return start + timedelta(seconds=int((first - start).total_seconds() // each) * each)


def _day(until: datetime | date) -> date:
    return until.date() if isinstance(until, datetime) else until


def _after_until(until: datetime | date | None, local: datetime, instant: datetime, wide: bool, whole_days: bool) -> bool:
    """Whether an instance lies after UNTIL. RFC 5545 wants UTC for times with a zone, a date for dates; others are met, too."""
    if until is None:
        return False
    if whole_days:
        return local.date() > _day(until)
    if not isinstance(until, datetime):
        return local.date() > until if wide else local.date() >= until
    if until.tzinfo is None:
        return local > until
    return instant > until.astimezone(UTC)


def _one(given: Mapping[str, Any], key: str, default: Any) -> Any:
    values = given.get(key)
    if not values:
        return default
    if len(values) != 1:
        raise ValueError(f"{key} has more than one value")
    return values[0]


def _number(value: Any, key: str, least: int, most: int) -> int:
    try:
        number = int(value)
    except ValueError as error:  # a leap month of RFC 7529, such as 5L
        raise ValueError(f"{key}={value} is not supported") from error
    if not least <= number <= most or (number == 0 and least < 0) or str(value).endswith("L"):
        raise ValueError(f"{key}={value} is outside of RFC 5545")
    return number


def _weekday(text: str, freq: Frequency) -> Any:
    day, number = _DAYS.get(text[-2:].upper()), text[:-2]
    if day is None:
        raise ValueError(f"BYDAY={text} is no weekday")
    if not number:
        return day
    if freq not in (dr.MONTHLY, dr.YEARLY) or int(number) == 0 or abs(int(number)) > 53:
        raise ValueError(f"BYDAY={text} does not fit its FREQ")
    return day(int(number))


def _allowed(freq: Frequency, parts: Mapping[str, Any]) -> None:
    """Combinations that RFC 5545 forbids, and one that dateutil cannot bound."""
    numbered = any(day.n for day in parts.get("byweekday", []))
    wrong = {
        "BYWEEKNO needs FREQ=YEARLY": "byweekno" in parts and freq != dr.YEARLY,
        "BYDAY with a number does not go with BYWEEKNO": "byweekno" in parts and numbered,
        "BYMONTHDAY does not go with FREQ=WEEKLY": "bymonthday" in parts and freq == dr.WEEKLY,
        "BYYEARDAY does not go with FREQ": "byyearday" in parts and freq in (dr.DAILY, dr.WEEKLY, dr.MONTHLY),
        "BYSETPOS needs another BY part": "bysetpos" in parts and not set(parts) - {"bysetpos", "wkst"},
        "BYSETPOS within a day is not supported": "bysetpos" in parts and freq in (dr.HOURLY, dr.MINUTELY, dr.SECONDLY),
    }
    for text, is_so in wrong.items():
        if is_so:
            raise ValueError(text)
