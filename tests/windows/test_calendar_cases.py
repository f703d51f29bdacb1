"""Case by case: clock changes, exceptions, moved and cancelled instances, zones, nonsense. Expected times come from thinking."""

from __future__ import annotations

from typing import Any

import pytest

from audition.errors import BadInput
from audition.spike.window import CalendarRule
from audition.windows.events import ZoneNeeded
from audition.windows.ics import BadCalendar, parse_calendar
from audition.windows.slots import busy
from windows.calendar_texts import NEVER, ONLY, calendar, calendar_text, event, rule, shown, utc

BERLIN = "TZID=Europe/Berlin"
YEAR = utc("2026-01-01 00:00"), utc("2027-01-01 00:00")
EASTERN = """\
BEGIN:VTIMEZONE
TZID:{name}
BEGIN:STANDARD
DTSTART:16011104T020000
RRULE:FREQ=YEARLY;BYDAY=1SU;BYMONTH=11
TZOFFSETFROM:-0400
TZOFFSETTO:-0500
END:STANDARD
BEGIN:DAYLIGHT
DTSTART:16010311T020000
RRULE:FREQ=YEARLY;BYDAY=2SU;BYMONTH=3
TZOFFSETFROM:-0500
TZOFFSETTO:-0400
END:DAYLIGHT
END:VTIMEZONE"""

