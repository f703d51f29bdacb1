"""Resolved profiles and image digests of real containers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from audition.run.profiles import image_digests, write_profiles
from audition.spike.model import Spike
from engines.compose_world import SECRET, World
from environments.docker_engine import IMAGE, DockerEngine

pytestmark = [pytest.mark.docker, pytest.mark.slow]


def test_profiles_of_containers_are_resolved_masked_and_their_images_known(
    docker: DockerEngine, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    world = World(docker, tmp_path, free_port())
    world.up()
    arms = [world.arm(role).model_dump(mode="json") for role in ("production", "candidate")]
    spike = Spike.model_validate(
        {
            "audition": 1, "name": "s", "question": "Q?", "arms": arms,
            "workloads": [{"name": "w", "users": 1, "requests": 1, "max_tokens": 8}],
            "gates": [{"metric": "failure_share", "workload": "w", "at_most": 0}],
        }
    )  # fmt: skip
    engines = {"v2g": world.production(), "mtp": world.candidate()}
    run = tmp_path / "run"
    run.mkdir()

    write_profiles(run, spike, engines, [SECRET])
    digests = image_digests(spike, engines, world.env)

    for name in ("v2g", "mtp"):
        text = (run / "profiles" / f"{name}.json").read_text()
        service = json.loads(text)["services"]["engine"]
        assert SECRET not in text
        assert service["image"] == IMAGE
        assert service["command"][service["command"].index("--port") + 1] == str(world.port)
        assert service["environment"]["GREETING"] == "hello $$world"
    image = world.docker.inspect("llm-medium")["Image"]
    assert digests == {"v2g": f"image-id {image}", "mtp": f"image-id {image}"}  # the tests' image was never pushed
