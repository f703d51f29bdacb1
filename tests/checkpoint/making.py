"""Writes checkpoints that have headers and sizes but no weights: files are sparse, so 70 GB take a few kilobytes of disk."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Any

from audition.checkpoint.tensors import DTYPE_BITS

Spec = tuple[str, str, tuple[int, ...]]  # name, safetensors type, shape

# Qwen3.6-35B-A3B as its configuration states it; the same shape that docs/results/h200-mtp-k3 served on an H200.
QWEN36_TEXT: dict[str, Any] = {
    "model_type": "qwen3_5_moe_text",
    "vocab_size": 248_320,
    "hidden_size": 2048,
    "num_hidden_layers": 40,
    "full_attention_interval": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "max_position_embeddings": 262_144,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "mamba_ssm_dtype": "float32",
    "num_experts": 256,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "mtp_num_hidden_layers": 1,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10_000_000},
    "dtype": "bfloat16",
}
QWEN36: dict[str, Any] = {
    "architectures": ["Qwen3_5MoeForConditionalGeneration"],
    "model_type": "qwen3_5_moe",
    "text_config": QWEN36_TEXT,
    "vision_config": {"model_type": "qwen3_5_moe", "depth": 27},
}
# The shape of the tiny model that the live tests serve (tests/environments/vllm_cpu/tiny_model.py).
TINY_TEXT: dict[str, Any] = {
    **QWEN36_TEXT,
    "vocab_size": 1024,
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "max_position_embeddings": 32_768,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
    "layer_types": ["linear_attention"] * 3 + ["full_attention"],
}
TINY: dict[str, Any] = {**QWEN36, "text_config": TINY_TEXT}


def header_bytes(specs: Iterable[Spec]) -> tuple[bytes, int]:
    """A safetensors header with its length in front, and the bytes of weights that it promises."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    place = 0
    for name, dtype, shape in specs:
        size = (prod(shape) * DTYPE_BITS[dtype] + 7) // 8
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [place, place + size]}
        place += size
    raw = json.dumps(entries).encode()
    return len(raw).to_bytes(8, "little") + raw, place


def write_safetensors(path: Path, specs: Iterable[Spec]) -> None:
    """A sparse safetensors file: real header, right size, no weights."""
    head, size = header_bytes(specs)
    with path.open("wb") as handle:
        handle.write(head)
        handle.truncate(len(head) + size)


def write_checkpoint(
    folder: Path,
    config: Mapping[str, Any],
    specs: Iterable[Spec],
    *,
    shards: int = 1,
    quantisation: Mapping[str, Any] | None = None,
) -> Path:
    """A checkpoint folder: config.json, and one file or several with an index."""
    folder.mkdir(parents=True, exist_ok=True)
    whole = {**config, "quantization_config": quantisation} if quantisation else dict(config)
    (folder / "config.json").write_text(json.dumps(whole), encoding="utf-8")
    listed = list(specs)
    if shards == 1:
        write_safetensors(folder / "model.safetensors", listed)
        return folder
    weight_map: dict[str, str] = {}
    for number in range(shards):
        name = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        part = listed[number::shards]
        write_safetensors(folder / name, part)
        weight_map |= {tensor[0]: name for tensor in part}
    write_index(folder, weight_map)
    return folder


def write_index(folder: Path, weight_map: Mapping[str, str]) -> None:
    index = {"metadata": {"total_size": 0}, "weight_map": dict(weight_map)}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


def model_tensors(text: Mapping[str, Any], *, mtp: bool = True, experts: str = "one-by-one", vision: bool = True) -> list[Spec]:
    """The BF16 tensors of a Qwen3.6 model of the shape in ``text``. ``experts``: one-by-one or fused, both are in use."""
    hidden, vocabulary, layers = text["hidden_size"], text["vocab_size"], text["num_hidden_layers"]
    full = [number for number in range(layers) if (number + 1) % 4 == 0]
    found: list[Spec] = [_matrix("model.language_model.embed_tokens", vocabulary, hidden), _matrix("lm_head", vocabulary, hidden)]
    for number in range(layers):
        prefix = f"model.language_model.layers.{number}"
        found += _attention(text, prefix) if number in full else _linear_attention(text, prefix)
        found += _mlp(text, prefix, experts)
    if vision:
        found.append(_matrix("model.visual.blocks.0.attn.qkv", 3 * 64, 64))
    if mtp:
        found += [_matrix("mtp.fc", hidden, 2 * hidden), ("mtp.norm.weight", "BF16", (hidden,))]
        found += _attention(text, "mtp.layers.0") + _mlp(text, "mtp.layers.0", experts)
    return found


def _matrix(module: str, rows: int, columns: int) -> Spec:
    return (f"{module}.weight", "BF16", (rows, columns))


