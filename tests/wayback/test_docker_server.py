"""Containers of the way back against a real Docker engine: everything that may happen to production while it is down."""

import socket
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from audition.engines.sidecars import find_sidecars, survey
from audition.wayback.docker import ContainerServer, manual_commands
from audition.wayback.docker_beside import sidecar_runs, start_sidecar, step_aside, step_back, stop_sidecar
from audition.wayback.docker_cli import Docker, EngineDown
from audition.wayback.docker_log import ContainerLog
from audition.wayback.health import NoAnswer, completion
from audition.wayback.plan import ArmTarget, ContainerTarget, EndpointPlan
from audition.wayback.server import WaybackError
from engines.compose_world import NAME, World, again, ready, wait_until
from environments.docker_engine import IMAGE, DockerEngine

pytestmark = [pytest.mark.docker, pytest.mark.slow]


@pytest.fixture
def world(docker: DockerEngine, tmp_path: Path, free_port: Callable[[], int]) -> World:
    return World(docker, tmp_path, free_port())


def works(world: World, answer: str = "one two three") -> bool:
    endpoint = EndpointPlan(f"http://127.0.0.1:{world.port}", "tiny")

    def asked() -> bool:
        try:
            return completion(endpoint, {"prompt": "x"}) == answer
        except NoAnswer:
            return False

    return wait_until(asked)


def test_view_start_stop_in_every_state(world: World) -> None:
    world.up()
    server = world.server()
    running = server.view()
    assert (running.state, running.restarts) == ("running", 0)
    server.start()
    assert server.view().boot_id == running.boot_id, "starting what runs is a no-op"
    assert works(world)
    assert server.differences() == []
    report = server.stop(5)
    assert (report.proved, report.killed) == (True, False)
    stopped = server.view()
    assert (stopped.state, stopped.boot_id, stopped.exit_code) == ("stopped", "", 0)
    assert server.differences() == ["v2g does not run, so nothing can be compared"]
    assert server.stop(5).proved
    server.start()
    assert works(world)
    assert server.view().boot_id not in ("", running.boot_id)
    assert server.differences() == []


def test_a_server_that_ignores_sigterm_is_killed_and_that_is_said(world: World) -> None:
    world.write("production.yml", more=', "--ignore-term"')
    world.up()
    assert works(world)
    report = world.server().stop(1)
    assert (report.proved, report.killed) == (True, True)
    assert world.server().view().exit_code == 137


def test_a_container_removed_from_outside_is_made_again_by_its_own_files(world: World) -> None:
    old = world.up()
    server = world.server()
    server.stop(5)
    world.docker.run("rm", "-f", NAME)
    assert server.view().state == "absent"
    server.start()
    assert works(world)
    assert server.view().state == "running"
    assert server.differences() == []
    new = world.docker.inspect(NAME)
    assert new["Id"] != old["Id"]
    assert new["Config"]["Labels"] == old["Config"]["Labels"]
    assert server.stop(5).proved, "the new container is production's, too"


def test_changed_files_are_not_used_but_the_saved_copy_is(world: World) -> None:
    world.up()
    server = world.server()
    server.stop(5)
    world.docker.run("rm", "-f", NAME)
    (world.folder / "serving.env").write_text(f"PORT={world.port}\n")
    server.start()
    assert works(world)
    assert server.differences() == []
    files = world.docker.inspect(NAME)["Config"]["Labels"]["com.docker.compose.project.config_files"]
    assert files.startswith(str(world.state))


def test_a_missing_profile_does_not_matter_either(world: World) -> None:
    world.up()
    server = world.server()
    world.docker.run("rm", "-f", NAME)
    (world.folder / "production.yml").unlink()
    server.start()
    assert works(world)
    assert server.differences() == []


def test_an_image_whose_name_moved_is_pinned(world: World) -> None:
    world.docker.run("tag", IMAGE, "local/engine:nightly")
    world.write("production.yml", image="local/engine:nightly")
    seen = world.up()
    server = world.server()
    server.stop(5)
    world.docker.run("rm", "-f", NAME)
    empty = world.folder / "empty.tar"
    tarfile.open(empty, "w").close()
    world.docker.run("import", str(empty), "local/engine:nightly")
    moved = world.docker.run("image", "inspect", "--format", "{{.Id}}", "local/engine:nightly").stdout.strip()
    assert moved != seen["Image"]
    server.start()
    assert works(world)
    assert server.differences() == []
    assert world.docker.inspect(NAME)["Image"] == seen["Image"]
    world.docker.run("rmi", "-f", "local/engine:nightly")


