"""The reference example without GPU and Docker engine: what a check finds in its files, and in a checkpoint without MTP."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from audition.check.checking import Scope, check
from audition.check.finding import Report
from audition.check.look_arms import Given
from audition.check.words import as_json, as_text
from audition.cli.checking import masked
from audition.run.preparing import make_engines, new_identity, secret_values_if_known
from audition.spike.parse import load_spike
from check.look import codes, compose_environment, one, why_no_compose, write_checkpoint

EXAMPLE = Path(__file__).parents[2] / "examples" / "mtp-k3" / "spike.yaml"


@pytest.fixture
def compose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A docker CLI with compose that reaches no engine."""
    if why := why_no_compose():
        pytest.skip(why)
    for name, value in compose_environment(tmp_path).items():
        monkeypatch.setenv(name, value)


def checked(root: Path, *, here: bool, given: Given | None = None) -> Report:
    loaded = load_spike(EXAMPLE)
    engines = make_engines(loaded.spike, loaded.folder, new_identity(loaded.spike, root, "check"))
    report = check(loaded, engines, Scope(here=here, state=root, given=given or Given()))
    return masked(report, secret_values_if_known(loaded.spike, engines, dict(os.environ)))


@pytest.mark.usefixtures("compose")
def test_what_the_files_tell(tmp_path: Path) -> None:
    before = sorted(path for path in tmp_path.rglob("*"))
    report = checked(tmp_path, here=False)
    assert report.exit_code == 0

    confounded = one(report, "confounded").text
    for flag in ("image", "--kv-cache-dtype", "--max-model-len", "--gpu-memory-utilization", "$PYTORCH_CUDA_ALLOC_CONF"):
        assert flag in confounded
    given = [found.text for found in report.findings if found.code == "default-given"]
    assert any("--no-enable-prefix-caching is given, and is the default of vLLM 0.19.1" in text for text in given)
    formulas = one(report, "kv-two-formulas")
    assert "2,030,000 tokens of v2g and 322,000 tokens of mtp-k3" in formulas.text
    same = one(report, "same-name")
    assert "llm-medium and port 5002 equal production's" in same.text
    assert (same.level, same.arm) == ("ok", "mtp-k3")
    assert "llm-medium-watchdog" in one(report, "sidecar").text
    expandable = one(report, "expandable-segments")
    assert expandable.arm == "mtp-k3"
    assert "--disable-custom-all-reduce" in expandable.hint
    assert one(report, "mtp-unknown").level == "warning"
    assert "[boot is reckoned" not in as_text(report)
    assert [found.text for found in report.findings if found.code == "boot"] == [
        "a boot is reckoned with 15 min (start_period of its healthcheck)",
        "a boot is reckoned with 10 min (start_period of its healthcheck)",
    ]
    assert sorted(path for path in tmp_path.rglob("*")) == before


@pytest.mark.usefixtures("compose")
def test_a_checkpoint_without_mtp_tensors_blocks(tmp_path: Path) -> None:
    lacking, having = write_checkpoint(tmp_path / "lacking", mtp=False), write_checkpoint(tmp_path / "having", mtp=True)
    report = checked(tmp_path, here=False, given=Given({"mtp-k3": lacking}))
    absent = one(report, "mtp-absent")
    assert (absent.level, absent.group, absent.arm) == ("blocking", "speculation", "mtp-k3")
    assert "would boot with 0 % acceptance" in absent.text
    assert report.exit_code == 5
    report = checked(tmp_path, here=False, given=Given({"mtp-k3": having}, gpu_memory_mib=24564))
    assert report.blocking == []
    assert "requests of 131,072 tokens at once" in one(report, "capacity").text
    assert "another formula" in one(report, "kv-figure-formula").text


@pytest.mark.usefixtures("compose")
def test_a_broken_checkpoint_blocks_with_one_sentence(tmp_path: Path) -> None:
    broken = write_checkpoint(tmp_path / "broken", mtp=True)
    (broken / "model.safetensors").write_bytes(b"\x00" * 4)
    report = checked(tmp_path, here=False, given=Given({"mtp-k3": broken}))
    assert [found.code for found in report.blocking] == ["checkpoint-unreadable"]


@pytest.mark.usefixtures("compose")
def test_without_an_engine_a_run_here_would_be_refused(tmp_path: Path) -> None:
    report = checked(tmp_path, here=True)
    assert report.exit_code == 5
    [down] = [found for found in report.blocking if found.code == "engine-blocking"]
    assert "Docker engine does not answer" in down.text
    assert down.arm == "v2g, mtp-k3"
    assert "was not seen" in one(report, "sidecar").text


def test_without_docker_it_is_said_what_cannot_be_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = tmp_path / "bin"
    empty.mkdir()
    monkeypatch.setenv("PATH", str(empty))
    report = checked(tmp_path, here=False)
    assert report.exit_code == 0, "what this machine lacks says nothing about another one"
    assert "cannot run docker" in one(report, "engine-warning").text
    assert "rests on `simulated.args`" in one(report, "arguments-assumed").text
    assert "confounded" in codes(report.findings)
    assert any("--no-enable-prefix-caching" in found.text for found in report.findings if found.code == "default-given")


@pytest.mark.usefixtures("compose")
def test_the_control_arm_can_be_pasted_and_holds_no_secret(tmp_path: Path) -> None:
    report = checked(tmp_path, here=False)
    profile, arms = report.control
    text, data = as_text(report), json.loads(as_json(report))
    for shown in (text, as_json(report)):
        assert "not-a-real-key" not in shown
    assert "${VLLM_API_KEY}" in profile.text
    assert data["blocking"] == 0
    assert {found["code"] for found in data["findings"]} >= {"confounded", "expandable-segments", "kv-two-formulas"}

    spike = EXAMPLE.read_text().replace("legs: [v2g, mtp-k3, v2g, mtp-k3, v2g]", "")
    added, _, legs = arms.text.removeprefix("arms:   # add\n").rpartition("legs:")
    head, mark, tail = spike.partition("# The same stack gave")
    for name in ("medium-qwen36.yml", "medium-qwen36-mtp-spike.yml", "serving.env"):
        (tmp_path / name).write_text((EXAMPLE.parent / name).read_text())
    (tmp_path / "control.yml").write_text(profile.text)
    (tmp_path / "spike.yaml").write_text(f"{head}{added}{mark}{tail}\nlegs:{legs}")
    loaded = load_spike(tmp_path / "spike.yaml")
    assert [leg.arm for leg in loaded.spike.planned_legs()].count("mtp-k3-off") == 2
    engines = make_engines(loaded.spike, loaded.folder, new_identity(loaded.spike, tmp_path, "check"))
    again = check(loaded, engines, Scope(here=False))
    assert one(again, "control").level == "ok"
    control = engines["mtp-k3-off"].invocation().argv
    assert "--speculative-config" not in control
    assert control[control.index("--api-key") + 1] == "not-a-real-key"
