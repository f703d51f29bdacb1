"""`audition init` on compose files as people write them: the spike file that comes out is accepted or explained by a check."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from audition.spike.model import Spike
from audition.spike.parse import load_spike
from check.look import compose_environment, why_no_compose

CASES = Path(__file__).parents[1] / "check" / "data" / "compose"
FILES = ["production.yml", "candidate-mtp.yml", "script-entrypoint.yml", "list-command.yml"]


class Desk:
    """A folder with the compose files, and the command line in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "desk"
        shutil.copytree(CASES, self.folder)
        self.env = {**os.environ, **compose_environment(folder), "AUDITION_STATE": str(folder / "state")}

    def call(self, *arguments: str, **env: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "audition", *arguments],
            cwd=self.folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env={**self.env, **env},
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    @property
    def spike(self) -> Spike:
        return load_spike(self.folder / "spike.yaml").spike


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    if why := why_no_compose():
        pytest.skip(why)
    return Desk(tmp_path)


PAIRS = [("production.yml", name) for name in FILES[1:]] + [("list-command.yml", "script-entrypoint.yml")]


@pytest.mark.parametrize(("production", "candidate"), PAIRS)
def test_every_case_gives_a_spike_file_that_a_check_accepts_or_explains(desk: Desk, production: str, candidate: str) -> None:
    code, said = desk.call("init", "--production", production, "--candidate", candidate, "--env-file", "serving.env")
    assert code == 0, said
    code, out = desk.call("check", "spike.yaml", "--elsewhere", "--json")
    report = json.loads(out)
    assert code == report["exit_code"]
    assert all(found["hint"] or found["text"] for found in report["findings"])
    assert [found for found in report["findings"] if found["level"] == "blocking" and not found["hint"]] == []


def test_the_reference_pair(desk: Desk) -> None:
    code, said = desk.call(
        "init", "--production", "production.yml", "--candidate", "candidate-mtp.yml", "--env-file", "serving.env"
    )
    assert code == 0, said
    spike, text = desk.spike, (desk.folder / "spike.yaml").read_text()
    production, candidate = spike.production, spike.candidate
    assert production.engine.kind == candidate.engine.kind == "compose"
    assert candidate.engine.container_name == "production"
    assert (production.engine.files, production.engine.env_files) == (["production.yml"], ["serving.env"])
    assert (production.endpoint.url, production.endpoint.model) == ("http://127.0.0.1:5002", "qwen3.6-35b-a3b")
    assert production.endpoint.api_key_env == "VLLM_API_KEY"
    assert spike.gpus == [0, 1]
    assert spike.secrets == ["HUGGING_FACE_HUB_TOKEN"]
    assert "not-a-real-key" not in text + said
    assert [workload.name for workload in spike.workloads] == ["single", "single-thinking", "users-5", "users-16", "long"]
    assert spike.probes == ["canary", "conversation", "thinking", "tool_call", "long_prompt"]
    gates = {gate.name: gate for gate in spike.gates}
    assert gates["drafts-accepted"].metric == "acceptance_rate"
    assert not gates["drafts-accepted"].shadow
    assert "--speculative-config" in candidate.simulated.args
    assert "#" in text


def test_a_script_and_a_list_are_read(desk: Desk) -> None:
    assert desk.call("init", "--production", "list-command.yml", "--candidate", "script-entrypoint.yml")[0] == 0
    spike = desk.spike
    assert (spike.production.endpoint.url, spike.production.endpoint.model) == ("http://127.0.0.1:8000", "qwen3.6")
    assert (spike.candidate.endpoint.url, spike.candidate.endpoint.model) == ("http://127.0.0.1:5002", "qwen3.8-27b")
    assert "thinking" not in spike.probes


def test_a_file_is_never_written_over_by_accident(desk: Desk) -> None:
    pair = ["--production", "list-command.yml", "--candidate", "script-entrypoint.yml"]
    (desk.folder / "spike.yaml").write_text("mine")
    code, said = desk.call("init", *pair)
    assert code == 5
    assert "is there already" in said
    assert (desk.folder / "spike.yaml").read_text() == "mine"
    assert desk.call("init", *pair, "--force")[0] == 0
    assert desk.spike.name == "script-entrypoint"
    code, told = desk.call("init", *pair, "--force", "--json")
    assert code == 0
    answer = json.loads(told)
    assert answer["file"] == "spike.yaml"
    assert answer["check"]["findings"]
    code, text = desk.call("init", *pair, "--out", "-")
    assert (code, text.splitlines()[4]) == (0, "audition: 1")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--production", "production.yml"], 2, "no candidate is named"),
        (["--candidate", "candidate-mtp.yml"], 2, "--from-container NAME"),
        (["--production", "none.yml", "--candidate", "candidate-mtp.yml"], 2, "there is no file"),
        (["--production", "serving.env", "--candidate", "candidate-mtp.yml"], 2, "docker compose does not accept serving.env"),
        (
            ["--production", "production.yml", "--candidate", "candidate-mtp.yml", "--service", "x"],
            2,
            "services: vllm-medium, watchdog",
        ),
        (["--production", "production.yml", "--candidate", "candidate-mtp.yml", "--gpus", "all"], 2, "expected numbers"),
        (["--production", "list-command.yml", "--candidate", "list-command.yml"], 5, "nothing to try"),
        (
            ["--production", "list-command.yml", "--candidate", "script-entrypoint.yml", "--slowest-cold-start", "long"],
            2,
            "no duration",
        ),
        (["--production", "list-command.yml", "--candidate", "list-command.yml", "--closes", "22:00"], 2, "--closes 22:00"),
        (["--from-container", "llm-medium", "--candidate", "candidate-mtp.yml"], 5, "cannot be looked at"),
    ],
)
def test_bad_input_writes_nothing(desk: Desk, arguments: list[str], code: int, said: str) -> None:
    got, out = desk.call("init", *arguments)
    assert got == code
    assert said in out
    assert not (desk.folder / "spike.yaml").exists()


def test_without_compose_it_says_what_to_install(desk: Desk) -> None:
    nothing = str(desk.folder)
    code, said = desk.call(
        "init", "--production", "list-command.yml", "--candidate", "list-command.yml", PATH=nothing, DOCKER_CONFIG=nothing
    )
    assert code == 5
    assert "compose files are read by docker compose, which is not here" in said
    assert "install the docker CLI" in said


def test_on_a_terminal_it_asks_what_the_files_do_not_tell(desk: Desk) -> None:
    """Question, end of the window and slowest cold start; each with what it would take without an answer."""
    ours, theirs = pty.openpty()
    pair = ["--production", "list-command.yml", "--candidate", "script-entrypoint.yml"]
    process = subprocess.Popen(
        [sys.executable, "-m", "audition", "init", *pair],
        cwd=desk.folder, stdin=theirs, stdout=theirs, stderr=theirs, env=desk.env, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    seen = ""
    for question, answer in (
        ("slowest cold start", "7m"),
        ("What is the question?", "Is it better?"),
        ("When must production be back?", "2026-12-06T04:00:00+01:00"),
    ):
        while question not in seen:
            seen += os.read(ours, 4096).decode()
        os.write(ours, f"{answer}\n".encode())
    with contextlib.suppress(OSError):  # a terminal whose other end is gone
        while chunk := os.read(ours, 4096):
            seen += chunk.decode()
    assert process.wait() == 0, seen
    os.close(ours)
    spike = desk.spike
    assert spike.question == "Is it better?"
    assert spike.restore.slowest_cold_start == 420
    assert spike.window.closes is not None
    assert "[25m]" in seen
