"""Mutation check: every effect of restoring, replaced by one that does nothing, is caught; so is a comparison that is left out.

For every name in ``restore.EFFECTS`` there is a scene in which that effect matters. With the real effects nothing is wrong at its
end; with the mutant the report or the world is. The mutant claims to have done its work: one that claimed nothing would be asked
again until the restore gives up, which any test would notice.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from audition.wayback.health import NoAnswer, verify
from audition.wayback.nextstep import Step
from audition.wayback.park import StopParker, choose, park
from audition.wayback.plan import ArmTarget, GpuPlan, ProcessRef, RestorePlan
from audition.wayback.procs import ProcessServer
from audition.wayback.proctable import is_alive, own_ref, port_answers, send_signal
from audition.wayback.restore import EFFECTS, Effect, Observer, Pace, RestoreReport, Restoring, restore
from engines.compose_world import NAME
from engines.compose_world import World as ContainerWorld
from environments.docker_engine import IMAGE, DockerEngine
from wayback.test_docker_restore import in_the_middle, plan_of
from wayback.tiny_world import ENGINE, FAST, World, start_and_wait, wait_until

Effects = Mapping[str, Effect]


def mutant(run: Restoring, step: Step) -> str:
    """Does nothing and claims that all is done."""
    production = run.look().production
    claims: dict[str, dict[str, object]] = {
        "look": {"looked_in_vain": run.done.looked_in_vain + 1},
        "stop": {"stops": {**run.done.stops, step.arm: 3}, "stopped": run.done.stopped | {step.arm}},
        "gpu": {"settled": True},
        "port": {"waited_for_port": True},
        "start": {"starts": run.done.starts + 1},
        "unpark": {"unparks": run.done.unparks + 1},
        "ready": {"ready_boot": production.boot_id},
        "verify": {"verified_boot": production.boot_id},
        "sidecars": {"sidecars": True},
        "entry": {"entry": True},
        "hold": {"held_boot": production.boot_id},
    }
    run.note(**claims[step.name])
    return "not done"


def without_comparing(run: Restoring, _: Step) -> str:
    """The real verification, with everything but the comparison with the snapshot."""
    checks = verify(run.plan.verify.endpoint, run.plan.verify, run.pace.call_s)
    assert all(check.ok for check in checks), checks
    run.report.checks = checks
    run.note(verified_boot=run.production.view().boot_id)
    return "not compared"


def kill_in(seconds: float, ref: ProcessRef) -> None:
    """SIGKILL after so many seconds, unless it is gone by then."""
    threading.Timer(seconds, send_signal, (ref, signal.SIGKILL)).start()


# ---- scenes of processes


class Scene(World):
    """Production and a candidate on a port of its own. ``wrong`` after ``play``: everything that is not as it should be."""

    pace = FAST
    ends_verified = True

    def prepare(self) -> RestorePlan:
        self.production = self.arm("production")
        self.candidate = self.arm("candidate", port=World(self.folder).port)
        return self.plan(self.production, self.candidate, entry=self.entry())

    def watch(self, step: str, point: str) -> None:
        """Called at every point of the restore."""

    def play(self, effects: Effects) -> RestoreReport:
        self.wrong: list[str] = []
        return restore(self.prepare(), pace=self.pace, effects=effects, on_point=self.watch)

    def look_around(self, report: RestoreReport) -> None:
        """Add to ``wrong`` what the report and the world show at the end."""
        if report.verified != self.ends_verified:
            self.wrong.append(f"verified: {report.verified}; {report.problems}")
        if self.ends_verified:
            server = ProcessServer(self.production)
            if server.view().state != "running" or server.differences():
                self.wrong.append("production does not run as it was")
            if ProcessServer(self.candidate).members():
                self.wrong.append("the candidate is left")
            if not (self.folder / "entry-open").exists():
                self.wrong.append("the entry is closed")
            try:
                self.works(self.plan(self.production).verify.endpoint)
            except NoAnswer as error:
                self.wrong.append(str(error))


class CandidateRuns(Scene):
    def prepare(self) -> RestorePlan:
        plan = super().prepare()
        start_and_wait(self.candidate)
        return plan


class MemoryIsFreedLate(Scene):
    """A process that outlives the candidate holds the GPU's memory until some time after the restore has come to this effect."""

    hog: ProcessRef | None = None

    def prepare(self) -> RestorePlan:
        plan, ledger = super().prepare(), str(self.folder / "ledger")
        port = World(self.folder).port
        self.hog = self.stranger(sys.executable, ENGINE, "--port", str(port), "--ledger", ledger, "--hold-mib", "9000")
        wait_until(lambda: port_answers(port))
        return replace(plan, gpu=GpuPlan("ledger", [0], ledger, {"0": 0}, settle_s=20))

    def watch(self, step: str, point: str) -> None:
        assert self.hog is not None
        if (step, point) == ("gpu", "before-intent"):
            kill_in(1.5, self.hog)
        if (step, point) == ("start", "before-intent") and is_alive(self.hog):
            self.wrong.append("production is started while the memory is taken")


