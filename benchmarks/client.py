"""Measures audition's load client beside vLLM's, GuideLLM and AIPerf in one run, and writes docs/results/client.md.

usage: python -m benchmarks.client [--peers FOLDER] [--only NAME,...] [--out FILE] [--facts TEXT]

FOLDER holds one virtual environment a peer (guidellm, aiperf); vLLM's is the one that `make live-env` makes. A peer that is not
there is left out, and the document says so. Server and client are each bound to a core of their own. Every server is started
here, listens on loopback and ends with this program.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.clients import (
    CORES,
    ROOT,
    Cost,
    Pair,
    Tool,
    bound,
    pairs_aiperf,
    pairs_audition,
    pairs_guidellm,
    pairs_vllm,
    records_of,
    run_aiperf,
    run_audition,
    run_bench,
    run_guidellm,
    run_vllm,
)

from audition.judge.records import unpack_events
from audition.load.prompts import mark
from audition.load.vitals import quantile

TOKENS, FEW, MANY = 256, 32, 256  # of the slope: tokens an answer, requests in the short and the long run
SCHEDULES = {"32 streams x 50 tok/s": (32, 20.0, TOKENS, 1.0), "512 streams x 20 tok/s": (512, 50.0, 64, 5.0)}
"""Name: streams, milliseconds between tokens, tokens an answer, and the goal for the 99th percentile of both errors in ms."""


def free_port() -> int:
    """A loopback port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def server(command: Sequence[str], env: dict[str, str], port: int, log: Path) -> Iterator[None]:
    """A server on its core until the block ends."""
    with log.open("wb") as sink:
        process = subprocess.Popen(
            bound("server", command), stdout=sink, stderr=sink, env={**os.environ, **env}, start_new_session=True
        )
    try:
        until = time.monotonic() + 60
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"the server did not start: {log.read_text(errors='replace')[-500:]}")
            time.sleep(0.1)
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def simulated(work: Path, beat_ms: float) -> Iterator[tuple[str, Path]]:
    """A simulated vLLM that gives every stream a token every ``beat_ms``, with its own record of when it sent what."""
    port, truth = free_port(), work / f"truth-{time.time_ns()}.jsonl"
    settings = {
        "boot_s": 0.1, "step_base_ms": beat_ms, "step_per_seq_ms": 0, "prefill_tokens_s": 1e9, "answer_tokens": 5000,
        "truth_log": str(truth), "version": "0.24.0",
    }  # fmt: skip
    command = [sys.executable, "-m", "audition.simulated", "serve", "m", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--max-num-seqs", "1024", "--max-num-batched-tokens", "1000000", "--disable-uvicorn-access-log"]
    with server(command, {"AUDITION_SIM": json.dumps(settings)}, port, work / "simulated.log"):
        yield f"http://127.0.0.1:{port}", truth


# -- measuring ----------------------------------------------------------------------------------------------------------


@dataclass
class Result:
    """What is known of one client. Errors in ms by schedule: TTFT p99, per token p99, number of requests."""

    name: str
    us_per_token: float | None = None
    start_cpu_s: float | None = None
    errors: dict[str, tuple[float, float, int]] = field(default_factory=dict)
    problem: str = ""


def truth_pairs(path: Path, tokens: int, last: int) -> list[Pair]:
    """The server's own figures of its ``last`` whole answers of that length."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    whole = sorted((row for row in rows if row["completion_tokens"] == tokens and row["stream"]), key=lambda row: row["arrival"])
    return [(r["sent"][0] - r["arrival"], (r["sent"][-1] - r["sent"][0]) / sum(r["tokens"][1:])) for r in whole[-last:]]


def apart(seen: Sequence[float], true: Sequence[float]) -> float:
    """99th percentile of the differences between two equally long samples, each in order of size, in ms: the least that any pairing
    of the two could give, in favour of a client whose requests cannot be told apart at the server."""
    gaps = [abs(a - b) for a, b in zip(sorted(seen), sorted(true), strict=True)]
    return 1000 * (quantile(gaps, 0.99) or 0.0)


def measure(tool: Tool, work: Path) -> Result:
    """Cost and accuracy of one client."""
    result = Result(tool.name)
    try:
        first, second = SCHEDULES
        with simulated(work, SCHEDULES[first][1]) as (url, _):
            few, _ = _run(tool, work, url, streams=32, requests=FEW, tokens=TOKENS)
        with simulated(work, SCHEDULES[first][1]) as (url, truth):
            many, folder = _run(tool, work, url, streams=32, requests=MANY, tokens=TOKENS)
            result.us_per_token = 1e6 * (many.cpu_s - few.cpu_s) / ((MANY - FEW) * TOKENS)
            result.start_cpu_s = few.cpu_s - result.us_per_token * FEW * TOKENS / 1e6
            if tool.pairs is not no_pairs:
                result.errors[first] = _errors(tool.pairs(folder), truth, TOKENS)
        if tool.pairs is not no_pairs:
            streams, beat, tokens, _ = SCHEDULES[second]
            with simulated(work, beat) as (url, truth):
                _, folder = _run(tool, work, url, streams=streams, requests=2 * streams, tokens=tokens)
                result.errors[second] = _errors(tool.pairs(folder), truth, tokens)
    except (RuntimeError, OSError, ValueError, KeyError, StopIteration) as error:
        result.problem = f"{type(error).__name__}: {error}"[-400:]
    return result


def _errors(seen: list[Pair], truth: Path, tokens: int) -> tuple[float, float, int]:
    true = truth_pairs(truth, tokens, len(seen))
    ttft, per_token = (apart([p[k] for p in seen], [p[k] for p in true]) for k in (0, 1))
    return ttft, per_token, len(seen)


def no_pairs(_folder: Path) -> list[Pair]:
    """For a tool whose accuracy is that of another."""
    return []


def _run(tool: Tool, work: Path, url: str, *, streams: int, requests: int, tokens: int) -> tuple[Cost, Path]:
    folder = Path(tempfile.mkdtemp(dir=work))
    return tool.run(url, streams, requests, tokens, folder), folder


@dataclass
class Strict:
    """audition's errors request by request and token by token, in ms, 99th percentiles.

    ``first`` and ``stamp``: how late first tokens and all tokens were stamped, on the clock that both programs share; the promptest
    token of all counts as not late. ``ttft``: against the server's figure, which begins only when its program has read the request.
    """

    first: float
    stamp: float
    ttft: float
    tokens: int
    exact: bool


def strict(work: Path, name: str) -> Strict:
    """Each request and each token against the server's record of it, by request id and clock."""
    streams, beat, tokens, _ = SCHEDULES[name]
    with simulated(work, beat) as (url, truth):
        folder = Path(tempfile.mkdtemp(dir=work))
        run_audition(url, streams, 2 * streams, tokens, folder)
        rows = {row["request_id"]: row for row in map(json.loads, truth.read_text().splitlines())}
    said = json.loads((folder / "out.json").read_text().splitlines()[-1])
    prefix = f"audition-{mark(said['salt'], 'w', 'measuring')}"
    stamps: list[list[float]] = []
    ttfts, exact = [], True
    for record in records_of(folder):
        known = rows[f"{prefix}-{record.index}"]
        events = [event for event in unpack_events(record.events) if event.tokens]
        exact &= [event.tokens for event in events] == known["tokens"] and record.completion_tokens == known["completion_tokens"]
        ttfts.append(abs((events[0].at - (record.sent or 0.0)) - (known["sent"][0] - known["arrival"])))
        stamps.append([event.at - sent for event, sent in zip(events, known["sent"], strict=True)])
    prompt = min(late for answer in stamps for late in answer)
    first = quantile([answer[0] - prompt for answer in stamps], 0.99) or 0.0
    every = quantile([late - prompt for answer in stamps for late in answer], 0.99) or 0.0
    return Strict(1000 * first, 1000 * every, 1000 * (quantile(ttfts, 0.99) or 0.0), sum(map(len, stamps)), exact)


def memory(work: Path) -> dict[str, float]:
    """1,000 streams of 1,000 tokens each: peak memory in MiB, bytes a token on disk, microseconds a token."""
    port = free_port()
    script = str(ROOT / "benchmarks" / "paced_server.py")
    with server([sys.executable, script, str(port), "0.08"], {}, port, work / "paced.log"):
        folder = Path(tempfile.mkdtemp(dir=work))
        run_audition(f"http://127.0.0.1:{port}", 1000, 1000, 1000, folder)
    said = json.loads((folder / "out.json").read_text().splitlines()[-1])
    tokens = sum(record.completion_tokens or 0 for record in records_of(folder))
    size = (folder / "w.requests.jsonl").stat().st_size
    return {
        "rss_mib": said["rss_mib"],
        "bytes": size / tokens,
        "tokens": tokens,
        "us": 1e6 * said["record"]["client"]["cpu_s"] / tokens,
    }


def start_up(work: Path) -> float:
    """CPU seconds of a whole run of one request of one token: more than what it takes to the first request. Median of three."""
    with simulated(work, 1.0) as (url, _):
        return statistics.median(run_audition(url, 1, 1, 1, Path(tempfile.mkdtemp(dir=work))).cpu_s for _ in range(3))


# -- the document -------------------------------------------------------------------------------------------------------


def versions(peers: Path) -> str:
    """Versions of the clients that are there."""
    found = [f"Python {platform.python_version()}"]
    for name, python in (("vllm", ROOT / ".live/vllm"), ("guidellm", peers / "guidellm"), ("aiperf", peers / "aiperf")):
        ask = f"import importlib.metadata as m; print(m.version({name!r}))"
        done = subprocess.run([str(python / "bin/python"), "-c", ask], capture_output=True, text=True, check=False)
        found.append(f"{name} {done.stdout.strip()}" if done.returncode == 0 else f"{name} not there")
    return ", ".join(found)


def document(
    results: Sequence[Result], strictly: dict[str, Strict], *, memory_of: dict[str, float], start: float, facts: str
) -> str:
    """The results page."""
    ours = results[0].us_per_token
    lines = ["# The load client: cost and accuracy", "", f"Made by `python -m benchmarks.client`. {facts}", ""]
    lines += [
        "## CPU",
        "",
        f"32 streams, a token every 20 ms each, answers of {TOKENS} tokens. Microseconds of CPU per streamed token:",
    ]
    lines += [f"the slope between {FEW} and {MANY} requests, all processes of the client, on one core.", ""]
    lines += ["| client | µs per token | times ours | CPU before and after, s |", "|---|---|---|---|"]
    for r in results:
        if r.us_per_token is None or ours is None:
            lines.append(f"| {r.name} | not measured: {r.problem or 'it is not there'} | | |")
        else:
            lines.append(f"| {r.name} | {r.us_per_token:.1f} | {r.us_per_token / ours:.1f} | {r.start_cpu_s:.1f} |")
    verdict = "met" if ours is not None and ours <= 12 else "NOT MET in this run"
    lines += [
        "",
        f"Goal: 12 µs, {verdict}. Start-up to the end of a first request of one token: {start:.2f} s CPU (goal 0.5 s).",
        "",
    ]
    lines += [
        "## Accuracy",
        "",
        "99th percentile of the difference to the server's own times, in ms. The samples of client and server are",
    ]
    lines += ["compared in order of size, which favours every client alike. Per token: the mean time a token of each answer.", ""]
    for name, (_, _, _, goal) in SCHEDULES.items():
        lines += [f"### {name} (goal {goal:g} ms)", "", "| client | TTFT | per token | requests |", "|---|---|---|---|"]
        for r in results:
            if name in r.errors:
                lines.append(f"| {r.name} | {r.errors[name][0]:.2f} | {r.errors[name][1]:.3f} | {r.errors[name][2]} |")
            elif r.problem:
                lines.append(f"| {r.name} | not measured: {r.problem} | | |")
        if name in strictly:
            s = strictly[name]
            counts = "all exact" if s.exact else "NOT EXACT"
            lines += ["", "audition's client request by request and token by token, 99th percentiles: first tokens were stamped"]
            lines += [
                f"{s.first:.2f} ms late, all {s.tokens:,} tokens {s.stamp:.2f} ms. Against the server's own TTFT, which begins"
            ]
            lines += [f"only when its program has read the request: {s.ttft:.2f} ms. Token counts {counts}. Goal {goal:g} ms:"]
            lines += ["met." if max(s.first, s.stamp) <= goal else "NOT MET in this run.", ""]
    lines += ["## Memory and disk", "", f"1,000 streams of 1,000 tokens: {memory_of['rss_mib']:.0f} MiB at most (goal 300),"]
    lines += [
        f"{memory_of['bytes']:.1f} bytes a token on disk (goal 30), {memory_of['us']:.1f} µs of CPU a token, reading included;"
    ]
    lines += [f"{memory_of['tokens']:,.0f} tokens."]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure all, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=Path, default=ROOT / ".live/peers")
    parser.add_argument("--facts", default="", help="a sentence about the machine, for the document")
    parser.add_argument("--cores", default="0,1", help="core of the client, core of the servers")
    parser.add_argument("--also", type=Path, help="a page of another run, to be put at the end")
    parser.add_argument("--only", default="", help="names of clients, with commas")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/results/client.md")
    given = parser.parse_args()
    CORES["client"], CORES["server"] = given.cores.split(",")
    tools = [
        Tool("audition", run_audition, pairs_audition),
        Tool("audition bench (whole command)", run_bench, no_pairs),
        Tool("vllm bench serve", run_vllm, pairs_vllm),
        Tool("GuideLLM", run_guidellm(given.peers), pairs_guidellm),
        Tool("AIPerf", run_aiperf(given.peers), pairs_aiperf),
    ]
    tools = [tool for tool in tools if not given.only or tool.name.split()[0].lower() in given.only.lower().split(",")]
    work = Path(tempfile.mkdtemp(prefix="client-benchmark-"))
    loads: list[float] = [os.getloadavg()[0]]
    try:
        results: list[Result] = []
        for tool in tools:
            results.append(measure(tool, work))
            loads.append(os.getloadavg()[0])
            print(results[-1], file=sys.stderr, flush=True)
        strictly = {name: strict(work, name) for name in SCHEDULES}
        start, room = start_up(work), memory(work)
        loads.append(os.getloadavg()[0])
    finally:
        shutil.rmtree(work, ignore_errors=True)
    facts = f"{versions(given.peers)}; {os.cpu_count()} cores ({_processor()}), server and client on one each. "
    facts += "Load average of the machine "
    facts += f"during the run: {min(loads):.1f} to {max(loads):.1f}; one client and its server make about 1."
    facts = f"{facts} {given.facts}".strip()
    page = document(results, strictly, memory_of=room, start=start, facts=facts)
    if given.also is not None:
        page += "\n" + given.also.read_text(encoding="utf-8").replace("# The load client: cost and accuracy", "# Another run")
    given.out.write_text(page, encoding="utf-8")
    print(given.out.read_text())


def _processor() -> str:
    text: Any = Path("/proc/cpuinfo").read_text()
    return next(
        (line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")), "unknown processor"
    )


if __name__ == "__main__":
    main()
