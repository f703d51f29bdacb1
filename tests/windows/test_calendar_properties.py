"""Ten years of random recurring events against two other evaluators: recurring-ical-events, and a walk over every single day.

recurring-ical-events shares dateutil with the product, but none of its reading of zones, exceptions and changed instances; the walk
shares nothing. Known differences, left out of what is generated: a rule with BYWEEKNO and no BYDAY (RFC 5545 takes the weekday from
DTSTART, dateutil all seven), an UNTIL before DTSTART (DTSTART blocks all the same), an instance both taken out and moved (where it
was moved to blocks all the same), and RANGE=THISANDFUTURE. Ends are compared as a
range, because the product keeps both readings of the RFC: real time and clock time; recurring-ical-events takes clock time.
"""

from __future__ import annotations

import calendar as months
import itertools
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import icalendar
import recurring_ical_events  # type: ignore[import-untyped]
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from audition.windows.intervals import Interval, intersect, merge, subtract
from audition.windows.slots import busy
from windows.calendar_texts import NEVER, ONLY, calendar, calendar_text, event

BEGIN, END = datetime(2024, 1, 1, tzinfo=UTC), datetime(2034, 1, 1, tzinfo=UTC)
ZONE = "Europe/Berlin"  # of floating times and whole days
ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "America/Sao_Paulo", "UTC", "floating", "date"]
DAYS = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
OUTSIDE = settings(
    QUICK, max_examples=25, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)  # the other evaluator takes its time


def clock(day: date, hour: int = 0, minute: int = 0) -> datetime:
    """A naive clock time."""
    return datetime(day.year, day.month, day.day, hour, minute)  # noqa: DTZ001


