"""The rules of a check on facts made by hand: what is said, how grave it is, and what to type."""

from __future__ import annotations

from typing import Any

import pytest

from audition.check.arguments import about_arguments, by_version
from audition.check.arms import about_arms
from audition.check.checkpoints import about_checkpoints, speculation_of
from audition.check.difference import about_difference, contrast, control, without
from audition.check.finding import Contrast, Finding, Row, in_order
from audition.check.machine import about_machine
from audition.judge.confounds import parse_arguments
from audition.units import NoData
from check.look import arm, codes, container, facts, gpu, machine, neighbour, one, spike_of, tenant

MTP = '{"method":"mtp","num_speculative_tokens":3}'
TP2 = ("--model", "m", "--tensor-parallel-size", "2")


def test_the_forgotten_env_file_blocks_and_names_variables_without_values() -> None:
    lost = container(lost=("HF_CACHE_PATH", "VLLM_API_KEY"))
    found = one(list(about_arms(facts(production=arm("prod", "production", container=lost)))), "variable-lost")
    assert found.level == "blocking"
    assert "HF_CACHE_PATH, VLLM_API_KEY" in found.text
    assert "env_files" in found.hint
    kept = arm("prod", "production", container=container())
    assert one(list(about_arms(facts(production=kept))), "variables").level == "ok"
    unseen = arm("prod", "production", container=container(lost=NoData("no container runs")))
    assert one(list(about_arms(facts(production=unseen))), "variables-unknown").level == "warning"


def test_one_name_and_one_port_are_said() -> None:
    spike = spike_of()
    both = {"own_name": "llm-medium"}
    seen = facts(
        spike,
        production=arm("prod", "production", container=container(**both)),
        candidate=arm("cand", "candidate", container=container(**both)),
    )
    found = one(list(about_arms(seen)), "same-name")
    assert (found.level, found.hint) == ("warning", "container_name: production")
    assert "llm-medium and port 5002" in found.text
    assert "same-name" not in codes(list(about_arms(facts())))
    assert one(list(about_arms(facts())), "same-port").level == "ok"


@pytest.mark.parametrize(
    ("how", "running", "level"),
    [("stop", True, "ok"), ("refuse", True, "blocking"), ("refuse", False, "warning"), ("ignore", True, "warning")],
)
def test_sidecars(how: str, running: bool, level: str) -> None:
    production = arm("prod", "production", container=container(neighbours=(neighbour(running),)))
    found = one(list(about_arms(facts(spike_of(sidecars=how), production=production))), "sidecar")
    assert found.level == level
    assert "watchdog" in found.text


