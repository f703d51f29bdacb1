"""Resolved profiles as records: what stays, what is masked; arguments as they were given."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from audition.report.mask import MASK
from audition.run import preparing
from audition.run.profiles import image_digests, without_secrets, write_profiles
from audition.spike.model import Spike
from audition.wayback.proctable import redacted


def test_a_compose_model_keeps_what_is_no_secret() -> None:
    model = {
        "config": {},
        "services": {
            "llm": {
                "command": ["--model", "acme/x", "--max-num-batched-tokens", "4096"],
                "environment": {"VLLM_API_KEY": "abcd1234", "HF_HOME": "/cache", "TEAM": "private"},
                "labels": ["HF_TOKEN=abcd1234", "a=b"],
                "secrets": [{"source": "key"}],
            }
        },
        "secrets": {"key": {"content": "abcd1234", "name": "p_key"}, "other": {"environment": "NAME"}},
    }

    shown = without_secrets(model, ["TEAM"])

    assert "abcd1234" not in json.dumps(shown)
    service = shown["services"]["llm"]
    assert service["command"] == model["services"]["llm"]["command"]  # type: ignore[index]
    assert service["environment"] == {"VLLM_API_KEY": MASK, "HF_HOME": "/cache", "TEAM": MASK}
    assert service["labels"] == [f"HF_TOKEN={MASK}", "a=b"]
    assert service["secrets"] == [{"source": "key"}]
    assert shown["secrets"] == {"key": {"content": MASK, "name": "p_key"}, "other": {"environment": "NAME"}}


def test_every_arm_has_a_profile_in_the_run_folder(tmp_path: Path) -> None:
    arms = [
        {
            "name": name,
            "role": role,
            "engine": {
                "kind": "process",
                "command": ["/bin/sleep", "--api-key", "k3y-of-argv", "--hf-token=k3y-of-argv", "--max-num-batched-tokens", "4096"],
                "env": {"SOME_KEY": "k3y-of-env", "OMP_NUM_THREADS": "2", "NOTE": "holds k3y-of-env too"},
            },
            "endpoint": {"url": "http://127.0.0.1:9", "model": "m"},
        }
        for name, role in (("plain", "production"), ("mtp/3", "candidate"))
    ]
    gates = [{"metric": "failure_share", "workload": "w", "at_most": 0}]
    workloads = [{"name": "w", "users": 1, "requests": 1, "max_tokens": 8}]
    spike = Spike.model_validate(
        {"audition": 1, "name": "s", "question": "Q?", "arms": [{**a, "name": str(a["name"]).replace("/", "-")} for a in arms],
         "gates": gates, "workloads": workloads}
    )  # fmt: skip
    engines = preparing.make_engines(spike, tmp_path, preparing.new_identity(spike, tmp_path / "state", "2026-12-01"))
    run = tmp_path / "run"
    run.mkdir()
    secrets = preparing.secret_values(spike, list(engines.values())[1:], {})

    write_profiles(run, spike, {**engines, "plain": engines["mtp-3"]}, secrets)

    assert sorted(p.name for p in (run / "profiles").iterdir()) == ["mtp-3.json", "plain.json"]
    text = (run / "profiles" / "mtp-3.json").read_text()
    assert "k3y-of" not in text
    data = json.loads(text)
    assert data["kind"] == "process"
    assert data["env"] == {"SOME_KEY": MASK, "OMP_NUM_THREADS": "2", "NOTE": f"holds {MASK} too"}
    assert data["command"][-1] == "4096"
    assert image_digests(spike, engines, {}) == {}


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["--api-key", "abc", "--port", "1"], ["--api-key", "***", "--port", "1"]),
        (["--hf-token=abc"], ["--hf-token=***"]),
        (["--max-num-batched-tokens", "4096"], ["--max-num-batched-tokens", "4096"]),
        (["--max-num-batched-tokens=4096"], ["--max-num-batched-tokens=4096"]),
        (["--tokenizer", "acme/x", "--tokenizer-mode=auto"], ["--tokenizer", "acme/x", "--tokenizer-mode=auto"]),
        (["--api-key", "12345678"], ["--api-key", "***"]),
    ],
)
def test_command_lines_in_records_and_messages(given: list[str], shown: list[str]) -> None:
    assert redacted(given) == shown
