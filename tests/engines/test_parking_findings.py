"""What is said about parking before anything is touched: clashes, servers that cannot be parked, and how others are."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from audition.engines.base import Finding
from audition.engines.parking import ParkBeside, about_parking, clashes
from audition.engines.process import ProcessEngine
from audition.spike.model import Arm
from wayback.tiny_world import ENGINE, World


def arm_of(name: str, role: str, port: int, *options: str, engine: dict[str, Any] | None = None) -> Arm:
    process = {"kind": "process", "command": [sys.executable, ENGINE, "--port", str(port), *options]}
    return Arm.model_validate(
        {
            "name": name,
            "role": role,
            "engine": engine or process,
            "endpoint": {"url": f"http://127.0.0.1:{port}", "model": "tiny"},
            "boot": {"limit": 20, "silence": 20},
            "stop": {"grace": 3},
        }
    )


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def running(world: World, *options: str, parks: bool = True) -> tuple[ProcessEngine, ProcessEngine]:
    """(an engine that has started production, one that finds it as a run does)."""
    arm = arm_of("prod", "production", world.port, *options)
    first = ProcessEngine(arm, world.folder, world.folder / "before", "token-before", production=True)
    first.start()
    assert first.wait_ready(lambda: False, lambda line: None).kind == "ready"
    beside = ParkBeside(arm) if parks else None
    return first, ProcessEngine(arm, world.folder, world.folder / "state", "token", production=True, park_beside=beside)


def texts(findings: list[Finding], level: str) -> str:
    return "\n".join(finding.text for finding in findings if finding.level == level)


def test_a_port_or_a_name_of_production_is_blocking() -> None:
    production = arm_of("prod", "production", 5001)
    assert clashes(arm_of("cand", "candidate", 5002), production) == []
    [clash] = clashes(arm_of("cand", "candidate", 5001), production)
    assert clash.level == "blocking"
    assert "a parked server keeps listening" in clash.text
    compose = {"kind": "compose", "files": ["c.yml"], "service": "vllm", "container_name": "production"}
    [name] = clashes(arm_of("cand", "candidate", 5002, engine=compose), production)
    assert name.level == "blocking"
    assert "container name" in name.text
    own = {**compose, "container_name": "own"}
    assert clashes(arm_of("cand", "candidate", 5002, engine=own), production) == []


def test_the_candidates_preflight_refuses_productions_port_only_when_the_spike_parks(world: World) -> None:
    production, candidate = arm_of("prod", "production", world.port), arm_of("cand", "candidate", world.port)

    def blocking(beside: ParkBeside | None) -> str:
        engine = ProcessEngine(
            candidate, world.folder, world.folder / "state", "t", production=False, production_port=world.port, park_beside=beside
        )
        return texts(engine.preflight(), "blocking")

    assert blocking(None) == ""
    assert "restore.strategy: park" in blocking(ParkBeside(production))


def test_a_container_is_restarted_and_that_is_said() -> None:
    compose = {"kind": "compose", "files": ["c.yml"], "service": "vllm"}
    arm = arm_of("prod", "production", 5001, engine=compose)
    [finding] = about_parking(arm, ParkBeside(arm), None)
    assert finding.level == "warning"
    assert "containers are not parked yet; it is stopped and started instead" in finding.text


def test_the_stand_in_is_named_and_one_process_is_not_parked(world: World) -> None:
    first, engine = running(world, "--worker", "answers")
    try:
        assert "production is parked by the stand-in" in texts(engine.preflight(), "warning")
    finally:
        assert first.stop().proved
    first, engine = running(world)
    try:
        assert "no engine process beside the one that answers" in texts(engine.preflight(), "warning")
    finally:
        assert first.stop().proved


def test_nothing_is_said_about_parking_when_the_spike_restarts(world: World) -> None:
    first, engine = running(world, "--worker", "answers", parks=False)
    try:
        assert "park" not in "\n".join(finding.text for finding in engine.preflight())
    finally:
        assert first.stop().proved


def test_a_gpu_that_cannot_be_read_is_said(world: World) -> None:
    """The spike watches a GPU that this machine does not have (or that no process of this server uses)."""
    first, _ = running(world, "--worker", "answers")
    arm = arm_of("prod", "production", world.port)
    again = ProcessEngine(arm, world.folder, world.folder / "state", "t", production=True, park_beside=ParkBeside(arm, [99]))
    try:
        said = texts(again.preflight(), "warning")
        assert "whether production can be parked cannot be seen" in said
    finally:
        assert first.stop().proved