class PortIsTakenForAMoment(Scene):
    pace = replace(FAST, port_s=20.0)
    holder: ProcessRef | None = None

    def prepare(self) -> RestorePlan:
        plan = super().prepare()
        self.holder = self.stranger(sys.executable, ENGINE, "--port", str(self.port))
        wait_until(lambda: port_answers(self.port))
        return plan

    def watch(self, step: str, point: str) -> None:
        if (step, point) == ("port", "before-intent") and self.holder is not None:
            kill_in(1.5, self.holder)


class BootsSlowly(Scene):
    def prepare(self) -> RestorePlan:
        plan = super().prepare()
        assert self.production.process is not None
        process = replace(self.production.process, argv=[*self.production.process.argv, "--boot-s", "0.5"])
        self.production = replace(self.production, process=process)
        return replace(plan, production=self.production)


class AnswersDifferently(Scene):
    ends_verified = False

    def prepare(self) -> RestorePlan:
        plan = super().prepare()
        return replace(plan, verify=replace(plan.verify, greedy_answers=["another answer"]))


class IsParked(Scene):
    """Resuming is wanted, not a restart: the same process must serve at the end."""

    leader: ProcessRef | None = None

    def prepare(self) -> RestorePlan:
        plan = super().prepare()
        arm = self.arm("production", "--worker", "answers")
        server = start_and_wait(arm)
        self.leader, target = server.leader(), choose(server.members(), arm.port).target
        assert target is not None
        park(StopParker(), target.processes, 5.0)
        self.production = replace(arm, park=target)
        return replace(plan, production=self.production)

    def look_around(self, report: RestoreReport) -> None:
        super().look_around(report)
        if not is_alive(self.leader):
            self.wrong.append("production was restarted")


class DiesInItsHoldTime(Scene):
    victim: ProcessRef | None = None

    def prepare(self) -> RestorePlan:
        plan = super().prepare()
        return replace(plan, verify=replace(plan.verify, hold_s=1.2))

    def watch(self, step: str, point: str) -> None:
        if (step, point) == ("entry", "after-done") and self.victim is None:
            leader = ProcessServer(self.production).leader()
            assert leader is not None
            self.victim = own_ref(leader.pid)
            kill_in(0.6, self.victim)

    def look_around(self, report: RestoreReport) -> None:
        victim = self.victim
        assert victim is not None
        wait_until(lambda: not is_alive(victim))
        super().look_around(report)


SCENES: dict[str, type[Scene]] = {
    "stop": CandidateRuns,
    "gpu": MemoryIsFreedLate,
    "port": PortIsTakenForAMoment,
    "start": Scene,
    "unpark": IsParked,
    "ready": BootsSlowly,
    "verify": AnswersDifferently,
    "entry": Scene,
    "hold": DiesInItsHoldTime,
}
WITH_CONTAINERS = {"look", "sidecars"}


@pytest.fixture
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    made = request.param(tmp_path)
    yield made
    made.close(made.production, made.candidate)


def test_there_is_a_scene_for_every_effect() -> None:
    assert set(SCENES) | WITH_CONTAINERS == set(EFFECTS)


@pytest.mark.parametrize("scene", dict.fromkeys(SCENES.values()), ids=lambda kind: kind.__name__, indirect=True)
def test_with_all_effects_nothing_is_wrong(scene: Scene) -> None:
    scene.look_around(scene.play(EFFECTS))
    assert scene.wrong == []


@pytest.mark.parametrize(("effect", "scene"), SCENES.items(), ids=list(SCENES), indirect=["scene"])
def test_without_one_effect_something_is_wrong(scene: Scene, effect: str) -> None:
    scene.look_around(scene.play({**EFFECTS, effect: mutant}))
    assert scene.wrong != []


