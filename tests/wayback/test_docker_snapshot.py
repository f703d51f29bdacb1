"""Snapshots of real `docker inspect` output: secrets only as hashes, differences named point by point."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from audition.wayback.docker_cli import carries, is_running
from audition.wayback.docker_snapshot import compare, describe, is_secret_name, salted_hash

DATA = Path(__file__).parent.parent / "data" / "compose"


def container() -> dict[str, Any]:
    [found] = json.loads((DATA / "llm-medium.inspect.json").read_text())
    return dict(found)


def image() -> dict[str, Any]:
    [found] = json.loads((DATA / "hostpy.image.json").read_text())
    return dict(found)


def taken(inspected: dict[str, Any], salt: str = "s", names: list[str] | None = None) -> dict[str, Any]:
    return describe(inspected, image(), salt=salt, secret_names=names)


def test_secrets_are_hashed_wherever_they_stand() -> None:
    seen = container()
    seen["Config"]["Env"] += [
        "DB=postgres://user:pass-word@db/x",
        "COPY=the token is not-a-real-hub-token indeed",
        "PLAIN_NAME=planted-value-1",
    ]
    seen["Config"]["Cmd"] += ["--hf-token=planted-value-2", "sh -c 'serve --api-key planted-value-3 --port 1'"]
    seen["Config"]["Labels"]["note"] = "Bearer not-a-real-key"
    text = json.dumps(taken(seen, names=["PLAIN_NAME"]))
    for secret in ("not-a-real-key", "not-a-real-hub-token", "pass-word", "planted-value-1", "planted-value-2", "planted-value-3"):
        assert secret not in text, secret
    assert "qwen3.6-35b-a3b" in text
    assert "turboquant_k8v4" in text


def test_short_values_of_secrets_do_not_blot_out_the_rest() -> None:
    seen = container()
    seen["Config"]["Env"].append("A_KEY=5")
    assert "5002" in taken(seen)["arguments"]
    assert taken(seen)["environment"]["A_KEY"].startswith("<secret ")


@pytest.mark.parametrize(
    "name", ["VLLM_API_KEY", "HUGGING_FACE_HUB_TOKEN", "DB_PASSWORD", "AWS_SECRET_ACCESS_KEY", "APIKEY", "PGPASSWORD"]
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["MTP_TOKENS", "TOKENIZERS_PARALLELISM", "MONKEY", "CUDA_VISIBLE_DEVICES", "VLLM_PORT"])
def test_names_that_are_none(name: str) -> None:
    assert not is_secret_name(name)


def test_the_same_container_does_not_differ_even_in_another_order() -> None:
    other = container()
    other["Config"]["Env"].reverse()
    other["Mounts"].reverse()
    other["Id"] = "f" * 64
    assert compare(taken(container()), taken(other)) == []
    assert salted_hash("a", "x") != salted_hash("b", "x")
    with pytest.raises(ValueError, match="different salts"):
        compare(taken(container(), "a"), taken(container(), "b"))


CHANGES: list[tuple[str, str, Any]] = [
    ("Name", "container name: was llm-medium, is other", "/other"),
    ("Image", "image: was registry.example", "sha256:" + "0" * 64),
    ("Config.Entrypoint", "entrypoint: ", ["/bin/sh"]),
    ("Config.Cmd", "arguments: ", ["--port", "1"]),
    ("Config.Env", "environment variable CUDA_VISIBLE_DEVICES: was 0,1, is missing", []),
    ("Config.User", "user: was not there, is 1000", "1000"),
    ("Config.Healthcheck", "healthcheck: was", None),
    ("Config.Labels.autoheal", "label autoheal: was not there, is true", "true"),
    ("Config.Labels.com.docker.compose.project", "label com.docker.compose.project: was llm, is x", "x"),
    ("Config.Labels.com.docker.compose.config-hash", "compose config hash: was", "0"),
    ("Mounts", "mount /root/.cache/vllm: was volume llm_compile-cache rw, is missing", []),
    ("HostConfig.NetworkMode", "network mode: was host, is bridge", "bridge"),
    ("HostConfig.PortBindings", "ports: was not there", {"5002/tcp": [{"HostPort": "5002"}]}),
    ("HostConfig.RestartPolicy", "restart policy: was unless-stopped, is no", {"Name": "no"}),
    ("HostConfig.ShmSize", "shared memory bytes: was 17179869184, is 1", 1),
    ("HostConfig.IpcMode", "ipc mode: was host, is private", "private"),
    ("HostConfig.DeviceRequests", "device requests: was", None),
    ("HostConfig.Runtime", "runtime: was runc, is nvidia", "nvidia"),
    ("HostConfig.Memory", "memory limit: was not there, is 5", 5),
]


@pytest.mark.parametrize(("path", "sentence", "value"), CHANGES)
def test_every_point_that_changes_is_named(path: str, sentence: str, value: Any) -> None:
    changed = copy.deepcopy(container())
    if path.startswith("Config.Labels."):
        changed["Config"]["Labels"][path.removeprefix("Config.Labels.")] = value
    else:
        *parents, last = path.split(".")
        place = changed
        for key in parents:
            place = place[key]
        place[last] = value
    found = compare(taken(container()), taken(changed))
    assert any(text.startswith(sentence) for text in found), found


def test_a_changed_secret_is_named_but_not_shown() -> None:
    changed = container()
    changed["Config"]["Cmd"] = ["new-planted-key" if word == "not-a-real-key" else word for word in changed["Config"]["Cmd"]]
    [text] = compare(taken(container()), taken(changed))
    assert text.startswith("arguments: word 10 was '<secret ")
    assert "planted" not in text


def test_an_image_pinned_by_its_id_is_the_same_server() -> None:
    pinned = container()
    pinned["Config"]["Image"] = pinned["Image"]
    pinned["Config"]["Labels"]["com.docker.compose.config-hash"] = "other"
    assert compare(taken(container()), taken(pinned)) == []


def test_a_saved_copys_hash_is_accepted() -> None:
    before = taken(container())
    before["compose"]["also_hashes"] = ["other"]
    again = container()
    again["Config"]["Labels"]["com.docker.compose.config-hash"] = "other"
    assert compare(before, taken(again)) == []


def test_no_labels_identify_nothing_and_a_restart_loop_is_no_running() -> None:
    assert not carries(container(), {})
    assert carries(container(), {"com.docker.compose.service": "vllm-medium"})
    looping = container()
    looping["State"].update(Running=True, Restarting=True)
    assert not is_running(looping)
