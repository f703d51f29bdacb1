"""Parking: the contract of both parkers on real processes, the order over several ranks, whom it touches, and the way back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import pytest

from audition.wayback.health import completion, served_models
from audition.wayback.hostmem import MARGIN_MIB, available_mib, held_mib, memory_short
from audition.wayback.nextstep import Look, Progress, Step, Stuck, next_step
from audition.wayback.park import Parker, ParkFailedError, State, StopParker, choose, park, unpark, workers
from audition.wayback.park_cuda import CudaParker
from audition.wayback.park_trial import CHILD, try_out
from audition.wayback.plan import ArmTarget, EndpointPlan, GpuPlan, ParkTarget, ProcessRef, RestorePlan
from audition.wayback.procs import ProcessServer
from audition.wayback.proctable import Proc, connections, is_alive, own_ref, read_proc, ref_of
from audition.wayback.restore import EFFECTS, Restoring, restore
from audition.wayback.server import ServerView, WaybackError
from wayback.tiny_world import FAST, World, start_and_wait, wait_until

PLAIN_CHILD = """
import sys
while True:
    print("ready", flush=True)
    sys.stdin.readline()
"""


@dataclass
class Bench:
    """A parker and how a process that it can park is made."""

    parker: Parker
    child: str
    made: list[subprocess.Popen[str]] = field(default_factory=list)

    def process(self) -> tuple[ProcessRef, subprocess.Popen[str]]:
        child = subprocess.Popen([sys.executable, "-c", self.child, "0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.made.append(child)
        assert child.stdout
        assert child.stdout.readline() == "ready\n"
        proc = read_proc(child.pid)
        assert proc
        return ref_of(proc), child

    def close(self) -> None:
        for child in self.made:
            child.kill()
            child.wait()


def why_no_gpu() -> str | None:
    try:
        CudaParker()
    except WaybackError as error:
        return str(error)
    return None


@pytest.fixture(params=["stop", "cuda"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    if request.param == "cuda":
        if why := why_no_gpu():
            pytest.skip(f"the driver's checkpoint calls need an NVIDIA GPU here: {why}")
        made = Bench(CudaParker(60.0), CHILD)
    else:
        made = Bench(StopParker(), PLAIN_CHILD)
    yield made
    made.close()


# ---- the contract of parkers


def test_a_whole_cycle_and_the_work_goes_on(bench: Bench) -> None:
    ref, child = bench.process()
    assert child.stdin
    assert child.stdout
    for _ in range(2):
        assert bench.parker.state(ref) == "running"
        bench.parker.lock(ref, 10.0)
        assert bench.parker.state(ref) in ("locked", "parked")
        bench.parker.checkpoint(ref)
        assert bench.parker.state(ref) == "parked"
        bench.parker.restore(ref)
        assert bench.parker.state(ref) in ("locked", "parked")
        bench.parker.unlock(ref)
        assert bench.parker.state(ref) == "running"
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "ready\n"


def test_nothing_is_answered_while_parked_and_everything_afterwards(bench: Bench) -> None:
    ref, child = bench.process()
    assert child.stdin
    assert child.stdout
    answers: list[str] = []
    reader = threading.Thread(target=lambda: answers.append(child.stdout.readline()))  # type: ignore[union-attr]
    park(bench.parker, [ref], 10.0)
    child.stdin.write("\n")
    child.stdin.flush()
    reader.start()
    reader.join(0.3)
    assert answers == []
    unpark(bench.parker, [ref])
    reader.join(20)
    assert answers == ["ready\n"]


def test_out_of_order_calls_and_processes_that_are_gone_are_errors(bench: Bench) -> None:
    ref, child = bench.process()
    with pytest.raises(WaybackError):
        bench.parker.checkpoint(ref)
    with pytest.raises(WaybackError):
        bench.parker.restore(ref)
    assert bench.parker.state(ref) == "running"
    child.kill()
    child.wait()
    assert bench.parker.state(ref) == "gone"
    with pytest.raises(WaybackError, match="gone"):
        bench.parker.lock(ref, 1.0)
    reused = replace(own_ref(), start_ticks=1)
    assert bench.parker.state(reused) == "gone", "a pid alone is no identity"
    with pytest.raises(WaybackError, match="gone"):
        bench.parker.unlock(reused)


@pytest.mark.parametrize("done", ["nothing", "locked", "parked", "restored"])
def test_unpark_from_every_state(bench: Bench, done: str) -> None:
    ref, _ = bench.process()
    for step in {"nothing": 0, "locked": 1, "parked": 2, "restored": 3}[done] * [None]:
        del step
        state = bench.parker.state(ref)
        if state == "running":
            bench.parker.lock(ref, 10.0)
        elif done == "restored" and state == "parked":
            bench.parker.restore(ref)
        elif state == "locked":
            bench.parker.checkpoint(ref)
    unpark(bench.parker, [ref])
    assert bench.parker.state(ref) == "running"


def test_a_parked_process_can_be_killed(bench: Bench) -> None:
    ref, child = bench.process()
    park(bench.parker, [ref], 10.0)
    child.kill()
    child.wait(20)
    with pytest.raises(WaybackError, match="gone"):
        unpark(bench.parker, [ref])


# ---- the order over several ranks


class Ranks:
    """A parker of imagined ranks that keeps what was asked of it. ``fails``: calls that fail, ``half``: that fail once done."""

    kind: Literal["cuda", "stop"] = "cuda"

    def __init__(self, *, fails: tuple[tuple[str, int], ...] = (), half: tuple[tuple[str, int], ...] = ()) -> None:
        self.states: dict[int, State] = {}
        self.calls: list[tuple[str, int]] = []
        self.fails, self.half = fails, half

    def state(self, ref: ProcessRef) -> State:
        return self.states.get(ref.pid, "running")

    def lock(self, ref: ProcessRef, limit_s: float) -> None:
        self._act("lock", ref, "running", "locked")

    def checkpoint(self, ref: ProcessRef) -> None:
        self._act("checkpoint", ref, "locked", "parked")

    def restore(self, ref: ProcessRef) -> None:
        self._act("restore", ref, "parked", "locked")

    def unlock(self, ref: ProcessRef) -> None:
        self._act("unlock", ref, "locked", "running")

    def _act(self, name: str, ref: ProcessRef, before: State, after: State) -> None:
        self.calls.append((name, ref.pid))
        if (name, ref.pid) in self.fails:
            raise WaybackError(f"{name} of {ref.pid} failed")
        assert self.state(ref) == before
        self.states[ref.pid] = after
        if (name, ref.pid) in self.half:
            raise WaybackError(f"{name} of {ref.pid}: somebody else was faster")


REFS = [ProcessRef(pid, 1, "boot") for pid in (11, 12, 13)]


def names(ranks: Ranks) -> list[str]:
    return [name for name, _ in ranks.calls]


def test_all_are_locked_before_any_is_moved_and_all_restored_before_any_is_unlocked() -> None:
    ranks = Ranks()
    park(ranks, REFS, 5.0)
    assert names(ranks) == ["lock"] * 3 + ["checkpoint"] * 3
    ranks.calls.clear()
    unpark(ranks, REFS)
    assert names(ranks) == ["restore"] * 3 + ["unlock"] * 3


@pytest.mark.parametrize("failing", [("lock", 12), ("checkpoint", 11), ("checkpoint", 13)])
def test_a_park_that_fails_is_undone_on_every_rank(failing: tuple[str, int]) -> None:
    ranks = Ranks(fails=(failing,))
    with pytest.raises(ParkFailedError, match="failed") as caught:
        park(ranks, REFS, 5.0)
    assert caught.value.resumed
    assert {ranks.state(ref) for ref in REFS} == {"running"}


def test_a_park_that_cannot_be_undone_says_so() -> None:
    ranks = Ranks(fails=(("checkpoint", 13), ("restore", 11)))
    with pytest.raises(ParkFailedError, match="nor could it be resumed") as caught:
        park(ranks, REFS, 5.0)
    assert not caught.value.resumed


def test_two_who_unpark_at_once_do_not_hinder_each_other() -> None:
    ranks = Ranks(half=(("restore", 12), ("unlock", 11)))
    park(ranks, REFS, 5.0)
    unpark(ranks, REFS)
    assert {ranks.state(ref) for ref in REFS} == {"running"}


class Busy(Ranks):
    """The checkpoint that a killed caller began: calls are refused until it is over, and then the process is parked."""

    refusals = 2

    def unlock(self, ref: ProcessRef) -> None:
        if self.refusals:
            self.refusals -= 1
            if not self.refusals:
                self.states[ref.pid] = "parked"
            raise WaybackError("illegal state")
        super().unlock(ref)


def test_a_move_that_a_killed_caller_began_is_waited_for() -> None:
    ranks = Busy()
    ranks.states[11] = "locked"
    with pytest.raises(WaybackError, match="illegal state"):
        unpark(ranks, REFS[:1])
    unpark(ranks, REFS[:1], 20.0)
    assert ranks.state(REFS[0]) == "running"
    given_up = Ranks()
    given_up.states[12] = "failed"
    with pytest.raises(WaybackError, match="failed"):
        unpark(given_up, REFS, 600.0)


def test_nothing_to_park_is_an_error() -> None:
    with pytest.raises(ParkFailedError, match="no process"):
        park(StopParker(), [], 1.0)


# ---- whom it touches


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close(made.arm("production"), made.arm("candidate"))


def parkable(world: World, name: str = "production", port: int | None = None) -> ArmTarget:
    return world.arm(name, "--worker", "answers", port=port, grace_s=1.0)


def planned(arm: ArmTarget, server: ProcessServer) -> ArmTarget:
    choice = choose(server.members(), arm.port)
    assert choice.target is not None, choice.why_not
    assert choice.target.parker == "stop"
    return replace(arm, park=choice.target)


def test_workers_are_all_but_the_front_and_what_it_descends_from(world: World) -> None:
    arm = parkable(world)
    server = start_and_wait(arm)
    members = server.members()
    leader = server.leader()
    assert leader is not None
    found = workers(members, arm.port)
    assert [ref.pid for ref in found] == [proc.pid for proc in members if proc.pid != leader.pid]
    assert len(found) == 1
    engine = replace(next(proc for proc in members if proc.pid == found[0].pid), name="VLLM::EngineCor")
    tracker = Proc(999_999, leader.pid, leader.pid, leader.pid, engine.start_ticks, name="resource_track")
    by_name = workers([*(p for p in members if p.pid != engine.pid), engine, tracker], arm.port)
    assert [ref.pid for ref in by_name] == [engine.pid]
    assert workers(members, world.arm("candidate", port=World(world.folder).port).port) == []


def test_a_server_of_one_process_is_not_parked(world: World) -> None:
    arm = world.arm("production")
    choice = choose(start_and_wait(arm).members(), arm.port)
    assert choice.target is None
    assert "no engine process" in choice.why_not


def test_the_stand_in_is_not_taken_where_gpu_memory_must_fall(world: World) -> None:
    arm = parkable(world)
    members = start_and_wait(arm).members()
    assert "frees no GPU memory" in choose(members, arm.port, watched=True).why_not
    assert "frees no GPU memory" in choose(members, arm.port, holders=[proc.pid for proc in members]).why_not


def test_a_parked_server_looks_alive_lists_its_models_and_answers_late(world: World) -> None:
    arm = parkable(world)
    server = start_and_wait(arm)
    arm = planned(arm, server)
    assert arm.park is not None
    endpoint = EndpointPlan(f"http://127.0.0.1:{arm.port}", "model-production")
    assert ProcessServer(arm).view().state == "running"
    park(StopParker(), arm.park.processes, 5.0)
    view = ProcessServer(arm).view()
    assert (view.state, view.parkable) == ("parked", True)
    assert ProcessServer(replace(arm, park=ParkTarget("stop"))).view().state == "parked", "found among the members, too"
    assert ProcessServer(replace(arm, park=None)).view().state == "running", "without a plan to park nothing changes"
    assert served_models(endpoint) == ["model-production"]
    answers: list[str] = []
    asking = threading.Thread(target=lambda: answers.append(completion(endpoint, {"prompt": "x"})))
    asking.start()
    wait_until(lambda: connections(arm.port) >= 1, what="the request arrives")
    time.sleep(0.2)
    assert answers == []
    unpark(StopParker(), arm.park.processes)
    asking.join(20)
    assert answers == ["answer of production"]
    assert ProcessServer(arm).view() == replace(view, state="running", detail=f"pid {server.leaders()[0].pid}")


def test_a_parked_server_is_ended_without_its_grace(world: World) -> None:
    arm = replace(parkable(world), stop_grace_s=60.0)
    server = start_and_wait(arm)
    arm = planned(arm, server)
    assert arm.park is not None
    park(StopParker(), arm.park.processes, 5.0)
    report = ProcessServer(arm).stop(60.0)
    assert report.proved
    assert report.killed
    assert report.seconds < 30
    assert not any(is_alive(ref) for ref in arm.park.processes)


def test_plans_with_and_without_parking_survive_json(world: World) -> None:
    arm = replace(world.arm("production"), park=ParkTarget("cuda", REFS, 1.0, 2.0))
    plan = world.plan(arm, world.arm("candidate"))
    assert RestorePlan.from_json(plan.to_json()) == plan
    assert "park" in json.loads(plan.to_json())["production"]
    plain = world.plan(world.arm("production"), world.arm("candidate"))
    written = json.loads(plain.to_json())
    assert not any("park" in arm for arm in (written["production"], *written["others"])), (
        "plans without parking are what they were before there was parking"
    )
    assert RestorePlan.from_json(plain.to_json()) == plain


# ---- the way back


def both(world: World) -> tuple[RestorePlan, ProcessRef]:
    """Production parked, a candidate running on a port of its own."""
    production, candidate = parkable(world), parkable(world, "candidate", port=World(world.folder).port)
    server = start_and_wait(production)
    production = planned(production, server)
    start_and_wait(candidate)
    assert production.park is not None
    park(StopParker(), production.park.processes, 5.0)
    leader = server.leader()
    assert leader is not None
    return world.plan(production, replace(candidate, park=ParkTarget("stop"))), leader


def test_the_way_back_resumes_production_and_does_not_start_it(world: World) -> None:
    plan, leader = both(world)
    report = restore(plan, pace=FAST)
    assert report.verified, report
    assert [step.step for step in report.steps][:3] == ["stop:candidate", "gpu", "unpark"]
    assert "start" not in [step.step for step in report.steps]
    assert not report.untouched
    assert is_alive(leader)
    assert ProcessServer(plan.others[0]).members() == []


def test_a_parked_candidate_is_ended_too(world: World) -> None:
    plan, _ = both(world)
    other = ProcessServer(plan.others[0])
    park(StopParker(), workers(other.members(), plan.others[0].port), 5.0)
    assert other.view().state == "parked"
    assert restore(plan, pace=FAST).verified
    assert other.members() == []


def fails(run: Restoring, _: Step) -> str:
    """What the driver does when it gives a process up: nothing is resumed."""
    run.note(unparks=run.done.unparks + 1)
    raise WaybackError("the driver gave it up")


def test_what_cannot_be_resumed_is_killed_and_started_anew(world: World) -> None:
    plan, leader = both(world)
    report = restore(plan, pace=FAST, effects={**EFFECTS, "unpark": fails})
    assert report.verified, report
    steps = [step.step for step in report.steps]
    assert steps[:6] == ["stop:candidate", "gpu", "unpark", "stop:production", "gpu", "start"]
    assert not is_alive(leader)


def test_a_failed_resume_is_said_loudly(world: World) -> None:
    """One of the processes that the plan names is gone. The other one is resumed, and production works all the same."""
    plan, leader = both(world)
    assert plan.production.park is not None
    gone = world.stranger(sys.executable, "-c", "import time; time.sleep(600)")
    os.kill(gone.pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(gone))
    named = [*plan.production.park.processes, gone]
    plan = replace(plan, production=replace(plan.production, park=replace(plan.production.park, processes=named)))
    report = restore(plan, pace=FAST)
    assert report.verified, report
    assert any("COULD NOT BE RESUMED" in text and f"process {gone.pid} is gone" in text for text in report.warnings)
    assert is_alive(leader)


@pytest.mark.skipif(why_no_gpu() is None, reason="the driver can be asked on this machine")
def test_where_the_driver_cannot_be_asked_a_completion_tells_and_production_is_started_anew(world: World) -> None:
    plan, leader = both(world)
    assert plan.production.park is not None
    plan = replace(plan, production=replace(plan.production, park=replace(plan.production.park, parker="cuda")))
    report = restore(plan, pace=replace(FAST, call_s=0.3))
    assert report.verified, report
    assert not is_alive(leader)


def test_a_resumed_production_that_answers_otherwise_is_restarted(world: World) -> None:
    """Nobody else would be: a restart undoes what parking may have spoilt. The tiny engine answers the same after it, so the end is
    an honest failure after exactly one start."""
    plan, leader = both(world)
    plan = replace(plan, verify=replace(plan.verify, greedy_answers=["something else"]))
    report = restore(plan, pace=FAST)
    assert not report.verified
    assert [step.step for step in report.steps].count("start") == 1
    assert not is_alive(leader)


# ---- the next step, pure


def look(state: State | Literal["parked", "running"], other: str = "absent") -> Look:
    return Look(
        ServerView(state, "seen", "boot-1", parkable=True),  # type: ignore[arg-type]
        {"candidate": ServerView(other, "seen", "boot-2")},  # type: ignore[arg-type]
    )


def test_the_order_of_the_way_back_from_parked(world: World) -> None:
    plan = world.plan(world.arm("production"), world.arm("candidate"))
    assert next_step(plan, look("parked", "running"), Progress()) == Step("stop", "candidate")
    assert next_step(plan, look("parked", "parked"), Progress()) == Step("stop", "candidate")
    assert next_step(plan, look("parked"), Progress()) == Step("gpu")
    assert next_step(plan, look("parked"), Progress(settled=True)) == Step("unpark")
    failed = Progress(settled=True, unparks=1)
    assert next_step(plan, look("parked"), failed) == Step("stop", "production")
    stuck = next_step(plan, look("parked"), replace(failed, stops={"production": 6}))
    assert isinstance(stuck, Stuck)
    assert "reboot" in stuck.why
    assert next_step(plan, look("running"), Progress(unparks=1)) == Step("ready")
    spoilt = Progress(unparks=1, ready_boot="boot-1", bad_boots=frozenset({"boot-1"}))
    assert next_step(plan, look("running"), spoilt) == Step("stop", "production")


# ---- host memory


def test_host_memory_is_read_and_its_lack_is_said(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:       263842000 kB\nMemAvailable:   104857600 kB\n")
    assert available_mib(meminfo) == 102400
    assert available_mib(tmp_path / "none") is None
    assert available_mib() is not None
    assert memory_short(60_000, 102_400) == ""
    assert memory_short(102_400 - MARGIN_MIB, 102_400) == ""
    assert "do not fit" in memory_short(102_400 - MARGIN_MIB + 1, 102_400)
    assert "does not say" in memory_short(1, None)


def test_the_gpu_memory_of_a_server_is_what_its_processes_hold_or_else_all_that_is_in_use(world: World, tmp_path: Path) -> None:
    ledger = str(tmp_path / "ledger")
    server = start_and_wait(world.arm("production", "--ledger", ledger, "--hold-mib", "9000"))
    leader = server.leader()
    assert leader is not None
    gpu = GpuPlan("ledger", [0], ledger, {"0": 9000})
    assert held_mib(gpu, [leader.pid]) == 9000
    assert held_mib(gpu, [1]) == 9000
    assert held_mib(GpuPlan("none"), [leader.pid]) == 0


def test_the_trial_on_a_throw_away_process_says_why_it_fails_or_nothing() -> None:
    said, why = try_out(0), why_no_gpu()
    assert (said == "") is (why is None), said
    if why is not None:
        assert "no throw-away context could be had on GPU 0" in said
