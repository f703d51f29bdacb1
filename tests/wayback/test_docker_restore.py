"""The whole way back over containers: by the restore itself, and by the zip application outside any virtual environment."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from audition.engines.sidecars import find_sidecars
from audition.wayback import bundle
from audition.wayback.docker import ContainerServer, manual_commands
from audition.wayback.docker_beside import stop_sidecar
from audition.wayback.lock import lock_files_for
from audition.wayback.plan import EndpointPlan, GpuPlan, RestorePlan, Verification
from audition.wayback.procs import base_python
from audition.wayback.proctable import own_ref
from audition.wayback.restore import Pace, restore
from engines.compose_world import NAME, World, ready
from environments.docker_engine import IMAGE, DockerEngine

pytestmark = [pytest.mark.docker, pytest.mark.slow]
FAST = Pace(backoff_s=0.2, port_s=1.0, look_s=0.2, poll_s=0.05, call_s=5.0)


@pytest.fixture
def world(docker: DockerEngine, tmp_path: Path, free_port: Callable[[], int]) -> World:
    return World(docker, tmp_path, free_port())


def plan_of(world: World, *, container_name: str = "own") -> RestorePlan:
    """The plan as a run would make it while production runs."""
    production = world.production().target()
    others = [world.candidate(container_name=container_name).target()]
    assert production.container is not None
    sidecars = find_sidecars(["docker"], production.container.docker_env, production.container.container_id)
    endpoint = EndpointPlan(f"http://127.0.0.1:{world.port}", "tiny")
    return RestorePlan(
        run_id=world.run_id,
        spike="tiny",
        state_dir=str(world.state),
        run_dir=str(world.folder),
        lock_files=lock_files_for(world.state, []),
        fence=7,
        runner=own_ref(),
        production=production,
        others=others,
        sidecars=sidecars,
        entry=None,
        gpu=GpuPlan("none"),
        verify=Verification(endpoint, 30.0, 20.0, 0.5, "require", {"prompt": "x"}, ["one two three"]),
        deadline=None,
        manual=manual_commands(production),
    )


def in_the_middle(world: World, plan: RestorePlan, *, container_name: str = "own") -> None:
    """Production stopped, sidecars stopped, the candidate running."""
    for sidecar in plan.sidecars:
        stop_sidecar(sidecar, 1)
    ContainerServer(plan.production).stop(5)
    candidate = world.candidate(container_name=container_name)
    candidate.start()
    ready(candidate)


def nothing_to_do(world: World, plan: RestorePlan) -> None: ...


def production_removed(world: World, plan: RestorePlan) -> None:
    assert plan.production.container is not None
    world.docker.run("rm", "-f", plan.production.container.container_id)


def daemon_restarted(world: World, plan: RestorePlan) -> None:
    world.docker.kill()
    world.docker.restart()


def candidate_killed(world: World, plan: RestorePlan) -> None:
    candidate = ContainerServer(plan.others[0]).find()
    assert candidate is not None
    world.docker.run("kill", candidate["Id"])


@pytest.mark.parametrize("name", ["own", "production"])
@pytest.mark.parametrize("meanwhile", [nothing_to_do, production_removed, daemon_restarted, candidate_killed])
def test_production_is_back_and_verified(world: World, name: str, meanwhile: Callable[[World, RestorePlan], None]) -> None:
    world.up()
    path = world.docker.env["DOCKER_HOST"].removeprefix("unix://")
    world.docker.run("run", "-d", "--network", "none", "--name", "watchdog", "-v", f"{path}:/s.sock", IMAGE, "sleep", "600")
    plan = plan_of(world, container_name=name)
    assert [sidecar.name for sidecar in plan.sidecars] == ["watchdog"]
    in_the_middle(world, plan, container_name=name)
    meanwhile(world, plan)
    report = restore(RestorePlan.from_json(plan.to_json()), pace=FAST)
    assert report.verified, report
    assert world.docker.inspect(NAME)["State"]["Running"]
    assert world.docker.inspect("watchdog")["State"]["Running"]
    assert len(world.docker.containers()) == 2
    again = restore(plan, pace=FAST)
    assert again.verified
    assert again.untouched, "a restore with nothing to do touches nothing"


def test_the_zip_application_does_it_alone(world: World) -> None:
    world.up()
    plan = plan_of(world, container_name="production")
    in_the_middle(world, plan, container_name="production")
    (world.state / "guard.pyz").write_bytes(bundle.build())
    (world.state / "plan.json").write_text(plan.to_json())
    command = [base_python(), "-I", "-S", str(world.state / "guard.pyz"), "restore", str(world.state / "plan.json")]
    done = subprocess.run(command, env={}, cwd="/", capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert world.docker.inspect(NAME)["State"]["Running"]
    assert ContainerServer(plan.production).differences() == []
    assert len(world.docker.containers()) == 1


def test_what_cannot_be_restored_is_said_with_what_to_type(world: World) -> None:
    world.up()
    plan = plan_of(world)
    in_the_middle(world, plan)
    production_removed(world, plan)
    world.docker.run("run", "-d", "--network", "none", "--name", NAME, IMAGE, "sleep", "600")
    report = restore(plan, pace=FAST)
    assert not report.verified
    assert any("held by another container" in problem for problem in report.problems)
    assert any("docker compose" in line for line in report.manual)
    assert world.docker.inspect(NAME)["Config"]["Cmd"] == ["sleep", "600"]