def _attention(text: Mapping[str, Any], prefix: str) -> list[Spec]:
    hidden, heads, kv_heads, size = text["hidden_size"], text["num_attention_heads"], text["num_key_value_heads"], text["head_dim"]
    return [
        _matrix(f"{prefix}.self_attn.q_proj", 2 * heads * size, hidden),  # the query and its output gate
        _matrix(f"{prefix}.self_attn.k_proj", kv_heads * size, hidden),
        _matrix(f"{prefix}.self_attn.v_proj", kv_heads * size, hidden),
        _matrix(f"{prefix}.self_attn.o_proj", hidden, heads * size),
        (f"{prefix}.self_attn.q_norm.weight", "BF16", (size,)),
        (f"{prefix}.self_attn.k_norm.weight", "BF16", (size,)),
        (f"{prefix}.input_layernorm.weight", "BF16", (hidden,)),
        (f"{prefix}.post_attention_layernorm.weight", "BF16", (hidden,)),
    ]


def _linear_attention(text: Mapping[str, Any], prefix: str) -> list[Spec]:
    hidden = text["hidden_size"]
    keys = text["linear_num_key_heads"] * text["linear_key_head_dim"]
    values = text["linear_num_value_heads"] * text["linear_value_head_dim"]
    heads = text["linear_num_value_heads"]
    return [
        _matrix(f"{prefix}.linear_attn.in_proj_qkv", 2 * keys + values, hidden),
        _matrix(f"{prefix}.linear_attn.in_proj_z", values, hidden),
        _matrix(f"{prefix}.linear_attn.in_proj_a", heads, hidden),
        _matrix(f"{prefix}.linear_attn.in_proj_b", heads, hidden),
        _matrix(f"{prefix}.linear_attn.out_proj", hidden, values),
        (f"{prefix}.linear_attn.conv1d.weight", "BF16", (2 * keys + values, 1, text["linear_conv_kernel_dim"])),
        (f"{prefix}.linear_attn.A_log", "BF16", (heads,)),
        (f"{prefix}.linear_attn.dt_bias", "BF16", (heads,)),
        (f"{prefix}.input_layernorm.weight", "BF16", (hidden,)),
        (f"{prefix}.post_attention_layernorm.weight", "BF16", (hidden,)),
    ]


def _mlp(text: Mapping[str, Any], prefix: str, experts: str) -> list[Spec]:
    hidden, count, width = text["hidden_size"], text["num_experts"], text["moe_intermediate_size"]
    found = [_matrix(f"{prefix}.mlp.gate", count, hidden), _matrix(f"{prefix}.mlp.shared_expert_gate", 1, hidden)]
    names = [f"{prefix}.mlp.shared_expert"]
    if experts == "fused":
        found.append((f"{prefix}.mlp.experts.gate_up_proj", "BF16", (count, 2 * width, hidden)))
        found.append((f"{prefix}.mlp.experts.down_proj", "BF16", (count, hidden, width)))
    else:
        names += [f"{prefix}.mlp.experts.{number}" for number in range(count)]
    for name in names:
        found += [_matrix(f"{name}.{part}_proj", width, hidden) for part in ("gate", "up")]
        found.append(_matrix(f"{name}.down_proj", hidden, width))
    return found


def quantised(specs: Iterable[Spec], method: str, *, keep: tuple[str, ...]) -> list[Spec]:
    """The same model with its matrices stored as ``method`` stores them, but for modules whose name holds a text of ``keep``."""
    found: list[Spec] = []
    for name, dtype, shape in specs:
        left = any(
            text in name for text in (*keep, "embed_tokens", "lm_head", "norm", "gate.weight", "conv1d", "visual", "_expert_gate")
        )
        module, leaf = name.rsplit(".", 1)
        if left or len(shape) != 2 or leaf != "weight":
            found.append((name, dtype, shape))
            continue
        found += _stored(module, method, *shape)
    return found


def _stored(module: str, method: str, rows: int, columns: int) -> list[Spec]:
    """Tensors of one quantised matrix: 4 bit in groups of 32, or 8 bit in blocks of 128 x 128."""
    groups = max(1, columns // 32)
    if method == "awq":
        packed = max(1, rows // 8)
        return [
            (f"{module}.qweight", "I32", (columns, packed)),
            (f"{module}.qzeros", "I32", (groups, packed)),
            (f"{module}.scales", "F16", (groups, rows)),
        ]
    if method == "gptq":
        return [
            (f"{module}.qweight", "I32", (max(1, columns // 8), rows)),
            (f"{module}.qzeros", "I32", (groups, max(1, rows // 8))),
            (f"{module}.scales", "F16", (groups, rows)),
            (f"{module}.g_idx", "I32", (columns,)),
        ]
    if method == "compressed-tensors":
        return [
            (f"{module}.weight_packed", "I32", (rows, max(1, columns // 8))),
            (f"{module}.weight_scale", "BF16", (rows, groups)),
            (f"{module}.weight_shape", "I64", (2,)),
        ]
    if method == "bitsandbytes":
        return [
            (f"{module}.weight", "U8", (rows * columns // 2, 1)),
            (f"{module}.weight.absmax", "F32", (rows * columns // 64,)),
            (f"{module}.weight.quant_map", "F32", (16,)),
            (f"{module}.weight.quant_state.bitsandbytes__nf4", "U8", (80,)),
        ]
    return [
        (f"{module}.weight", "F8_E4M3", (rows, columns)),
        (f"{module}.weight_scale_inv", "F32", (-(-rows // 128), -(-columns // 128))),
    ]
