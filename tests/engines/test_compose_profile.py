"""Profiles as people write them: from captured output of `docker compose config`, and by compose itself where it is installed."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from audition.engines.compose_compare import Running, corrected_config, file_differences, profile_differences
from audition.engines.compose_profile import (
    Profile,
    bound_to_others,
    candidate_config,
    docker_environment,
    project_name,
    published_ports,
    resolve,
    run_labels,
    volume_names,
    wants_gpu,
)
from audition.errors import BadInput
from audition.spike.model import ComposeEngine
from audition.wayback.docker_cli import RUN_LABEL
from environments.docker_engine import DockerEngine

DATA = Path(__file__).parent.parent / "data" / "compose"


def load(name: str) -> Any:
    return json.loads((DATA / name).read_text())


def profile(name: str, service: str, *, files: list[str] | None = None, env_files: list[str] | None = None) -> Profile:
    return Profile(
        argv=["docker", "compose", "--project-name", "llm"],
        project="llm",
        folder="/srv/llm",
        files=files or [f"/srv/llm/{name}.yml"],
        env_files=env_files or [],
        service_name=service,
        config=load(f"{name}.config.json"),
        config_hash="",
        unset=[],
        variables={},
    )


def running() -> Running:
    return Running(load("llm-medium.inspect.json")[0], load("hostpy.image.json")[0])


def candidate(source: Profile, **changes: Any) -> dict[str, Any]:
    settings = {
        "project": "audition-x",
        "container_name": "audition-x",
        "labels": run_labels("x", "mtp"),
        "fence": 3,
        "existing": set(),
    }
    return candidate_config(source, **{**settings, **changes})


@pytest.mark.parametrize(
    ("name", "service", "gpu", "ports"),
    [
        ("production", "vllm-medium", "devices", [5002]),
        ("candidate-mtp", "vllm-medium", "devices", [5002]),
        ("script-entrypoint", "engine", "devices", None),
        ("list-command", "vllm", "runtime", [8000]),
    ],
)
def test_gpus_and_ports_of_each_form(name: str, service: str, gpu: str, ports: list[int] | None) -> None:
    read = profile(name, service)
    assert wants_gpu(read.service) == gpu
    assert published_ports(read.service) == ports


def test_port_ranges_and_other_protocols() -> None:
    service = {"ports": [{"published": "9000-9002", "protocol": "tcp"}, {"published": "53", "protocol": "udp"}, {"target": 1}]}
    assert published_ports(service) == [9000, 9001, 9002]


@pytest.mark.parametrize(
    ("service", "gpu"),
    [
        ({"devices": [{"source": "nvidia.com/gpu=all"}]}, "cdi"),
        ({"gpus": [{"driver": "cdi"}]}, "cdi"),
        ({"devices": ["/dev/kfd"]}, ""),
    ],
)
def test_other_ways_to_ask_for_a_gpu(service: dict[str, Any], gpu: str) -> None:
    assert wants_gpu(service) == gpu


def test_a_candidate_is_the_profile_under_another_project() -> None:
    source = profile("candidate-mtp", "vllm-medium")
    model = candidate(source)
    service = model["services"]["vllm-medium"]
    assert model["name"] == "audition-x"
    assert service["restart"] == "no"
    assert service["container_name"] == "audition-x"
    assert service["labels"] == {"audition.run": "x", "audition.arm": "mtp", "audition.fence": "3"}
    for key in ("command", "image", "ports", "shm_size", "ipc", "environment", "volumes", "healthcheck"):
        assert service[key] == source.service[key]
    assert service["deploy"]["resources"] == source.service["deploy"]["resources"]
    assert model["volumes"] == {"compile-cache-mtp-spike": {"name": "llm_compile-cache-mtp-spike"}}
    assert "name" not in model["networks"]["default"], "its own network, not production's"
    assert model["networks"]["default"]["labels"][RUN_LABEL] == "x"


def test_a_candidate_uses_volumes_that_exist_and_leaves_its_neighbours_out() -> None:
    model = candidate(profile("production", "watchdog"))
    assert list(model["services"]) == ["watchdog"]
    assert "depends_on" not in model["services"]["watchdog"]
    model = candidate(profile("production", "vllm-medium"), existing={"llm_compile-cache"})
    assert model["volumes"] == {"compile-cache": {"name": "llm_compile-cache", "external": True}}
    assert volume_names(profile("production", "vllm-medium")) == {"llm_compile-cache"}


def test_named_and_fixed_networks() -> None:
    source = profile("production", "vllm-medium")
    source.config["networks"] = {
        "default": {"name": "llm_default", "ipam": {"config": [{"subnet": "10.9.0.0/24"}]}},
        "gateway": {"name": "gateway", "external": True},
        "shared": {"name": "shared-by-hand"},
    }
    service = source.config["services"]["vllm-medium"]
    service["networks"] = {"default": {"ipv4_address": "10.9.0.5"}, "gateway": None, "shared": None}
    model = candidate(source, existing={"shared-by-hand"})
    assert "ipam" not in model["networks"]["default"]
    assert model["services"]["vllm-medium"]["networks"]["default"] == {}
    assert model["networks"]["gateway"] == {"name": "gateway", "external": True}
    assert model["networks"]["shared"] == {"name": "shared-by-hand", "external": True}
    assert service["networks"]["default"] == {"ipv4_address": "10.9.0.5"}, "the profile itself is not changed"


def test_ties_to_other_services() -> None:
    assert bound_to_others({"network_mode": "service:vpn", "volumes_from": ["a"]}) == ["network_mode: service:vpn", "volumes_from"]
    assert bound_to_others(profile("script-entrypoint", "engine").service) == []


def test_project_names_are_valid_distinct_and_short() -> None:
    long = "mtp_spike_2026-12-01T22:00:00+01:00_with_a_very_long_name_indeed"
    names = {project_name(long, "a"), project_name(long, "b"), project_name("Run 1", "MTP.k3")}
    assert len(names) == 3
    assert "audition-run-1-mtp-k3" in names
    assert all(len(name) <= 63 and set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_") for name in names)


def test_the_container_made_from_a_profile_differs_in_nothing_that_was_not_overridden() -> None:
    read = profile("production", "vllm-medium", env_files=["/srv/llm/serving.env"])
    # the capture was made with a token in an override file, on an engine without bridge networks
    assert profile_differences(read, running()) == ["the variable HUGGING_FACE_HUB_TOKEN differs: empty in the profile"]
    seen = [text for text, _ in file_differences(read, running())]
    assert seen == [
        "production was started from /srv/llm/production.yml, /srv/llm/host.yml, the spike names /srv/llm/production.yml"
    ]


def test_a_forgotten_env_file_shows_in_arguments_and_files() -> None:
    read = profile(
        "production-without-env-file",
        "vllm-medium",
        files=["/srv/llm/production.yml", "/srv/llm/host.yml"],
    )
    [(seen, advice)] = file_differences(read, running())
    assert seen == "production was started with --env-file /srv/llm/serving.env, the spike names none"
    assert advice == "set `env_files` of the production arm to [/srv/llm/serving.env]"
    texts = profile_differences(read, running())
    assert any("the arguments differ" in text and "--api-key" in text for text in texts)
    assert not any("not-a-real" in text for text in texts)


def test_the_saved_copy_says_what_runs() -> None:
    read = profile("production-without-env-file", "vllm-medium")
    saved = corrected_config(read, running(), image="sha256:abc")["services"]["vllm-medium"]
    assert saved["image"] == "sha256:abc"
    assert saved["environment"]["HUGGING_FACE_HUB_TOKEN"] == "not-a-real-hub-token"
    assert saved["command"][saved["command"].index("--api-key") + 1] == "not-a-real-key"
    assert "PATH" not in saved["environment"], "what the image sets stays the image's"
    assert saved["restart"] == "unless-stopped"


def test_dollars_survive_the_saved_copy() -> None:
    container = load("llm-medium.inspect.json")[0]
    container["Config"]["Cmd"] = ["sh", "-c", "echo $HOME"]
    container["Config"]["Env"] = ["PRICE=5$"]
    saved = corrected_config(profile("production", "vllm-medium"), Running(container, None), image="x")["services"]["vllm-medium"]
    assert saved["command"] == ["sh", "-c", "echo $$HOME"]
    assert saved["environment"] == {"PRICE": "5$$"}


def test_only_what_docker_needs_is_kept_of_the_environment() -> None:
    environ = {"PATH": "/bin", "DOCKER_HOST": "ssh://ops@gpu", "SSH_AUTH_SOCK": "/s", "VLLM_API_KEY": "x", "HF": "y"}
    assert docker_environment(environ) == {"PATH": "/bin", "DOCKER_HOST": "ssh://ops@gpu", "SSH_AUTH_SOCK": "/s"}
    assert docker_environment(environ, {"secrets": {"hub": {"environment": "HF"}}})["HF"] == "y"


CASES = [
    ("production", "vllm-medium", ["serving.env"], "production"),
    ("production", "vllm-medium", [], "production-without-env-file"),
    ("candidate-mtp", "vllm-medium", ["serving.env"], "candidate-mtp"),
    ("script-entrypoint", "engine", [], "script-entrypoint"),
    ("list-command", "vllm", [], "list-command"),
]


@pytest.mark.docker
@pytest.mark.parametrize(("name", "service", "env_files", "captured"), CASES)
def test_compose_itself_reads_the_same(
    docker_engine: DockerEngine, name: str, service: str, env_files: list[str], captured: str
) -> None:
    spec = ComposeEngine(kind="compose", files=[f"{name}.yml"], env_files=env_files, project="llm", service=service)
    environ = {"PATH": os.environ["PATH"], "HOME": "/home/ops", **docker_engine.env}
    read = resolve(spec, DATA, environ)
    for key in ("command", "entrypoint", "environment", "image", "container_name", "gpus", "deploy", "runtime", "ports", "restart"):
        assert read.service.get(key) == load(f"{captured}.config.json")["services"][service].get(key), key
    assert len(read.config_hash) == 64
    assert read.unset == (["HUGGING_FACE_HUB_TOKEN", "VLLM_API_KEY"] if captured.endswith("without-env-file") else [])
    assert read.argv[-2 * len(env_files) - 2 :][0] == "--file"
    # a resolved model that is read once more stays what it is: that is what the saved copies rest on
    again = subprocess.run(
        ["docker", "compose", "-p", "llm", "-f", "-", "config", "--format", "json"],
        input=json.dumps(read.config),
        capture_output=True,
        text=True,
        check=True,
        env=environ,
    )
    assert json.loads(again.stdout)["services"][service] == read.service


@pytest.mark.docker
def test_what_compose_refuses_is_bad_input(docker_engine: DockerEngine, tmp_path: Path) -> None:
    (tmp_path / "p.yml").write_text("services:\n  a:\n    image: ${IMAGE:?say which image}\n")
    spec = ComposeEngine(kind="compose", files=["p.yml"], service="a")
    with pytest.raises(BadInput, match="say which image"):
        resolve(spec, tmp_path, {"PATH": os.environ["PATH"], **docker_engine.env})
