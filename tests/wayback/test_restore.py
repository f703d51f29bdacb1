"""Restoring: the order of steps as a pure function, every start state, faults, killed restorers, two at once.

That no effect can be left out is checked in test_every_effect.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audition.wayback.nextstep import MOST_STEPS, Done, Look, Progress, Step, Stuck, next_step
from audition.wayback.plan import GpuPlan, ProcessRef, RestorePlan
from audition.wayback.procs import ProcessServer
from audition.wayback.proctable import is_alive, port_answers
from audition.wayback.restore import restore
from audition.wayback.server import ServerView
from wayback.tiny_world import ENGINE, FAST, World, start_and_wait, wait_until

POINTS = ["before-intent", "after-intent", "after-effect", "after-done"]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close(made.arm("production"), made.arm("candidate"), made.arm("control"))


def check_end(world: World, plan: RestorePlan) -> None:
    """Exactly one production, that works and equals its snapshot, and nothing of the others."""
    assert plan.production.process is not None
    production = ProcessServer(plan.production)
    assert production.view().state == "running"
    assert production.differences() == []
    assert world.works(plan.verify.endpoint)
    assert len({proc.pid for proc in production.members() if proc.pid == proc.sid}) == 1
    for arm in plan.others:
        assert ProcessServer(arm).members() == []


def wait_for_end(ref: ProcessRef) -> None:
    wait_until(lambda: not is_alive(ref))


# ---- the pure order


views = st.builds(
    ServerView,
    st.sampled_from(["running", "stopped", "absent", "foreign"]),
    st.just("seen"),
    st.sampled_from(["boot-1", "boot-2"]),
)
progresses = st.builds(
    Progress,
    steps=st.integers(0, MOST_STEPS + 1),
    stops=st.dictionaries(st.sampled_from(["production", "candidate"]), st.integers(0, 8)),
    stopped=st.sets(st.sampled_from(["production", "candidate"])).map(frozenset),
    looked_in_vain=st.integers(0, 100),
    settled=st.booleans(),
    waited_for_port=st.booleans(),
    starts=st.integers(0, 5),
    ready_boot=st.sampled_from(["", "boot-1", "boot-2"]),
    verified_boot=st.sampled_from(["", "boot-1", "boot-2"]),
    bad_boots=st.sets(st.sampled_from(["boot-1", "boot-2"])).map(frozenset),
    refused=st.sampled_from(["", "the greedy answer differs"]),
    sidecars=st.booleans(),
    entry=st.booleans(),
    held_boot=st.sampled_from(["", "boot-1", "boot-2"]),
    holds=st.integers(0, 4),
)


def plain_plan(tmp: str = "/nowhere") -> RestorePlan:
    world = World(Path(tmp), port=1)
    return world.plan(world.arm("production"), world.arm("candidate"))


@settings(max_examples=1000, deadline=None)
@given(views, views, progresses, st.sampled_from(["", "the engine is down"]))
def test_next_step_is_total_and_never_done_too_early(
    production: ServerView, other: ServerView, done: Progress, trouble: str
) -> None:
    step = next_step(plain_plan(), Look(production, {"candidate": other}, trouble), done)
    if isinstance(step, Done):
        boot = production.boot_id
        assert production.state == "running"
        assert done.ready_boot == done.verified_boot == done.held_boot == boot
        assert boot not in done.bad_boots
        assert done.sidecars
        assert done.entry
        assert other.state != "running" or done.stops["candidate"] >= 3
    if isinstance(step, Step) and step.name == "start":
        assert production.state in ("absent", "stopped")
        assert done.settled
        assert other.state != "running" or done.stops["candidate"] >= 3
    if isinstance(step, Step) and step.name == "entry":
        assert done.verified_boot == production.boot_id
    if isinstance(step, Stuck):
        assert step.why


# ---- real processes, every start state


@pytest.mark.parametrize("state", ["all down", "production runs", "candidate runs", "both run", "leftovers of both"])
def test_from_every_state_to_the_same_end(world: World, state: str) -> None:
    production, candidate = world.arm("production", grace_s=0.3), world.arm("candidate", grace_s=0.3)
    plan = world.plan(production, candidate, entry=world.entry())
    if state == "production runs":
        start_and_wait(production)
    if state == "candidate runs":
        start_and_wait(candidate)
    if state == "both run":
        other_port = World(world.folder).port
        candidate = world.arm("candidate", port=other_port)
        plan = replace(plan, others=[candidate])
        start_and_wait(candidate)
        start_and_wait(production)
    if state == "leftovers of both":
        for arm in (production, candidate):
            assert arm.process is not None
            worker = replace(
                arm, process=replace(arm.process, argv=[*arm.process.argv, "--worker", "session", "--stubborn-worker"])
            )
            leader = start_and_wait(worker).leader()
            assert leader is not None
            os.kill(leader.pid, signal.SIGKILL)
            wait_for_end(leader)
    report = restore(plan, pace=FAST)
    assert report.verified, report.problems
    assert report.untouched == (state == "production runs")
    check_end(world, plan)
    assert (world.folder / "entry-open").exists()
    json.dumps(report.to_data())
    again = restore(plan, pace=FAST)
    assert again.verified
    assert again.untouched
    assert again.boot_id == report.boot_id


def test_a_stranger_on_the_port_is_never_killed_and_said_loudly(world: World) -> None:
    stranger = world.stranger(sys.executable, ENGINE, "--port", str(world.port))
    wait_until(lambda: port_answers(world.port))
    report = restore(world.plan(world.arm("production"), entry=world.entry()), pace=FAST)
    assert not report.verified
    assert any(f"pid {stranger.pid}" in problem for problem in report.problems)
    assert is_alive(stranger)
    assert "start production by hand" in report.manual
    assert any("guard.pyz restore" in line for line in report.manual)
    assert not (world.folder / "entry-open").exists()


def test_a_production_that_cannot_start_ends_after_three_tries(world: World) -> None:
    report = restore(world.plan(world.arm("production", "--exit-at-boot", "4")), pace=FAST)
    assert not report.verified
    assert [step.step for step in report.steps].count("start") == 3
    assert any("crashed at boot" in step.detail for step in report.steps)


def test_a_broken_production_is_restarted_and_then_reported(world: World) -> None:
    production = world.arm("production", "--broken")
    report = restore(world.plan(production, entry=world.entry()), pace=FAST)
    assert not report.verified
    assert [step.step for step in report.steps].count("start") == 3
    assert not (world.folder / "entry-open").exists()


def test_another_greedy_answer_is_not_back(world: World) -> None:
    production = world.arm("production", "--answer", "something else")
    plan = world.plan(production, entry=world.entry())
    report = restore(plan, pace=FAST)
    assert not report.verified
    assert [step.step for step in report.steps].count("start") == 1
    assert not (world.folder / "entry-open").exists()
    tolerant = restore(replace(plan, verify=replace(plan.verify, greedy="report")), pace=FAST)
    assert tolerant.verified
    assert any("greedy" in warning for warning in tolerant.warnings)


def test_a_production_that_dies_in_its_hold_time_is_started_again(world: World) -> None:
    production = world.arm("production")
    plan = world.plan(production)
    plan = replace(plan, verify=replace(plan.verify, hold_s=0.4))
    killed: list[ProcessRef] = []

    def kill_once(step: str, point: str) -> None:
        if step == "hold" and point == "after-intent" and not killed:
            leader = ProcessServer(production).leader()
            assert leader is not None
            killed.append(leader)
            os.kill(leader.pid, signal.SIGKILL)

    report = restore(plan, pace=FAST, on_point=kill_once)
    assert killed
    assert report.verified, report.problems
    check_end(world, plan)


def test_an_entry_that_does_not_open_is_a_problem(world: World) -> None:
    entry = replace(world.entry(), open=["false"])
    report = restore(world.plan(world.arm("production"), entry=entry), pace=FAST)
    assert not report.verified
    assert any("entry" in problem for problem in report.problems)


def test_an_observer_that_fails_never_stops_the_way_back(world: World) -> None:
    def disk_full(step: str, point: str) -> None:
        raise OSError(28, "No space left on device")

    report = restore(world.plan(world.arm("production")), pace=FAST, on_point=disk_full)
    assert report.verified
    assert any("No space left" in warning for warning in report.warnings)


def test_memory_that_stays_taken_is_waited_for_and_named(world: World) -> None:
    ledger = str(world.folder / "ledger")
    other = World(world.folder)
    hog = world.stranger(sys.executable, ENGINE, "--port", str(other.port), "--ledger", ledger, "--hold-mib", "9000")
    wait_until(lambda: port_answers(other.port))
    gpu = GpuPlan("ledger", [0], ledger, {"0": 0}, settle_s=0.3)
    report = restore(world.plan(world.arm("production"), gpu=gpu), pace=FAST)
    assert report.verified
    assert any("9000 MiB" in warning and str(hog.pid) in warning for warning in report.warnings)


def test_memory_of_the_candidate_is_free_before_production_starts(world: World) -> None:
    ledger = str(world.folder / "ledger")
    candidate = world.arm("candidate", "--ledger", ledger, "--hold-mib", "9000", "--ignore-term", grace_s=0.3)
    start_and_wait(candidate)
    gpu = GpuPlan("ledger", [0], ledger, {"0": 0}, settle_s=5)
    report = restore(world.plan(world.arm("production"), candidate, gpu=gpu), pace=FAST)
    assert report.verified
    assert report.warnings == []


def test_signals_are_put_off(world: World) -> None:
    said: list[str] = []
    plan = world.plan(world.arm("production", "--boot-s", "0.6"))
    timers = [threading.Timer(0.2, os.kill, (os.getpid(), number)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    ctrl_c = signal.signal(signal.SIGINT, signal.default_int_handler)  # a test runner in the background has it ignored
    before = signal.getsignal(signal.SIGTERM)
    try:
        for timer in timers:
            timer.start()
        report = restore(plan, pace=FAST, say=said.append)
    finally:
        signal.signal(signal.SIGINT, ctrl_c)
    assert report.verified
    assert sum("is put off" in text for text in said) == 3
    assert signal.getsignal(signal.SIGTERM) is before


# ---- killed restorers and two at once

RESTORER = """
import os, sys
from pathlib import Path
from audition.wayback.plan import RestorePlan
from audition.wayback.restore import restore
from wayback.tiny_world import FAST
plan = RestorePlan.from_json(Path(sys.argv[1]).read_text())
def die(step, point):
    if [step, point] == sys.argv[2:4]:
        print("died", flush=True)
        os.kill(os.getpid(), 9)
