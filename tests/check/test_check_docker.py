"""A check against a real Docker engine: the forgotten env file, sidecars that run, images by digest; and `init` from what runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from audition.check.checking import Scope, check
from audition.check.finding import Report
from audition.run.preparing import make_engines, new_identity
from audition.spike.parse import load_spike
from check.look import codes, one
from engines.compose_world import NAME, SECRET, World
from environments.docker_engine import IMAGE, DockerEngine

pytestmark = [pytest.mark.docker, pytest.mark.slow]

WATCHDOG = f"""\
services:
  watchdog:
    image: {IMAGE}
    container_name: llm-medium-watchdog
    command: ["python3", "-c", "import time; time.sleep(600)"]
    network_mode: host
    volumes: ["/var/run/docker.sock:/var/run/docker.sock"]
"""


@pytest.fixture
def world(docker: DockerEngine, tmp_path: Path, free_port: Callable[[], int], monkeypatch: pytest.MonkeyPatch) -> World:
    for name, value in docker.env.items():
        monkeypatch.setenv(name, value)
    return World(docker, tmp_path, free_port())


def checked(world: World, **production: Any) -> Report:
    arms = []
    for role in ("production", "candidate"):
        arm = world.arm(role, **(production if role == "production" else {"container_name": "production"}))
        arms.append(arm.model_dump(mode="json", exclude_unset=True))
    spike = {
        "audition": 1, "name": "trial", "question": "Is it faster?", "arms": arms, "drain": {"budget": 1},
        "workloads": [{"name": "single", "requests": 2}],
        "gates": [{"metric": "failure_share", "workload": "single", "at_most": 0}],
    }  # fmt: skip
    path = world.folder / "spike.yaml"
    path.write_text(yaml.safe_dump(spike))
    loaded = load_spike(path)
    engines = make_engines(loaded.spike, loaded.folder, new_identity(loaded.spike, world.folder / "audition", "check"))
    return check(loaded, engines, Scope(state=world.folder))


def test_running_production_against_its_profile(world: World) -> None:
    seen = world.up()
    (world.folder / "watchdog.yml").write_text(WATCHDOG)
    world.docker.compose("-p", "watch", "-f", "watchdog.yml", "up", "-d", "--pull", "never", cwd=world.folder)
    before = {name: world.docker.inspect(name)["State"]["StartedAt"] for name in world.docker.containers()}

    report = checked(world)
    assert report.blocking == []
    assert one(report, "variables").level == "ok"
    assert seen["Image"][:19] in one(report, "image").text
    sidecar = one(report, "sidecar")
    assert "llm-medium-watchdog" in sidecar.text
    assert "was not seen" not in sidecar.text
    assert NAME in one(report, "same-name").text

    forgotten = checked(world, env_files=[])
    lost = one(forgotten, "variable-lost")
    assert (lost.level, lost.arm) == ("blocking", "v2g")
    assert "API_KEY" in lost.text
    assert SECRET not in str(forgotten)
    assert forgotten.exit_code == 5
    assert {name: world.docker.inspect(name)["State"]["StartedAt"] for name in world.docker.containers()} == before


def test_an_image_that_is_not_here_blocks(world: World) -> None:
    world.up()
    world.write("candidate.yml", image="audition/not-there:1")
    report = checked(world)
    assert "engine-blocking" in codes(report.blocking)
    assert any("image audition/not-there:1 is not on the engine" in found.text for found in report.blocking)


def test_a_spike_file_from_the_running_container(world: World) -> None:
    world.write("production.yml", more=', "--served-model-name", "tiny"')
    world.write("candidate.yml", more=', "--served-model-name", "tiny", "--seed", "1"')
    world.up(project="other")
    done = subprocess.run(
        [sys.executable, "-m", "audition", "init", "--from-container", NAME, "--candidate", "candidate.yml", "--out", "spike.yaml"],
        cwd=world.folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env=world.env,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    engine = load_spike(world.folder / "spike.yaml").spike.production.engine
    assert engine.kind == "compose"
    assert (engine.files, engine.env_files, engine.project) == (["production.yml"], ["serving.env"], "other")
    assert SECRET not in (world.folder / "spike.yaml").read_text() + done.stdout
