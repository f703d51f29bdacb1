"""What the screen knows and shows: fits every size, keeps what matters most, invents no figure."""

from __future__ import annotations

import pytest

from audition.run.events import (
    BootLogged,
    EndedEarly,
    Event,
    GuardArmed,
    ProductionChanged,
    RestoreEnded,
    SignalHeard,
    StepBegan,
    StepEnded,
    production_after,
)
from audition.run.screen_figures import acceptance, clock, rate, seconds, spark
from audition.run.screen_marks import ASCII, UNICODE
from audition.run.screen_state import ScreenState
from audition.run.screen_view import View, rows, summary_rows
from audition.units import NoData
from run.scripted_run import AFTER, BEFORE, MEASURE_NEW, MEASURE_OLD, MIDDLE, RESTORE, progress

NONE = NoData("-")


def state_after(events: list[Event], *, each_s: float = 1.0) -> ScreenState:
    state = ScreenState(rehearsal=True)
    for number, event in enumerate(told(events)):
        state.take(event, number * each_s)
    return state


def told(events: list[Event]) -> list[Event]:
    """The events with those that the reporter adds."""
    out: list[Event] = []
    for event in events:
        out.append(event)
        if (state := production_after(event, "old")) is not None:
            out.append(ProductionChanged(state, "old"))
    return out


def shown(state: ScreenState, width: int = 99, height: int = 29, now: float = 100.0, unix: float = 0.0) -> str:
    return "\n".join(row.plain for row in rows(state, View(width, height, now, unix)))


@pytest.mark.parametrize("width", [1, 2, 5, 8, 19, 39, 60, 76, 99, 300])
@pytest.mark.parametrize("height", [1, 2, 4, 8, 15, 29])
def test_every_moment_fits_every_size(width: int, height: int) -> None:
    events = [*BEFORE, *MIDDLE, *AFTER]
    for number in range(len(events) + 1):
        state = state_after(events[:number])
        for marks in (UNICODE, ASCII):
            drawn = rows(state, View(width, height, 100.0, 0.0, marks))
            assert 1 <= len(drawn) <= height
            assert all(row.cell_len <= width for row in drawn)
            assert all(row.cell_len <= width for row in summary_rows(state, View(width, height, 100.0, 0.0, marks)))


@pytest.mark.parametrize("width", [20, 40, 80, 120])
def test_a_rehearsal_says_so_at_every_width(width: int) -> None:
    state = state_after([*BEFORE, *MIDDLE])
    assert "REHEARSAL" in shown(state, width, 5)
    assert "REHEARSAL" in "\n".join(row.plain for row in summary_rows(state, View(width, 5, 9.0, 0.0)))


def test_production_and_the_mark_stay_longest() -> None:
    text = shown(state_after([*BEFORE, *MIDDLE]), 39, 2)
    assert "REHEARSAL" in text
    assert "STOPPED" in text


def test_the_running_leg_stands_beside_productions_latest() -> None:
    text = shown(state_after([*BEFORE, *MIDDLE]))
    line = next(line for line in text.splitlines() if "many" in line and "733" in line)
    assert line.split() == ["▶", "many", "733.3", "730.2", "31", "ms", "20", "ms", "58%", "2.74", "–"]
    assert "beside old in leg 1" in text
    assert "16 of 32" in text
    narrow = shown(state_after([*BEFORE, *MIDDLE]), 39, 23)
    assert "733.3  730.2 old" in narrow


def test_figures_of_an_earlier_workload_are_not_carried_into_the_next() -> None:
    state = state_after([*BEFORE, *MIDDLE[:2]])
    text = shown(state)
    assert "733" not in text
    assert "probes" in text


@pytest.mark.parametrize(
    ("left", "said"), [(7200.0, "must begin in 2 h 00 min"), (90.0, "must begin in 1 min 30 s"), (-5.0, "must begin now")]
)
def test_time_left_until_restoring(left: float, said: str) -> None:
    state = state_after([*BEFORE, GuardArmed(1000.0 + left)])
    assert said in shown(state, unix=1000.0)


def test_without_a_window_no_time_is_invented() -> None:
    state = state_after([*BEFORE, GuardArmed(NoData("the window has no end"))])
    assert "no fixed time: the window has no end" in shown(state)


def test_time_to_go_is_said_only_when_every_arm_has_run() -> None:
    first = state_after(BEFORE)
    assert isinstance(first.seconds_to_go(20.0), NoData)
    again = [*BEFORE, *MIDDLE, StepEnded(MEASURE_NEW, 9.0)]
    assert state_after(again).seconds_to_go(50.0) == 0.0