report = restore(plan, pace=FAST, on_point=die)
print("verified" if report.verified else report.problems, flush=True)
"""
STEPS = ["stop:candidate", "gpu", "start", "ready", "verify", "sidecars", "entry", "hold"]


def restorer(plan: RestorePlan, *die: str) -> subprocess.Popen[str]:
    file = Path(plan.production.process.cwd) / "plan.json"  # type: ignore[union-attr]
    file.write_text(plan.to_json())
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    return subprocess.Popen([sys.executable, "-c", RESTORER, str(file), *die], env=env, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("step", STEPS)
def test_a_restorer_killed_at_each_of_its_points(world: World, step: str) -> None:
    plan = world.plan(world.arm("production"), world.arm("candidate"), entry=world.entry())
    for point in POINTS:
        ProcessServer(plan.production).stop(0.5)
        start_and_wait(plan.others[0])
        first = restorer(plan, step, point)
        assert "died" in first.communicate()[0], "the point was passed"
        report = restore(plan, pace=FAST)
        assert report.verified, (step, point, report.problems)
        check_end(world, plan)


def test_two_restorers_at_once_converge(world: World) -> None:
    plan = world.plan(world.arm("production", "--boot-s", "0.3"), world.arm("candidate"), entry=world.entry())
    for _ in range(3):
        ProcessServer(plan.production).stop(0.5)
        start_and_wait(plan.others[0])
        pair = [restorer(plan), restorer(plan)]
        assert [one.communicate()[0].strip() for one in pair] == ["verified", "verified"]
        check_end(world, plan)