# ---- the comparison with the snapshot


def other_environment(arm: ArmTarget) -> ArmTarget:
    assert arm.process is not None
    return replace(arm, process=replace(arm.process, env={**arm.process.env, "SECRET_KEY": "another"}))


def other_folder(arm: ArmTarget) -> ArmTarget:
    assert arm.process is not None
    return replace(arm, process=replace(arm.process, cwd="/"))


def other_arguments(arm: ArmTarget) -> ArmTarget:
    assert arm.process is not None
    return replace(arm, process=replace(arm.process, argv=[*arm.process.argv, "--boot-s", "0.01"]))


@pytest.mark.parametrize("change", [other_environment, other_folder, other_arguments])
@pytest.mark.parametrize("comparing", [True, False], ids=["compared", "not compared"])
def test_only_the_comparison_sees_that_production_runs_otherwise(
    tmp_path: Path, change: Callable[[ArmTarget], ArmTarget], comparing: bool
) -> None:
    """It answers as before, and still it is not what it was."""
    world = World(tmp_path)
    production = world.arm("production")
    try:
        start_and_wait(change(production))
        effects = EFFECTS if comparing else {**EFFECTS, "verify": without_comparing}
        report = restore(world.plan(production), pace=FAST, effects=effects)
        assert report.verified is not comparing
        assert any("differs from its snapshot" in problem for problem in report.problems) is comparing
    finally:
        world.close(production)


# ---- scenes of containers


@pytest.fixture
def containers(docker: DockerEngine, tmp_path: Path, free_port: Callable[[], int]) -> ContainerWorld:
    made = ContainerWorld(docker, tmp_path, free_port())
    made.up()
    return made


PATIENT = Pace(backoff_s=0.2, port_s=1.0, look_s=4.0, look_tries=5, poll_s=0.05, call_s=5.0)


def restored(plan: RestorePlan, effects: Effects, watch: Observer = lambda step, point: None) -> RestoreReport:
    return restore(plan, pace=PATIENT, effects=effects, on_point=watch)


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.parametrize("real", [True, False], ids=["real", "mutant"])
def test_looking_again_waits_for_an_engine_that_comes_back(containers: ContainerWorld, real: bool) -> None:
    plan = plan_of(containers)
    in_the_middle(containers, plan)
    containers.docker.kill()
    back: list[threading.Thread] = []

    def restart() -> None:
        time.sleep(5)
        containers.docker.restart()

    def watch(step: str, point: str) -> None:
        if (step, point) == ("look", "before-intent") and not back:
            back.append(threading.Thread(target=restart))
            back[0].start()

    report = restored(plan, EFFECTS if real else {**EFFECTS, "look": mutant}, watch)
    assert back, "the engine was seen to be down"
    back[0].join()
    assert report.verified is real, report.problems
    if not real:
        assert any("cannot see what runs" in problem for problem in report.problems)


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.parametrize("real", [True, False], ids=["real", "mutant"])
def test_a_real_sidecar_runs_again_only_with_its_effect(containers: ContainerWorld, real: bool) -> None:
    path = containers.docker.env["DOCKER_HOST"].removeprefix("unix://")
    words = ["run", "-d", "--network", "none", "--name", "watchdog", "-v", f"{path}:/s.sock", IMAGE, "sleep", "600"]
    containers.docker.run(*words)
    plan = plan_of(containers)
    in_the_middle(containers, plan)
    assert not containers.docker.inspect("watchdog")["State"]["Running"]
    report = restored(plan, EFFECTS if real else {**EFFECTS, "sidecars": mutant})
    assert report.verified, report.problems
    assert containers.docker.inspect("watchdog")["State"]["Running"] is real


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.parametrize("comparing", [True, False], ids=["compared", "not compared"])
def test_only_the_comparison_sees_a_container_made_otherwise(containers: ContainerWorld, comparing: bool) -> None:
    """Somebody types ``docker compose up`` in the window with a changed profile: it answers, under another policy."""
    plan = plan_of(containers)
    containers.docker.run("rm", "-f", NAME)
    containers.write("production.yml", restart="always")
    containers.up()
    containers.write("production.yml")
    report = restored(plan, EFFECTS if comparing else {**EFFECTS, "verify": without_comparing})
    assert report.verified is not comparing, report.problems
    assert any("restart policy: was unless-stopped, is always" in problem for problem in report.problems) is comparing
