"""One small world a trial: a folder with a spike, a production that "somebody else" started, and the questions at the end.

Everything that a trial starts runs with its folder in the command line or as working folder, so that strangers are never touched.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
TINY = HERE.parent / "engines" / "tiny_engine.py"
CANDIDATE_MARK = "CRASH_TEST_ARM=candidate"

SPIKE = """\
audition: 1
name: crash
question: Does production come back?
arms:
  - name: prod
    role: production
    engine: {{kind: process, command: [{python}, {tiny}, --port, "{port}", --model, m], env: {{CRASH_TEST_ARM: production}}}}
    endpoint: {{url: "http://127.0.0.1:{port}", model: m}}
    boot: {{limit: 20s, silence: 20s}}
    stop: {{grace: 5s}}
  - name: cand
    role: candidate
    engine: {{kind: process, command: [{python}, {tiny}, --port, "{port}", --model, m], env: {{CRASH_TEST_ARM: candidate}}}}
    endpoint: {{url: "http://127.0.0.1:{port}", model: m}}
    boot: {{limit: 20s, silence: 20s}}
    stop: {{grace: 5s}}
legs: [prod, cand, prod]
workloads: [{{name: one, users: 1, requests: 1, max_tokens: 4, warmup: 0, prompts: prose}}]
probes: []
gates: [{{metric: failure_share, workload: one, at_most: 0}}]
drain: {{budget: 2s}}
restore: {{hold: 100ms, slowest_cold_start: 5s}}
"""


def process_lines() -> Iterator[tuple[int, str, str]]:
    """(pid, command line, working folder) of every process that can be read, zombies left out."""
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            line = Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            cwd = os.readlink(f"/proc/{entry}/cwd")
        except OSError:
            continue
        if line:
            yield int(entry), line, cwd


def engine_pids(folder: Path) -> list[int]:
    """Servers of this trial, of both arms."""
    return [pid for pid, line, cwd in process_lines() if TINY.name in line and cwd == str(folder)]


def guard_pids(folder: Path) -> list[int]:
    """Live guards of this trial: they write who they are before anything is touched, and name the run in their command line."""
    runs = [run.name for run in (folder / "state" / "runs").glob("*")]
    return [pid for pid, line, _ in process_lines() if " guard " in line and any(run in line for run in runs)]


def driver_pids(folder: Path) -> list[int]:
    """Runners of this trial."""
    return [pid for pid, line, _ in process_lines() if str(folder) in line and "crash_driver" in line]


def free_port() -> int:
    """A loopback port that is free now, outside the range from which the kernel picks (so that nobody gets it meanwhile)."""
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in range(10000 + (os.getpid() * 37 + time.monotonic_ns() // 1000) % 8000, min(low, 30000)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port below the kernel's own range")


class World:
    """One trial's folder and its production."""

    def __init__(self, folder: Path, spike: str = SPIKE, port: int | None = None) -> None:
        self.folder = folder.resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = port or free_port()
        self.spike = self.folder / "spike.yaml"
        self.python = os.path.realpath(sys.executable)
        self.spike.write_text(spike.format(python=self.python, tiny=TINY, port=self.port))
        self.env = {**os.environ, "AUDITION_STATE": str(self.folder / "state")}

    def production_argv(self) -> list[str]:
        return [self.python, str(TINY), "--port", str(self.port), "--model", "m"]

    def start_production(self) -> None:
        """Production as an operator would have it: a session of its own, not a child that anybody waits for."""
        env = {**os.environ, "CRASH_TEST_ARM": "production", "SOME_SECRET": "hunter2hunter2"}
        log = open(self.folder / "production.log", "ab")  # noqa: SIM115 - handed to the child
        with log:
            subprocess.Popen(
                self.production_argv(), cwd=self.folder, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self.wait(self.answers, 20, "production did not start")

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/models", timeout=5) as reply:
                return bool(json.load(reply)["data"][0]["id"] == "m")
        except (OSError, ValueError, urllib.error.URLError):
            return False

    def wait(self, condition, limit: float, what: str) -> None:  # type: ignore[no-untyped-def]
        end = time.monotonic() + limit
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(f"{what} within {limit} s ({self.folder})")
            time.sleep(0.02)

    def run(self, *arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(HERE / "crash_driver.py"), str(self.spike), *arguments],
            env=self.env, capture_output=True, text=True, timeout=timeout, check=False, cwd="/", stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def audition(self, *arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "audition", *arguments],
            env=self.env, capture_output=True, text=True, timeout=timeout, check=False, cwd=self.folder, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def quiet(self) -> bool:
        """No runner and no guard of this trial is left."""
        return not driver_pids(self.folder) and not guard_pids(self.folder)

    def problems(self) -> list[str]:
        """Everything that is not as it was before the run; empty means that production is back and nothing else is left."""
        out = []
        arms: dict[str, list[int]] = {"production": [], "candidate": []}
        for pid in engine_pids(self.folder):
            try:
                env = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            arm = "candidate" if CANDIDATE_MARK.encode() in env else "production"
            arms[arm].append(pid)
            argv = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode().split("\0")
            if arm == "production" and argv != self.production_argv():
                out.append(f"production runs with other arguments: {argv}")
            if arm == "production" and b"SOME_SECRET=hunter2hunter2" not in env:
                out.append("production lost a variable of its environment")
        if len(arms["production"]) != 1:
            out.append(f"{len(arms['production'])} productions run")
        if arms["candidate"]:
            out.append(f"candidate left running: {arms['candidate']}")
        if not self.answers():
            out.append("production does not answer")
        return out + self._lock_problems() + self._record_problems()

    def _lock_problems(self) -> list[str]:
        out = []
        for path in (self.folder / "state").glob("**/*.lock"):
            with open(path, "rb") as stream:
                try:
                    fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    out.append(f"{path.name} is still held")
        return out

    def _record_problems(self) -> list[str]:
        """A run whose plan is still there was not closed."""
        return [f"run {plan.parent.name} is not closed" for plan in (self.folder / "state").glob("runs/*/plan.json")]

    def clean(self) -> None:
        """End what this trial started, by pid."""
        for pid in [*driver_pids(self.folder), *guard_pids(self.folder), *engine_pids(self.folder)]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


@contextmanager
def world(folder: Path, spike: str = SPIKE) -> Iterator[World]:
    """A world whose processes are gone afterwards."""
    here = World(folder, spike)
    here.start_production()
    try:
        yield here
    finally:
        here.clean()