def test_an_image_removed_after_the_snapshot_is_told_with_what_to_type(world: World) -> None:
    built = world.folder / "own.tar"
    world.docker.run("create", "--name", "seed", IMAGE)
    world.docker.run("export", "-o", str(built), "seed")
    settings = ["--change", "ENV PATH=/usr/bin:/bin", "--change", "LABEL made=here"]
    world.docker.run("import", *settings, str(built), "local/patched:1")
    world.write("production.yml", image="local/patched:1")
    world.up()
    server = world.server()
    server.stop(5)
    world.docker.run("rm", "-f", NAME)
    world.docker.run("rmi", "-f", "local/patched:1")
    with pytest.raises(WaybackError) as fault:
        server.start()
    text = str(fault.value)
    assert "local/patched:1" in text
    assert "is gone. Type: docker load -i ARCHIVE" in text
    assert "audition recover" in text
    world.docker.run("import", *settings, str(built), "local/patched:1")
    world.docker.run("rmi", "-f", "local/patched:1")


def test_a_restart_loop_is_no_running_server(world: World) -> None:
    world.write("production.yml", more=', "--exit-at-boot", "7"', restart="always")
    world.up()
    server = world.server()
    assert wait_until(lambda: "restart loop" in server.view().detail)
    view = server.view()
    assert (view.state, view.exit_code, view.boot_id) == ("stopped", 7, "")
    assert server.stop(1).proved
    assert wait_until(lambda: "exited with exit code 7" in server.view().detail, 5)
    assert "crashed at boot on purpose" in server.log_tail(5)


def test_restarts_are_counted_from_the_first_look(world: World) -> None:
    world.write("production.yml", more=', "--exit-after-s", "1.5"', restart="always")
    world.up()
    assert wait_until(lambda: world.docker.inspect(NAME)["RestartCount"] >= 1)
    server = world.server()
    assert server.view().restarts == 0
    assert wait_until(lambda: (server.view().restarts or 0) >= 1)
    server.stop(1)


def test_a_container_killed_from_outside_is_seen_and_started_again(world: World) -> None:
    world.up()
    server = world.server()
    before = server.view().boot_id
    world.docker.run("kill", NAME)
    assert wait_until(lambda: server.view().state == "stopped")
    assert server.view().exit_code == 137
    server.start()
    assert works(world)
    assert server.view().boot_id != before


def test_a_port_taken_by_a_stranger_is_told_and_the_stranger_left_alone(world: World) -> None:
    world.up()
    server = world.server()
    assert server.stop(5).detail == ""
    listener = socket.create_server(("127.0.0.1", world.port))
    try:
        view = server.view()
        assert view.state == "stopped"
        assert f"port {world.port} is taken by something else" in view.detail
        with pytest.raises(WaybackError, match="is taken by something else; look: ss -ltnp"):
            server.start()
        assert listener.getsockname()[1] == world.port
        world.docker.run("rm", "-f", NAME)
        assert server.view().state == "foreign"
        assert "is held by something" in server.stop(1).detail
    finally:
        listener.close()
    server.start()
    assert works(world)


def test_a_strangers_container_with_productions_name_is_never_touched(world: World) -> None:
    world.up()
    server = world.server()
    server.stop(5)
    world.docker.run("rm", "-f", NAME)
    other = world.folder.parent / "elsewhere"
    other.mkdir()
    (other / "p.yml").write_text((world.folder / "production.yml").read_text().replace("${PORT:-1}", "1"))
    world.docker.compose("-p", "stranger", "-f", "p.yml", "create", cwd=other)
    before = world.docker.inspect(NAME)
    assert server.view().state == "foreign"
    with pytest.raises(WaybackError, match="is held by another container"):
        server.start()
    assert server.stop(1).proved
    after = world.docker.inspect(NAME)
    assert (after["Id"], after["State"]) == (before["Id"], before["State"])


