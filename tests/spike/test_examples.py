"""The shipped examples, and finding a spike file by path, folder or name."""

import json
import shlex
from pathlib import Path

import pytest
import yaml

from audition.errors import BadInput
from audition.simulated.settings import parse_settings
from audition.spike.examples import example_names, find_spike, is_example
from audition.spike.model import ComposeEngine, ProcessEngine, Spike
from audition.spike.parse import load_spike

ROOT = Path(__file__).resolve().parents[2]


def load(name: str) -> Spike:
    return load_spike(find_spike(name)).spike


def test_both_examples_are_shipped() -> None:
    assert example_names() == ["mtp-k3", "tiny-vllm"]


@pytest.mark.parametrize("name", ["mtp-k3", "tiny-vllm"])
def test_a_name_a_folder_and_a_path_find_the_same_file(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    by_name = load_spike(find_spike(name)).path
    assert load_spike(find_spike(f"examples/{name}")).path == by_name
    assert load_spike(find_spike(f"examples/{name}/spike.yaml")).path == by_name
    assert by_name == ROOT / "examples" / name / "spike.yaml"


def test_a_file_of_the_users_own_wins_over_an_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mtp-k3").mkdir()
    assert find_spike("mtp-k3").parent.name == "mtp-k3"
    assert find_spike("mtp-k3").is_absolute(), "a folder without a spike file does not hide the example"
    (tmp_path / "mtp-k3" / "spike.yaml").write_text("audition: 1\n")
    assert find_spike("mtp-k3") == Path("mtp-k3/spike.yaml")


def test_what_is_not_there_names_the_nearest_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput) as caught:
        find_spike("mpt-k3")
    assert caught.value.exit_code == 2
    assert str(caught.value) == "mpt-k3: there is no such file, folder or shipped example\n    did you mean `mtp-k3`?"
    assert "mtp-k3, tiny-vllm" in caught.value.next_step
    with pytest.raises(BadInput, match=r"the folder holds no spike\.yaml"):
        find_spike(tmp_path)
    for impossible in ("", "..", "a\0b", "x" * 5000):
        with pytest.raises(BadInput):
            find_spike(impossible)


def compose_arguments(name: str, file: str) -> list[str]:
    text = yaml.safe_load((ROOT / "examples" / name / file).read_text())["services"]["vllm-medium"]["command"]
    return shlex.split(text)


def pairs(arguments: list[str]) -> dict[str, str]:
    """Each flag with the word after it, empty when that is another flag."""
    rows = zip(arguments, [*arguments[1:], "--"], strict=True)
    return {flag: "" if word.startswith("--") else word for flag, word in rows if flag.startswith("--")}


def test_the_reference_spike_is_the_one_that_was_asked_for() -> None:
    spike = load("mtp-k3")
    assert (spike.production.name, spike.candidate.name) == ("v2g", "mtp-k3")
    assert spike.gpus == [0, 1]
    assert [leg.arm for leg in spike.planned_legs()] == ["v2g", "mtp-k3", "v2g", "mtp-k3", "v2g"]
    assert [(w.name, w.users, w.thinking) for w in spike.workloads] == [
        ("single", 1, False),
        ("single-thinking", 1, True),
        ("users-5", 5, False),
        ("users-16", 16, False),
    ]
    assert all(w.sampling.model_dump(exclude_none=True) == {} for w in spike.workloads), "production's own sampling"
    go = spike.gates[0].all
    assert go is not None
    assert [(g.metric, g.workload, g.at_least) for g in go] == [("output_tok_s", "users-16", 700), ("decode_tok_s", "single", 150)]
    assert [g.probe for g in spike.gates if g.probe] == ["canary"]
    assert {g.metric for g in spike.gates if g.shadow} >= {"acceptance_length", "kv_capacity_tokens", "prefix_hit_rate"}
    assert [(h.name, h.refuted_by) for h in spike.hypotheses] == [("att4", "deepcopy-poison")]
    assert spike.records.folder == "_iteration_log"
    assert spike.name == "mtp_spike", "run folders are called mtp_spike_YYYY-MM-DD"
    assert [n.file for n in spike.records.notes] == ["project_spec_dec_retired_post_v2g.md"]


