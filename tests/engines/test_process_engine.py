"""The process engine beyond the contract: env files, preflight, a production that somebody else started."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from audition.engines.env_file import parse_env_file
from audition.engines.process import ProcessEngine
from audition.errors import BadInput
from audition.spike.model import Arm
from audition.wayback.procs import ProcessServer
from audition.wayback.proctable import is_alive, port_answers
from wayback.tiny_world import ENGINE, World, environment, wait_until


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def arm_of(world: World, *, role: str = "production", model: str = "tiny", key: str | None = None, **engine: object) -> Arm:
    command = [sys.executable, ENGINE, "--port", str(world.port)]
    return Arm.model_validate(
        {
            "name": role,
            "role": role,
            "engine": {"kind": "process", "command": command, **engine},
            "endpoint": {"url": f"http://127.0.0.1:{world.port}", "model": model, "api_key_env": key},
            "boot": {"limit": 20, "silence": 20},
            "stop": {"grace": 3},
        }
    )


def engine_of(world: World, arm: Arm, *, production: bool = True, **more: object) -> ProcessEngine:
    return ProcessEngine(arm, world.folder, world.folder / "state", f"token-{arm.name}-{world.port}", production=production, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=1\n\n# note\nexport B=two words # why\n", {"A": "1", "B": "two words"}),
        ("A='single $X \\n' # c\n", {"A": "single $X \\n"}),
        ('A="a\\n\\"b\\" \\$C"\n', {"A": 'a\n"b" $C'}),
        ("A=\nB = spaced \n", {"A": "", "B": "spaced"}),
        ("A=x#y\nURL=http://h/#f\n", {"A": "x#y", "URL": "http://h/#f"}),
        ("FROM_ENV\nNOT_THERE\n", {"FROM_ENV": "outside"}),
        ("\ufeffA=1\r\nA=2\r\n", {"A": "2"}),
        ("A=k=v==\n", {"A": "k=v=="}),
        ("A=1\x0bB\u2028C=2\x1c\nD=3\rE=4", {"A": "1\x0bB\u2028C=2\x1c", "D": "3", "E": "4"}),
    ],
)
def test_env_files(text: str, expected: dict[str, str]) -> None:
    assert parse_env_file(text, "x.env", {"FROM_ENV": "outside"}) == expected


@pytest.mark.parametrize("text", ["A=1\nthis is no line\n", "A='open\n", 'A="x" y\n', "1A=2\n"])
def test_env_files_that_are_none(text: str) -> None:
    with pytest.raises(BadInput, match=r"x\.env, line \d"):
        parse_env_file(text, "x.env", {})


def test_declared_environment(world: World) -> None:
    (world.folder / "a.env").write_text("ONE=file\nTWO=file\nKEY=secret\n")
    arm = arm_of(world, env_files=["a.env"], env={"TWO": "spike"}, key="KEY")
    engine = engine_of(world, arm, environ={"PATH": os.environ["PATH"], "ONE": "outside", "AUDITION_TOKEN": "x"})
    target = engine.target().process
    assert target is not None
    assert (target.env["ONE"], target.env["TWO"]) == ("file", "spike")
    assert "AUDITION_TOKEN" not in target.env
    assert engine.endpoint.api_key == "secret"
    with pytest.raises(BadInput, match=r"b\.env"):
        engine_of(world, arm_of(world, env_files=["b.env"]))


def test_preflight_finds_what_is_missing(world: World) -> None:
    def blocking(arm: Arm, **more: object) -> str:
        engine = engine_of(world, arm, production=False, **more)
        return "; ".join(finding.text for finding in engine.preflight() if finding.level == "blocking")

    assert "/no/such" in blocking(arm_of(world, role="candidate", command=["/no/such/vllm", "serve"]))
    assert "does not exist" in blocking(arm_of(world, role="candidate", cwd="nowhere"))
    assert "NO_SUCH_KEY" in blocking(arm_of(world, role="candidate", key="NO_SUCH_KEY"))
    world.stranger(sys.executable, ENGINE, "--port", str(world.port))
    wait_until(lambda: port_answers(world.port))
    assert f"port {world.port}" in blocking(arm_of(world, role="candidate"), production_port=1)
    assert blocking(arm_of(world, role="candidate"), production_port=world.port) == ""


def test_a_running_production_is_taken_as_it_runs(world: World) -> None:
    """Other arguments and variables than declared: the observed ones are restored, and the run says so."""
    log = world.folder / "own.log"
    command = f"exec {sys.executable} {ENGINE} --port {world.port} --answer observed >> {log} 2>&1"
    stranger = world.stranger("/bin/sh", "-c", command, env={**environment(), "ONLY_HERE": "yes"})
    wait_until(lambda: port_answers(world.port))
    engine = engine_of(world, arm_of(world))
    findings = engine.preflight()
    assert not [finding for finding in findings if finding.level == "blocking"], findings
    assert any("that is what is measured and restored" in finding.text for finding in findings)
    seen = engine.observe()
    assert seen.state == "running"
    assert "ONLY_HERE" in seen.facts["variables"]
    assert "hush-hush" not in str(seen)
    target = engine.target()
    assert target.process is not None
    assert target.process.running == stranger
    assert target.process.env["ONLY_HERE"] == "yes"
    assert engine.alive()
    first = engine.boot_id()
    assert engine.stop().proved
    assert not is_alive(stranger)
    engine.start()
    assert engine.wait_ready(lambda: False, lambda line: None).kind == "ready"
    assert engine.boot_id() not in ("", first)
    assert ProcessServer(target).differences() == []
    assert engine.target() == target
    assert "tiny engine" in log.read_text()
    assert engine.stop().proved


def test_something_else_on_the_port_is_foreign(world: World) -> None:
    stranger = world.stranger(sys.executable, ENGINE, "--port", str(world.port), "--model", "another")
    wait_until(lambda: port_answers(world.port))
    engine = engine_of(world, arm_of(world))
    assert any(finding.level == "blocking" and "another" in finding.text for finding in engine.preflight())
    assert engine.observe().state == "foreign"
    engine.stop()
    assert is_alive(stranger)


def test_a_production_that_is_killed_and_comes_back_is_another_boot(world: World) -> None:
    engine = engine_of(world, arm_of(world))
    assert engine.observe().state == "absent"
    engine.start()
    assert engine.wait_ready(lambda: False, lambda line: None).kind == "ready"
    engine.observe()
    assert engine.alive()
    ProcessServer(engine.target()).stop(3)
    ProcessServer(engine.target()).start()
    assert not engine.alive()
    assert engine.stop().proved


TITLED = """
import ctypes, runpy, sys
part = open("/proc/self/stat").read().rpartition(")")[2].split()
first, last, env_first, env_last = map(int, part[45:49])
what, *rest = sys.argv[1:]
if "title" in what:
    ctypes.memmove(first, b"VLLM::APIServer".ljust(last - first, b"\\0"), last - first)
