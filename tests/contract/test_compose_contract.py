"""The contract of engines, kept by the compose engine against a real Docker engine: the same tests, another bench."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from audition.engines.base import Engine
from audition.engines.compose import ComposeEngine
from contract.checks import *  # noqa: F403 - every test of the contract, run here with the bench below
from contract.factories import Bench
from engines.compose_world import World
from environments.docker_engine import DockerEngine
from wayback.tiny_world import free_port

pytestmark = [pytest.mark.docker, pytest.mark.slow]


def compose_bench(docker: DockerEngine, folder: Path) -> Bench:
    """Candidates of compose profiles, each with a port and a folder of its own."""

    def build(*options: str, silence_s: float = 30.0) -> Engine:
        port = free_port()
        place = folder / str(port)
        place.mkdir()
        world = World(docker, place, port)
        world.write("candidate.yml", more="".join(f', "{word}"' for word in options))
        arm = world.arm("candidate")
        arm = arm.model_copy(update={"boot": arm.boot.model_copy(update={"silence": silence_s})})
        return ComposeEngine(arm, world.folder, world.state, world.run_id, production=False, environ=world.env)

    return Bench(
        good=build,
        crashing=lambda: build("--exit-at-boot", "3"),
        hanging=lambda: build("--hang-at-boot", silence_s=1.0),
        wrong_model=lambda: build("--model", "another"),
        crash_code=3,
    )


@pytest.fixture
def bench(docker: DockerEngine, tmp_path: Path) -> Iterator[Bench]:
    made = compose_bench(docker, tmp_path)
    yield made
    made.clean()
