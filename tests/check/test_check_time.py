"""Time: the plan as a timeline, its length against the window, what to cut; lengths come from earlier runs where there are any."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from audition.check.facts import Facts, LegTimes
from audition.check.look_calendars import look_at_calendars
from audition.check.look_history import look_at_history, trace_seconds
from audition.check.timing import ASSUMED_TOK_S, about_time, boot_s, plan, proposals, workload_s
from audition.spike.model import Spike
from audition.units import NoData
from check.look import NOW, arm, codes, container, facts, one, spike_of
from judge.build_run import LegPlan, build_run, make_spike


def closing_in(seconds: float, **more: Any) -> Spike:
    """A spike whose window closes so long after NOW; production starts in 100 s at worst, so 210 s are kept for restoring."""
    closes = datetime.fromtimestamp(NOW, UTC) + timedelta(seconds=seconds)
    return spike_of(window={"closes": closes.isoformat()}, restore={"slowest_cold_start": 100, "hold": 10}, **more)


def known(spike: Spike) -> Facts:
    """Boots of 60 s and 120 s, and legs of 100 s, all from earlier runs."""
    times = LegTimes({("prod", "single"): 90.0, ("cand", "single"): 80.0})
    production, candidate = arm("prod", "production", boots=(60.0, 50.0)), arm("cand", "candidate", boots=(120.0,))
    return facts(spike, production=production, candidate=candidate, times=times)


def test_the_timeline_is_what_the_run_does() -> None:
    made = plan(known(closing_in(7200)))
    assert [entry.what.partition(":")[0] for entry in made.entries] == [
        "leg 1 prod", "drain and stop prod", "boot cand", "leg 2 cand", "stop cand", "boot prod", "leg 3 prod",
        "drain and stop prod", "boot cand", "leg 4 cand", "stop cand", "boot prod", "leg 5 prod", "production must hold",
    ]  # fmt: skip
    boots = [entry.seconds for entry in made.entries if entry.what.startswith("boot")]
    assert boots == [120.0, 60.0, 120.0, 60.0]
    for before, after in zip(made.entries, made.entries[1:], strict=False):
        assert after.at_s == before.at_s + before.seconds
    assert made.end_s == made.entries[-1].at_s + 10


def test_a_run_that_ends_with_the_candidate_brings_production_back() -> None:
    made = plan(known(closing_in(7200, legs=["prod", "cand"])))
    assert made.entries[-2].what == "bring production back"


def test_boots_come_from_history_then_the_healthcheck_then_what_is_stated() -> None:
    spike = spike_of(restore={"slowest_cold_start": 1500})
    assert boot_s(spike, arm("cand", "candidate", boots=(50.0, 70.0))) == (70.0, "slowest of 2 earlier times")
    stated = arm("cand", "candidate", container=container(start_period_s=600.0))
    assert boot_s(spike, stated) == (600.0, "start_period of its healthcheck")
    assert boot_s(spike, arm("cand", "candidate")) == (1500.0, "restore.slowest_cold_start")


def test_workloads_without_history_are_reckoned_from_what_they_state() -> None:
    rows = [
        {"name": "closed", "users": 4, "requests": 10, "max_tokens": 300, "warmup": 0},
        {"name": "timed", "users": 4, "duration": "5m", "max_tokens": 300, "warmup": 0},
        {"name": "open", "rate": 0.5, "requests": 100, "max_tokens": 300, "warmup": 0},
        {"name": "traced", "trace": "t.txt", "max_tokens": 300, "warmup": 0},
    ]
    gates = [{"metric": "failure_share", "workload": "closed", "at_most": 0}]
    spike = spike_of(workloads=rows, gates=gates)
    seen = facts(spike, times=LegTimes({}, {"t.txt": 40.0}))
    answer = 300 / ASSUMED_TOK_S
    lengths = [workload_s(seen, "cand", workload)[0] for workload in spike.workloads]
    assert lengths == [3 * answer, 300 + answer, 200 + answer, 40 + answer]


def test_a_window_that_is_long_enough() -> None:
    found = list(about_time(known(closing_in(7200))))
    assert codes(found, "blocking") + codes(found, "warning") == []
    assert "to spare" in one(found, "window").text
    assert "23:16:30 +0000" in one(found, "restore-deadline").text


def test_a_plan_that_is_too_long_says_what_to_cut() -> None:
    seen = known(closing_in(1200))
    found = one(list(about_time(seen)), "window-too-short")
    assert found.level == "warning"
    assert "INCONCLUSIVE" in found.text
    assert "legs: [prod, cand, prod]" in found.hint
    cuts = list(proposals(seen, 1200 - 210))
    assert [cut.fits for cut in cuts if cut.what.startswith("the last")] == [True]


def test_a_workload_that_no_gate_needs_is_proposed_first() -> None:
    rows = [{"name": "single", "requests": 6}, {"name": "extra", "requests": 600}]
    seen = facts(closing_in(3000, workloads=rows))
    first = next(iter(proposals(seen, 2790)))
    assert "the workload extra (no gate decides by it)" in first.what
    assert first.saves_s > 1000


def test_a_window_in_which_not_even_the_candidate_boots() -> None:
    slow = arm("cand", "candidate", boots=(900.0,))
    found = one(list(about_time(facts(closing_in(1000), candidate=slow))), "window-too-short")
    assert found.level == "blocking"
    assert "not even the candidate's boot would end (15 min" in found.text


def test_a_window_that_is_over_or_absent() -> None:
    assert one(list(about_time(known(closing_in(250)))), "window-too-short").level == "blocking"
    assert "window-missing" not in codes(list(about_time(known(closing_in(250)))))
    assert one(list(about_time(facts())), "window-missing").level == "warning"
    over = closing_in(215)
    later = Facts(over, NOW + 100, known(over).arms, None, LegTimes())
    assert one(list(about_time(later)), "no-slot").level == "blocking"


def test_limits_that_earlier_boots_exceed() -> None:
    slow = arm("prod", "production", boots=(2000.0,))
    found = list(about_time(facts(spike_of(), production=slow)))
    assert "boot-limit" in codes(found, "warning")
    assert one(found, "slowest-cold-start").hint == "restore: {slowest_cold_start: 2000s}"


def test_history_is_read_from_real_records_of_this_spike_alone(tmp_path: Path) -> None:
    spike = make_spike([{"metric": "failure_share", "workload": "users", "at_most": 0}])
    plans = [LegPlan("v2g"), LegPlan("mtp"), LegPlan("v2g")]
    build_run(tmp_path / "mtp-k3_2026-11-30", spike, plans)
    build_run(tmp_path / "mtp-k3_rehearsal_2026-11-30", spike, plans, run={"rehearsal": True})
    (tmp_path / "mtp-k3_broken").mkdir()
    (tmp_path / "mtp-k3_broken" / "run.json").write_text("{")
    found = look_at_history(spike, tmp_path, tmp_path)
    assert set(found.boots) <= {"v2g", "mtp"}
    assert found.boots["mtp"]
    assert all(seconds > 0 for boots in found.boots.values() for seconds in boots)
    assert {key for key, seconds in found.times.workloads.items() if seconds > 0} == {("v2g", "users"), ("mtp", "users")}
    other = make_spike([{"metric": "failure_share", "workload": "users", "at_most": 0}], name="another")
    assert look_at_history(other, tmp_path, tmp_path).boots == {}
    assert look_at_history(spike, tmp_path / "nowhere", tmp_path).boots == {}


def test_the_last_arrival_of_a_trace(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text('1.0\n{"at": 4.5}\n')
    assert trace_seconds(tmp_path / "t.txt") == 3.5
    assert isinstance(trace_seconds(tmp_path / "none.txt"), NoData)


CALENDAR = """\
BEGIN:VCALENDAR
VERSION:2.0
PRODID:-//tests//EN
BEGIN:VEVENT
UID:1
SUMMARY:Defence of a thesis
DTSTART:20261201T210000Z
DTEND:20261201T230000Z
END:VEVENT
END:VCALENDAR
"""
RULE = {"name": "exams", "file": "exams.ics", "rule": "never during"}


def calendars(folder: Path, *rules: dict[str, str], **window: Any) -> Facts:
    """NOW is 21:20, in the middle of the event."""
    spike = spike_of(window={"calendars": list(rules), **window}, restore={"slowest_cold_start": 100, "hold": 10})
    return replace(known(spike), calendars=look_at_calendars(spike.window, folder))


def test_an_event_that_forbids_the_run_is_named_with_the_next_free_slot(tmp_path: Path) -> None:
    (tmp_path / "exams.ics").write_text(CALENDAR)
    found = list(about_time(calendars(tmp_path, RULE)))
    busy = one(found, "no-slot-now")
    assert busy.level == "warning"
    assert "Defence of a thesis" in busy.text
    assert busy.hint == "audition run SPIKE --at 2026-12-01T23:00:00+00:00"
    assert "nothing is in its way for 31 days" in one(found, "window").text


def test_a_calendar_that_cannot_be_read_blocks(tmp_path: Path) -> None:
    found = one(list(about_time(calendars(tmp_path, RULE))), "no-slot")
    assert found.level == "blocking"
    assert "unknown is not free" in found.text
    (tmp_path / "exams.ics").write_text("no calendar")
    assert one(list(about_time(calendars(tmp_path, RULE))), "no-slot").level == "blocking"
    ignored = {**RULE, "unreachable": "ignore"}
    assert codes(list(about_time(calendars(tmp_path, ignored))), "blocking") == []


def test_a_calendar_at_an_address_is_not_fetched(tmp_path: Path) -> None:
    rule = {"name": "exams", "url": "https://calendar.example/exams.ics", "rule": "never during"}
    found = one(list(about_time(calendars(tmp_path, rule))), "calendar-not-fetched")
    assert found.level == "warning"