CASES: dict[str, tuple[list[str], list[str]]] = {
    # In Berlin the clock goes from 02:00 to 03:00 on 29 March and from 03:00 to 02:00 on 25 October 2026, at 01:00 UTC.
    "across midnight": ([f"DTSTART;{BERLIN}:20260110T220000", f"DTEND;{BERLIN}:20260111T020000"], ["01-10 21:00/01-11 01:00"]),
    "until midnight": ([f"DTSTART;{BERLIN}:20260110T220000", f"DTEND;{BERLIN}:20260111T000000"], ["01-10 21:00/23:00"]),
    "in UTC": (["DTSTART:20260110T220000Z", "DTEND:20260110T230000Z"], ["01-10 22:00/23:00"]),
    "a whole day": (["DTSTART;VALUE=DATE:20260110"], ["01-09 23:00/01-10 23:00"]),
    "three whole days": (["DTSTART;VALUE=DATE:20260110", "DTEND;VALUE=DATE:20260113"], ["01-09 23:00/01-12 23:00"]),
    "a whole day of 23 hours": (["DTSTART;VALUE=DATE:20260329"], ["03-28 23:00/03-29 22:00"]),
    "a whole day of 25 hours": (["DTSTART;VALUE=DATE:20261025"], ["10-24 22:00/10-25 23:00"]),
    "floating": (["DTSTART:20260110T220000", "DURATION:PT1H"], ["01-10 21:00/22:00"]),
    "a time that does not exist is read with the offset before": (
        [f"DTSTART;{BERLIN}:20260329T023000", "DURATION:PT30M"], ["03-29 01:30/02:00"]),
    "a time that exists twice is the first one": ([f"DTSTART;{BERLIN}:20261025T023000", "DURATION:PT30M"], ["10-25 00:30/01:00"]),
    "a day of duration keeps the clock time": (
        [f"DTSTART;{BERLIN}:20260328T120000", "DURATION:P1D"], ["03-28 11:00/03-29 10:00"]),
    "a weekly night in spring and in autumn": (
        [f"DTSTART;{BERLIN}:20260321T230000", f"DTEND;{BERLIN}:20260322T050000", "RRULE:FREQ=WEEKLY;COUNT=2"],
        ["03-21 22:00/03-22 04:00", "03-28 22:00/03-29 04:00"]),
    "a weekly night in autumn is as long as either reading": (
        [f"DTSTART;{BERLIN}:20261017T230000", f"DTEND;{BERLIN}:20261018T050000", "RRULE:FREQ=WEEKLY;COUNT=2"],
        ["10-17 21:00/10-18 03:00", "10-24 21:00/10-25 04:00"]),
    "weekly over the clock change keeps the clock time": (
        [f"DTSTART;{BERLIN}:20260322T100000", "DURATION:PT1H", "RRULE:FREQ=WEEKLY;COUNT=2"],
        ["03-22 09:00/10:00", "03-29 08:00/09:00"]),
    "daily at a time that does not exist once": (
        [f"DTSTART;{BERLIN}:20260328T023000", "DURATION:PT1H", "RRULE:FREQ=DAILY;COUNT=3"],
        ["03-28 01:30/02:30", "03-29 01:30/02:30", "03-30 00:30/01:30"]),
    "UNTIL in UTC includes its instant": (
        [f"DTSTART;{BERLIN}:20260110T100000", "DURATION:PT1H", "RRULE:FREQ=DAILY;UNTIL=20260112T090000Z"],
        ["01-10 09:00/10:00", "01-11 09:00/10:00", "01-12 09:00/10:00"]),
    "UNTIL in UTC one second earlier": (
        [f"DTSTART;{BERLIN}:20260110T100000", "DURATION:PT1H", "RRULE:FREQ=DAILY;UNTIL=20260112T085959Z"],
        ["01-10 09:00/10:00", "01-11 09:00/10:00"]),
    "UNTIL in local time": (
        [f"DTSTART;{BERLIN}:20260110T100000", "DURATION:PT1H", "RRULE:FREQ=DAILY;UNTIL=20260111T100000"],
        ["01-10 09:00/10:00", "01-11 09:00/10:00"]),
    "UNTIL as a date beside times covers that day": (
        [f"DTSTART;{BERLIN}:20260110T100000", "DURATION:PT1H", "RRULE:FREQ=DAILY;UNTIL=20260111"],
        ["01-10 09:00/10:00", "01-11 09:00/10:00"]),
    "whole days until a date": (
        ["DTSTART;VALUE=DATE:20260110", "RRULE:FREQ=DAILY;UNTIL=20260111"], ["01-09 23:00/01-10 23:00", "01-10 23:00/01-11 23:00"]),
    "whole days until an instant": (
        ["DTSTART;VALUE=DATE:20260110", "RRULE:FREQ=WEEKLY;UNTIL=20260117T000000Z"],
        ["01-09 23:00/01-10 23:00", "01-16 23:00/01-17 23:00"]),
    "EXDATE in UTC": (
        [f"DTSTART;{BERLIN}:20260110T100000", "DURATION:PT1H", "RRULE:FREQ=DAILY;COUNT=3", "EXDATE:20260111T090000Z"],
        ["01-10 09:00/10:00", "01-12 09:00/10:00"]),
    "EXDATE list with its zone": (
        [f"DTSTART;{BERLIN}:20260110T100000", "DURATION:PT1H", "RRULE:FREQ=DAILY;COUNT=3",
         f"EXDATE;{BERLIN}:20260110T100000,20260112T100000"],
        ["01-11 09:00/10:00"]),
    "EXDATE of another time takes nothing out": (
        [f"DTSTART;{BERLIN}:20260110T100000", "DURATION:PT1H", "RRULE:FREQ=DAILY;COUNT=2", "EXDATE:20260111T100000Z"],
        ["01-10 09:00/10:00", "01-11 09:00/10:00"]),
    "EXDATE as a date beside times is not believed": (
        [f"DTSTART;{BERLIN}:20260110T100000", "DURATION:PT1H", "RRULE:FREQ=DAILY;COUNT=2", "EXDATE;VALUE=DATE:20260111"],
        ["01-10 09:00/10:00", "01-11 09:00/10:00"]),
    "RDATE": (
        [f"DTSTART;{BERLIN}:20260110T100000", "DURATION:PT1H", f"RDATE;{BERLIN}:20260115T120000,20260116T120000"],
        ["01-10 09:00/10:00", "01-15 11:00/12:00", "01-16 11:00/12:00"]),
    "RDATE periods": (
        ["DTSTART:20260110T100000Z", "DURATION:PT1H",
         "RDATE;VALUE=PERIOD:20260115T120000Z/20260115T150000Z,20260116T120000Z/PT15M"],
        ["01-10 10:00/11:00", "01-15 12:00/15:00", "01-16 12:00/12:15"]),
    "RDATE in the second hour of two": (
        [f"DTSTART;{BERLIN}:20260110T100000", "DURATION:PT1H", "RDATE:20261025T013000Z"],
        ["01-10 09:00/10:00", "10-25 01:30/02:30"]),
    "RDATE taken out again": (
        ["DTSTART:20260110T100000Z", "DURATION:PT1H", "RDATE:20260115T120000Z", "EXDATE:20260115T120000Z"], ["01-10 10:00/11:00"]),
    "cancelled": (["DTSTART:20260110T220000Z", "DTEND:20260110T230000Z", "STATUS:CANCELLED"], []),
    "tentative": (["DTSTART:20260110T220000Z", "DTEND:20260110T230000Z", "STATUS:TENTATIVE"], ["01-10 22:00/23:00"]),
    "without an end": (["DTSTART:20260110T220000Z"], ["01-10 22:00/22:00"]),
    "a rule that yields nothing": (
        ["DTSTART:20260110T220000Z", "DURATION:PT1H", "RRULE:FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30"], ["01-10 22:00/23:00"]),
    "the last Friday of the month": (
        ["DTSTART:20261030T220000Z", "DURATION:PT1H", "RRULE:FREQ=MONTHLY;BYDAY=-1FR"],
        ["10-30 22:00/23:00", "11-27 22:00/23:00", "12-25 22:00/23:00"]),
    "the 31st": (
        ["DTSTART:20260831T220000Z", "DURATION:PT1H", "RRULE:FREQ=MONTHLY"],
        ["08-31 22:00/23:00", "10-31 22:00/23:00", "12-31 22:00/23:00"]),
    "a week's number takes its weekday from DTSTART": (
        ["DTSTART:20260512T100000Z", "DURATION:PT1H", "RRULE:FREQ=YEARLY;BYWEEKNO=20"], ["05-12 10:00/11:00"]),
    "began long ago": (["DTSTART:19700106T100000Z", "DURATION:PT1H", "RRULE:FREQ=YEARLY"], ["01-06 10:00/11:00"]),
    "began last year and lasts": (["DTSTART:20251230T100000Z", "DTEND:20260102T100000Z"], ["12-30 10:00/01-02 10:00"]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_one_event(case: str) -> None:
    lines, expected = CASES[case]
    assert shown(busy(calendar(event(*lines)), NEVER, *YEAR)) == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["DTSTART;TZID=Europe/Berlin:20261017T230000", "DTEND;TZID=Europe/Berlin:20261018T050000", "RRULE:FREQ=WEEKLY;COUNT=2"],
         ["10-17 21:00/10-18 03:00", "10-24 21:00/10-25 03:00"]),
        (["DTSTART:20260110T100000Z", "DURATION:PT1H", "RRULE:FREQ=DAILY;COUNT=2", "EXDATE;VALUE=DATE:20260111"],
         ["01-10 10:00/11:00"]),
        (["DTSTART:20260110T100000Z", "DURATION:PT1H", "RRULE:FREQ=DAILY;UNTIL=20260111"], ["01-10 10:00/11:00"]),
        (["DTSTART:20260110T100000Z", "DURATION:PT1H", "RRULE:FREQ=YEARLY;BYMONTH=3;BYMONTHDAY=1"], ["03-01 10:00/11:00"]),
        (["DTSTART:20260110T100000Z", "DURATION:PT1H", "RRULE:FREQ=WEIRD"], []),
    ],
)  # fmt: skip
def test_allowing_events_are_read_narrowly(lines: list[str], expected: list[str]) -> None:
    assert shown(busy(calendar(event(*lines)), ONLY, *YEAR)) == expected


