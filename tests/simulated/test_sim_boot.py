"""The boot of a real simulated server: its log lines, its failures, its exit codes."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from audition.simulated.faults import FAULT_KINDS
from audition.simulated.ledger import read_ledger
from simulated.simserver import MTP3, Server, Start

KV_SIZE = re.compile(r"(\w+) KV cache size: ([\d,]+) tokens")
CONCURRENCY = re.compile(r"Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x")
MARKERS = (
    r"Resolved architecture: Qwen3_5MoeForConditionalGeneration",
    r"Resolved architecture: Qwen3_5MoeMTP",
    r"Starting to load model",
    r"Loading drafter model\.\.\.",
    r"Detected MTP model\. Sharing target model (embedding|lm_head) weights with the draft model\.",
    r"Model loading took [\d.]+ GiB memory and [\d.]+ seconds",
    r"Available KV cache memory: [\d.]+ GiB",
    r"Graph capturing finished in \d+ secs, took [\d.]+ GiB",
    r"init engine \(profile, create kv cache, warmup model\) took [\d.]+ s(econds)?",
    r"Started server process \[\d+\]",
    r"Application startup complete\.",
)
PREFIXED = re.compile(r"\((APIServer|EngineCore|Worker_TP0) pid=(\d+)\) (INFO|WARNING) \d\d-\d\d \d\d:\d\d:\d\d \[\S+:\d+\] ?")


def run(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "audition.simulated", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=20, env={**os.environ, **(env or {})})


def test_boot_markers_come_in_vllms_order(start: Start) -> None:
    server = start(*MTP3, "-tp", "2", version="0.24.0")
    at = 0
    for marker in MARKERS:
        found = re.compile(marker).search(server.log, at)
        assert found, f"{marker!r} is missing after {server.log[at : at + 200]!r}"
        at = found.end()
    matches = {line: PREFIXED.match(line) for line in server.log.splitlines() if "INFO:" not in line}
    assert [line for line, match in matches.items() if match is None] == []
    processes = {match[1] for match in matches.values() if match is not None}
    assert processes == {"APIServer", "EngineCore", "Worker_TP0"}


def test_a_boot_without_drafts_speaks_of_none(plain: Server) -> None:
    assert KV_SIZE.search(plain.log)
    assert CONCURRENCY.search(plain.log)
    assert "MTP" not in plain.log
    assert "drafter" not in plain.log


def test_the_port_is_closed_until_the_boot_is_over(start: Start) -> None:
    server = start(ready=False, boot_s=1.0)
    server.wait_log("Starting to load model")
    with socket.socket() as client:
        assert client.connect_ex(("127.0.0.1", server.port)) != 0
    server.wait_ready()
    assert server.get("/health").status == 200


def test_unknown_flag_and_bad_json_fail_like_vllm() -> None:
    unknown = run("serve", "m", "--no-such-flag", "3")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert unknown.stderr.endswith("vllm: error: unrecognized arguments: --no-such-flag 3\n")
    bad = run("serve", "m", "--speculative-config", '{"method":"mtp",num_speculative_tokens:3}')
    assert bad.returncode == 2
    assert "argument --speculative-config/-sc: Value {" in bad.stderr
    assert "cannot be converted to <function loads at 0x" in bad.stderr
    field = run("serve", "m", "-sc", '{"method":"mtp","num_spec_tokens":3}')
    assert field.returncode == 1
    assert "Unexpected keyword argument" in field.stderr


def test_bad_simulation_settings_are_refused() -> None:
    unknown = run("serve", "m", env={"AUDITION_SIM": '{"speed": 1}'})
    assert unknown.returncode == 2
    assert "unknown key 'speed'" in unknown.stderr
    too_many = run("serve", "m", *MTP3, env={"AUDITION_SIM": '{"acceptance": [0.9]}'})
    assert too_many.returncode == 2
    assert "acceptance states 1 positions" in too_many.stderr


def test_help_and_missing_verb() -> None:
    shown = run("--help").stdout
    assert "AUDITION_SIM" in shown
    assert "  boot_s = 2.0\n" in shown
    assert all(f"  {kind}: {sentence}" in shown for kind, sentence in FAULT_KINDS.items())
    assert run().returncode == 2


def test_a_taken_port_fails_as_in_vllm(start: Start) -> None:
    server = start()
    second = run("serve", "m", "--host", "127.0.0.1", "--port", str(server.port))
    assert second.returncode == 1
    assert "OSError: [Errno 98] Address already in use" in second.stderr
    assert server.get("/health").status == 200


def test_a_context_longer_than_the_kv_cache_fails_as_in_vllm(start: Start) -> None:
    server = start(ready=False, kv_tokens=10_000)
    assert server.process.wait(20) == 1
    assert "To serve at least one request with the models's max seq len (32768)" in server.log
    assert "the estimated maximum model length is 10000" in server.log


def test_memory_held_by_another_server_fails_the_boot(start: Start, tmp_path: Path) -> None:
    ledger = str(tmp_path / "shared")
    first = start(gpu_ledger=ledger, gpu_memory_mib=20_000)
    second = start(ready=False, gpu_ledger=ledger, gpu_memory_mib=20_000)
    assert second.process.wait(20) == 1
    assert "ValueError: Free memory on device cuda:0 (4.46/23.99 GiB) on startup is less than desired" in second.log
    first.stop()
    start(gpu_ledger=ledger, gpu_memory_mib=20_000)


def test_boot_crash_prints_the_given_log_and_exits_with_the_given_code(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "crash.log"
    log.write_text("Traceback (most recent call last):\nTypeError: cannot pickle 'module' object\n", encoding="utf-8")
    server = start(ready=False, faults=[{"kind": "boot-crash", "log": str(log), "exit_code": 3}])
    assert server.process.wait(20) == 3
    assert server.log.endswith("TypeError: cannot pickle 'module' object\n")
    text = start(ready=False, faults=[{"kind": "boot-crash", "text": "boom", "after": "Resolved architecture"}])
    assert text.process.wait(20) == 1
    assert text.log.endswith("boom\n")
    assert "Starting to load model" not in text.log


def test_out_of_memory_at_boot(start: Start) -> None:
    server = start(ready=False, faults=[{"kind": "oom"}])
    assert server.process.wait(20) == 1
    assert "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate" in server.log
    assert KV_SIZE.search(server.log)
    assert "Application startup complete" not in server.log


def test_boot_hang_falls_silent_and_can_be_stopped(start: Start) -> None:
    server = start(*MTP3, ready=False, faults=[{"kind": "boot-hang", "after": "Loading drafter model"}])
    server.wait_log("Loading drafter model...")
    before = server.log
    with pytest.raises(subprocess.TimeoutExpired):
        server.process.wait(0.6)
    assert server.log == before
    assert read_ledger(server.ledger).used_mib[0] > 0
    assert server.stop() == -signal.SIGTERM
    Server.wait_for(lambda: read_ledger(server.ledger).used_mib == {})


def test_slow_boot_takes_longer(start: Start) -> None:
    server = start(ready=False, boot_s=0.1, faults=[{"kind": "slow-boot", "factor": 2, "seconds": 60}])
    server.wait_log("non-default args")
    with pytest.raises(subprocess.TimeoutExpired):
        server.process.wait(1.0)
    assert "Application startup complete" not in server.log


def test_lines_of_the_newest_release_have_no_prefix_on_uvicorns(start: Start) -> None:
    server: Server = start(version="0.32.0")
    assert "\nINFO:     Application startup complete.\n" in server.log
    assert '"GET /health' not in server.log
    server.get("/health")
    Server.wait_for(lambda: '- "GET /health HTTP/1.1" 200 OK\n' in server.log)
    assert "vllm:engine_sleep_state" in server.get("/metrics").body.decode()
    usage = server.chat("x", max_tokens=2).json["usage"]
    assert "completion_tokens_details" in usage
