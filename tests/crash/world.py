"""One small world a trial: a folder with a spike, a production that "somebody else" started, and the questions at the end.

Everything that a trial starts has its folder as working folder or its run in the command line, so that strangers are never touched.
The runner is a fork of the harness: it runs the product's own ``run_spike`` in a session of its own, and nothing else is shared.
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from audition.errors import AuditionError
from audition.run.starting import Options, run_spike
from audition.spike.parse import load_spike

HERE = Path(__file__).resolve().parent
TINY = HERE.parent / "engines" / "tiny_engine.py"
CANDIDATE_MARK = "CRASH_TEST_ARM=candidate"
RUN_LIMIT_S = 120.0

LEGS = "legs: [prod, cand, prod]"
SPIKE = """\
audition: 1
name: crash
question: Does production come back?
arms:
  - name: prod
    role: production
    engine: {{kind: process, command: {python} -I -S {tiny} --port {port} --model m, env: {{CRASH_TEST_ARM: production}}}}
    endpoint: {{url: "http://127.0.0.1:{port}", model: m}}
    boot: {{limit: 60s, silence: 60s}}
    stop: {{grace: 5s}}
  - name: cand
    role: candidate
    engine: {{kind: process, command: {python} -I -S {tiny} --port {port} --model m, env: {{CRASH_TEST_ARM: candidate}}}}
    endpoint: {{url: "http://127.0.0.1:{port}", model: m}}
    boot: {{limit: 60s, silence: 60s}}
    stop: {{grace: 5s}}
