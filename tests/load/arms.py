"""A simulated server as a process, for tests that measure it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from load.scripted import Endpoint

MTP3 = ("--speculative-config", '{"method":"mtp","num_speculative_tokens":3}')


@dataclass
class Arm:
    """A running simulated server and its own record of the truth."""

    process: subprocess.Popen[bytes]
    endpoint: Endpoint
    truth_log: Path
    log: Path

    def alive(self) -> bool:
        return self.process.poll() is None

    def truth(self) -> dict[str, dict[str, Any]]:
        """The server's own figures by request id."""
        rows = [json.loads(line) for line in self.truth_log.read_text().splitlines()]
        return {row["request_id"]: row for row in rows}


@contextmanager
def simulated_arm(folder: Path, *args: str, port: int = 0, **settings: Any) -> Iterator[Arm]:
    """A simulated server that answers, on a free port unless one is given. Ends with all its processes after the block."""
    with socket.socket() as probe:
        if not port:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
    truth, log = folder / f"{port}.truth.jsonl", folder / f"{port}.log"
    values = {"boot_s": 0.1, "step_base_ms": 3.0, "step_per_seq_ms": 0.1, "truth_log": str(truth), **settings}
    command = [sys.executable, "-m", "audition.simulated", "serve", "m", "--host", "127.0.0.1", "--port", str(port), *args]
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command, stdout=sink, stderr=sink, env={**os.environ, "AUDITION_SIM": json.dumps(values)}, start_new_session=True
        )
    try:
        _await_health(process, port, log)
        yield Arm(process, Endpoint(f"http://127.0.0.1:{port}"), truth, log)
    finally:
        with suppress(ProcessLookupError):  # it is gone already, which is what some tests are about
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _await_health(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.05)