def test_what_ctrl_c_does_is_said_at_each_stage() -> None:
    assert "nothing has been touched" in shown(state_after(BEFORE[:3]))
    assert "ends the leg and brings production back" in shown(state_after([*BEFORE, *MIDDLE]))
    asked = state_after([*BEFORE, *MIDDLE, SignalHeard("SIGINT", 0, "SIGINT: ending the leg, production comes back")])
    assert "SIGINT: ending the leg, production comes back" in shown(asked).splitlines()[-1]
    assert "put off" in shown(state_after([*BEFORE, *MIDDLE, StepBegan(RESTORE)]))


def test_a_production_that_is_not_back_is_shouted() -> None:
    lost: list[Event] = [*BEFORE, *MIDDLE, StepBegan(RESTORE), RestoreEnded(False, ("its boot failed",), 3.0)]
    state = state_after(lost)
    assert "NOT BACK" in shown(state)
    assert "its boot failed" in shown(state)
    assert "PRODUCTION IS NOT BACK" in "\n".join(row.plain for row in summary_rows(state, View(80, 24, 9.0, 0.0)))


def test_a_leg_that_was_cut_is_not_marked_done() -> None:
    cut: list[Event] = [*BEFORE, *MIDDLE, EndedEarly("interrupted", "SIGINT received"), StepBegan(RESTORE)]
    state = state_after(cut)
    assert "✘ new" in shown(state)
    assert "ending early: SIGINT received" in shown(state)
    assert state.take(StepEnded(MEASURE_NEW, 4.0), 60.0) == ["leg 2 of 2, new: cut after 4.0 s"]


def test_the_curve_starts_anew_with_each_leg_and_takes_no_rate_over_an_instant() -> None:
    state = state_after([*BEFORE, *MIDDLE])
    assert list(state.rates) == pytest.approx([2200 / 3.0])
    state.take(progress(2, "new", "candidate", 5000), 99.0)
    assert len(state.rates) == 1, "no time has passed in the workload since"


def test_lines_that_stay_tell_the_story() -> None:
    state, kept = ScreenState(), list[str]()
    for event in told([*BEFORE, *MIDDLE, StepEnded(MEASURE_NEW, 9.0), *AFTER]):
        kept += state.take(event, 1.0)
    assert kept == [
        "records: /records/here",
        "leg 1 of 2, old: measured in 8.0 s",
        "production (old): stopped",
        "new answers after 1.5 s",
        "warning: the key is s3cr3t-word",  # masked before it comes here
        "leg 2 of 2, new: measured in 9.0 s",
        "ending early: nothing can change the verdict",
        "production (old): being restored",
        "production (old): back and verified",
    ]
    assert MEASURE_OLD.key in state.steps_done


def test_a_refused_run_leaves_no_summary() -> None:
    state = state_after(BEFORE[:3])
    state.closed = True
    assert summary_rows(state, View(80, 24, 9.0, 0.0)) == []
    killed = state_after(BEFORE[:3])
    assert "audition status" in "\n".join(row.plain for row in summary_rows(killed, View(80, 24, 9.0, 0.0)))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("(APIServer pid=24) INFO 12-01 15:22:32 [api_utils.py:273] non-default args", "log  non-default args"),
        ("(Worker_TP0 pid=9) Loading weights: 60%", "log  Loading weights: 60%"),
        ("INFO: Started server process [1]", "log  INFO: Started server process [1]"),
        ("WARNING 12-01 15:22:32 [x.py:1] ", "log  [x.py:1]"),
    ],
)
def test_the_log_line_begins_with_its_message(line: str, said: str) -> None:
    state = state_after([*BEFORE, BootLogged("new", line)])
    assert said in [row.rstrip() for row in shown(state).splitlines()]


def test_short_texts() -> None:
    assert [clock(0), clock(65.9), clock(3725), clock(-1)] == ["00:00", "01:05", "1:02:05", "00:00"]
    assert [rate(1234.5), rate(99.94), rate(NONE)] == ["1,234", "99.9", "–"]
    assert [seconds(0.0314), seconds(2.0), seconds(NONE)] == ["31 ms", "2.00 s", "–"]
    assert [acceptance(0.58, 2.74), acceptance(0.58, NONE), acceptance(NONE, NONE)] == ["58% 2.74", "58%", "–"]
    assert spark([0, 5, 10], 8, UNICODE) == "▁▅█"
    assert spark([], 8, UNICODE) == spark([0.0], 8, UNICODE) == ""
    assert len(spark(range(100), 8, ASCII)) == 8
