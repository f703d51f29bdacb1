"""What is read off services, versions, nvidia-smi and this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from audition.check import services, versions
from audition.check.facts import Tenant
from audition.check.look_arms import Given, located, running_version
from audition.check.look_machine import clock_synchronised, look_at_gpus, look_at_machine, parse_smi
from audition.checkpoint.locate import CacheRoots
from audition.units import NoData

DATA = Path(__file__).parent.parent / "data" / "compose"


def resolved(name: str) -> Any:
    return json.loads((DATA / f"{name}.config.json").read_text())


def test_what_production_s_profile_says() -> None:
    config = resolved("production")
    service = config["services"]["vllm-medium"]
    assert services.gpu_ids(service) == services.visible_gpus(service) == ("0", "1")
    assert services.start_period(service) == 900.0
    assert isinstance(services.shm_bytes(service), NoData)
    [watchdog] = services.neighbours(config, "vllm-medium")
    assert watchdog.name == "llm-medium-watchdog"
    assert isinstance(watchdog.running, NoData)
    assert services.on_host(service, "/root/.cache/huggingface/hub") == "/srv/models/hf/hub"
    volume = services.on_host(service, "/root/.cache/vllm/x")
    assert isinstance(volume, NoData)
    assert "compile-cache" in volume.reason


@pytest.mark.parametrize(("name", "service"), [("script-entrypoint", "engine"), ("list-command", "vllm")])
def test_all_gpus(name: str, service: str) -> None:
    assert services.gpu_ids(resolved(name)["services"][service]) == ("all",)


def test_visible_gpus_count_within_what_is_given() -> None:
    given = {"gpus": [{"device_ids": ["2", "3"]}], "environment": {"CUDA_VISIBLE_DEVICES": "1"}}
    assert services.visible_gpus(given) == ("3",)
    assert services.visible_gpus({"runtime": "nvidia", "environment": {"NVIDIA_VISIBLE_DEVICES": "4,5"}}) == ("4", "5")
    assert services.visible_gpus({}) == ()


@pytest.mark.parametrize(("text", "seconds"), [("15m0s", 900.0), ("1h0m1.5s", 3601.5), ("250ms", 0.25)])
def test_durations_of_go(text: str, seconds: float) -> None:
    assert services.go_seconds(text) == seconds


def test_what_is_no_duration() -> None:
    assert isinstance(services.go_seconds("soon"), NoData)


def test_lines_of_a_script_are_joined() -> None:
    assert services.words(["exec vllm serve m \\\n  --port $$PORT"]) == ["exec vllm serve m    --port $PORT"]


@pytest.mark.parametrize(
    ("image", "release"),
    [
        ("vllm/vllm-openai:v0.19.1", "0.19.1"),
        ("localhost:5000/vllm/vllm-openai:v0.24.0-cu130", "0.24.0"),
        ("vllm/vllm-openai:v0.19.1@sha256:00", "0.19.1"),
        ("registry.example/vllm-patched:v7.72.5", ""),
        ("vllm/vllm-openai:nightly", ""),
        ("vllm/vllm-openai@sha256:0000", ""),
        ("nginx:0.19.1", ""),
    ],
)
def test_releases_in_tags(image: str, release: str) -> None:
    assert versions.of_image(image) == release


def test_releases_in_texts_and_packages() -> None:
    assert versions.of_text("0.24.0+cu130") == "0.24.0"
    assert versions.of_text("22.04") == ""
    assert versions.of_packages(["/x/site-packages/vllm-0.32.0+cpu.dist-info"]) == "0.32.0"
    assert versions.of_packages(["/x/site-packages/vllm_ascend-0.1.dist-info"]) == ""


def test_only_loopback_is_asked_for_its_version() -> None:
    assert running_version("http://192.0.2.1:9") == ""


def test_a_model_in_a_cache_and_none(tmp_path: Path) -> None:
    commit = "0" * 40
    store = tmp_path / "models--a--b"
    (store / "snapshots" / commit).mkdir(parents=True)
    (store / "refs").mkdir()
    (store / "refs" / "main").write_text(commit)
    roots = CacheRoots(tmp_path, hf_hub_cache=str(tmp_path))
    assert located("a/b", roots, {}, "say so") == store / "snapshots" / commit
    missing = located("a/c", roots, {}, "say so")
    assert isinstance(missing, NoData)
    assert missing.reason.endswith("say so")
    assert Given().checkpoints == {}


CARDS = """\
0, GPU-aa, NVIDIA GeForce RTX 4090, 580.95.05, 8.9, 24564, 20142
1, GPU-bb, NVIDIA GeForce RTX 4090, 580.95.05, [N/A], 24564, 3
"""


def test_two_tables_of_nvidia_smi() -> None:
    def tenant(pid: int, memory: int | None) -> Tenant:
        return Tenant(pid, "ann", "python3", memory, False)

    found = parse_smi(CARDS, "GPU-aa, 4711, 20000\nGPU-aa, 4712, [N/A]\n", tenant)
    assert not isinstance(found.gpus, NoData)
    first, second = found.gpus
    assert (first.index, first.capability, first.memory_total_mib, found.driver) == (0, (8, 9), 24564, "580.95.05")
    assert first.tenants == (tenant(4711, 20000), tenant(4712, None))
    assert second.tenants == ()
    assert isinstance(second.capability, NoData)


@pytest.mark.parametrize("text", ["", "no devices were found\n", "0, GPU-aa\n"])
def test_what_nvidia_smi_should_not_say(text: str) -> None:
    with pytest.raises(ValueError, match=r"GPU|columns"):
        parse_smi(text, "", lambda pid, memory: Tenant(pid, "", "", memory, False))


def test_this_machine(tmp_path: Path) -> None:
    found = look_at_machine(lambda _: False, records=tmp_path / "not" / "there", state=tmp_path, docker_root=NoData("none"))
    assert found.cpus >= 1
    assert isinstance(found.records_free_mib, int)
    assert isinstance(found.docker_free_mib, NoData)
    assert isinstance(clock_synchronised(), bool | NoData)
    cards = look_at_gpus(lambda _: False).gpus
    assert isinstance(cards, NoData) or all(gpu.memory_total_mib > 0 for gpu in cards)
