"""Park a real server again and again: out, something else on its GPU, back; against a cold boot in the same call.

    python -m benchmarks.park_gpu --out park.md --cycles 10 --gpu 0 --fill-mib 60000 --model NAME --port 8000 -- vllm serve ...

The server is started by audition's own way back, so the boot that the cycles are held against is the boot that a spike would pay.
What was measured is written after every cycle: a call that is cut leaves its table. Without a GPU (leave ``--gpu`` out) the
stand-in is used, and the table says so.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import secrets
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from audition.wayback.files import write_atomic
from audition.wayback.gpu import read_usage, wait_settled
from audition.wayback.health import Limits, NoAnswer, completion, stream, wait_ready
from audition.wayback.hostmem import available_mib, held_mib, memory_short
from audition.wayback.park import Parker, choose, park, parker_of, unpark
from audition.wayback.park_cuda import driver_version
from audition.wayback.park_trial import child_environment, try_out
from audition.wayback.plan import ArmTarget, EndpointPlan, GpuPlan, ParkTarget, ProcessTarget
from audition.wayback.procs import ProcessServer
from audition.wayback.proctable import connections, status_field

PROMPTS = ("The three primary colours are red, yellow and", "one two three four", "def fibonacci(n):")
TOKENS = 64
CALL_S = 300.0
HEADINGS = (
    "cycle", "lock s", "out s", "GPU MiB while parked", "back s", "unlock s", "first completion s", "late s", "completion s",
    "answers equal", "host MiB available", "engine RSS MiB", "problem",
)  # fmt: skip
FILL = """
import ctypes, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
size = ctypes.c_size_t(int(sys.argv[2]) << 20)
calls = [
    lambda: cuda.cuInit(0),
    lambda: cuda.cuDeviceGet(ctypes.byref(device), int(sys.argv[1])),
    lambda: cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device),
    lambda: cuda.cuCtxSetCurrent(context),
    lambda: cuda.cuMemAlloc_v2(ctypes.byref(memory), size),
    lambda: cuda.cuMemsetD8_v2(memory, 165, size),
    lambda: cuda.cuCtxSynchronize(),
]
for place, call in enumerate(calls):
    code = call()
    if code:
        sys.exit(f"call {place} gave CUDA error {code}")
time.sleep(float(sys.argv[3]))
"""
"""What a candidate does to the GPU: it takes the memory, writes to all of it, and leaves."""


@dataclass(frozen=True)
class Cycle:
    """One cycle. Seconds and MiB. ``late_s``: from sending a request to the parked server to its answer; ``call_s``: one completion
    afterwards. ``problem``: what was not as it should be, "" when all was."""

    number: int
    lock_s: float
    out_s: float
    gpu_parked_mib: int
    restore_s: float
    unlock_s: float
    first_s: float
    late_s: float
    call_s: float
    equal: bool
    host_available_mib: int
    engine_rss_mib: int
    problem: str = ""


@dataclass
class Outcome:
    """Everything measured so far, as it is written."""

    command: list[str]
    machine: str
    boots_s: list[float] = field(default_factory=list)
    held_mib: int = 0
    parker: str = ""
    call_before_s: float = 0.0
    host_before_mib: int = 0
    cycles: list[Cycle] = field(default_factory=list)
    ended: str = "cut before its end"


class Trial:
    """A server under trial."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options = options
        self.endpoint = EndpointPlan(f"http://127.0.0.1:{options.port}", options.model)
        process = ProcessTarget(
            options.command,
            {**os.environ},
            os.getcwd(),
            str(folder / "server.log"),
            str(folder / "identity.json"),
            secrets.token_hex(8),
        )
        self.arm = ArmTarget("server", 60.0, options.port, process=process)
        self.server = ProcessServer(self.arm)
        self.gpu = GpuPlan("none") if options.gpu is None else GpuPlan("nvidia-smi", [options.gpu])
        if self.gpu.source != "none":
            self.gpu = replace(self.gpu, baseline_mib=read_usage(self.gpu).used_mib)

    def boot(self) -> float:
        """Start it and wait until completions work; seconds. Raises SystemExit with the end of its log."""
        began = time.monotonic()
        self.server.start()
        got = wait_ready(self.server, self.endpoint, Limits(self.options.boot_s, self.options.boot_s, call_s=CALL_S))
        if got.kind != "ready":
            raise SystemExit(f"the server did not start: {got.kind} {got.detail}\n{self.server.log_tail(40)}")
        return time.monotonic() - began

    def answers(self) -> list[str]:
        """The greedy answers to all prompts, and that a stream works."""
        said = [completion(self.endpoint, body(prompt), CALL_S) for prompt in PROMPTS]
        return [*said, stream(self.endpoint, body(PROMPTS[0]), CALL_S)]

    def call_s(self) -> float:
        """Seconds of one completion: the median of five."""
        return statistics.median(_timed(lambda: completion(self.endpoint, body(PROMPTS[0]), CALL_S)) for _ in range(5))

    def fill(self) -> str:
        """Take the GPU as a candidate would; "" when that worked or nothing is to be taken."""
        if self.options.gpu is None or not self.options.fill_mib:
            return ""
        words = [sys.executable, "-c", FILL, str(self.options.gpu), str(self.options.fill_mib), str(self.options.hold_s)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False, env=child_environment())
        return "" if done.returncode == 0 else f"the GPU could not be filled: {done.stderr.strip()[-200:]}"


