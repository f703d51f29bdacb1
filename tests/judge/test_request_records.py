"""Request records on disk: what is made of their events when they are written, and what is noticed when they are read."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audition.judge.load import Garbled, decode_requests, events_of
from audition.judge.records import RequestRecord, StreamEvent, filled_events, pack_events, stream_times, unpack_events
from audition.judge.timing import gaps_between_events, timing_of, tokens_between
from judge.build_run import requests

EVENTS = st.lists(
    st.tuples(st.integers(0, 5_000_000), st.one_of(st.none(), st.integers(0, 9)), st.integers(0, 7)).map(
        lambda e: StreamEvent(e[0] / 1e6, e[1], e[2])
    ),
    max_size=12,
)


def record_of(events: list[StreamEvent]) -> RequestRecord:
    ordered = sorted(events, key=lambda e: e.at)
    return RequestRecord(0, 0, "p", 0.0, 0.0, 0.0, 9.0, "ok", completion_tokens=30, events=pack_events(ordered))


@given(EVENTS, st.floats(0, 5), st.floats(0, 5))
def test_times_made_at_writing_equal_those_of_the_events(events: list[StreamEvent], a: float, b: float) -> None:
    written = decode_requests((record_of(events).to_line() + "\n").encode())[0]
    bare = record_of(events)
    assert written.stream == stream_times(unpack_events(bare.events))
    begin, end = min(a, b), max(a, b)
    quick, slow = timing_of(written), timing_of(bare)
    assert (quick.first, quick.answer, quick.last, quick.later_tokens) == (slow.first, slow.answer, slow.last, slow.later_tokens)
    assert tokens_between(quick, begin, end) == tokens_between(slow, begin, end)
    filled = filled_events(events_of(bare))
    expected = [round(y.at * 1e6) - round(x.at * 1e6) for x, y in itertools.pairwise(filled)]
    assert gaps_between_events([quick]) == expected


def test_records_without_the_times_are_read_all_the_same() -> None:
    row = json.loads(record_of([StreamEvent(0.5, 1, 1), StreamEvent(0.7, 2, 1)]).to_line())
    del row["stream"]
    record = decode_requests((json.dumps(row) + "\n").encode())[0]
    assert record.stream is None
    assert timing_of(record).later_tokens == 29


def test_a_line_end_of_unicode_inside_a_text_does_not_cut_the_line() -> None:
    record = RequestRecord(0, 0, "p", 0.0, 0.0, 0.0, 1.0, "dropped", "a\u2028b\x85c")
    assert decode_requests((record.to_line() + "\n").encode())[0].detail == record.detail


BREAKS: list[tuple[str, Any]] = [
    ("index", "0"), ("index", True), ("end", None), ("end", "3"), ("end", -1.0), ("scheduled", None), ("sent", "x"),
    ("headers", []), ("completion_tokens", -1), ("prompt_tokens", 1.5e400), ("outcome", None), ("events", 3), ("events", "%%%%"),
    ("events", "AAAA"), ("stream", 3), ("stream", [1, 2]), ("stream", [2.0, 2.0, 1.0, 1, 1, 1]), ("stream", [None] * 3 + [9, 1, 1]),
    ("stream", [0.1, 0.1, 0.2, 10**6, 1, 2]), ("stream", ["a", None, 1.0, 1, 1, 1]), ("more", 1), ("scheduled", float("nan")),
    ("completion_tokens", 10**400),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), BREAKS)
def test_every_broken_field_names_its_line(key: str, value: Any) -> None:
    rows = [json.loads(r.to_line()) for r in requests(100.0, 2, 6)]
    rows[3][key] = value
    with pytest.raises(Garbled, match="line 4 "):
        decode_requests("".join(json.dumps(r) + "\n" for r in rows).encode())


@pytest.mark.parametrize("data", [b"", b"{", b"{}\n", b"\n", b"[]\n", b'{"index":0}', b"\xff\n"])
def test_what_holds_no_records_is_garbled(data: bytes) -> None:
    with pytest.raises(Garbled):
        decode_requests(data)


def test_two_records_in_one_line_are_not_taken_for_two_lines() -> None:
    first, second = (r.to_line() for r in requests(100.0, 2, 2))
    with pytest.raises(Garbled, match="line 1 "):
        decode_requests(f"{first},{second}\n".encode())