SERIES = event("DTSTART;TZID=Europe/Berlin:20260302T100000", "DURATION:PT1H", "RRULE:FREQ=WEEKLY;COUNT=4")
AS_IS = ["03-02 09:00/10:00", "03-09 09:00/10:00", "03-16 09:00/10:00", "03-23 09:00/10:00"]
CHANGES: dict[str, tuple[list[str], list[str]]] = {
    "moved": (["RECURRENCE-ID;TZID=Europe/Berlin:20260309T100000", "DTSTART:20260310T120000Z", "DTEND:20260310T123000Z"],
              [AS_IS[0], "03-10 12:00/12:30", *AS_IS[2:]]),
    "moved far away": (["RECURRENCE-ID:20260309T090000Z", "DTSTART:20260610T120000Z", "DTEND:20260610T123000Z"],
                       [AS_IS[0], *AS_IS[2:], "06-10 12:00/12:30"]),
    "cancelled": (["RECURRENCE-ID:20260309T090000Z", "DTSTART:20260309T090000Z", "STATUS:CANCELLED"], [AS_IS[0], *AS_IS[2:]]),
    "no instance of the series": (["RECURRENCE-ID:20260311T090000Z", "DTSTART:20260311T110000Z", "DURATION:PT1H"],
                                  [*AS_IS[:2], "03-11 11:00/12:00", *AS_IS[2:]]),
    "this and later moved and longer": (
        ["RECURRENCE-ID;RANGE=THISANDFUTURE:20260309T090000Z", "DTSTART;TZID=Europe/Berlin:20260310T110000", "DURATION:PT2H"],
        [AS_IS[0], "03-10 10:00/12:00", "03-17 10:00/12:00", "03-24 10:00/12:00"]),
    "this and later cancelled": (
        ["RECURRENCE-ID;RANGE=THISANDFUTURE:20260316T090000Z", "DTSTART:20260316T090000Z", "STATUS:CANCELLED"], AS_IS[:2]),
}  # fmt: skip