def test_gpus_too_few_for_the_parallel_size() -> None:
    service = {"deploy": {"resources": {"reservations": {"devices": [{"device_ids": ["0"], "capabilities": ["gpu"]}]}}}}
    candidate = arm("cand", "candidate", TP2, container=container(service=service))
    found = one(list(about_arms(facts(spike_of(gpus=[0]), candidate=candidate))), "gpus-too-few")
    assert found.level == "blocking"
    assert "needs 2 GPUs" in found.text
    named = facts(spike_of(gpus=[1]), candidate=arm("cand", "candidate", container=container(service=service)))
    assert "GPU 0 would not be watched" in one(list(about_arms(named)), "gpus-differ").text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (TP2, "dies while it captures CUDA graphs"),
        ((*TP2, "--disable-custom-all-reduce"), "changes how memory is laid out"),
        (("--model", "m"), "changes how memory is laid out"),
    ],
)
def test_expandable_segments(words: tuple[str, ...], said: str) -> None:
    variables = {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:512,expandable_segments:True"}
    found = one(list(about_arms(facts(candidate=arm("cand", "candidate", words, variables=variables)))), "expandable-segments")
    assert found.level == "warning"
    assert said in found.text
    assert found.reference.startswith("vllm#")
    off = arm("cand", "candidate", words, variables={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False"})
    assert "expandable-segments" not in codes(list(about_arms(facts(candidate=off))))


def test_restart_policies() -> None:
    def said(role: str, policy: str) -> Finding:
        changed: dict[str, Any] = {_role(role): arm(role, _role(role), container=container(restart=policy))}
        return one([each for each in about_arms(facts(**changed)) if each.arm == role], "restart")

    assert said("prod", "no").level == "warning"
    assert said("prod", "unless-stopped").level == "ok"
    assert "restart: no" in said("cand", "always").text


def _role(name: str) -> Any:
    return {"prod": "production", "cand": "candidate"}[name]


def test_other_tenants_are_named_by_process_and_user() -> None:
    busy = machine(gpus=(gpu(0, tenants=(tenant(True), tenant(False))), gpu(1, tenants=(tenant(NoData("no cgroup")),)), gpu(2)))
    found = list(about_machine(facts(spike_of(gpus=[0, 1]), machine=busy)))
    stranger = one(found, "foreign-tenant")
    assert stranger.level == "blocking"
    assert "process 4711 python3 of ann" in stranger.text
    assert one(found, "tenants-unknown").level == "warning"
    alone = machine(gpus=(gpu(0, tenants=(tenant(True),)), gpu(1, tenants=(tenant(False),))))
    found = list(about_machine(facts(spike_of(gpus=[0]), machine=alone)))
    assert "production alone" in one(found, "gpu").text
    assert one(found, "neighbour-gpu").level == "warning"
    small = machine(gpus=(gpu(0, tenants=(tenant(False, memory_mib=8),)),))
    assert codes(list(about_machine(facts(spike_of(gpus=[0]), machine=small))), "blocking") == []


def test_gpus_that_are_not_there() -> None:
    none = machine(gpus=NoData("nvidia-smi is not installed"))
    assert one(list(about_machine(facts(spike_of(gpus=[0]), machine=none))), "gpus-unknown").level == "blocking"
    assert codes(list(about_machine(facts(machine=none))), "blocking") == []
    assert "there is no GPU 7" in one(list(about_machine(facts(spike_of(gpus=[7])))), "gpu-missing").text


def test_number_formats_against_the_card() -> None:
    ampere = machine(gpus=(gpu(0, capability=(8, 6)),))
    words = ("--model", "m", "--kv-cache-dtype", "fp8", "--quantization", "fp8")
    found = list(about_machine(facts(candidate=arm("cand", "candidate", words), machine=ampere)))
    assert {"fp8-kv", "fp8-weights"} <= set(codes(found, "warning"))
    assert "SM86" in one(found, "fp8-kv").text
    assert {"fp8-kv", "fp8-weights"}.isdisjoint(codes(list(about_machine(facts(candidate=arm("cand", "candidate", words))))))
    turing = machine(gpus=(gpu(0, capability=(7, 5)),))
    half = arm("cand", "candidate", ("--model", "m", "--dtype", "bfloat16"))
    assert one(list(about_machine(facts(candidate=half, machine=turing))), "dtype").level == "blocking"


@pytest.mark.parametrize(
    ("changed", "code", "level"),
    [
        ({"records_free_mib": 100}, "disk-records", "blocking"),
        ({"state_free_mib": 1000}, "disk-state", "warning"),
        ({"docker_free_mib": 100}, "disk-docker", "blocking"),
        ({"clock": False}, "clock", "warning"),
        ({"clock": NoData("no kernel")}, "clock-unknown", "warning"),
        ({"load1": 20.0}, "load", "warning"),
        ({"available_mib": 1000}, "memory", "warning"),
    ],
)
def test_the_host(changed: dict[str, Any], code: str, level: str) -> None:
    assert one(list(about_machine(facts(machine=machine(**changed)))), code).level == level
    assert codes(list(about_machine(facts())), "warning") == []


def test_small_shared_memory_under_tensor_parallelism() -> None:
    small = arm("cand", "candidate", TP2, container=container(shm_bytes=2**26))
    assert "64 MiB" in one(list(about_machine(facts(candidate=small))), "shm").text
    hosts = arm("cand", "candidate", TP2, container=container(shm_bytes=NoData("ipc: host")))
    assert "shm" not in codes(list(about_machine(facts(candidate=hosts))))


def test_the_difference_names_what_is_on_trial_and_what_else_differs() -> None:
    production = arm("prod", "production", ("--model", "m", "--kv-cache-dtype", "auto"), container=container(image="a/vllm:1"))
    words = ("--model", "m", "--kv-cache-dtype", "fp8", "-sc", MTP)
    candidate = arm("cand", "candidate", words, container=container(), variables={"HF_TOKEN": "hf_secret", "NCCL_P2P_DISABLE": "1"})
    seen = facts(production=production, candidate=candidate)
    found = contrast(seen)
    assert found.trial == "--speculative-config"
    assert [row.what for row in found.rows] == [
        "image", "--kv-cache-dtype", "--speculative-config", "$HF_TOKEN", "$NCCL_P2P_DISABLE",
    ]  # fmt: skip
    assert "hf_secret" not in str(found)
    confounded = one(list(about_difference(seen, found)), "confounded")
    assert confounded.level == "warning"
    assert "--kv-cache-dtype" in confounded.text
    alone = Contrast("cand", "prod", (Row("--speculative-config", "x", "not set"),), "--speculative-config")
    assert codes(list(about_difference(seen, alone))) == ["one-difference"]
    assert codes(list(about_difference(seen, Contrast("cand", "prod")))) == ["no-difference"]
    assert control(seen, alone) == ()


def test_a_control_arm_of_a_compose_arm_takes_secrets_by_name() -> None:
    command = ["--model", "m", "--api-key", "key-9f3c1b", "--max-num-batched-tokens", "4096", f"--speculative-config={MTP}"]
    service = {"command": command}
    data = spike_of().model_dump(mode="json")
    engine = {"kind": "compose", "files": ["b.yml"], "service": "vllm"}
    data["arms"][1] = {**data["arms"][1], "engine": engine}
    spike = spike_of(arms=data["arms"])
    seen = facts(
        spike,
        production=arm("prod", "production", ("--model", "m")),
        candidate=arm("cand", "candidate", command, container=container(service=service, variables={"API_KEY": "key-9f3c1b"})),
    )
    profile, arms = control(seen, Contrast("cand", "prod", (Row("a", "", ""), Row("b", "", "")), "--speculative-config"))
    assert "${API_KEY}" in profile.text
    assert "key-9f3c1b" not in profile.text + arms.text
    assert "'4096'" in profile.text
    assert "speculative" not in profile.text
    assert "role: control" in arms.text
    assert "files:\n    - b.yml\n    - control.yml" in arms.text.replace("      ", "    ")
    assert "legs: [prod, cand, cand-off, prod, cand, cand-off, prod]" in arms.text


@pytest.mark.parametrize(
    "words",
    [
        ["--a", "1", "--speculative-config", MTP, "--b"],
        ["--a", "1", f"--speculative-config={MTP}", "--b"],
        ["--a", "1", "-sc", MTP, "--b"],
        ["--a", "1", "--speculative_config", MTP, "--b"],
        ["--a", "1", "--speculative-config.method", "mtp", "--speculative-config.num_speculative_tokens", "3", "--b"],
    ],
)
def test_an_option_is_left_out_in_every_spelling(words: list[str]) -> None:
    assert without(words, "--speculative-config") == ["--a", "1", "--b"]


def test_arguments_are_judged_by_the_version_of_each_arm() -> None:
    words = ("--model", "Qwen/Qwen3.6-35B-A3B", "--no-enable-prefix-caching", "--kv-cache-dtype", "turboquant_k8v4")
    told = {"version": "0.19.1", "version_from": "from the tag of x"}
    found = in_order(list(about_arguments(facts(candidate=arm("cand", "candidate", words, **told)))))
    assert one(found, "bad-choice").level == "blocking"
    assert "--no-enable-prefix-caching is given, and is the default of vLLM 0.19.1" in one(found, "default-given").text
    assert one(found, "version-unknown").arm == "prod"
    guessed = {**told, "version_from": "from `simulated.settings.version` of the spike file"}
    found = in_order(list(about_arguments(facts(candidate=arm("cand", "candidate", words, **guessed)))))
    assert one(found, "bad-choice").level == "warning"
    runs = in_order(list(about_arguments(facts(production=arm("prod", "production", words, **told)))))
    assert one(runs, "bad-choice").level == "warning"


def test_prefix_caching_of_hybrids_is_a_difference_between_versions() -> None:
    model = ("--model", "Qwen/Qwen3.6-35B-A3B")
    seen = facts(
        production=arm("prod", "production", model, version="0.27.1", version_from="as told"),
        candidate=arm("cand", "candidate", model, version="0.28.0", version_from="as told"),
    )
    rows = {row.what: (row.arm, row.reference_arm) for row in by_version(seen, contrast(seen)).rows}
    assert rows["--enable-prefix-caching"] == ("on (default)", "off (default)")


def test_kv_sizes_of_a_hybrid_model_come_from_two_formulas() -> None:
    words = ("--model", "cyankiwi/Qwen3.6-35B-A3B-AWQ-4bit")
    old = facts(
        production=arm("prod", "production", words),
        candidate=arm("cand", "candidate", words, version="0.19.1", version_from="as told"),
    )
    assert "vllm#40691" in one(list(about_checkpoints(old)), "kv-two-formulas").reference
    new = {"version": "0.24.0", "version_from": "as told"}
    both = facts(production=arm("prod", "production", words, **new), candidate=arm("cand", "candidate", words, **new))
    assert "kv-two-formulas" not in codes(list(about_checkpoints(both)))
    assert "kv-two-formulas" not in codes(list(about_checkpoints(facts())))


def test_mtp_without_a_checkpoint_to_read_is_a_warning_with_the_option_to_type() -> None:
    candidate = arm("cand", "candidate", ("--model", "a/b", "-sc", MTP))
    found = one(list(about_checkpoints(facts(candidate=candidate))), "mtp-unknown")
    assert (found.level, found.group) == ("warning", "speculation")
    assert "--checkpoint cand=FOLDER" in found.hint


@pytest.mark.parametrize("text", ["null", "{", "[1]", '"x"'])
def test_no_speculation_in_what_is_no_configuration(text: str) -> None:
    assert speculation_of(parse_arguments(["--speculative-config", text])) is None


def test_what_is_said_of_two_arms_stands_there_once() -> None:
    a, b = (Finding("arms", "warning", "x", name, "the same") for name in ("prod", "cand"))
    first = Finding("arms", "blocking", "y", "prod", "worse")
    assert [(found.code, found.arm) for found in in_order([a, b, first])] == [("y", "prod"), ("x", "prod, cand")]
