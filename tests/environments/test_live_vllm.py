"""Real vLLM on the CPU, itself: what the rest of the project takes for granted about its processes and its answers."""

import http.client
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from environments.live_vllm import LiveVllm

pytestmark = [pytest.mark.live, pytest.mark.slow]
BOOT_S = 400.0
MTP = ("--no-enable-prefix-caching", "--speculative-config", '{"method":"mtp","num_speculative_tokens":3}')


def call(port: int, path: str, body: dict[str, Any] | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        payload = None if body is None else json.dumps(body)
        connection.request("POST" if body else "GET", path, payload, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def session_of(leader: int) -> dict[int, str]:
    """The living processes in the session of `leader`, with their command lines."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            found[int(entry.name)] = line
    return found


@contextmanager
def serving(live: LiveVllm, port: int, log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [str(live.serve), str(live.model_dir), str(port), *arguments]
    with log.open("wb") as sink:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True)
    try:
        deadline = time.monotonic() + BOOT_S
        while True:
            assert server.poll() is None, log.read_text(errors="replace")[-2000:]
            assert time.monotonic() < deadline, log.read_text(errors="replace")[-2000:]
            try:
                if call(port, "/health")[0] == 200:
                    break
            except OSError:
                time.sleep(0.5)
        yield server
    finally:
        for pid in session_of(server.pid):
            os.kill(pid, signal.SIGKILL)
        server.wait()


def answers(port: int) -> list[str]:
    texts = []
    for prompt in ("abc", "one two three", "Hello, who are you?"):
        body = {"model": "tiny", "prompt": prompt, "max_tokens": 120, "temperature": 0}
        status, text = call(port, "/v1/completions", body)
        assert status == 200, text
        texts.append(json.loads(text)["choices"][0]["text"])
    return texts


def test_processes_answers_and_shutdown(live_vllm: LiveVllm, tmp_path: Path, free_port: Callable[[], int]) -> None:
    port = free_port()
    with serving(live_vllm, port, tmp_path / "plain.log") as server:
        lines = session_of(server.pid)
        assert any("vllm serve" in line for line in lines.values())
        assert {"VLLM::EngineCore", "VLLM::Worker"} <= set(lines.values()), "its workers are in the session it was started in"
        plain = answers(port)
        assert answers(port) == plain
        os.killpg(server.pid, signal.SIGTERM)
        assert server.wait(60) == 0
        deadline = time.monotonic() + 30
        while session_of(server.pid) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert session_of(server.pid) == {}

    with serving(live_vllm, port, tmp_path / "mtp.log", *MTP):
        assert answers(port) == plain, "speculative decoding does not change a greedy answer"
        accepted = [
            line for line in call(port, "/metrics")[1].splitlines() if line.startswith("vllm:spec_decode_num_accepted_tokens_total")
        ]
        assert len(accepted) == 1
        assert float(accepted[0].split()[-1]) > 0