""" + (TAIL := """\
legs: [prod, cand, prod]
workloads: [{{name: one, users: 1, requests: 1, max_tokens: 4, warmup: 0, prompts: prose}}]
probes: []
gates: [{{metric: failure_share, workload: one, at_most: 0}}]
drain: {{budget: 2s}}
restore: {{hold: 100ms, slowest_cold_start: 5s}}
""")  # fmt: skip


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


def kill(pids: list[int]) -> None:
    """SIGKILL to each, those already gone left out."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def free_port() -> int:
    """A loopback port that is free now, below the range from which the kernel picks, so that nobody gets it meanwhile."""
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in range(10000 + (os.getpid() * 137 + time.monotonic_ns() // 1000) % 8000, min(low, 30000)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port below the kernel's own range")


class World:
    """A world whose production is a process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.spike = self.folder / "spike.yaml"
        self.python = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
        self.spike.write_text(self.spike_text())
        self.env = {**os.environ, "AUDITION_STATE": str(self.folder / "state")}
        self.runner: int | None = None

    def __enter__(self) -> Self:
        self.start_production()
        return self

    def __exit__(self, *_: object) -> None:
        self.clean()

    # -- what is run ------------------------------------------------------------------------------------------------------

    def spike_text(self) -> str:
        return SPIKE.format(python=self.python, tiny=TINY, port=self.port)

    def production_argv(self) -> list[str]:
        return [self.python, "-I", "-S", str(TINY), "--port", str(self.port), "--model", "m"]

    def start_production(self) -> None:
        """Production as an operator would have it: a session of its own, not a child that anybody waits for."""
        env = {**os.environ, "CRASH_TEST_ARM": "production", "SOME_SECRET": "hunter2hunter2"}
        with open(self.folder / "production.log", "ab") as log:
            subprocess.Popen(
                self.production_argv(), cwd=self.folder, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self.wait(self.answers, 60, "production did not start")

    def run(self, on_point: Callable[[str, str], None]) -> int:
        """Fork a runner, let it run the spike, and return how it ended (negative: the signal that killed it)."""
        self.runner = os.fork()
        if self.runner == 0:
            try:
                os.setsid()
                os.chdir("/")
                sys.stdout = sys.stderr = open(self.folder / "runner.log", "a", buffering=1, encoding="utf-8")  # noqa: SIM115
                os.dup2(sys.stderr.fileno(), 1)
                os.dup2(sys.stderr.fileno(), 2)
                os.environ["AUDITION_STATE"] = self.env["AUDITION_STATE"]
                code = run_spike(load_spike(self.spike), Options(), on_point=on_point).exit_code
            except AuditionError as error:
                print(f"{error.kind}: {error.what}; {error.seen}", file=sys.stderr, flush=True)
                code = error.exit_code
            except BaseException as error:  # noqa: BLE001 - a fork must not return into the harness
                print(repr(error), file=sys.stderr, flush=True)
                code = 99
            os._exit(code)
        return self._await_runner()

    def _await_runner(self) -> int:
        assert self.runner is not None
        end = time.monotonic() + RUN_LIMIT_S
        while True:
            pid, status = os.waitpid(self.runner, os.WNOHANG)
            if pid:
                self.runner = None
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > end:
                raise AssertionError(f"the runner did not end within {RUN_LIMIT_S} s ({self.folder})")
            time.sleep(0.01)

    def strike(self, victims: list[str]) -> None:
        """Called inside the runner: kill the victims, the runner itself last."""
        if "engine" in victims:
            self.kill_engine()
        if "guard" in victims:
            kill(self.guard_pids())
        (self.folder / "struck").write_text(str(time.time()))
        if "runner" in victims:
            os.kill(os.getpid(), signal.SIGKILL)

    def audition(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The command line, as the boot unit would call it."""
        return subprocess.run(
            [sys.executable, "-m", "audition", *arguments],
            env=self.env, cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            timeout=RUN_LIMIT_S,
        )  # fmt: skip

    # -- who is there -----------------------------------------------------------------------------------------------------

    def engine_pids(self) -> list[int]:
        """Servers of this trial, of both arms."""
        return [pid for pid, line, cwd in process_lines() if TINY.name in line and cwd == str(self.folder)]

    def guard_pids(self) -> list[int]:
        """Live guards of this trial; a guard names its run in its command line."""
        runs = [run.name for run in (self.folder / "state" / "runs").glob("*")]
        return [pid for pid, line, _ in process_lines() if " guard " in line and any(run in line for run in runs)]

    def kill_engine(self) -> None:
        """SIGKILL to whatever serves now."""
        kill(self.engine_pids())

    # -- how it ended -----------------------------------------------------------------------------------------------------

    def wait(self, condition: Callable[[], bool], limit: float, what: str) -> None:
        end = time.monotonic() + limit
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(f"{what} within {limit} s ({self.folder})")
            time.sleep(0.02)

    def quiet(self) -> bool:
        """No guard of this trial is left."""
        return not self.guard_pids()

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/models", timeout=10) as reply:
                return bool(json.load(reply)["data"][0]["id"] == "m")
        except (OSError, ValueError, urllib.error.URLError):
            return False

    def problems(self) -> list[str]:
        """Everything that is not as it was before the run; empty means that production is back and nothing else is left."""
        out = self.server_problems()
        if not self.answers():
            out.append("production does not answer")
        for plan in (self.folder / "state").glob("runs/*/plan.json"):
            out.append(f"run {plan.parent.name} is not closed")
        for path in (self.folder / "state" / "locks").glob("*.lock"):
            with open(path, "rb") as stream:
                try:
                    fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    out.append(f"{path.name} is still held")
        return out

    def server_problems(self) -> list[str]:
        """One production, as it was; no candidate."""
        out = []
        arms: dict[str, list[int]] = {"production": [], "candidate": []}
        for pid in self.engine_pids():
            try:
                env = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                argv = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode().split("\0")
            except OSError:
                continue
            arm = "candidate" if CANDIDATE_MARK.encode() in env else "production"
            arms[arm].append(pid)
            if arm == "production" and argv != self.production_argv():
                out.append(f"production runs with other arguments: {argv}")
            if arm == "production" and b"SOME_SECRET=hunter2hunter2" not in env:
                out.append("production lost a variable of its environment")
        if len(arms["production"]) != 1:
            out.append(f"{len(arms['production'])} productions run")
        if arms["candidate"]:
            out.append(f"candidate left running: {arms['candidate']}")
        return out

    def clean(self) -> None:
        """End what this trial started, by pid."""
        if self.runner is not None:
            kill([self.runner])
            os.waitpid(self.runner, 0)
        kill([*self.guard_pids(), *self.engine_pids()])


def recorded_points(here: World) -> list[tuple[str, str]]:
    """Every (step, point) that an undisturbed run passes, in order; the run must leave no problem."""
    listing = here.folder / "points"

    def record(step: str, point: str) -> None:
        with open(listing, "a", encoding="utf-8") as stream:
            stream.write(f"{step} {point}\n")

    code = here.run(record)
    log = (here.folder / "runner.log").read_text()
    assert code in (0, 3, 4), f"the undisturbed run ended with {code}: {log}"
    here.wait(here.quiet, 30, "the guard did not stand down")
    assert here.problems() == [], log
    lines = [line.rsplit(" ", 1) for line in listing.read_text().splitlines()]
    return list(dict.fromkeys((step, point) for step, point in lines))
