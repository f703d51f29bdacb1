"""The verb `audition bench`, as people and scripts call it, against simulated and scripted servers."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from audition.cli.bench import base_url, workloads_of
from audition.errors import BadInput
from load.arms import MTP3, simulated_arm
from load.scripted import END, HEAD, Step, part, scripted
from load.sse import DONE, chunk

Done = subprocess.CompletedProcess[str]


def bench(*words: str, env: dict[str, str] | None = None) -> Done:
    command = [sys.executable, "-m", "audition", "bench", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env={**os.environ, **(env or {})})


def test_users_one_after_the_other_as_json_and_records_kept(tmp_path: Path) -> None:
    with simulated_arm(tmp_path, *MTP3, "--api-key", "sesame") as arm:
        words = (arm.endpoint.url, "--users", "1,3", "--requests", "6", "--max-tokens", "40", "--out", str(tmp_path / "kept"))
        refused = bench(*words)
        done = bench(*words, "--json", "--api-key-env", "BENCH_KEY", env={"BENCH_KEY": "sesame"})
    assert refused.returncode == 5
    assert "--api-key-env" in refused.stderr
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [row["workload"]["name"] for row in report["workloads"]] == ["users-1", "users-3"]
    for row in report["workloads"]:
        figures, counters = row["figures"], row["record"]["counters"]
        assert figures["failure_share"]["value"] == 0
        assert figures["decode_tok_s.p50"]["unit"] == "tok/s"
        assert figures["acceptance_length"]["value"] > 1
        assert "p99" in figures["ttft.p99"]["missing"]
        assert len(row["acceptance_per_position"]) == 3
        name = row["workload"]["name"]
        lines = (tmp_path / "kept" / f"{name}.requests.jsonl").read_text().splitlines()
        assert sum(json.loads(line)["completion_tokens"] for line in lines) == counters["generation_tokens"]
    assert "sesame" not in done.stdout


def test_text_for_people(tmp_path: Path) -> None:
    with simulated_arm(tmp_path) as arm:
        done = bench(arm.endpoint.url, "--rate", "20", "--arrivals", "constant", "--requests", "10", "--max-tokens", "16",
                     "--sampling", "both")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "open-loop: at 20 a second, 10 requests" in done.stdout
    assert "open-loop-greedy" in done.stdout
    assert "did not move" in done.stdout  # absent figures are said with their reason


@pytest.mark.parametrize("fault", [{"kind": "http-5xx", "share": 1.0}, {"kind": "error-in-200", "share": 1.0}])
def test_nothing_but_failures_is_an_error_and_never_zeros(tmp_path: Path, fault: dict[str, Any]) -> None:
    with simulated_arm(tmp_path, faults=[fault]) as arm:
        done = bench(arm.endpoint.url, "--users", "2", "--requests", "4")
        as_json = bench(arm.endpoint.url, "--users", "2", "--requests", "4", "--json")
    assert done.returncode == as_json.returncode == 5
    assert "not one request succeeded" in done.stdout
    assert " ms" not in done.stdout
    row = json.loads(as_json.stdout)["workloads"][0]
    assert row["figures"]["failure_share"]["value"] == 1
    assert "missing" in row["figures"]["ttft.p50"]
    assert row["trusted"] is False


def test_a_server_that_is_no_vllm(tmp_path: Path) -> None:
    answer: list[Step] = [HEAD, part(chunk({"content": "a"}, 2)), part(chunk({"content": "b"}, 4, "stop")), part(DONE), END]

    async def work() -> tuple[int, bytes]:
        async with scripted(answer) as server:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "audition", "bench", server.endpoint.url, "--model", "m", "--users", "1", "--requests", "3",
                stdout=subprocess.PIPE,
            )  # fmt: skip
            out, _ = await process.communicate()
            return process.returncode or 0, out

    code, out = asyncio.run(work())
    assert code == 0
    assert b"not a vLLM engine" in out
    assert b"tokens_per_event             mean 2.0" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("127.0.0.1:80",), "no base URL"),
        (("http://127.0.0.1:80/x",), "no base URL"),
        (("http://127.0.0.1:port",), "no base URL"),
        (("http://127.0.0.1:9", "--workload", "sngle"), "did you mean `single`"),
        (("http://127.0.0.1:9", "--users", "1,x"), "--users 1,x"),
        (("http://127.0.0.1:9", "--users", "0"), "from 1 to 4096"),
        (("http://127.0.0.1:9", "--duration", "soon"), "--duration"),
        (("http://127.0.0.1:9", "--rate", "2", "--users", "4"), "closed loop"),
        (("http://127.0.0.1:9", "--rate", "2", "--burstiness", "3"), "do not fit together"),
        (("http://127.0.0.1:9", "--requests", "2", "--duration", "3s"), "exactly one of"),
        (("http://127.0.0.1:9", "--model", "m", "--api-key-env", "NOT_SET_AT_ALL"), "not set"),
    ],
)
def test_bad_input_is_exit_code_2(words: tuple[str, ...], said: str) -> None:
    done = bench(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_no_server_is_an_error() -> None:
    done = bench("http://127.0.0.1:9", "--json")
    assert done.returncode == 5
    assert json.loads(done.stdout)["error"] == "nothing was measured"
    done = bench("http://127.0.0.1:9", "--model", "m", "--users", "1", "--requests", "1")
    assert done.returncode == 5
    assert "not one request succeeded" in done.stdout


def test_base_urls() -> None:
    assert base_url("http://h:1/v1/") == "http://h:1"
    assert base_url("https://h") == "https://h"


def test_ready_workloads_take_the_options() -> None:
    chosen = workloads_of(None, ["reference"], {"max_tokens": 8, "prompts": "my.jsonl"}, "server")
    assert [workload.name for workload in chosen] == ["single", "single-thinking", "users-5", "users-16"]
    assert {(workload.max_tokens, workload.prompts_file) for workload in chosen} == {(8, "my.jsonl")}
    assert chosen[1].thinking is True
    with pytest.raises(BadInput):
        workloads_of("1,1", [], {}, "server")
