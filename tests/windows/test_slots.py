"""Free slots: windows, events that forbid and events that allow, calendars that cannot be read."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from audition.spike.window import Window
from audition.units import NoData
from audition.windows.slots import Calendars, NoSlot, Slot, free_slots, lost, slot_for
from windows.calendar_texts import calendar, event, shown, utc

OPENS, CLOSES = "2026-12-05T21:00:00+00:00", "2026-12-06T03:00:00+00:00"
EXAM = event("DTSTART:20261205T230000Z", "DTEND:20261206T000000Z", uid="exam", summary="Exam")
LECTURE = event("DTSTART:20261205T220000Z", "DURATION:PT10M", uid="lecture", summary="Lecture")
EVENING = event("DTSTART:20261205T200000Z", "DTEND:20261205T220000Z", uid="evening", summary="GPU slot")
NIGHT = event("DTSTART:20261205T220000Z", "DTEND:20261206T010000Z", uid="night", summary="GPU slot")


def window(*calendars: dict[str, Any], **keys: Any) -> Window:
    rows = [{"name": f"c{at}", "file": "x.ics", "rule": "never during", **one} for at, one in enumerate(calendars)]
    return Window.model_validate({"calendars": rows, **keys})


def slots(wanted: Window, **calendars: Any) -> list[str]:
    return shown(free_slots(wanted, calendars, utc("2026-12-05 18:00"), utc("2026-12-06 06:00")))


def test_nothing_limits() -> None:
    assert slots(window()) == ["12-05 18:00/12-06 06:00"]
    assert slot_for(window(), {}, utc("2026-12-05 18:00"), 60) == Slot(utc("2026-12-05 18:00"), None)


def test_the_window_alone() -> None:
    assert slots(window(opens=OPENS, closes=CLOSES)) == ["12-05 21:00/12-06 03:00"]
    assert slots(window(closes=OPENS)) == ["12-05 18:00/21:00"]
    assert slots(window(opens="2026-12-07T00:00:00+01:00")) == []


def test_never_and_only() -> None:
    assert slots(window({}), c0=calendar(EXAM)) == ["12-05 18:00/23:00", "12-06 00:00/06:00"]
    assert slots(window({"match": {"summary": "lecture"}}), c0=calendar(EXAM)) == ["12-05 18:00/12-06 06:00"]
    assert slots(window({"rule": "only during"}), c0=calendar(EVENING, NIGHT)) == ["12-05 20:00/12-06 01:00"], "they touch"
    both = window({"rule": "only during"}, {}, opens=OPENS)
    assert slots(both, c0=calendar(EVENING, NIGHT), c1=calendar(EXAM, LECTURE)) == [
        "12-05 21:00/22:00", "12-05 22:10/23:00", "12-06 00:00/01:00",
    ]  # fmt: skip
    assert slots(window({"rule": "only during"}), c0=calendar()) == [], "no event allows it"


def test_an_event_without_length_is_not_run_across() -> None:
    assert slots(window({}), c0=calendar(event("DTSTART:20261205T230000Z"))) == ["12-05 18:00/23:00", "12-05 23:00/12-06 06:00"]


@pytest.mark.parametrize("rule", ["never during", "only during"])
def test_a_calendar_that_cannot_be_read_blocks_unless_it_is_to_be_ignored(rule: str) -> None:
    unread: list[Calendars] = [{"c0": NoData("it is gone")}, {}]
    for calendars in unread:
        assert free_slots(window({"rule": rule}), calendars, utc("2026-12-05 18:00"), utc("2026-12-06 06:00")) == []
        assert slots(window({"rule": rule, "unreachable": "ignore"}), **calendars) == ["12-05 18:00/12-06 06:00"]
    found = slot_for(window({"rule": rule}), unread[0], utc("2026-12-05 18:00"), 60)
    assert found == NoSlot("calendar c0 is not known, and unknown is not free: it is gone", unknown=True)
    named = window({"rule": rule, "match": {"calendar": "Institute"}})
    assert slots(named, c0=calendar(EXAM, name="Faculty")) == [], "a name that is not in the file"


def answer(wanted: Window, at: str, **calendars: Any) -> Slot | NoSlot:
    return slot_for(wanted, calendars, utc(at), 1800)


def test_a_slot_ends_with_what_comes_next() -> None:
    wanted = window({}, {"rule": "only during"}, opens=OPENS, closes=CLOSES, zone="Europe/Berlin")
    calendars = {"c0": calendar(EXAM), "c1": calendar(EVENING, NIGHT)}
    assert answer(wanted, "2026-12-05 21:00", **calendars) == Slot(
        utc("2026-12-05 21:00"), utc("2026-12-05 23:00"), "Exam (calendar c0) begins"
    )
    assert answer(wanted, "2026-12-06 00:00", **calendars) == Slot(
        utc("2026-12-06 00:00"), utc("2026-12-06 01:00"), "GPU slot (calendar c1) ends"
    )
    found = answer(window(closes=CLOSES), "2026-12-05 21:00")
    assert found == Slot(utc("2026-12-05 21:00"), utc("2026-12-06 03:00"), "the window closes")


@pytest.mark.parametrize(
    ("at", "reason", "next_free"),
    [
        ("2026-12-05 20:00", "the window opens at 2026-12-05 22:00 +0100", "2026-12-05 21:00"),
        ("2026-12-05 23:30", "Exam (calendar c0) is on, 2026-12-06 00:00 +0100 to 2026-12-06 01:00 +0100", "2026-12-06 00:00"),
        ("2026-12-05 22:45",
         "the free slot is too short: Exam (calendar c0) is on, 2026-12-06 00:00 +0100 to 2026-12-06 01:00 +0100; "
         "15 min are left, more than 30 min are needed", "2026-12-06 00:00"),
        ("2026-12-05 22:30",
         "the free slot is too short: Exam (calendar c0) is on, 2026-12-06 00:00 +0100 to 2026-12-06 01:00 +0100; "
         "30 min are left, more than 30 min are needed", "2026-12-06 00:00"),
        ("2026-12-06 01:30",
         "no event of calendar c1, which allows the spike, is on; the next one is GPU slot, "
         "2026-12-06 03:00 +0100 to 2026-12-06 05:00 +0100", "2026-12-06 02:00"),
        ("2026-12-06 02:45", "the free slot is too short: the window closes at 2026-12-06 04:00 +0100; "
         "15 min are left, more than 30 min are needed", None),
        ("2026-12-06 03:00", "the window closed at 2026-12-06 04:00 +0100", None),
    ],
)  # fmt: skip
def test_why_there_is_no_slot(at: str, reason: str, next_free: str | None) -> None:
    wanted = window({}, {"rule": "only during"}, opens=OPENS, closes=CLOSES, zone="Europe/Berlin")
    late = event("DTSTART:20261206T020000Z", "DTEND:20261206T040000Z", uid="late", summary="GPU slot")
    found = answer(wanted, at, c0=calendar(EXAM), c1=calendar(EVENING, NIGHT, late))
    assert isinstance(found, NoSlot)
    assert found.reason == reason
    assert not found.unknown
    assert (found.next_free and found.next_free.start) == (utc(next_free) if next_free else None)


def test_a_slot_is_lost_when_an_event_appears_and_kept_when_it_is_only_shortened() -> None:
    wanted, start = window({}), utc("2026-12-05 22:00")
    slot = slot_for(wanted, {"c0": calendar()}, start, 1800)
    assert isinstance(slot, Slot)
    assert lost(slot, wanted, {"c0": calendar()}, 1800) is None
    assert lost(slot, wanted, {"c0": calendar(EXAM)}, 1800) is None
    gone = lost(slot, wanted, {"c0": calendar(LECTURE)}, 1800)
    assert gone is not None
    assert gone.blocking is not None
    assert gone.reason.startswith("Lecture (calendar c0) is on, ")
    unread = lost(slot, wanted, {"c0": NoData("it is gone")}, 1800)
    assert unread is not None
    assert unread.unknown


def test_an_event_that_cannot_be_understood_is_named() -> None:
    found = answer(window({}), "2026-12-05 20:00", c0=calendar(event("DTSTART:soon")))
    assert isinstance(found, NoSlot)
    assert found.reason.startswith("Exam (it cannot be understood: ")
    assert found.next_free is None


def test_midnight_and_clock_changes_are_instants() -> None:
    """In the night of 25 October 2026, 02:30 happens twice in Berlin; the window is given with its offset."""
    night = window(opens="2026-10-25T02:30:00+01:00", closes="2026-10-25T06:00:00+01:00", zone="Europe/Berlin")
    first, second = datetime.fromisoformat("2026-10-25T02:40:00+02:00"), datetime.fromisoformat("2026-10-25T02:40:00+01:00")
    early, found = slot_for(night, {}, first, 60), slot_for(night, {}, second, 60)
    assert isinstance(early, NoSlot)
    assert early.reason == "the window opens at 2026-10-25 02:30 +0100"
    assert isinstance(found, Slot)
    assert found.end == utc("2026-10-25 05:00")