@pytest.mark.parametrize("case", CHANGES)
def test_changed_instances(case: str) -> None:
    lines, expected = CHANGES[case]
    assert shown(busy(calendar(SERIES, event(*lines)), NEVER, *YEAR)) == expected
    assert shown(busy(calendar(event(*lines), SERIES), NEVER, *YEAR)) == expected


def test_a_series_moved_for_good_keeps_the_clock_time_over_the_clock_change_and_one_change_of_its_own() -> None:
    later = event(
        "RECURRENCE-ID;RANGE=THISANDFUTURE:20260309T090000Z", "DTSTART;TZID=Europe/Berlin:20260309T140000", "DURATION:PT1H"
    )
    one = event("RECURRENCE-ID:20260323T090000Z", "DTSTART:20260323T180000Z", "DURATION:PT1H")
    series = SERIES.replace("COUNT=4", "COUNT=5")
    assert shown(busy(calendar(series, later, one), NEVER, *YEAR)) == [
        "03-02 09:00/10:00", "03-09 13:00/14:00", "03-16 13:00/14:00", "03-23 18:00/19:00", "03-30 12:00/13:00",
    ]  # fmt: skip


def test_of_two_changes_the_higher_sequence_counts() -> None:
    old = event("RECURRENCE-ID:20260309T090000Z", "DTSTART:20260309T120000Z", "DURATION:PT1H", "SEQUENCE:1")
    new = event("RECURRENCE-ID:20260309T090000Z", "DTSTART:20260309T150000Z", "DURATION:PT1H", "SEQUENCE:2")
    for order in ((old, new), (new, old)):
        assert "03-09 15:00/16:00" in shown(busy(calendar(SERIES, *order), NEVER, *YEAR))
        assert "03-09 12:00/13:00" not in shown(busy(calendar(SERIES, *order), NEVER, *YEAR))


