"""Recovery has an answer for everything, and two answers that it never gives."""

from __future__ import annotations

from typing import get_args, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audition.swap.journal import JournalState
from audition.swap.recovery import Ask, Corrupt, Decision, Done, Missing, Restore, Resume, Wait, WorldView, decide

FIELDS = get_type_hints(WorldView)
worlds = st.builds(
    WorldView,
    plan=st.sampled_from(get_args(FIELDS["plan"])),
    armed=st.booleans(),
    closed=st.booleans(),
    lock=st.sampled_from(get_args(FIELDS["lock"])),
    deadline=st.sampled_from([None, 50.0, 150.0]),
    production=st.sampled_from(get_args(FIELDS["production"])),
    others=st.sampled_from(get_args(FIELDS["others"])),
)
journals = st.one_of(
    st.just(Missing()),
    st.just(Corrupt("disk image is malformed")),
    st.builds(
        JournalState,
        entries=st.integers(0, 9),
        armed=st.booleans(),
        touched=st.booleans(),
        restored=st.booleans(),
        closed=st.booleans(),
    ),
)


@settings(max_examples=3000, deadline=None)
@given(journals, worlds)
def test_total_and_never_the_two_wrong_answers(journal: JournalState | Missing | Corrupt, world: WorldView) -> None:
    answer: Decision = decide(journal, world, 100.0)
    assert answer.why
    if isinstance(answer, Done):
        never_began = world.plan == "missing" and not world.armed
        assert world.production == "verified" or world.closed or never_began
        assert world.lock == "free"
        if never_began and isinstance(journal, JournalState) and not world.closed and world.production != "verified":
            assert not journal.touched
    if world.lock == "own-run" and (world.deadline is None or world.deadline > 100.0):
        assert isinstance(answer, Resume)
    if world.lock in ("restorer", "other-run"):
        assert isinstance(answer, Wait)
    if isinstance(answer, Restore):
        assert world.plan == "readable"
        assert answer.end_runner == (world.lock == "own-run")
    if (
        isinstance(journal, JournalState)
        and journal.touched
        and world.lock == "free"
        and not world.closed
        and world.plan == "readable"
    ):
        assert isinstance(answer, Restore), (
            "a touched run is always restored, also when production seems fine: sidecars, entry, others"
        )


SEEN = WorldView("readable", True, False, "free", None, "down", "none")
TOUCHED = JournalState(5, 1, True, True)


@pytest.mark.parametrize(
    ("journal", "changes", "expected"),
    [
        (TOUCHED, {}, Restore),
        (Missing(), {}, Restore),
        (Corrupt("x"), {}, Restore),
        (Missing(), {"production": "verified"}, Restore),
        (JournalState(2, 1, True), {"production": "verified"}, Done),
        (JournalState(2, 1, True), {"production": "verified", "others": "some"}, Restore),
        (TOUCHED, {"lock": "own-run", "deadline": 50.0}, Restore),
        (TOUCHED, {"lock": "own-run", "deadline": 50.0, "plan": "damaged"}, Ask),
        (TOUCHED, {"plan": "damaged"}, Ask),
        (TOUCHED, {"plan": "missing", "production": "unknown"}, Ask),
        (Missing(), {"plan": "missing", "armed": False, "production": "unknown"}, Done),
        (TOUCHED, {"plan": "missing", "closed": True, "production": "unknown"}, Done),
    ],
)
def test_the_cases_by_name(journal: JournalState | Missing | Corrupt, changes: dict[str, object], expected: type) -> None:
    world = WorldView(**{**SEEN.__dict__, **changes})
    assert type(decide(journal, world, 100.0)) is expected