def test_candidates_are_found_by_labels_alone(world: World) -> None:
    world.up()
    candidate = world.candidate()
    target = candidate.target()
    assert target.container is not None
    server = again(target)
    world.docker.run("run", "-d", "--network", "none", "--name", target.container.name, IMAGE, "sleep", "600")
    with pytest.raises(WaybackError, match="is held by another container"):
        server.start()
    assert server.stop(1).proved
    assert world.docker.inspect(target.container.name)["State"]["Running"], "a stranger under the candidate's name"
    for labels in ({"audition.run": "another", "audition.arm": "mtp"}, {"audition.run": world.run_id, "audition.arm": "control"}):
        marks = [word for key, value in labels.items() for word in ("--label", f"{key}={value}")]
        world.docker.run("run", "-d", "--network", "none", *marks, IMAGE, "sleep", "600")
    count = len(world.docker.containers())
    server.stop(1)
    assert len(world.docker.containers()) == count, "another run's and another arm's containers stay"


def test_names_move_aside_and_back_any_number_of_times(world: World) -> None:
    seen = world.up()
    production = world.production()
    target = production.target()
    candidate = world.candidate(container_name="production").target()
    assert target.container is not None
    assert candidate.container is not None
    displaced = candidate.container.snapshot["displaces"]
    cli = Docker(["docker"], world.env)
    with pytest.raises(WaybackError, match="still runs"):
        step_aside(cli, displaced)
    production.stop()
    for _ in range(2):
        step_aside(cli, displaced)
        step_aside(cli, displaced)
        assert world.docker.inspect(displaced["aside"])["Id"] == seen["Id"]
        step_back(target.container)
        step_back(target.container)
        assert world.docker.inspect(NAME)["Id"] == seen["Id"]
    step_aside(cli, displaced)
    again(target).start()
    assert world.docker.inspect(NAME)["State"]["Running"], "a start gives the name back by itself"
    world.docker.run("rm", "-f", NAME)
    world.docker.run("create", "--name", NAME, IMAGE)
    with pytest.raises(WaybackError, match="which is not production's"):
        step_aside(cli, displaced)
    assert world.docker.inspect(NAME)["Config"]["Image"] == IMAGE


