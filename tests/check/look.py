"""Facts made by hand for the rules of a check, a docker CLI without an engine, and checkpoints of a few bytes."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from audition.check.facts import ArmFacts, Container, Facts, GpuFacts, LegTimes, MachineFacts, Neighbour, Tenant
from audition.check.finding import Finding, Report
from audition.spike.model import Spike
from audition.units import NoData
from environments.docker.install import COMPOSE

UNKNOWN = NoData("not looked at")
NOW = 1_796_160_000.0  # 2026-12-01 21:20:00 UTC


def spike_of(**more: Any) -> Spike:
    """A spike with arms prod and cand as processes, one workload, one gate."""
    data: dict[str, Any] = {
        "audition": 1,
        "name": "trial",
        "question": "Is it faster?",
        "arms": [
            {
                "name": name,
                "role": role,
                "engine": {"kind": "process", "command": "vllm serve m"},
                "endpoint": {"url": "http://127.0.0.1:5002", "model": "m"},
            }
            for name, role in (("prod", "production"), ("cand", "candidate"))
        ],
        "workloads": [{"name": "single", "users": 1, "requests": 6, "max_tokens": 300}],
        "gates": [{"metric": "failure_share", "workload": "single", "at_most": 0}],
        **more,
    }
    return Spike.model_validate(data)


def arm(name: str, role: Any, words: Sequence[str] | None = ("--model", "m"), **more: Any) -> ArmFacts:
    """An arm with these arguments; None: they are not known."""
    values: dict[str, Any] = {
        "kind": "process",
        "arguments": UNKNOWN if words is None else tuple(words),
        "assumed": False,
        "version": UNKNOWN,
        "version_from": "",
        "variables": {},
        "container": UNKNOWN,
        "checkpoint": UNKNOWN,
        **more,
    }
    return ArmFacts(name=name, role=role, **values)


def container(**more: Any) -> Container:
    """A compose service as it was looked at."""
    values: dict[str, Any] = {
        "service_name": "vllm",
        "project": "llm",
        "files": ("/srv/prod.yml",),
        "env_files": (),
        "image": "vllm/vllm-openai:v0.19.1",
        "own_name": "",
        "ports": (5002,),
        "restart": "unless-stopped",
        "start_period_s": UNKNOWN,
        "gpus": (),
        "shm_bytes": 2**34,
        "host_ipc": False,
        "image_id": "sha256:0123456789abcdef0123",
        "lost": (),
        "unset": (),
        "neighbours": (),
        "left_alone": (),
        "service": {},
        "variables": {},
        **more,
    }
    return Container(**values)


def neighbour(running: bool | NoData = True) -> Neighbour:
    """A watchdog."""
    return Neighbour("watchdog", "holds the Docker socket and can restart containers", running)


def gpu(index: int = 0, **more: Any) -> GpuFacts:
    """A 4090 that nobody uses."""
    values: dict[str, Any] = {
        "name": "RTX 4090", "memory_total_mib": 24564, "memory_used_mib": 10, "capability": (8, 9), "tenants": (), **more,
    }  # fmt: skip
    return GpuFacts(index=index, **values)


def tenant(ours: bool | NoData, memory_mib: int | None = 9000) -> Tenant:
    """A training run on a GPU."""
    return Tenant(4711, "ann", "python3", memory_mib, ours)


def machine(**more: Any) -> MachineFacts:
    """A quiet machine with two free GPUs."""
    values: dict[str, Any] = {
        "gpus": (gpu(0), gpu(1)),
        "driver": "580.95",
        "cpus": 32,
        "load1": 1.0,
        "available_mib": 100_000,
        "shm_mib": 64_000,
        "records_free_mib": 500_000,
        "state_free_mib": 500_000,
        "docker_free_mib": 500_000,
        "clock": True,
        **more,
    }
    return MachineFacts(**values)


def facts(spike: Spike | None = None, *, production: Any = None, candidate: Any = None, **more: Any) -> Facts:
    """A whole look; what is not given is in order."""
    arms = (production or arm("prod", "production"), candidate or arm("cand", "candidate"))
    values: dict[str, Any] = {"machine": machine(), "times": LegTimes(), **more}
    return Facts(spike or spike_of(), NOW, arms, **values)


def codes(found: Sequence[Finding], level: str | None = None) -> list[str]:
    """The codes of findings, of one level or of all."""
    return [each.code for each in found if level is None or each.level == level]


def one(found: Report | Sequence[Finding], code: str) -> Finding:
    """The only finding with this code."""
    [only] = [each for each in (found.findings if isinstance(found, Report) else found) if each.code == code]
    return only


def why_no_compose() -> str:
    """Why compose files cannot be read here, as a sentence; empty when they can."""
    import shutil

    if shutil.which("docker") is None:
        return "The docker command line is not installed."
    return "" if COMPOSE.exists() else "The compose plugin is not here (make docker-env)."


def compose_environment(folder: Path) -> dict[str, str]:
    """Variables for a docker CLI with the compose plugin that reaches no engine."""
    plugins = folder / "docker-config" / "cli-plugins"
    plugins.mkdir(parents=True)
    (plugins / "docker-compose").symlink_to(COMPOSE.resolve())
    return {"DOCKER_CONFIG": str(plugins.parent), "DOCKER_HOST": f"unix://{folder}/no-engine.sock"}


def write_checkpoint(folder: Path, *, mtp: bool) -> Path:
    """A checkpoint in the shape of Qwen3.6-35B-A3B, AWQ, of which headers alone exist; with or without MTP tensors."""
    folder.mkdir()
    text = {
        "model_type": "qwen3_5_moe_text", "num_hidden_layers": 40, "num_attention_heads": 16, "num_key_value_heads": 2,
        "layer_types": ["full_attention" if n % 4 == 3 else "linear_attention" for n in range(40)],
        "head_dim": 256, "hidden_size": 2048, "vocab_size": 248320, "max_position_embeddings": 262144,
        "mtp_num_hidden_layers": 1, "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
        "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "dtype": "bfloat16",
    }  # fmt: skip
    quantised = {
        "quant_method": "awq",
        "bits": 4,
        "group_size": 128,
        "version": "gemm",
        "zero_point": True,
        "modules_to_not_convert": ["mtp"],
    }
    config = {"architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe", "text_config": text}
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": quantised}))
    names = ["model.language_model.layers.0.input_layernorm.weight"]
    if mtp:
        names += ["mtp.fc.weight", "mtp.layers.0.input_layernorm.weight", "mtp.norm.weight"]
    header = {name: {"dtype": "BF16", "shape": [64], "data_offsets": [128 * n, 128 * n + 128]} for n, name in enumerate(names)}
    raw = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(raw)) + raw + bytes(128 * len(names)))
    return folder
