"""The compose engine against a real Docker engine: production observed, candidates in a project of their own, names given back."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from audition.engines.base import Finding
from audition.errors import InternalError
from audition.wayback.docker_cli import FENCE_LABEL, RUN_LABEL
from audition.wayback.health import completion
from engines.compose_world import NAME, SECRET, World, ready, wait_until
from environments.docker_engine import IMAGE, DockerEngine

pytestmark = [pytest.mark.docker, pytest.mark.slow]


@pytest.fixture
def world(docker: DockerEngine, tmp_path: Path, free_port: Callable[[], int]) -> World:
    return World(docker, tmp_path, free_port())


def blocking(engine_findings: list[Finding]) -> list[str]:
    return [finding.text for finding in engine_findings if finding.level == "blocking"]


def test_production_is_observed_as_it_runs(world: World) -> None:
    engine = world.production()
    assert engine.observe().state == "absent"
    seen = world.up()
    observed = engine.observe()
    assert observed.state == "running"
    assert observed.facts["container_id"] == seen["Id"]
    assert observed.facts["image_id"] == seen["Image"]
    assert observed.facts["restart_policy"] == "unless-stopped"
    assert blocking(engine.preflight()) == []
    assert [finding.text for finding in engine.preflight() if finding.level == "warning"] == []
    ready(engine)
    assert engine.alive()
    assert engine.boot_id().startswith(seen["Id"])
    assert "Application startup complete." in engine.log_since_start().read_text()


def test_production_stops_and_starts_as_the_same_container(world: World) -> None:
    seen = world.up()
    engine = world.production()
    target = engine.target()
    first = engine.boot_id()
    stopped = engine.stop()
    assert (stopped.proved, stopped.killed) == (True, False)
    assert engine.observe().state == "absent"
    assert not engine.alive()
    assert engine.stop().proved, "stopping twice is safe"
    engine.start()
    ready(engine)
    assert world.docker.inspect(NAME)["Id"] == seen["Id"]
    assert engine.boot_id() != first
    assert engine.alive()
    assert target.container is not None
    assert target.container.container_id == seen["Id"]


def test_production_that_does_not_exist_is_made_from_its_own_files(world: World) -> None:
    engine = world.production()
    engine.start()
    ready(engine)
    assert engine.observe().state == "running"
    assert engine.target().container is not None
    assert world.docker.inspect(NAME)["Config"]["Labels"]["com.docker.compose.project.config_files"].endswith("production.yml")


def test_a_candidate_runs_under_its_own_project_and_name(world: World) -> None:
    world.up()
    production, candidate = world.production(), world.candidate()
    production.target()
    assert candidate.observe().state == "absent", "production on the candidate's port makes room"
    assert blocking(candidate.preflight()) == []
    assert production.stop().proved
    candidate.start()
    ready(candidate)
    assert completion(candidate.endpoint, {"prompt": "x"}) == "four five six"
    target = candidate.target().container
    assert target is not None
    seen = world.docker.inspect(target.name)
    assert seen["HostConfig"]["RestartPolicy"]["Name"] == "no"
    assert seen["Config"]["Labels"][RUN_LABEL] == world.run_id
    assert seen["Config"]["Labels"][FENCE_LABEL] == "7"
    assert seen["Config"]["Labels"]["com.docker.compose.project"].startswith("audition-")
    assert candidate.observe().state == "running"
    path = Path(target.start[0][target.start[0].index("--file") + 1])
    assert path.stat().st_mode & 0o777 == 0o600
    assert candidate.stop().proved
    assert world.docker.run("container", "inspect", target.name, check=False).returncode != 0, "candidates are removed"
    assert "Application startup complete." in candidate.log_since_start().read_text(), "the log outlives the container"
    production.start()
    ready(production)
    assert completion(production.endpoint, {"prompt": "x"}) == "one two three"


def test_a_candidate_takes_productions_name_and_gives_it_back(world: World) -> None:
    seen = world.up()
    production, candidate = world.production(), world.candidate(container_name="production")
    production.target()
    target = candidate.target().container
    assert target is not None
    aside = target.snapshot["displaces"]["aside"]
    with pytest.raises(InternalError, match="still runs"):
        candidate.start()
    assert production.stop().proved
    for _ in range(2):
        candidate.start()
        ready(candidate)
        assert world.docker.inspect(NAME)["Config"]["Labels"][RUN_LABEL] == world.run_id
        assert world.docker.inspect(aside)["Id"] == seen["Id"]
        with pytest.raises(InternalError, match="name llm-medium is held"):
            production.start()
        assert candidate.stop().proved
        production.start()
        ready(production)
        assert world.docker.inspect(NAME)["Id"] == seen["Id"]
        assert production.stop().proved


def test_a_boot_that_fails_is_told_with_exit_code_and_log(world: World) -> None:
    world.write("candidate.yml", more=', "--exit-at-boot", "7"', restart="always")
    candidate = world.candidate()
    lines: list[str] = []
    candidate.start()
    outcome = candidate.wait_ready(lambda: False, lines.append)
    assert (outcome.kind, outcome.exit_code) == ("exited", 7)
    assert "crashed at boot on purpose" in outcome.excerpt
    assert any("crashed at boot on purpose" in line for line in lines)
    assert candidate.stop().proved


def test_a_forgotten_env_file_is_a_finding(world: World) -> None:
    world.up()
    engine = world.production(env_files=[])
    texts = [finding.text for finding in engine.preflight()]
    assert any("serving.env" in text and "--env-file" in text for text in texts)
    assert any("variable API_KEY differs: empty in the profile" in text for text in texts)
    assert any("API_KEY is set nowhere" in text for text in texts)
    assert not any(SECRET in text for text in texts)
    # and the other way round: production itself was started without it
    world.docker.clean()
    (world.folder / ".env").write_text(f"PORT={world.port}\n")
    world.up(env_file=None)
    texts = blocking(world.production().preflight())
    assert any("without --env-file" in text for text in texts)


def test_a_profile_edited_since_the_start_is_a_warning_and_production_comes_back_as_it_ran(world: World) -> None:
    world.up()
    world.write("production.yml", answer="edited since")
    engine = world.production()
    texts = [(finding.level, finding.text) for finding in engine.preflight()]
    assert any(level == "warning" and "the arguments differ" in text for level, text in texts)
    target = engine.target()
    assert target.container is not None
    assert not any("production.yml" in word for argv in target.container.recreate for word in argv)
    world.docker.run("rm", "-f", NAME)
    engine.start()
    ready(engine)
    assert completion(engine.endpoint, {"prompt": "x"}) == "one two three"


def test_missing_image_and_missing_gpu_runtime_are_found_before_anything_is_touched(world: World) -> None:
    world.up()
    world.write("candidate.yml", image="registry.example/vllm-patched:v7.72.5")
    text = (world.folder / "candidate.yml").read_text()
    (world.folder / "candidate.yml").write_text(text.replace("    shm_size", "    gpus: all\n    shm_size"))
    before = world.docker.containers()
    texts = blocking(world.candidate().preflight())
    assert any("image registry.example/vllm-patched:v7.72.5 is not on the engine" in text for text in texts)
    assert any("asks for GPUs" in text and "runc" in text for text in texts)
    assert world.docker.containers() == before


def test_a_wrong_port_a_wrong_service_and_a_wrong_file_are_blocking(world: World) -> None:
    assert any("no service nope" in text for text in blocking(world.candidate(service="nope").preflight()))
    assert any("there is no file" in text for text in blocking(world.candidate(files=["gone.yml"]).preflight()))
    text = (world.folder / "candidate.yml").read_text()
    (world.folder / "candidate.yml").write_text(text.replace("    network_mode: host\n", '    ports: ["8000:8000"]\n'))
    assert any("not published by service engine (published: 8000)" in text for text in blocking(world.candidate().preflight()))


def test_a_strangers_container_with_productions_name_is_not_production(world: World) -> None:
    other = world.folder.parent / "elsewhere"
    other.mkdir()
    (other / "production.yml").write_text((world.folder / "production.yml").read_text())
    (other / "serving.env").write_text((world.folder / "serving.env").read_text())
    world.docker.compose("-f", "production.yml", "--env-file", "serving.env", "up", "-d", cwd=other)
    stranger = world.docker.inspect(NAME)
    engine = world.production()
    assert engine.observe().state == "foreign"
    assert any("belongs to another container" in text for text in blocking(engine.preflight()))
    with pytest.raises(Exception, match="belongs to another container"):
        engine.start()
    assert not engine.alive()
    assert world.docker.inspect(NAME)["State"]["StartedAt"] == stranger["State"]["StartedAt"]


def test_another_project_name_is_told_with_what_to_write(world: World) -> None:
    world.up(project="shop")
    assert any("say `project: shop`" in text for text in blocking(world.production().preflight()))
    assert world.production(project="shop").observe().state == "running"


def test_a_planted_secret_is_in_no_snapshot_and_no_finding(world: World) -> None:
    world.write("production.yml", more=f', "--hold-mib", "0", "--ledger", "/tmp/{SECRET}"')
    world.up()
    engine = world.production()
    target = engine.target()
    assert target.container is not None
    assert SECRET not in json.dumps(target.container.snapshot)
    assert SECRET not in json.dumps([finding.text for finding in engine.preflight()])
    assert SECRET not in json.dumps(engine.observe().facts)
    for path in engine.secret_files():
        assert path.stat().st_mode & 0o777 == 0o600
    assert any(SECRET in path.read_text() for path in engine.secret_files()), "the saved copy needs the real value"


def test_a_dead_docker_engine_is_no_dead_server(world: World) -> None:
    world.up()
    engine = world.production()
    ready(engine)
    engine.target()
    assert engine.alive()
    world.docker.kill()
    assert engine.alive(), "the process lives on while the daemon is dead"
    assert not engine.stop().proved
    assert any("Docker engine does not answer" in text for text in blocking(world.production().preflight()))
    world.docker.restart()
    assert wait_until(lambda: not engine.alive())


def test_the_image_name_is_free_to_move(world: World) -> None:
    world.docker.run("tag", IMAGE, "local/engine:nightly")
    world.write("production.yml", image="local/engine:nightly")
    world.up()
    engine = world.production()
    engine.target()
    world.docker.run("rmi", "local/engine:nightly")
    texts = [finding.text for finding in engine.preflight()]
    assert any("means another image by now" in text for text in texts)
    world.docker.run("rm", "-f", NAME)
    engine.start()
    ready(engine)
    assert engine._server().differences() == []


def test_a_candidate_that_docker_cannot_start_leaves_nothing(world: World) -> None:
    text = (world.folder / "candidate.yml").read_text()
    (world.folder / "candidate.yml").write_text(text.replace("    shm_size", "    gpus: all\n    shm_size"))
    candidate = world.candidate()
    with pytest.raises(InternalError, match="could not select device driver"):
        candidate.start()
    assert len(world.docker.containers()) == 1, "Docker leaves the container behind, created"
    assert candidate.observe().state == "absent"
    assert candidate.stop().proved
    assert world.docker.containers() == []


def test_networks_of_the_run_go_with_the_candidate_and_others_stay(world: World) -> None:
    candidate = world.candidate()
    target = candidate.target().container
    assert target is not None
    marks = [word for key, value in target.labels.items() for word in ("--label", f"{key}={value}")]
    made = world.docker.run("network", "create", "--driver", "macvlan", *marks, f"{target.name}_default", check=False)
    if made.returncode != 0:
        pytest.skip(f"this kernel makes no further networks: {made.stderr.strip()}")
    world.docker.run("network", "create", "--driver", "macvlan", "--label", "audition.run=another", "of-another-run")
    candidate.start()
    ready(candidate)
    assert candidate.stop().proved
    left = world.docker.run("network", "ls", "--format", "{{.Name}}").stdout.split()
    assert f"{target.name}_default" not in left
    assert "of-another-run" in left
    world.docker.run("network", "rm", "of-another-run")


def test_a_docker_context_is_honoured_everywhere(world: World) -> None:
    world.docker.run("context", "create", "gpu-box", "--docker", f"host={world.docker.env['DOCKER_HOST']}")
    try:
        seen = world.up()
        world.env = {**world.env, "DOCKER_HOST": "unix:///nowhere/s.sock"}
        assert any("Docker engine does not answer" in text for text in blocking(world.production().preflight()))
        engine = world.production(context="gpu-box")
        assert blocking(engine.preflight()) == []
        target = engine.target().container
        assert target is not None
        assert target.docker == ["docker", "--context", "gpu-box"]
        assert all(argv[:3] == target.docker for argv in target.recreate)
        assert engine.stop().proved
        engine.start()
        ready(engine)
        assert world.docker.inspect(NAME)["Id"] == seen["Id"]
    finally:
        world.docker.run("context", "rm", "--force", "gpu-box")


def test_a_log_that_is_pulled_twice_has_no_line_twice(world: World) -> None:
    world.write("candidate.yml", more=', "--boot-s", "1"')
    candidate = world.candidate()
    candidate.start()
    lines: list[str] = []
    assert candidate.wait_ready(lambda: False, lines.append).kind == "ready"
    text = candidate.log_since_start().read_text()
    assert text.count("boots") == 1
    assert text.count("Application startup complete.") == 1
    assert lines == text.splitlines()
    candidate.stop()
