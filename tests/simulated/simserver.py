"""One real simulated server on a free loopback port, as a test sees it: its process, log, truth, ledger and HTTP side."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MODEL = "acme/Qwen3.6-35B-A3B"
NAME = "qwen"
MTP3 = ("--speculative-config", '{"method":"mtp","num_speculative_tokens":3}')
FAST = {
    "boot_s": 0.1, "step_base_ms": 1.5, "step_per_seq_ms": 0.1, "draft_ms": 0.1, "draft_per_seq_ms": 0.02,
    "answer_tokens": 80, "thinking_tokens": 50,
}  # fmt: skip


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Reply:
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Server:
    """One process, its log file and its port."""

    def __init__(self, folder: Path, args: tuple[str, ...], settings: dict[str, Any], env: dict[str, str]) -> None:
        self.port = free_port()
        self.log_path = folder / f"{self.port}.log"
        self.truth_path = folder / f"{self.port}.truth.jsonl"
        self.ledger = Path(settings.get("gpu_ledger", folder / f"{self.port}.ledger"))
        values = {**FAST, "truth_log": str(self.truth_path), "gpu_ledger": str(self.ledger), **settings}
        command = [sys.executable, "-m", "audition.simulated", "serve", MODEL, "--host", "127.0.0.1"]
        command += ["--port", str(self.port), "--served-model-name", NAME, "--max-model-len", "32768", *args]
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                env={**os.environ, "AUDITION_SIM": json.dumps(values), **env},
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        return self.log_path.read_text(encoding="utf-8")

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_ready(self, seconds: float = 20.0) -> Server:
        self.wait_log("Application startup complete.", seconds)
        self.wait_for(self.accepts, seconds)  # uvicorn listens a moment after it prints that line
        return self

    def accepts(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def wait_log(self, text: str, seconds: float = 20.0) -> None:
        self.wait_for(lambda: text in self.log or self.process.poll() is not None, seconds)
        assert text in self.log, self.log

    @staticmethod
    def wait_for(condition: Callable[[], bool], seconds: float = 10.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "waited too long"
            time.sleep(0.01)

    def connect(self, timeout: float = 20.0) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def request(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Reply:
        with contextlib.closing(self.connect()) as connection:
            data = json.dumps(body) if body is not None and not isinstance(body, bytes) else body
            connection.request(method, path, data, headers or {})
            response = connection.getresponse()
            return Reply(response.status, dict(response.getheaders()), response.read())

    def get(self, path: str) -> Reply:
        return self.request("GET", path)

    def chat(self, text: str, headers: dict[str, str] | None = None, **body: Any) -> Reply:
        value = {"model": NAME, "messages": [{"role": "user", "content": text}], "temperature": 0, **body}
        return self.request("POST", "/v1/chat/completions", value, headers)

    def stream(self, text: str, headers: dict[str, str] | None = None, **body: Any) -> list[dict[str, Any]]:
        """All data events of a streamed chat but the final [DONE], which must be there."""
        body.setdefault("stream_options", {"include_usage": True})
        reply = self.chat(text, headers, stream=True, **body)
        assert reply.status == 200, reply.body
        return events(reply.body)

    def metrics(self) -> dict[str, float]:
        """Sample name with labels (engine and model left out) to value."""
        values = {}
        for line in self.get("/metrics").body.decode().splitlines():
            if line.startswith("#"):
                continue
            name, _, value = line.rpartition(" ")
            labels = name.partition("{")[2].rstrip("}").split(",")
            kept = [label for label in labels if label and label.split("=")[0] not in ("engine", "model_name")]
            values[name.partition("{")[0] + ("{" + ",".join(kept) + "}" if kept else "")] = float(value)
        return values

    def truth(self) -> list[dict[str, Any]]:
        if not self.truth_path.exists():
            return []
        return [json.loads(line) for line in self.truth_path.read_text(encoding="utf-8").splitlines()]

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(20)

    def kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # its own session: the group is the server and its children
        self.process.wait(10)


def events(body: bytes) -> list[dict[str, Any]]:
    lines = [line.removeprefix(b"data: ") for line in body.split(b"\n\n") if line]
    assert lines[-1] == b"[DONE]", lines[-3:]
    return [json.loads(line) for line in lines[:-1]]


def deltas(chunks: list[dict[str, Any]], key: str = "content") -> str:
    return "".join(choice["delta"].get(key) or "" for chunk in chunks for choice in chunk["choices"])


Start = Callable[..., Server]
