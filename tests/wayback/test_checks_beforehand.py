"""What is asked of production beforehand is what is asked of it afterwards; a check that keeps failing restarts it once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from audition.wayback.health import precheck, verify
from audition.wayback.plan import EndpointPlan
from audition.wayback.procs import ProcessServer
from audition.wayback.proctable import port_answers
from audition.wayback.restore import restore
from wayback.tiny_world import ENGINE, FAST, World, start_and_wait, wait_until


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close(made.arm("production"))


def without_done(folder: Path) -> str:
    """A tiny engine whose streams end without [DONE]."""
    script = folder / "nodone.py"
    source = Path(ENGINE).read_text(encoding="utf-8")
    assert source.count('[*events, "[DONE]"]') == 1
    script.write_text(source.replace('[*events, "[DONE]"]', "events"), encoding="utf-8")
    return str(script)


def test_the_checks_beforehand_are_those_afterwards(world: World) -> None:
    endpoint = EndpointPlan(f"http://127.0.0.1:{world.port}", "model-production")
    assert [(check.name, check.ok) for check in precheck(endpoint, 5)] == [("model", False)]
    start_and_wait(world.arm("production"))
    plan = world.plan(world.arm("production")).verify
    before = [(check.name, check.ok) for check in precheck(endpoint, 5)]
    assert before == [("model", True), ("completion", True), ("stream", True)]
    assert [(check.name, check.ok) for check in verify(endpoint, plan, 5)] == [*before, ("greedy", True)]
    other = EndpointPlan(endpoint.url, "another")
    assert next(check.name for check in precheck(other, 5) if not check.ok) == "model"


def test_a_stream_that_fails_is_seen_beforehand(world: World) -> None:
    world.stranger(sys.executable, without_done(world.folder), "--port", str(world.port))
    wait_until(lambda: port_answers(world.port))
    checks = precheck(EndpointPlan(f"http://127.0.0.1:{world.port}", "tiny"), 5)
    assert [(check.name, check.ok) for check in checks] == [("model", True), ("completion", True), ("stream", False)]
    assert "[DONE]" in checks[-1].detail


def test_a_check_that_keeps_failing_restarts_production_once(world: World) -> None:
    arm = world.arm("production")
    assert arm.process is not None
    arm.process.argv[1] = without_done(world.folder)
    report = restore(world.plan(arm), pace=FAST)
    assert not report.verified
    assert [step.step for step in report.steps].count("start") == 2
    assert any("also after a restart" in problem for problem in report.problems)
    server = ProcessServer(arm)
    boot = server.view().boot_id
    assert boot
    again = restore(world.plan(arm), pace=FAST)  # as a guard tries again
    assert not again.verified
    assert again.untouched
    assert ProcessServer(arm).view().boot_id == boot