def test_two_restorers_at_once_converge(world: World) -> None:
    world.up()
    target = world.production().target()
    for gone in (False, True):
        again(target).stop(5)
        if gone:
            world.docker.run("rm", "-f", NAME)
        faults: list[WaybackError] = []

        def restore(faults: list[WaybackError] = faults) -> None:
            server = again(target)
            for _ in range(5):
                try:
                    server.start()
                    return
                except WaybackError as fault:
                    faults.append(fault)
                    time.sleep(0.2)

        threads = [threading.Thread(target=restore) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert works(world), faults
        assert len(world.docker.containers()) == 1
        assert again(target).differences() == []


@pytest.mark.parametrize(("policy", "comes_back"), [("always", True), ("unless-stopped", False)])
def test_dockerd_killed_and_restarted_during_a_leg(world: World, policy: str, comes_back: bool) -> None:
    world.write("production.yml", restart=policy)
    world.up()
    production, candidate = world.production(), world.candidate()
    server = again(production.target())
    production.stop()
    candidate.start()
    ready(candidate)
    other = again(candidate.target())
    world.docker.kill()
    with pytest.raises(EngineDown, match="Docker engine does not answer"):
        server.view()
    with pytest.raises(WaybackError, match="Docker engine does not answer"):
        server.start()
    world.docker.restart()
    assert wait_until(lambda: not candidate.alive()), "restart no: the candidate stays down"
    assert wait_until(lambda: (server.view().state == "running") is comes_back)
    assert other.stop(5).proved
    assert other.view().state != "running"
    server.start()
    assert works(world)
    assert server.differences() == []
    assert len(world.docker.containers()) == 1


def test_the_log_grows_and_is_counted_with_and_without_its_file(world: World) -> None:
    world.up()
    assert works(world)
    server = world.server()
    first = server.log_size()
    assert first > 0
    assert server.log_size() == first
    found = server.find()
    assert found is not None
    asked = ContainerLog(server.cli)
    unreadable = {**found, "LogPath": "/nowhere/x.log"}
    count = asked.size(unreadable)
    assert count > 0
    assert asked.size(unreadable) == count
    world.docker.run("restart", "-t", "1", NAME)
    assert works(world)
    assert server.log_size() > first
    assert asked.size(unreadable) > count
    assert "Application startup complete." in server.log_tail(3)
    world.docker.run("rm", "-f", NAME)
    assert "the container is gone" in server.log_tail(3)


def test_a_stranger_on_the_same_port_is_named(world: World) -> None:
    world.up()
    assert works(world)
    server = world.server()
    assert server.strangers() == []
    listener = socket.socket(socket.AF_INET6)
    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    listener.bind(("::1", world.port))
    listener.listen()
    with listener:
        assert len(server.strangers()) == 1


def test_sidecars_are_found_stopped_and_started_again(world: World) -> None:
    seen = world.up()
    path = world.docker.env["DOCKER_HOST"].removeprefix("unix://")
    run = ("run", "-d", "--network", "none")
    world.docker.run(*run, "--name", "watchdog", "-v", f"{path}:/var/run/docker.sock", IMAGE, "sleep", "600")
    world.docker.run(*run, "--name", "holder-of-the-folder", "-v", f"{Path(path).parent}:/host", IMAGE, "sleep", "600")
    world.docker.run("tag", IMAGE, "willfarrell/autoheal:1")
    world.docker.run("tag", IMAGE, "traefik:v3")
    world.docker.run(*run, "--name", "healer", "-e", "AUTOHEAL_CONTAINER_LABEL=all", "willfarrell/autoheal:1", "sleep", "600")
    world.docker.run(*run, "--name", "proxy", "-v", f"{path}:/var/run/docker.sock:ro", "traefik:v3", "sleep", "600")
    world.docker.run(*run, "--name", "harmless", "-v", "/srv:/srv", IMAGE, "sleep", "600")
    world.docker.run("create", "--name", "stopped", "-v", f"{path}:/var/run/docker.sock", IMAGE, "sleep", "600")
    plans = find_sidecars(["docker"], world.env, seen["Id"])
    why = {plan.name: plan.why for plan in plans}
    assert sorted(why) == ["healer", "holder-of-the-folder", "watchdog"]
    assert why["watchdog"].startswith("holds the Docker socket")
    assert "restarts every unhealthy container" in why["healer"]
    [left] = survey(["docker"], world.env, seen["Id"]).left_alone
    assert left.startswith("proxy: ")
    for plan in plans:
        assert sidecar_runs(plan)
        stop_sidecar(plan, 1)
        stop_sidecar(plan, 1)
        assert not sidecar_runs(plan)
    assert world.docker.inspect("proxy")["State"]["Running"]
    for plan in plans:
        start_sidecar(plan)
        start_sidecar(plan)
        assert sidecar_runs(plan)
    world.docker.run("rm", "-f", "watchdog")
    with pytest.raises(WaybackError, match=r"sidecar watchdog .* was removed meanwhile"):
        start_sidecar(next(plan for plan in plans if plan.name == "watchdog"))
    world.docker.clean()
    world.docker.run("rmi", "willfarrell/autoheal:1", "traefik:v3")


def test_manual_commands_bring_production_back(world: World) -> None:
    world.up()
    target = world.production().target()
    assert target.container is not None
    again(target).stop(5)
    lines = manual_commands(target)
    assert lines[1].endswith(f"start {target.container.container_id[:12]}")
    subprocess.run(["sh", "-c", lines[1]], check=True, env={"PATH": world.env["PATH"]}, capture_output=True)
    assert works(world)
    world.docker.run("rm", "-f", NAME)
    subprocess.run(["sh", "-c", lines[2]], check=True, env={"PATH": world.env["PATH"]}, capture_output=True)
    assert works(world)
    assert again(target).differences() == []


def test_no_docker_command_is_told_plainly() -> None:
    target = ContainerTarget(["no-such-docker"], {"PATH": "/nowhere"}, "a" * 64, "x", {})
    with pytest.raises(WaybackError, match="cannot run no-such-docker"):
        ContainerServer(ArmTarget("v2g", 1, 0, container=target)).view()


def test_an_engine_that_is_not_there_is_told_plainly() -> None:
    target = ContainerTarget(["docker"], {"DOCKER_HOST": "unix:///nowhere/s.sock"}, "a" * 64, "x", {})
    with pytest.raises(EngineDown, match="Docker engine does not answer"):
        ContainerServer(ArmTarget("v2g", 1, 0, container=target)).view()