class Case:
    """One random series, in a form that every evaluator can take."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.zone = draw(st.sampled_from(ZONES))
        day = draw(st.dates(date(2015, 1, 1), date(2026, 12, 31)))
        # hours and minutes at which clocks are changed are drawn often
        hour, minute = draw(st.sampled_from([0, 1, 2, 2, 3, 9, 23])), draw(st.sampled_from([0, 30, 59]))
        self.start = clock(day) if self.zone == "date" else clock(day, hour, minute)
        self.freq = draw(st.sampled_from(["DAILY", "WEEKLY", "MONTHLY", "YEARLY"]))
        self.interval = draw(st.integers(1, 4)) if self.freq != "DAILY" else draw(st.integers(3, 40))
        self.days = draw(st.lists(st.sampled_from(DAYS), max_size=3, unique=True)) if self.freq in ("DAILY", "WEEKLY") else []
        monthly = self.freq == "MONTHLY"
        self.month_days = draw(st.lists(st.sampled_from([1, 15, 28, 30, 31, -1, -2]), max_size=2, unique=True)) if monthly else []
        nth = st.tuples(st.sampled_from([-1, 1, 2, 5]), st.sampled_from(DAYS))
        self.nth = draw(st.lists(nth, max_size=2, unique=True)) if monthly and not self.month_days else []
        self.count = draw(st.none() | st.integers(1, 200))
        until = None if self.count else draw(st.none() | st.dates(date(2023, 1, 1), date(2035, 1, 1)))
        self.until = until and max(until, day)
        self.length = draw(st.sampled_from([timedelta(minutes=15), timedelta(hours=2), timedelta(hours=7)]))
        self.as_end = draw(st.booleans())

    def __repr__(self) -> str:
        return f"Case({self.lines()})"

    def stamp(self, name: str, local: datetime) -> str:
        if self.zone == "date":
            return f"{name};VALUE=DATE:{local:%Y%m%d}"
        if self.zone == "UTC":
            return f"{name}:{local:%Y%m%dT%H%M%S}Z"
        return f"{name}{'' if self.zone == 'floating' else f';TZID={self.zone}'}:{local:%Y%m%dT%H%M%S}"

    def rule(self) -> str:
        parts = [f"FREQ={self.freq}", f"INTERVAL={self.interval}"]
        by_day = self.days + [f"{number}{day}" for number, day in self.nth]
        parts += [f"BYDAY={','.join(by_day)}"] if by_day else []
        parts += [f"BYMONTHDAY={','.join(map(str, self.month_days))}"] if self.month_days else []
        parts += [f"COUNT={self.count}"] if self.count else []
        if self.until is not None:
            last = clock(self.until, 23, 59) + timedelta(seconds=59)
            instant = self.instant(last).strftime("%Y%m%dT%H%M%SZ")
            forms = {"date": f"{self.until:%Y%m%d}", "floating": f"{last:%Y%m%dT%H%M%S}"}
            parts.append(f"UNTIL={forms.get(self.zone, instant)}")
        return f"RRULE:{';'.join(parts)}"

    def lines(self) -> list[str]:
        head = [self.stamp("DTSTART", self.start), self.rule()]
        if self.zone == "date":
            return [*head, self.stamp("DTEND", self.start + timedelta(days=2))] if self.as_end else head
        minutes = int(self.length.total_seconds()) // 60
        return [*head, self.stamp("DTEND", self.start + self.length) if self.as_end else f"DURATION:PT{minutes}M"]

    def instant(self, local: datetime) -> datetime:
        name = ZONE if self.zone in ("floating", "date") else self.zone
        return local.replace(tzinfo=ZoneInfo(name)).astimezone(UTC)

    def walk(self) -> Iterator[datetime]:
        """Clock times of the instances, by looking at every day until the end of the ten years."""
        found = 0
        day = self.start.date()
        while day <= END.date() + timedelta(days=2):
            if self._fits(day):
                found += 1
                if (self.count and found > self.count) or (self.until and day > self.until):
                    return
                yield clock(day, self.start.hour, self.start.minute)
            day += timedelta(days=1)

    def _fits(self, day: date) -> bool:
        first, weekday = self.start.date(), DAYS[day.weekday()]
        if self.freq == "DAILY":
            return (day - first).days % self.interval == 0 and (not self.days or weekday in self.days)
        if self.freq == "WEEKLY":
            monday, first_monday = day - timedelta(days=day.weekday()), first - timedelta(days=first.weekday())
            return (monday - first_monday).days // 7 % self.interval == 0 and weekday in (self.days or [DAYS[first.weekday()]])
        if self.freq == "YEARLY":
            return (day.year - first.year) % self.interval == 0 and (day.month, day.day) == (first.month, first.day)
        if ((day.year - first.year) * 12 + day.month - first.month) % self.interval:
            return False
        last = months.monthrange(day.year, day.month)[1]
        if self.month_days:
            return day.day in self.month_days or day.day - last - 1 in self.month_days
        if self.nth:
            forward, backward = (day.day - 1) // 7 + 1, -((last - day.day) // 7 + 1)
            return any(weekday == name and number in (forward, backward) for number, name in self.nth)
        return day.day == first.day


@st.composite
def cases(draw: st.DrawFn) -> Case:
    return Case(draw)


def starts(intervals: list[Interval]) -> list[datetime]:
    return [one.start for one in intervals if BEGIN <= one.start < END]


def theirs(text: str, zone: str) -> list[tuple[datetime, datetime]]:
    """What recurring-ical-events finds, as instants."""
    info = ZoneInfo(zone)

    def instant(value: date) -> datetime:
        time = value if isinstance(value, datetime) else clock(value)
        return (time if time.tzinfo else time.replace(tzinfo=info)).astimezone(UTC)

    found = recurring_ical_events.of(icalendar.Calendar.from_ical(text)).between(BEGIN - timedelta(days=3), END + timedelta(days=3))
    pairs = {(instant(one["DTSTART"].dt), instant(one["DTEND"].dt)) for one in found}
    return sorted(pair for pair in pairs if BEGIN <= pair[0] < END)


@QUICK
@given(cases())
def test_every_day_of_ten_years(case: Case) -> None:
    expected = {case.instant(local) for local in case.walk()}
    wide = busy(calendar(event(*case.lines())), NEVER, BEGIN, END)
    assert set(starts(wide)) == {at for at in {*expected, case.instant(case.start)} if BEGIN <= at < END}
    assert set(starts(busy(calendar(event(*case.lines())), ONLY, BEGIN, END))) == {at for at in expected if BEGIN <= at < END}


@OUTSIDE
@given(cases(), st.data())
def test_exceptions_and_changes_of_ten_years(case: Case, data: st.DataObject) -> None:
    instances = [local for local in case.walk() if local.year < 2033]
    some = st.lists(st.sampled_from(instances), max_size=6, unique=True) if instances else st.just([])
    chosen = data.draw(some)
    out, moved = chosen[::2], chosen[1::2]
    extra = data.draw(st.lists(st.integers(1, 3000), max_size=2))
    lines = case.lines() + [case.stamp("EXDATE", local) for local in out]
    lines += [case.stamp("RDATE", case.start + timedelta(days=days)) for days in extra]
    changes = []
    for local in moved:
        to = local + timedelta(
            days=data.draw(st.integers(-40, 40)), hours=0 if case.zone == "date" else data.draw(st.integers(-5, 5))
        )
        body = [case.stamp("RECURRENCE-ID", local), case.stamp("DTSTART", to)]
        changes.append(event(*body, *([] if case.zone == "date" else ["DURATION:PT90M"])))
    parts = [event(*lines), *changes]
    wide, narrow = (busy(calendar(*parts), one, BEGIN, END) for one in (NEVER, ONLY))
    found = theirs(calendar_text(*parts), ZONE)
    assert set(starts(wide)) == {start for start, _ in found}
    ends = {(one.start, one.end) for one in wide}
    for start, end in found:
        latest = max(other for at, other in ends if at == start)
        assert end <= latest <= end + timedelta(hours=1)
    assert set(starts(narrow)) <= set(starts(wide))


@QUICK
@given(cases(), st.integers(0, 3600), st.integers(1, 400))
def test_a_part_of_the_ten_years_is_that_part_of_the_answer(case: Case, days: int, length: int) -> None:
    here = calendar(event(*case.lines()))
    begin = BEGIN + timedelta(days=days)
    end = begin + timedelta(hours=length)
    whole = [one for one in busy(here, NEVER, BEGIN, END + timedelta(days=20)) if one.start < end and one.end > begin]
    assert busy(here, NEVER, begin, end) == whole


hours = st.builds(
    lambda start, length: Interval(BEGIN + timedelta(hours=start), BEGIN + timedelta(hours=start + length)),
    st.integers(0, 40),
    st.integers(1, 10),
)


@given(st.lists(hours, max_size=6), st.lists(hours, max_size=6))
def test_set_operations_hour_by_hour(free: list[Interval], taken: list[Interval]) -> None:
    def covered(intervals: list[Interval]) -> set[int]:
        ends = [((i.start - BEGIN) // timedelta(hours=1), (i.end - BEGIN) // timedelta(hours=1)) for i in intervals]
        return {hour for start, end in ends for hour in range(start, end)}

    whole = merge(free)
    assert covered(whole) == covered(free)
    assert covered(subtract(whole, taken)) == covered(free) - covered(taken)
    assert covered(intersect(whole, taken)) == covered(free) & covered(taken)
    for rows in (whole, subtract(whole, taken), intersect(whole, taken)):
        assert rows == sorted(rows)
        assert all(one.end <= other.start for one, other in itertools.pairwise(rows))