def test_the_candidates_profile_has_the_arguments_that_were_asked_for() -> None:
    given = pairs(compose_arguments("mtp-k3", "medium-qwen36-mtp-spike.yml"))
    wanted = {
        "--served-model-name": "qwen3.6-35b-a3b",
        "--tensor-parallel-size": "2",
        "--kv-cache-dtype": "fp8",
        "--max-model-len": "131072",
        "--no-enable-prefix-caching": "",
        "--enable-expert-parallel": "",
        "--tool-call-parser": "qwen3_coder",
        "--reasoning-parser": "qwen3",
    }
    assert {flag: given.get(flag) for flag in wanted} == wanted
    assert "cyankiwi/Qwen3.6-35B-A3B-AWQ-4bit" in given["--model"]
    assert json.loads(given["--speculative-config"]) == {"method": "mtp", "num_speculative_tokens": 3}


@pytest.mark.parametrize(
    ("arm", "file"), [("v2g", "medium-qwen36.yml"), ("mtp-k3", "medium-qwen36-mtp-spike.yml")], ids=["production", "candidate"]
)
def test_the_rehearsal_plays_the_profile(arm: str, file: str) -> None:
    real, played = pairs(compose_arguments("mtp-k3", file)), pairs(load("mtp-k3").arm(arm).simulated.args)
    assert {flag: real.get(flag) for flag in played if flag != "--model"} == {f: v for f, v in played.items() if f != "--model"}


def test_every_file_that_the_reference_spike_names_is_there() -> None:
    folder = ROOT / "examples" / "mtp-k3"
    spike = load("mtp-k3")
    for arm in spike.arms:
        assert isinstance(arm.engine, ComposeEngine)
        for file in (*arm.engine.files, *arm.engine.env_files):
            assert (folder / file).is_file()
        services = yaml.safe_load((folder / arm.engine.files[0]).read_text())["services"]
        assert services[arm.engine.service]["container_name"] == "llm-medium"
    for note in spike.records.notes:
        assert f"## {note.heading}\n" in (folder / note.file).read_text()


@pytest.mark.parametrize("name", ["mtp-k3", "tiny-vllm"])
def test_the_simulated_server_understands_every_setting(name: str) -> None:
    for arm in load(name).arms:
        settings = parse_settings(arm.simulated.settings)
        assert settings.boot_s <= 2


def test_tiny_vllm_sends_only_greedy_requests_and_starts_production_itself() -> None:
    spike = load("tiny-vllm")
    assert all(w.sampling.temperature == 0 and w.sampling.top_k is None and w.max_tokens <= 48 for w in spike.workloads)
    assert spike.restore.if_not_running == "start"
    assert [leg.arm for leg in spike.planned_legs()] == ["plain", "mtp-k3", "plain"]
    assert [w.name for w in spike.workloads] == ["single", "single-thinking", "users-5", "users-16"]


def test_the_arms_of_tiny_vllm_differ_in_speculation_alone() -> None:
    spike = load("tiny-vllm")
    old, new = spike.production.engine, spike.candidate.engine
    assert isinstance(old, ProcessEngine)
    assert isinstance(new, ProcessEngine)
    assert new.command == [*old.command, "--speculative-config", '{"method":"mtp","num_speculative_tokens":3}']
    assert (old.env, old.cwd) == (new.env, new.cwd)
    assert (ROOT / "examples" / "tiny-vllm" / old.cwd).resolve() == ROOT


def test_a_shipped_example_is_told_from_a_file_of_the_users_own(tmp_path: Path) -> None:
    (tmp_path / "spike.yaml").write_text(find_spike("mtp-k3").read_text())
    assert is_example(find_spike("mtp-k3"))
    assert is_example(ROOT / "examples" / "tiny-vllm" / "spike.yaml")
    assert not is_example(find_spike(tmp_path))