@pytest.mark.parametrize("name", ["Our own time", "Eastern Standard Time", "EST"])
def test_a_zone_that_the_file_defines(name: str) -> None:
    text = calendar(
        EASTERN.format(name=name),
        event(f"DTSTART;TZID={name}:20260301T100000", "DURATION:PT1H", "RRULE:FREQ=WEEKLY;COUNT=3"),
        zone=None,
    )
    assert shown(busy(text, NEVER, *YEAR)) == ["03-01 15:00/16:00", "03-08 14:00/15:00", "03-15 14:00/15:00"]


def test_gap_and_overlap_in_a_zone_that_the_file_defines() -> None:
    lines = ["DURATION:PT15M"]
    gap = event("DTSTART;TZID=X:20260308T023000", *lines, uid="gap")
    twice = event("DTSTART;TZID=X:20261101T013000", *lines, uid="twice")
    assert shown(busy(calendar(EASTERN.format(name="X"), gap, twice), NEVER, *YEAR)) == ["03-08 07:30/07:45", "11-01 05:30/05:45"]


def test_a_zone_that_ended_its_summer_time() -> None:
    """UNTIL of a zone's rule is in UTC (RFC 5545, section 3.8.5.3): the last change it names does happen."""
    zone = EASTERN.format(name="X").replace("BYMONTH=3", "BYMONTH=3;UNTIL=20250309T070000Z")
    both = [event(f"DTSTART;TZID=X:{year}0701T100000", "DURATION:PT1H", uid=year) for year in ("2025", "2026")]
    found = busy(calendar(zone, *both), NEVER, utc("2025-01-01 00:00"), utc("2027-01-01 00:00"))
    assert shown(found) == ["07-01 14:00/15:00", "07-01 15:00/16:00"]


def test_a_windows_name_without_a_definition() -> None:
    text = calendar(event("DTSTART;TZID=W. Europe Standard Time:20260701T100000", "DURATION:PT1H"), zone=None)
    assert shown(busy(text, NEVER, *YEAR)) == ["07-01 08:00/09:00"]


UNCLEAR = {
    "unknown zone": ["DTSTART;TZID=Nowhere:20260110T100000"],
    "no start": ["DTEND:20260110T100000Z"],
    "no such day": ["DTSTART:20260230T100000Z"],
    "garbled time": ["DTSTART:soon"],
    "ends before it begins": ["DTSTART:20260110T100000Z", "DTEND:20260109T100000Z"],
    "date and time": ["DTSTART;VALUE=DATE:20260110", "DTEND:20260110T100000Z"],
    "end and duration": ["DTSTART:20260110T100000Z", "DTEND:20260110T110000Z", "DURATION:PT1H"],
    "negative duration": ["DTSTART:20260110T100000Z", "DURATION:-PT1H"],
    "unknown frequency": ["DTSTART:20260110T100000Z", "RRULE:FREQ=SOMETIMES"],
    "no frequency": ["DTSTART:20260110T100000Z", "RRULE:COUNT=3"],
    "until a duration": ["DTSTART:20260110T100000Z", "RRULE:FREQ=DAILY;UNTIL=P1D"],
    "until a period": ["DTSTART:20260110T100000Z", "RRULE:FREQ=DAILY;UNTIL=20260101T000000/P1D"],
    "until a time of day": ["DTSTART:20260110T100000Z", "RRULE:FREQ=DAILY;UNTIL=120000"],
    "interval 0": ["DTSTART:20260110T100000Z", "RRULE:FREQ=DAILY;INTERVAL=0"],
    "month 13": ["DTSTART:20260110T100000Z", "RRULE:FREQ=YEARLY;BYMONTH=13"],
    "another calendar scale": ["DTSTART:20260110T100000Z", "RRULE:RSCALE=CHINESE;FREQ=YEARLY"],
    "EXRULE": ["DTSTART:20260110T100000Z", "RRULE:FREQ=DAILY", "EXRULE:FREQ=WEEKLY"],
    "two starts": ["DTSTART:20260110T100000Z", "DTSTART:20260111T100000Z"],
    "a parameter that cannot be read": ['DTSTART;TZID="Europe/Berlin:20260110T100000'],
    "the year 9999": ["DTSTART:99991231T100000Z"],
    "every second for years": ["DTSTART:20200110T100000Z", "DURATION:PT1S", "RRULE:FREQ=SECONDLY"],
    "a count without measure": ["DTSTART:19700110T100000Z", "DURATION:PT1S", "RRULE:FREQ=MINUTELY;COUNT=2000000000"],
    "a change that recurs": ["DTSTART:20260110T100000Z", "RECURRENCE-ID:20260111T100000Z", "RRULE:FREQ=DAILY"],
}


