"""`audition check` as people call it: exit codes, JSON, options, and that nothing is touched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SPIKE = """\
audition: 1
name: trial
question: Is it faster?
arms:
  - name: prod
    role: production
    engine: {{kind: process, command: "{python} {program} serve m --port {port} --kv-cache-dtype auto"}}
    endpoint: {{url: "http://127.0.0.1:{port}", model: m}}
  - name: cand
    role: candidate
    engine:
      kind: process
      command: >-
        {python} {program} serve m --port {port} --kv-cache-dtype fp8
        --speculative-config '{{"method":"mtp","num_speculative_tokens":0}}'
    endpoint: {{url: "http://127.0.0.1:{port}", model: m}}
workloads: [{{name: single, requests: 4}}]
gates: [{{metric: failure_share, workload: single, at_most: 0}}]
"""


class Desk:
    """A folder with a spike file, and the command line in it."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        program = folder / "vllm"
        program.write_text("raise SystemExit(1)\n")
        (folder / "spike.yaml").write_text(SPIKE.format(python=sys.executable, program=program, port=port))

    def check(self, *arguments: str) -> tuple[int, str, str]:
        return self.call("check", *arguments)

    def call(self, *arguments: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "audition", *arguments],
            cwd=self.folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
            env={**os.environ, "AUDITION_STATE": str(self.folder / "state")},
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr


@pytest.fixture
def desk(tmp_path: Path, free_port: Callable[[], int]) -> Desk:
    return Desk(tmp_path, free_port())


def test_a_spike_whose_arguments_are_refused_by_vllm(desk: Desk) -> None:
    before = sorted(desk.folder.rglob("*"))
    code, out, _ = desk.check("spike.yaml", "--json", "--vllm", "prod=0.24.0", "--vllm", "cand=0.24.0")
    report = json.loads(out)
    assert code == report["exit_code"] == 5
    bad = [found for found in report["findings"] if found["level"] == "blocking"]
    assert [(found["code"], found["arm"]) for found in bad] == [("count-bad", "cand")]
    assert {row["what"] for row in report["difference"]["rows"]} == {"--kv-cache-dtype", "--speculative-config"}
    assert sorted(desk.folder.rglob("*")) == before


def test_the_same_as_text_when_the_release_is_not_known(desk: Desk) -> None:
    code, out, err = desk.check("spike.yaml")
    assert (code, err) == (0, "")
    assert "say --vllm cand=RELEASE" in out
    assert "production does not run" in out
    assert out.rstrip().splitlines()[-1].startswith("Nothing blocks,")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere.yaml"], "there is no such file"),
        (["spike.yaml", "--vllm", "third=0.24.0"], "no arm is called 'third'"),
        (["spike.yaml", "--vllm", "cand=new"], "no release"),
        (["spike.yaml", "--vllm", "cand"], "expected ARM="),
        (["spike.yaml", "--checkpoint", "cand=/nowhere"], "there is no folder /nowhere"),
    ],
)
def test_bad_input(desk: Desk, arguments: list[str], said: str) -> None:
    code, out, err = desk.check(*arguments)
    assert code == 2
    assert said in out + err


def test_a_bad_spike_file(desk: Desk) -> None:
    path = desk.folder / "spike.yaml"
    path.write_text(path.read_text().replace("workloads:", "worklods:"))
    code, _, err = desk.check("spike.yaml")
    assert code == 2
    assert "worklods" in err


def test_a_run_makes_the_same_checks_and_is_refused_before_anything_is_touched(desk: Desk) -> None:
    path = desk.folder / "spike.yaml"
    text = path.read_text().replace("--kv-cache-dtype fp8", "--tensor-parallel-size 2")
    path.write_text(text.replace("    engine:\n", '    engine:\n      env: {CUDA_VISIBLE_DEVICES: "0"}\n'))
    code, out, _ = desk.check("spike.yaml", "--json")
    assert code == 5
    assert "gpus-too-few" in {found["code"] for found in json.loads(out)["findings"] if found["level"] == "blocking"}
    code, out, err = desk.call("run", "spike.yaml")
    assert code == 5
    assert "needs 2 GPUs" in out + err
    assert "untouched" in out + err
    assert not list(desk.folder.glob("_iteration_log/*"))
    assert not list(desk.folder.glob("state/runs/*"))
