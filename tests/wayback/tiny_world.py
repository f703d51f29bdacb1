"""A small world for tests of the way back: a production and a candidate made of tiny engines, and the plan that restores it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from audition.wayback.health import NoAnswer, completion, served_models
from audition.wayback.lock import lock_files_for
from audition.wayback.plan import (
    ArmTarget,
    EndpointPlan,
    EntryPlan,
    GpuPlan,
    ProcessRef,
    ProcessTarget,
    RestorePlan,
    Verification,
)
from audition.wayback.procs import ProcessServer
from audition.wayback.proctable import own_ref, read_proc, ref_of
from audition.wayback.restore import Pace

ENGINE = str(Path(__file__).parents[1] / "engines" / "tiny_engine.py")
FAST = Pace(backoff_s=0.05, port_s=0.3, look_s=0.05, look_tries=3, poll_s=0.03, call_s=5.0)
QUICK = {"backoff_s": 0.05, "port_s": 0.3, "look_s": 0.05, "look_tries": 3, "poll_s": 0.03, "call_s": 5.0}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(true: Callable[[], bool], limit_s: float = 20.0, what: str = "the condition") -> None:
    until = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < until, f"{what} did not come true within {limit_s} s"
        time.sleep(0.02)


def environment() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "SECRET_KEY": "hush-hush"}


@dataclass
class World:
    """Folders, ports and arms of one test. ``close`` ends everything that it started."""

    folder: Path
    port: int = field(default_factory=free_port)
    candidate_port: int | None = None
    strangers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def arm(self, name: str, *options: str, port: int | None = None, grace_s: float = 3.0) -> ArmTarget:
        port = port or self.port
        folder = self.folder / "state" / name
        argv = [sys.executable, ENGINE, "--port", str(port), "--model", f"model-{name}", "--answer", f"answer of {name}", *options]
        return ArmTarget(
            name,
            grace_s,
            port,
            process=ProcessTarget(
                argv,
                environment(),
                str(self.folder),
                str(folder / "server.log"),
                str(folder / "identity.json"),
                f"token-{self.port}-{name}",
            ),
        )

    def plan(self, production: ArmTarget, *others: ArmTarget, **changes: object) -> RestorePlan:
        root = self.folder / "root"
        endpoint = EndpointPlan(f"http://127.0.0.1:{production.port}", "model-production")
        plan = RestorePlan(
            run_id="run-1",
            spike="tiny",
            state_dir=str(root / "runs" / "run-1"),
            run_dir=str(self.folder / "run"),
            lock_files=lock_files_for(root, []),
            fence=1,
            runner=own_ref(),
            production=production,
            others=list(others),
            sidecars=[],
            entry=None,
            gpu=GpuPlan("none"),
            verify=Verification(endpoint, 15.0, 10.0, 0.1, "require", {"prompt": "x"}, ["answer of production"]),
            deadline=None,
            manual=["start production by hand"],
        )
        return replace(plan, **changes)  # type: ignore[arg-type]

    def entry(self) -> EntryPlan:
        flag = self.folder / "entry-open"
        return EntryPlan(["rm", "-f", str(flag)], ["touch", str(flag)], str(self.folder))

    def stranger(self, *command: str, env: dict[str, str] | None = None) -> ProcessRef:
        """A process that no test arm owns, in a session of its own."""
        child = subprocess.Popen(list(command), start_new_session=True, env=env, stdout=subprocess.DEVNULL)
        self.strangers.append(child)
        proc = read_proc(child.pid)
        assert proc is not None
        return ref_of(proc)

    def works(self, endpoint: EndpointPlan) -> bool:
        return endpoint.model in served_models(endpoint) and completion(endpoint, {"prompt": "x"}) == "answer of production"

    def close(self, *arms: ArmTarget) -> None:
        for arm in arms:
            ProcessServer(arm).stop(0.0)
        for child in self.strangers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
            child.wait()


def start_and_wait(arm: ArmTarget) -> ProcessServer:
    server = ProcessServer(arm)
    server.start()
    wait_until(lambda: _answers(arm.port), what=f"{arm.arm} answers")
    return server


def _answers(port: int) -> bool:
    try:
        return bool(served_models(EndpointPlan(f"http://127.0.0.1:{port}", ""), 2.0))
    except NoAnswer:
        return False