@pytest.mark.parametrize("case", UNCLEAR)
def test_an_event_that_cannot_be_understood_blocks_and_allows_nothing(case: str) -> None:
    good = event("DTSTART:20260601T100000Z", "DURATION:PT1H", uid="good", summary="Lecture")
    here = calendar(event(*UNCLEAR[case]), good)
    blocked = busy(here, NEVER, *YEAR)
    assert (blocked[0].start, blocked[0].end) == YEAR
    assert "Exam (it cannot be understood: " in blocked[0].why
    assert shown(busy(here, ONLY, *YEAR)) == ["06-01 10:00/11:00"]
    assert shown(busy(here, rule(match={"summary": "lecture"}), *YEAR)) == ["06-01 10:00/11:00"], "what does not match is not asked"


def test_a_title_that_cannot_be_read_is_taken_to_match_where_that_blocks() -> None:
    text = calendar(event('SUMMARY;X="open:Walk', "DTSTART:20260601T100000Z", "DURATION:PT1H"))
    assert [one.end for one in busy(text, rule(match={"summary": "defence"}), *YEAR)] == [YEAR[1]]
    assert busy(text, rule("only during", match={"summary": "defence"}), *YEAR) == []


GARBAGE = {
    "empty": "",
    "blank": "\n\n",
    "a web page": "<!DOCTYPE html><html><body>Sign in</body></html>",
    "JSON": '{"error": "no such calendar"}',
    "cut off": calendar_text(SERIES)[:-40],
    "cut off inside a line": calendar_text(SERIES).split("RRULE")[0] + "RRU",
    "crossed": "BEGIN:VCALENDAR\nBEGIN:VEVENT\nEND:VCALENDAR\nEND:VEVENT\n",
    "an end too many": calendar_text(SERIES) + "END:VCALENDAR\n",
    "bytes": "\x00\x01\x02BEGIN:VCALENDAR",
    "only an event": SERIES,
}


@pytest.mark.parametrize("case", GARBAGE)
def test_garbage_is_one_named_error(case: str) -> None:
    with pytest.raises(BadCalendar, match=r"calendar `classes` cannot be read: ") as caught:
        parse_calendar(GARBAGE[case], "classes", None)
    assert isinstance(caught.value, BadInput)
    assert caught.value.next_step


def test_too_many_events_are_refused() -> None:
    with pytest.raises(BadCalendar, match="more than 20000 events"):
        parse_calendar(calendar_text("BEGIN:VEVENT\r\nEND:VEVENT\r\n" * 20_001), "classes", None)


@pytest.mark.parametrize("line", ["DTSTART:20260110T220000", "DTSTART;VALUE=DATE:20260110"])
def test_times_without_a_zone_need_one(line: str) -> None:
    with pytest.raises(ZoneNeeded, match="'Exam'") as caught:
        busy(calendar(event(line), zone=None), NEVER, *YEAR)
    assert "`zone: " in caught.value.next_step
    assert busy(calendar(event(line), zone=None), rule(match={"summary": "lecture"}), *YEAR) == [], "only events that count"


