"""Real vLLM on the CPU, parked by the stand-in: a request sent meanwhile is answered late and says the same as otherwise."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from audition.engines.parking import ParkBeside
from audition.engines.process import ProcessEngine
from audition.spike.model import Arm
from audition.wayback.health import completion, served_models, stream
from audition.wayback.park import StopParker, choose, park, unpark
from audition.wayback.procs import ProcessServer
from audition.wayback.proctable import connections, read_proc
from environments.live_vllm import LiveVllm
from wayback.tiny_world import free_port, wait_until

PARKED_S = 12.0
"""How long it stands still: longer than any heartbeat that vLLM is known to have between its processes."""
BODY = {"prompt": "one two three", "max_tokens": 48, "temperature": 0, "seed": 0}


@pytest.fixture
def engine(live_vllm: LiveVllm, tmp_path: Path) -> Iterator[ProcessEngine]:
    port = free_port()
    arm = Arm.model_validate(
        {
            "name": "plain",
            "role": "production",
            "engine": {"kind": "process", "command": [str(live_vllm.serve), str(live_vllm.model_dir), str(port)]},
            "endpoint": {"url": f"http://127.0.0.1:{port}", "model": "tiny"},
            "boot": {"limit": "10m", "silence": "8m"},
            "stop": {"grace": "30s"},
        }
    )
    made = ProcessEngine(arm, tmp_path, tmp_path / "state", f"live-{port}", production=True, park_beside=ParkBeside(arm))
    made.start()
    outcome = made.wait_ready(lambda: False, lambda line: None)
    assert outcome.kind == "ready", outcome
    yield made
    assert made.stop().proved


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_parked_vllm_answers_late_and_the_same(engine: ProcessEngine) -> None:
    arm, endpoint = engine.target(), engine.endpoint
    server = ProcessServer(arm)
    choice = choose(server.members(), arm.port)
    assert choice.target is not None, choice.why_not
    assert choice.target.parker == "stop"
    seen = [read_proc(ref.pid) for ref in choice.target.processes]
    assert [proc.name for proc in seen if proc][:1] == ["VLLM::EngineCor"]
    assert all(proc is not None and proc.name.startswith("VLLM::") for proc in seen), seen
    assert any("by the stand-in" in finding.text for finding in engine.preflight())
    before, boot = completion(endpoint, BODY), engine.boot_id()
    for cycle in range(3):
        park(StopParker(), choice.target.processes, 10.0)
        assert ProcessServer(replace(arm, park=choice.target)).view().state == "parked"
        answers: list[str] = []
        asked = time.monotonic()
        asking = threading.Thread(target=lambda: answers.append(completion(endpoint, BODY, 300.0)))  # noqa: B023 - joined below
        asking.start()
        wait_until(lambda: connections(arm.port) >= 1, what="the request arrives")
        assert served_models(endpoint) == ["tiny"], "it lists its models while it is parked"
        time.sleep(PARKED_S if cycle == 0 else 1.0)
        assert answers == [], "it was answered by a parked engine"
        unpark(StopParker(), choice.target.processes)
        asking.join(300)
        assert answers == [before]
        assert cycle or time.monotonic() - asked >= PARKED_S
        assert completion(endpoint, BODY) == before
        assert stream(endpoint, BODY) == before
    assert engine.boot_id() == boot
    log = engine.log_since_start().read_text()
    assert "Traceback" not in log