if "env" in what:
    ctypes.memset(env_first, 0, env_last - env_first)
sys.argv = rest
runpy.run_path(rest[0], run_name="__main__")
"""
"""Writes over its command line or its environment as setproctitle does, then becomes the tiny engine."""


def titled(world: World, what: str, **engine: object) -> tuple[list[str], Arm]:
    """A server that overwrites ``what``, running in the world's folder, and the arm that declares its command."""
    script = world.folder / "titled.py"
    script.write_text(TITLED)
    command = [sys.executable, str(script), what, ENGINE, "--port", str(world.port)]
    child = subprocess.Popen(command, cwd=world.folder, env=environment(), start_new_session=True, stdout=subprocess.DEVNULL)
    world.strangers.append(child)
    wait_until(lambda: port_answers(world.port))
    said: dict[str, Any] = {"command": command, **engine}
    return command, arm_of(world, **said)


def levels(engine: ProcessEngine, word: str) -> list[str]:
    return [finding.level for finding in engine.preflight() if word in finding.text]


def test_a_command_line_that_was_overwritten_needs_the_declared_one(world: World) -> None:
    command, arm = titled(world, "title")
    engine = engine_of(world, arm)
    assert levels(engine, "overwritten its command line") == ["warning"]
    assert engine.observe().state == "running"
    server = ProcessServer(engine.target(), adopt=True)
    assert server.differences() == []
    assert engine.target().process.argv == command  # type: ignore[union-attr]
    assert engine.stop().proved
    engine.start()
    assert engine.wait_ready(lambda: False, lambda line: None).kind == "ready"
    assert ProcessServer(engine.target(), adopt=True).differences() == []
    assert engine.stop().proved


def test_a_command_line_that_was_overwritten_and_is_declared_otherwise(world: World) -> None:
    _, arm = titled(world, "title")
    script = world.folder / "start.sh"
    script.write_text("#!/bin/sh\nexec something\n")
    script.chmod(0o755)
    for other in ({"command": [str(script)]}, {"command": ["/no/such/program"]}, {"cwd": "/"}):
        said: dict[str, Any] = {**arm.engine.model_dump(include={"command", "cwd"}), **other}
        engine = engine_of(world, arm_of(world, **said))
        assert levels(engine, "overwritten its command line") == ["blocking"], other
        assert engine.observe().state == "foreign"
        assert not engine.stop().killed
    assert port_answers(world.port)


def test_an_environment_that_was_overwritten_must_be_declared(world: World) -> None:
    _, arm = titled(world, "env")
    assert levels(engine_of(world, arm), "environment cannot be read") == ["blocking"]
    assert engine_of(world, arm).observe().state == "foreign"
    declared = arm_of(world, command=arm.engine.command, env={"SECRET_KEY": "hush-hush"})  # type: ignore[union-attr]
    engine = engine_of(world, declared)
    assert levels(engine, "environment cannot be read") == ["warning"]
    assert engine.observe().state == "running"
    assert ProcessServer(engine.target(), adopt=True).differences() == []
    assert engine.stop().proved