def test_matches() -> None:
    texts = [
        event("DTSTART:20260101T100000Z", "CATEGORIES:Teaching,Exam\\, oral", uid="a", summary="Klausur\\, Mathe"),
        event("DTSTART:20260102T100000Z", "CATEGORIES:Meeting", uid="b", summary="Master's DEFENCE"),
        event("DTSTART:20260103T100000Z", "TRANSP:TRANSPARENT", uid="c", summary="Exam week"),
        event("DTSTART:20260104T100000Z", uid="d", summary="Lu\r\n nch"),
    ]
    here = calendar(*texts, name="Institute\\, 3rd floor")

    def days(**keys: Any) -> list[int]:
        return [one.start.day for one in busy(here, rule(**keys), *YEAR)]

    assert days() == [1, 2, 3, 4]
    assert days(transparent="skip") == [1, 2, 4]
    assert days(match={"summary": "defence|klausur"}) == [1, 2]
    assert days(match={"summary": "^lunch$"}) == [4]
    assert days(match={"category": "exam, oral"}) == [1]
    assert days(match={"category": "exam"}) == []
    assert days(match={"category": "meeting", "summary": "klausur"}) == []
    assert days(match={"calendar": "institute, 3RD floor"}) == [1, 2, 3, 4]
    with pytest.raises(BadCalendar, match="no calendar called 'Institut', but Institute, 3rd floor"):
        days(match={"calendar": "Institut"})


def test_beyond_the_years_that_are_worked_out_a_recurrence_is_a_doubt() -> None:
    here = calendar(event("DTSTART;VALUE=DATE:20260110", "RRULE:FREQ=DAILY"))
    span = utc("2500-01-01 00:00"), utc("2500-02-01 00:00")
    [blocked] = busy(here, NEVER, *span)
    assert (blocked.start, blocked.end) == span
    assert "a recurrence outside of the years" in blocked.why
    assert busy(here, ONLY, *span) == []


MINUTES = [event("DTSTART:20250110T100000Z", "RRULE:FREQ=MINUTELY", uid=str(n)) for n in range(150)]
NOTHING = [event("DTSTART:20260110T100000Z", "RRULE:FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30", uid=str(n)) for n in range(20)]
LATER = [
    *(event("DTSTART:20260110T100000Z", "RRULE:FREQ=DAILY", summary=str(n)) for n in range(300)),
    *(event(f"RECURRENCE-ID;RANGE=THISANDFUTURE:20260111T{at}00Z", f"DTSTART:20260112T{at}00Z")
      for at in (f"{n // 60:02d}{n % 60:02d}" for n in range(1000))),
]  # fmt: skip


@pytest.mark.parametrize("kind", [NEVER, ONLY])
@pytest.mark.parametrize("events", [MINUTES, NOTHING, LATER], ids=["every minute", "never found", "changes of many series"])
def test_a_calendar_that_takes_too_much_work_cannot_be_understood(events: list[str], kind: CalendarRule) -> None:
    here = calendar(*events)
    with pytest.raises(BadCalendar, match="it cannot be understood: working it out would take more than 200000 steps"):
        busy(here, kind, utc("2026-03-01 00:00"), utc("2026-04-01 00:00"))


def test_zones_of_a_file_that_take_too_much_work_cannot_be_understood() -> None:
    rules = "\n".join(["RRULE:FREQ=YEARLY;BYDAY=1SU;BYMONTH=11"] * 400)
    zone = EASTERN.format(name="X").replace("RRULE:FREQ=YEARLY;BYDAY=1SU;BYMONTH=11", rules)
    with pytest.raises(BadCalendar, match="working it out would take more than"):
        calendar(zone, event("DTSTART;TZID=X:20260101T000000"))


def test_a_full_calendar_is_within_its_budget() -> None:
    daily = [event("DTSTART:19900110T100000Z", "DURATION:PT1H", "RRULE:FREQ=DAILY", uid=f"d{n}") for n in range(300)]
    ended = [event("DTSTART:19900110T100000Z", "RRULE:FREQ=DAILY;UNTIL=20200101T000000Z", uid=f"e{n}") for n in range(500)]
    birthdays = [event("DTSTART;VALUE=DATE:19700320", "RRULE:FREQ=YEARLY", uid=f"y{n}") for n in range(200)]
    found = busy(calendar(*daily, *ended, *birthdays), NEVER, utc("2026-03-01 00:00"), utc("2026-04-01 00:00"))
    assert len(found) == 300 * 31 + 200
