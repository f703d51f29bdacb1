"""The crash world that parks: an engine with a worker behind it, a candidate on a port of its own, every arm parked once."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from pathlib import Path

from crash.world import LEGS, TAIL, TINY, World, free_port, kill, process_lines

WORKER_MARK = "tiny-worker"
BEHIND = "--worker answers"

SPIKE = """\
audition: 1
name: crash
question: Does a parked production come back?
arms:
  - name: prod
    role: production
    engine: {{kind: process, command: {python} -I -S {tiny} --port {port} --model m {worker}, env: {{CRASH_TEST_ARM: production}}}}
    endpoint: {{url: "http://127.0.0.1:{port}", model: m}}
    boot: {{limit: 60s, silence: 60s}}
    stop: {{grace: 5s}}
  - name: cand
    role: candidate
    engine: {{kind: process, command: {python} -I -S {tiny} --port {other} --model m {worker}, env: {{CRASH_TEST_ARM: candidate}}}}
    endpoint: {{url: "http://127.0.0.1:{other}", model: m}}
    boot: {{limit: 60s, silence: 60s}}
    stop: {{grace: 5s}}
""" + TAIL.replace(LEGS, "legs: [prod, cand, prod, cand]").replace("restore: {{", "restore: {{strategy: park, ")  # fmt: skip


class ParkWorld(World):
    """Production and candidate that answer through a worker; parked by stopping it. The last leg is the candidate's, so that the
    way back begins with a parked production."""

    def __init__(self, folder: Path, *, behind: str = BEHIND, same_port: bool = False) -> None:
        self.behind, self.same_port = behind, same_port
        super().__init__(folder)

    def spike_text(self) -> str:
        other = self.port
        while other == self.port and not self.same_port:
            other = free_port()
        return SPIKE.format(python=self.python, tiny=TINY, port=self.port, other=other, worker=self.behind)

    def production_argv(self) -> list[str]:
        return [*super().production_argv(), *self.behind.split()]

    def worker_pids(self) -> list[int]:
        """Workers of this trial, of both arms."""
        return [pid for pid, line, cwd in process_lines() if WORKER_MARK in line and cwd == str(self.folder)]

    def stopped(self) -> list[int]:
        """Those of them that stand still."""
        found = []
        for pid in self.worker_pids():
            try:
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if state == "T":
                found.append(pid)
        return found

    def kill_engine(self) -> None:
        kill([*self.engine_pids(), *self.worker_pids()])

    def answers(self) -> bool:
        """With a completion: a parked server lists its models as a working one does."""
        body = json.dumps({"model": "m", "prompt": "x"}).encode()
        ask = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/completions", body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(ask, timeout=10) as reply:
                return bool(json.load(reply)["choices"][0]["text"])
        except (OSError, ValueError, urllib.error.URLError):
            return False

    def server_problems(self) -> list[str]:
        out = super().server_problems()
        if stopped := self.stopped():
            out.append(f"still parked: {stopped}")
        if len(self.worker_pids()) != (1 if self.behind else 0):
            out.append(f"{len(self.worker_pids())} workers run")
        return out

    def clean(self) -> None:
        super().clean()
        kill([pid for pid in self.worker_pids() if pid != os.getpid()])
