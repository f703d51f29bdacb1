"""Real vLLM on the CPU, measured: the client's tokens are the engine's tokens, and nothing is called foreign or warm."""

import asyncio
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import uvloop

from audition.judge.records import RequestRecord, WorkloadRecord, unpack_events
from audition.load.workload import run_workload
from audition.observe.logs import read_log
from audition.probes import run_probes
from audition.spike.metrics import PROBES
from audition.spike.model import Sampling, Workload
from environments.live_vllm import LiveVllm
from load.scripted import Endpoint

pytestmark = [pytest.mark.live, pytest.mark.slow]
BOOT_S = 400.0
MTP = ("--no-enable-prefix-caching", "--speculative-config", '{"method":"mtp","num_speculative_tokens":3}')


@contextmanager
def serving(live: LiveVllm, port: int, log: Path, *arguments: str) -> Iterator[Endpoint]:
    command = [str(live.serve), str(live.model_dir), str(port), *arguments]
    with log.open("wb") as sink:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True)
    try:
        deadline = time.monotonic() + BOOT_S
        while True:
            assert server.poll() is None, log.read_text(errors="replace")[-2000:]
            assert time.monotonic() < deadline, log.read_text(errors="replace")[-2000:]
            with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                break
            time.sleep(0.5)
        yield Endpoint(f"http://127.0.0.1:{port}", "tiny")
    finally:
        server.terminate()
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def measure(endpoint: Endpoint, folder: Path, **keys: object) -> tuple[WorkloadRecord, list[RequestRecord]]:
    workload = Workload.model_validate({"name": "w", "users": 2, "requests": 6, "max_tokens": 40, **keys})
    work = run_workload(endpoint, workload, leg_salt="live", seed=3, out_dir=folder, alive=lambda: True, give_up=lambda: False)
    record = uvloop.run(work)
    lines = (folder / record.requests_file).read_text(encoding="utf-8").splitlines()
    return record, [RequestRecord.from_line(line) for line in lines]


@pytest.mark.parametrize("arguments", [MTP, ("--enable-prefix-caching",)], ids=["mtp", "prefix-caching"])
def test_tokens_agree_with_the_counters(
    live_vllm: LiveVllm, free_port: Callable[[], int], tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    log = tmp_path / "vllm.log"
    with serving(live_vllm, free_port(), log, *arguments) as endpoint:
        for thinking in (False, True):
            record, requests = measure(endpoint, tmp_path, thinking=thinking, sampling=Sampling(temperature=0))
            assert {r.outcome for r in requests} == {"ok"}, [r.detail for r in requests]
            assert record.counters is not None, record.counters_missing
            assert {c.code for c in record.caveats if c.effect == "void"} <= {"client-bound", "loop-lag"}
            assert {c.code for c in record.caveats} & {"foreign-traffic", "token-disagreement", "prefix-cache-warm"} == set()
            events = [unpack_events(r.events) for r in requests]
            per_event = sum(event.tokens or 0 for row in events for event in row)
            total = sum(r.completion_tokens or 0 for r in requests)
            assert total == per_event == record.counters["generation_tokens"]
            assert sum(r.prompt_tokens or 0 for r in requests) == record.counters["prompt_tokens"]
            assert record.counters["request_success"] == 6
            if arguments is MTP:
                assert max(event.tokens or 0 for row in events for event in row) > 1
                assert record.counters["spec_decode_num_drafts"] > 0
        probes = asyncio.run(run_probes(endpoint, list(PROBES)))
    assert [probe.probe for probe in probes] == list(PROBES)
    assert {probe.probe: probe.passed for probe in probes}["canary"] is False  # a tiny model writes nonsense
    facts = read_log(log.read_text(errors="replace").splitlines())
    assert facts.kv is not None
    assert facts.kv.tokens_per_request == 2048
    assert facts.version is not None
