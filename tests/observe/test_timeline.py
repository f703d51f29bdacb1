"""Readings over time as minutes."""

import pytest

from audition.observe.prometheus import Snapshot
from audition.observe.timeline import Point, first_reset, minutes, point_of


def point(at: float, tokens: float, drafts: float | None = None, accepted: float | None = None) -> Point:
    return Point(at, 1, 0, 0.1, tokens, drafts, None if drafts is None else 3 * drafts, accepted, 0)


def test_minutes_hold_what_happened_in_them() -> None:
    rows = [point(at, 100 * at, 40 * at, 60 * at if at <= 60 else 3600) for at in range(0, 131, 10)]
    first, second = minutes(rows)
    assert (first.begin, first.end, first.tok_s) == (0, 60, 100)
    assert first.acceptance_length == pytest.approx(2.5)
    assert first.acceptance_rate == pytest.approx(0.5)
    assert (second.begin, second.end) == (60, 130)  # the short rest belongs to it
    assert second.acceptance_length == 1.0


def test_what_the_engine_does_not_say_is_absent() -> None:
    only = minutes([point(0, 0), point(40, 400)])
    assert [(m.tok_s, m.acceptance_rate, m.acceptance_length) for m in only] == [(10, None, None)]
    assert minutes([]) == minutes([point(0, 0)]) == []
    assert point_of(1.0, Snapshot()).running is None


def test_a_restart_on_the_way_is_found() -> None:
    readings = [(0.0, Snapshot({"generation_tokens": 5})), (5.0, Snapshot({"generation_tokens": 9}))]
    assert first_reset(readings) == ""
    assert "10 s" in first_reset([*readings, (10.0, Snapshot({"generation_tokens": 1}))])
