"""The plan of a spike and the replay of its journal: pure, so tested over generated cases."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audition.spike.examples import find_spike
from audition.spike.model import Leg, Spike
from audition.spike.parse import load_spike
from audition.swap.journal import Entry, IllegalEntry, replay
from audition.swap.plan import TOUCHES_PRODUCTION, StepKind, make_plan

REFERENCE = load_spike(Path(find_spike("mtp-k3"))).spike


def with_legs(names: list[str]) -> Spike:
    return REFERENCE.model_copy(update={"legs": [Leg(arm=name) for name in names]})


def test_the_reference_spike_has_the_plan_that_the_user_expects() -> None:
    keys = [step.key for step in make_plan(REFERENCE, sidecars=True)]
    assert keys[:5] == ["take-lock", "snapshot", "arm-guard", "stop-sidecars", "leg-1.measure"]
    assert keys[5:11] == ["leg-2.drain", "leg-2.stop", "leg-2.start", "leg-2.ready", "leg-2.measure", "leg-3.stop"]
    assert keys[-3:] == ["restore", "stand-down", "release-lock"]
    assert sum(step.kind is StepKind.MEASURE for step in make_plan(REFERENCE)) == 5


@given(st.lists(st.sampled_from(["v2g", "mtp-k3"]), min_size=1, max_size=9))
def test_every_plan_is_guarded_and_ends_with_restoring(names: list[str]) -> None:
    steps = make_plan(with_legs(names), sidecars=True)
    kinds = [step.kind for step in steps]
    assert len({step.key for step in steps}) == len(steps)
    armed, restore = kinds.index(StepKind.ARM_GUARD), kinds.index(StepKind.RESTORE)
    for place, kind in enumerate(kinds):
        if kind in TOUCHES_PRODUCTION:
            assert armed < place < restore
    assert kinds[-3:] == [StepKind.RESTORE, StepKind.STAND_DOWN, StepKind.RELEASE_LOCK]
    running = "v2g"
    for step in steps:
        if step.kind is StepKind.STOP:
            assert step.arm == running
            running = ""
        elif step.kind is StepKind.START:
            assert running == ""
            running = step.arm or ""
        elif step.kind is StepKind.MEASURE:
            assert step.arm == running


@given(st.lists(st.sampled_from(["v2g", "mtp-k3"]), min_size=1, max_size=9))
def test_production_is_drained_before_it_is_stopped(names: list[str]) -> None:
    steps = make_plan(with_legs(names))
    for before, step in itertools.pairwise(steps):
        if step.kind is StepKind.STOP and step.arm == "v2g":
            assert before.kind is StepKind.DRAIN


def parking(names: list[str]) -> Spike:
    spike = with_legs(names)
    return spike.model_copy(update={"restore": spike.restore.model_copy(update={"strategy": "park"})})


def test_arms_that_park_boot_once_and_then_take_turns() -> None:
    keys = [step.key for step in make_plan(parking(["v2g", "mtp-k3", "v2g", "mtp-k3"]))]
    assert keys[3:] == [
        "leg-1.measure",
        "leg-2.park", "leg-2.start", "leg-2.ready", "leg-2.measure",
        "leg-3.park", "leg-3.unpark", "leg-3.measure",
        "leg-4.park", "leg-4.unpark", "leg-4.measure",
        "restore", "stand-down", "release-lock",
    ]  # fmt: skip


def test_behind_a_closed_entry_production_is_drained_before_it_is_parked() -> None:
    spike = parking(["v2g", "mtp-k3"])
    closed = spike.model_copy(update={"drain": spike.drain.model_copy(update={"close": ["true"], "open": ["true"]})})
    keys = [step.key for step in make_plan(closed)]
    assert keys[keys.index("leg-2.park") - 1] == "leg-2.drain"
    assert not any("drain" in step.key for step in make_plan(spike))


@given(st.lists(st.sampled_from(["v2g", "mtp-k3"]), min_size=1, max_size=9))
def test_every_plan_that_parks_measures_only_who_runs_and_resumes_only_who_is_parked(names: list[str]) -> None:
    steps = make_plan(parking(names), sidecars=True)
    kinds = [step.kind for step in steps]
    assert len({step.key for step in steps}) == len(steps)
    armed, restore = kinds.index(StepKind.ARM_GUARD), kinds.index(StepKind.RESTORE)
    running, parked, booted = "v2g", set[str](), {"v2g"}
    for place, step in enumerate(steps):
        if step.kind in TOUCHES_PRODUCTION:
            assert armed < place < restore
        if step.kind is StepKind.PARK:
            assert step.arm == running
            parked.add(running)
            running = ""
        elif step.kind is StepKind.UNPARK:
            assert running == ""
            assert step.arm in parked
            running = step.arm or ""
            parked.remove(running)
        elif step.kind is StepKind.START:
            assert running == ""
            assert step.arm not in booted
            running = step.arm or ""
            booted.add(running)
        elif step.kind is StepKind.MEASURE:
            assert step.arm == running
    assert StepKind.STOP not in kinds


def entries_of(names: list[str], fence: int = 1) -> list[Entry]:
    out: list[Entry] = []
    for step in make_plan(with_legs(names)):
        for mark in ("intent", "done"):
            data = {"verified": True} if step.kind is StepKind.RESTORE else {}
            out.append(Entry(len(out) + 1, float(len(out)), fence, step.key, step.kind.value, mark, data))
    return out


@given(st.lists(st.sampled_from(["v2g", "mtp-k3"]), min_size=1, max_size=6), st.data())
def test_every_prefix_of_a_journal_replays(names: list[str], data: st.DataObject) -> None:
    entries = entries_of(names)
    cut = data.draw(st.integers(0, len(entries)))
    state = replay(entries[:cut])
    assert state.entries == cut
    assert state.closed == (cut == len(entries))
    assert state.armed == any(e.kind == "arm-guard" and e.mark == "done" for e in entries[:cut])
    assert state.open_step == (entries[cut - 1].step if cut % 2 else None)


def test_a_restore_that_was_not_verified_does_not_close_a_run_that_touched_production() -> None:
    entries = entries_of(["v2g", "mtp-k3"])
    unverified = [Entry(e.seq, e.at, e.fence, e.step, e.kind, e.mark, {"verified": False} if e.data else {}) for e in entries]
    assert replay(entries).closed
    assert not replay(unverified).restored
    assert not replay(unverified).closed


def test_a_stale_writer_and_an_end_without_intent_are_named() -> None:
    with pytest.raises(IllegalEntry, match="stale writer"):
        replay([Entry(1, 0, 2, "stop", "stop", "intent"), Entry(2, 1, 1, "stop", "stop", "done")])
    with pytest.raises(IllegalEntry, match="done of stop after None"):
        replay([Entry(1, 0, 1, "stop", "stop", "done")])


def test_a_newer_holder_may_begin_a_step_again() -> None:
    state = replay([Entry(1, 0, 1, "restore", "restore", "intent"), Entry(2, 1, 2, "restore", "restore", "intent")])
    assert (state.fence, state.open_step) == (2, "restore")
