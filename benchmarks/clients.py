"""The load clients that ``client.py`` compares: how each one is called, and what it says it has measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from audition.judge.records import RequestRecord, unpack_events

ROOT = Path(__file__).resolve().parents[1]
CORES = {"client": "0", "server": "1"}

Pair = tuple[float, float]
"""Time to first token and mean time a token after it, of one request, in seconds."""


def bound(role: str, command: Sequence[str]) -> list[str]:
    """The command on the core of its role."""
    return ["taskset", "-c", CORES[role], *command]


@dataclass
class Cost:
    """What a command took: CPU seconds of all its processes that ended with it, wall seconds."""

    cpu_s: float
    wall_s: float


def costs(command: Sequence[str], log: Path, env: dict[str, str] | None = None, cwd: Path | None = None) -> Cost:
    """Run a command on the client's core. Raises SystemExit when it fails."""
    began = time.monotonic()
    with log.open("wb") as sink:
        process = subprocess.Popen(bound("client", command), stdout=sink, stderr=sink, env={**os.environ, **(env or {})}, cwd=cwd)
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command[0]} ended with {process.returncode}: {log.read_text(errors='replace')[-600:]}")
    return Cost(used.ru_utime + used.ru_stime, time.monotonic() - began)


@dataclass(frozen=True)
class Tool:
    """One client. ``run``: (URL, streams, requests, tokens, folder, log) -> cost, and ``pairs``: what it measured, from that
    folder."""

    name: str
    run: Callable[[str, int, int, int, Path], Cost]
    pairs: Callable[[Path], list[Pair]]


def run_audition(url: str, streams: int, requests: int, tokens: int, folder: Path) -> Cost:
    """audition's client alone."""
    script = ROOT / "benchmarks" / "one_workload.py"
    return costs([sys.executable, str(script), url, str(streams), str(requests), str(tokens), str(folder)], folder / "out.json")


def records_of(folder: Path) -> list[RequestRecord]:
    """What audition's client left."""
    return [RequestRecord.from_line(line) for line in (folder / "w.requests.jsonl").read_text(encoding="utf-8").splitlines()]


def pairs_audition(folder: Path) -> list[Pair]:
    """From the request records."""
    out = []
    for record in records_of(folder):
        events = [event for event in unpack_events(record.events) if event.kind]
        later = sum(event.tokens or 0 for event in events[1:])
        if record.outcome == "ok" and record.sent is not None:
            out.append((events[0].at - record.sent, (events[-1].at - events[0].at) / later))
    return out


def run_bench(url: str, streams: int, requests: int, tokens: int, folder: Path) -> Cost:
    """The whole command `audition bench`, statistics included."""
    command = [sys.executable, "-m", "audition", "bench", url, "--users", str(streams), "--requests", str(requests)]
    return costs([*command, "--max-tokens", str(tokens), "--ignore-eos", "--json", "--out", str(folder)], folder / "out.json")


def run_vllm(url: str, streams: int, requests: int, tokens: int, folder: Path) -> Cost:
    """`vllm bench serve`."""
    command = [
        str(ROOT / ".live/vllm/bin/vllm"),
        "bench",
        "serve",
        "--backend",
        "openai-chat",
        "--endpoint",
        "/v1/chat/completions",
    ]
    command += ["--base-url", url, "--model", "m", "--tokenizer", str(ROOT / ".live/models/tiny"), "--dataset-name", "random"]
    command += ["--random-input-len", "64", "--random-output-len", str(tokens), "--ignore-eos", "--num-prompts", str(requests)]
    command += ["--max-concurrency", str(streams), "--save-result", "--save-detailed", "--result-dir", str(folder / "result")]
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    return costs(command, folder / "out.log", offline)


def pairs_vllm(folder: Path) -> list[Pair]:
    """From the detailed result."""
    data = json.loads(next((folder / "result").glob("*.json")).read_text())
    return [(ttft, sum(itls) / len(itls)) for ttft, itls in zip(data["ttfts"], data["itls"], strict=True) if itls]


def prompts(folder: Path, requests: int, tokens: int) -> None:
    """Prompt files for the two peers that read them."""
    texts = [f"[{n:05}] Write a page about the old harbour at dawn, as seen by visitor {n}." for n in range(requests)]
    guide = [json.dumps({"prompt": text, "output_tokens_count": tokens}) for text in texts]
    (folder / "guidellm.jsonl").write_text("\n".join(guide) + "\n")
    (folder / "aiperf.jsonl").write_text("\n".join(json.dumps({"text": text, "output_length": tokens}) for text in texts) + "\n")


def run_guidellm(peers: Path) -> Callable[[str, int, int, int, Path], Cost]:
    """GuideLLM with its one-worker setting, the cheaper and more exact of its two."""

    def run(url: str, streams: int, requests: int, tokens: int, folder: Path) -> Cost:
        prompts(folder, requests, tokens)
        command = [str(peers / "guidellm/bin/guidellm"), "run", "--profile", f"kind=concurrent,streams={streams}"]
        command += ["--backend", f"kind=openai_http,target={url},model=m,request_format=/v1/chat/completions"]
        command += ["--constraint", f"kind=max_requests,count={requests}", "--data", "kind=json_file,path=guidellm.jsonl"]
        command += ["--output", "kind=json,path=result.json", "--disable-console"]
        return costs(command, folder / "out.log", {"GUIDELLM__MAX_WORKER_PROCESSES": "1"}, folder)

    return run


def pairs_guidellm(folder: Path) -> list[Pair]:
    """From its JSON result."""
    rows = json.loads((folder / "result.json").read_text())["benchmarks"][0]["requests"]
    rows = rows["successful"] if isinstance(rows, dict) else rows
    return [(row["time_to_first_token_ms"] / 1000, row["inter_token_latency_ms"] / 1000) for row in rows]


def run_aiperf(peers: Path) -> Callable[[str, int, int, int, Path], Cost]:
    """AIPerf with its defaults."""

    def run(url: str, streams: int, requests: int, tokens: int, folder: Path) -> Cost:
        prompts(folder, requests, tokens)
        command = [str(peers / "aiperf/bin/aiperf"), "profile", "-m", "m", "--url", url, "--endpoint-type", "chat", "--streaming"]
        command += ["--tokenizer", str(ROOT / ".live/models/tiny"), "--use-server-token-count", "--input-file", "aiperf.jsonl"]
        command += ["--custom-dataset-type", "single_turn", "--concurrency", str(streams), "--request-count", str(requests)]
        command += ["--no-gpu-telemetry", "--no-server-metrics", "--ui-type", "none", "--output-artifact-dir", "art"]
        return costs(command, folder / "out.log", None, folder)

    return run


def pairs_aiperf(folder: Path) -> list[Pair]:
    """From its exported records."""
    out = []
    for line in (folder / "art" / "profile_export.jsonl").read_text().splitlines():
        metrics = json.loads(line).get("metrics", {})
        if "time_to_first_token" in metrics and "inter_token_latency" in metrics:
            out.append((metrics["time_to_first_token"]["value"] / 1000, metrics["inter_token_latency"]["value"] / 1000))
    return out