def body(prompt: str) -> dict[str, object]:
    """A greedy request."""
    return {"prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "seed": 0}


def _timed(call: object) -> float:
    began = time.monotonic()
    call()  # type: ignore[operator]
    return time.monotonic() - began


def cycle(trial: Trial, number: int, parker: Parker, target: ParkTarget, expected: list[str]) -> Cycle:
    """Out, a request and another process meanwhile, back, and the proof. Raises WaybackError when parking or resuming fails."""
    problems: list[str] = []
    out = park(parker, target.processes, target.lock_s)
    settled = wait_settled(trial.gpu)
    if not settled.ok:
        problems.append(settled.detail)
    late: list[tuple[str, float]] = []

    def ask() -> None:
        began = time.monotonic()
        try:
            said = completion(trial.endpoint, body(PROMPTS[0]), 2 * CALL_S)
        except NoAnswer as error:
            said = f"refused: {error}"
        late.append((said, time.monotonic() - began))

    asking = threading.Thread(target=ask)
    asking.start()
    until = time.monotonic() + 10
    while not connections(trial.options.port) and time.monotonic() < until:
        time.sleep(0.01)
    problems += filter(None, [trial.fill()])
    if late:
        problems.append("a request was answered while the server was parked")
    back = unpark(parker, target.processes)
    first = _timed(lambda: completion(trial.endpoint, body(PROMPTS[0]), CALL_S))
    asking.join(2 * CALL_S)
    said, late_s = late[0] if late else ("no answer", float("inf"))
    equal = said == expected[0] and trial.answers() == expected
    if not equal:
        problems.append(f"answers differ; the late one: {said[:80]!r}")
    rss = sum(int((status_field(ref.pid, "VmRSS") or "0").split()[0]) for ref in target.processes) // 1024
    return Cycle(
        number, out.locks_s, out.moves_s, max(settled.used_mib.values(), default=0), back.moves_s, back.locks_s, first, late_s,
        trial.call_s(), equal, available_mib() or 0, rss, "; ".join(problems),
    )  # fmt: skip


def table(outcome: Outcome) -> str:
    """The result as Markdown, with its raw figures as JSON below."""
    boots = ", ".join(f"{seconds:.1f}" for seconds in outcome.boots_s) or "none yet"
    before = (
        f"one completion of {TOKENS} tokens {outcome.call_before_s:.3f} s; {outcome.host_before_mib} MiB of host memory available"
    )
    lines = [
        "# Parking a real server",
        "",
        f"{outcome.machine}. State: {outcome.ended}.",
        f"Server: `{' '.join(outcome.command)}`; it held {outcome.held_mib} MiB of GPU memory.",
        f"Parked {outcome.parker or '(not yet)'}.",
        f"Cold boots in this call (seconds to a working completion): {boots}.",
        f"Before: {before}. late: a request sent while it was parked, until its answer.",
        "",
        "| " + " | ".join(HEADINGS) + " |",
        "|" + "---|" * len(HEADINGS),
    ]
    for c in outcome.cycles:
        cells = [
            str(c.number), f"{c.lock_s:.3f}", f"{c.out_s:.2f}", str(c.gpu_parked_mib), f"{c.restore_s:.2f}", f"{c.unlock_s:.3f}",
            f"{c.first_s:.3f}", f"{c.late_s:.2f}", f"{c.call_s:.3f}", "yes" if c.equal else "NO", str(c.host_available_mib),
            str(c.engine_rss_mib), c.problem,
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", "```json", json.dumps(asdict(outcome)), "```", ""])


def run(options: argparse.Namespace, folder: Path) -> int:
    """The whole trial; 0 when every cycle was as it should be."""
    trial = Trial(options, folder)
    version = driver_version()
    driver = f"NVIDIA driver {'.'.join(map(str, version))}" if version else "no NVIDIA driver"
    outcome = Outcome(options.command, f"Linux {platform.release()}, {os.cpu_count()} cores, {driver}")

    def write() -> None:
        write_atomic(options.out, table(outcome), 0o644)

    write()
    try:
        outcome.boots_s.append(trial.boot())
        expected = trial.answers()
        outcome.call_before_s, outcome.host_before_mib = trial.call_s(), available_mib() or 0
        holders = [] if trial.gpu.source == "none" else [holder.pid for holder in read_usage(trial.gpu).holders]
        choice = choose(trial.server.members(), options.port, holders=holders, watched=trial.gpu.source != "none")
        if choice.target is None:
            raise SystemExit(f"the server cannot be parked: {choice.why_not}")
        outcome.parker, outcome.held_mib = choice.said, held_mib(trial.gpu, [ref.pid for ref in choice.target.processes])
        if choice.target.parker == "cuda" and (failed := try_out(options.gpu or 0)):
            raise SystemExit(failed)
        if choice.target.parker == "cuda" and (short := memory_short(outcome.held_mib, available_mib())):
            raise SystemExit(short)
        write()
        parker = parker_of(choice.target)
        for number in range(1, options.cycles + 1):
            outcome.cycles.append(cycle(trial, number, parker, choice.target, expected))
            write()
        for _ in range(options.boots - 1):
            trial.server.stop(60.0)
            wait_settled(trial.gpu)
            outcome.boots_s.append(trial.boot())
            write()
        outcome.ended = "complete"
    except BaseException as error:
        outcome.ended = f"ended by {type(error).__name__}: {error}".replace("\n", " ")[:500]
        raise
    finally:
        write()
        trial.server.stop(60.0)
    return 0 if all(c.equal and not c.problem for c in outcome.cycles) else 1


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="Markdown file, written anew after every cycle")
    parser.add_argument("--cycles", type=int, default=10)
    parser.add_argument("--boots", type=int, default=2, help="cold boots in all: the first one, and further ones at the end")
    parser.add_argument("--gpu", type=int, default=None, help="index of the GPU; without it no GPU is watched")
    parser.add_argument("--fill-mib", type=int, default=0, help="GPU memory that another process takes while the server is parked")
    parser.add_argument("--hold-s", type=float, default=2.0, help="how long it keeps it")
    parser.add_argument("--boot-s", type=float, default=1200.0, help="limit of a boot")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", required=True, help="the model's served name")
    parser.add_argument("command", nargs="+", help="the server's command, after --")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="park-") as folder:
        return run(options, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
