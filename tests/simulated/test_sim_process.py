"""Processes, signals, the GPU-memory ledger, suspend and resume, and the faults of a running server."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from audition.simulated.ledger import read_ledger, sweep_ledger
from simulated.simserver import MTP3, Reply, Server, Start, deltas, events


def used(server: Server) -> dict[int, int]:
    return read_ledger(server.ledger).used_mib


def core_pid(server: Server) -> int:
    (holder,) = read_ledger(server.ledger).holders
    return holder.pid


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Background:
    """A request sent from a thread; `result` waits for its answer."""

    def __init__(self, server: Server, text: str = "Tell me a story.", **body: Any) -> None:
        self.reply: Reply | None = None
        self.error: Exception | None = None

        def send() -> None:
            try:
                self.reply = server.chat(text, **body)
            except Exception as error:  # noqa: BLE001  (handed to the test)
                self.error = error

        self.thread = threading.Thread(target=send)
        self.thread.start()

    def result(self) -> Reply:
        self.thread.join(20)
        assert self.reply is not None, self.error
        return self.reply


def test_sigterm_ends_in_order_with_uvicorns_lines(start: Start) -> None:
    server = start()
    core = core_pid(server)
    assert server.stop() == 0
    for line in ("Shutting down", "Waiting for application shutdown.", "Application shutdown complete."):
        assert line in server.log
    assert f"Finished server process [{server.pid}]" in server.log
    assert not alive(core)
    assert used(server) == {}
    assert not list(server.ledger.glob("*.json"))


def test_sigterm_ends_running_streams_with_an_error_event(start: Start) -> None:
    server = start(step_base_ms=20.0)
    request = Background(server, stream=True, max_tokens=5000, ignore_eos=True)
    Server.wait_for(lambda: server.metrics()["vllm:num_requests_running"] == 1)
    assert server.stop() == 0
    assert events(request.result().body)[-1]["error"]["code"] == 500
    assert server.truth()[-1]["finish"] == "abort"


def test_shutdown_timeout_lets_requests_finish(start: Start) -> None:
    server = start("--shutdown-timeout", "10", step_base_ms=10.0)
    request = Background(server, max_tokens=60, ignore_eos=True)
    Server.wait_for(lambda: server.metrics()["vllm:num_requests_running"] == 1)
    assert server.stop() == 0
    assert request.result().json["usage"]["completion_tokens"] == 60


def test_the_core_is_in_the_servers_group_and_session(start: Start) -> None:
    server = start()
    core = core_pid(server)
    assert os.getpgid(core) == os.getpgid(server.pid) == server.pid
    assert os.getsid(core) == server.pid
    assert Path(f"/proc/{core}/comm").read_text(encoding="ascii").strip() == "VLLM::EngineCor"


def test_memory_is_held_per_gpu_and_freed_by_sigkill_of_the_server(start: Start) -> None:
    server = start("-tp", "2", gpu_memory_mib=21_000)
    core = core_pid(server)
    assert used(server) == {0: 21_000, 1: 21_000}
    server.stop(signal.SIGKILL)
    Server.wait_for(lambda: not alive(core))
    assert used(server) == {}


def test_sigkill_of_the_core_frees_memory_and_ends_the_server_with_exit_0(start: Start) -> None:
    server = start(step_base_ms=20.0)
    request = Background(server, stream=True, max_tokens=5000, ignore_eos=True)
    Server.wait_for(lambda: server.metrics()["vllm:num_requests_running"] == 1)
    os.kill(core_pid(server), signal.SIGKILL)
    last = events(request.result().body)[-1]
    assert last["error"]["type"] == "InternalServerError"
    assert server.process.wait(10) == 0
    assert "EngineDeadError: EngineCore encountered an issue" in server.log
    assert used(server) == {}


def test_orphan_worker_keeps_its_memory_after_the_server_is_gone(start: Start) -> None:
    server = start(faults=[{"kind": "orphan-worker"}])
    core = core_pid(server)
    server.stop(signal.SIGKILL)
    with contextlib.closing(server.connect(1.0)) as connection, pytest.raises(ConnectionRefusedError):
        connection.request("GET", "/health")
    os.kill(core, signal.SIGTERM)  # as the group's SIGTERM would: without effect
    time.sleep(0.2)
    assert alive(core)
    assert used(server) == {0: 20_000}
    os.kill(core, signal.SIGKILL)
    Server.wait_for(lambda: used(server) == {})


def test_orphan_worker_also_outlives_an_orderly_stop_and_gives_up_in_time(start: Start) -> None:
    server = start(faults=[{"kind": "orphan-worker", "max_s": 0.5}])
    core = core_pid(server)
    assert server.stop() == 0
    assert alive(core)
    Server.wait_for(lambda: not alive(core))
    assert used(server) == {}


def test_ledger_ignores_and_sweeps_only_files_nobody_holds(start: Start) -> None:
    server = start()
    (server.ledger / "999999.json").write_text('{"pid": 999999, "gpus": {"0": 5}}', encoding="utf-8")
    assert used(server) == {0: 20_000}
    assert sweep_ledger(server.ledger) == [999999]
    assert used(server) == {0: 20_000}
    assert read_ledger(server.ledger / "absent").holders == []


def test_ignore_sigterm_needs_sigkill(start: Start) -> None:
    server = start(faults=[{"kind": "ignore-sigterm"}])
    os.killpg(server.pid, signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        server.process.wait(0.5)
    assert server.get("/health").status == 200
    server.stop(signal.SIGKILL)
    Server.wait_for(lambda: used(server) == {})


def test_suspended_server_is_healthy_holds_no_memory_and_answers_later(start: Start) -> None:
    server = start(*MTP3, park=True, suspend_gb_s=200.0, resume_gb_s=200.0, step_base_ms=4.0)
    expected = server.chat("Say it twice.", max_tokens=30).json["choices"][0]["message"]
    running = Background(server, "A long one.", stream=True, max_tokens=800, ignore_eos=True)
    Server.wait_for(lambda: server.metrics()["vllm:num_requests_running"] == 1)
    before = time.monotonic()
    assert server.request("POST", "/sim/suspend").json == {"state": "suspended"}
    assert time.monotonic() - before >= 20_000 * 2**20 / 200e9
    assert used(server) == {0: 4}
    assert server.get("/health").status == 200
    assert server.request("POST", "/sim/suspend").status == 409
    waiting = Background(server, "Say it twice.", max_tokens=30)
    time.sleep(0.2)
    assert server.metrics()["vllm:num_requests_running"] == 0
    assert waiting.thread.is_alive()
    assert running.thread.is_alive()
    assert server.request("POST", "/sim/resume").json == {"state": "running"}
    assert waiting.result().json["choices"][0]["message"] == expected
    assert events(running.result().body)[-1]["choices"][0]["finish_reason"] == "length"
    assert used(server) == {0: 20_000}


def test_resume_needs_room_on_the_gpu(start: Start, tmp_path: Path) -> None:
    ledger = str(tmp_path / "shared")
    server = start(park=True, suspend_gb_s=1000.0, resume_gb_s=1000.0, gpu_ledger=ledger)
    server.request("POST", "/sim/suspend")
    other = start(gpu_ledger=ledger)
    refused = server.request("POST", "/sim/resume")
    assert refused.status == 409
    assert "GPU 0 has only" in refused.json["error"]
    other.stop()
    assert server.request("POST", "/sim/resume").status == 200


def test_suspend_is_not_there_unless_asked_for(plain: Server) -> None:
    assert plain.request("POST", "/sim/suspend").status == 404


@pytest.mark.parametrize("after", [{"after_requests": 3}, {"after_tokens": 50}])
@pytest.mark.parametrize(("mode", "code"), [("kill", -signal.SIGKILL), ("exit0", 0)])
def test_death_in_the_middle_of_a_leg(start: Start, after: dict[str, int], mode: str, code: int) -> None:
    server = start(faults=[{"kind": "die-mid-leg", "mode": mode, **after}])
    requests = [Background(server, f"{at}", max_tokens=500, ignore_eos=True) for at in range(3)]
    assert server.process.wait(20) == code
    for request in requests:
        request.thread.join(10)
        assert request.error is not None or (request.reply is not None and request.reply.status == 500)
    assert ("EngineDeadError" in server.log) is (mode == "exit0")
    Server.wait_for(lambda: used(server) == {})


def test_stalled_stream_keeps_its_connection_and_the_next_is_fine(start: Start) -> None:
    server = start(faults=[{"kind": "stall-stream", "after_tokens": 5}])
    connection = server.connect(timeout=1.5)
    body = b'{"model":"qwen","messages":[{"role":"user","content":"x"}],"stream":true}'
    connection.request("POST", "/v1/chat/completions", body)
    response = connection.getresponse()
    pieces: list[bytes] = []
    with pytest.raises(TimeoutError):
        pieces.extend(iter(lambda: response.read1(4096), None))
    seen = b"".join(pieces)
    assert seen.count(b'"content":') == 1 + 5  # the role chunk and five tokens
    assert server.stream("Another", max_tokens=5)[-1]["usage"]["completion_tokens"] == 5
    connection.close()


def test_degenerate_text_repeats_under_green_health(start: Start) -> None:
    server = start(faults=[{"kind": "degenerate-text", "after_requests": 1}])
    fine = server.chat("What is 2 + 2?", max_tokens=50).json["choices"][0]["message"]["content"]
    assert fine == "2 + 2 = 4."
    broken = server.chat("What is 2 + 2?", max_tokens=60).json["choices"][0]
    words = broken["message"]["content"].split()
    assert len(set(words)) <= 4
    assert broken["finish_reason"] == "length"
    assert server.get("/health").status == 200


def test_acceptance_collapses_after_so_many_tokens(start: Start) -> None:
    server = start(*MTP3, faults=[{"kind": "acceptance-collapse", "after_tokens": 300}])
    server.stream("x", max_tokens=300, ignore_eos=True)
    before = server.metrics()["vllm:spec_decode_num_accepted_tokens_total"]
    server.stream("y", max_tokens=100, ignore_eos=True)
    after = server.metrics()
    assert before > 100
    assert after["vllm:spec_decode_num_accepted_tokens_total"] == before
    assert after["vllm:spec_decode_num_drafts_total"] > 150


def test_a_share_of_requests_fails_with_5xx(start: Start) -> None:
    server = start(faults=[{"kind": "http-5xx", "share": 0.5, "status": 503}])
    statuses = [server.chat("x", max_tokens=1).status for _ in range(40)]
    assert set(statuses) == {200, 503}
    assert 10 <= statuses.count(503) <= 30


def test_error_inside_a_200_answer(start: Start) -> None:
    server = start(faults=[{"kind": "error-in-200", "share": 1.0, "after_tokens": 4}])
    chunks = events(server.chat("x", stream=True, max_tokens=50).body)
    assert chunks[-1]["error"]["code"] == 500
    assert deltas(chunks[:-1])
    assert server.chat("x", max_tokens=5).status == 200  # not streamed: spared
    assert server.metrics()['vllm:request_success_total{finished_reason="error"}'] == 1


def test_wrong_model_name(start: Start) -> None:
    server = start(faults=[{"kind": "wrong-model-name", "name": "intruder"}])
    assert [model["id"] for model in server.get("/v1/models").json["data"]] == ["intruder"]
    assert server.chat("x").status == 404


def test_hang_keeps_health_green_and_answers_nothing(start: Start) -> None:
    server = start(faults=[{"kind": "hang", "after_requests": 1}])
    assert server.chat("x", max_tokens=2).status == 200
    with contextlib.closing(server.connect(0.5)) as connection:
        connection.request("POST", "/v1/chat/completions", b'{"model":"qwen","messages":[{"role":"user"}]}')
        with pytest.raises(TimeoutError):
            connection.getresponse()
    assert server.get("/health").status == 200


def test_the_room_stands_alone_and_stays_small(plain: Server) -> None:
    code = (
        "import sys, audition.simulated.server, audition.simulated.serving; "
        "print([m for m in sys.modules if m.split('.')[0] in ('pydantic', 'rich', 'yaml') "
        "or (m.startswith('audition.') and not m.startswith('audition.simulated'))])"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "[]"
    for pid, limit_kb in ((plain.pid, 45_000), (core_pid(plain), 16_000)):
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
        assert resident < limit_kb
