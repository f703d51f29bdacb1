"""The shape of a model, from its config.json as a dict. Pure.

Keys are those of transformers' configurations; multimodal models nest the language model's under ``text_config``. What a config
does not say is ``NoData``; what it says wrongly raises CheckpointError with the key.

What must not live here: files, tensors, memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from audition.checkpoint.problem import CheckpointError
from audition.units import NoData

# full: every token is kept. sliding: the last tokens of a window. mla: one latent vector a token, the same on every GPU.
# linear: a state of fixed size (gated delta net, GDN). other: a kind whose memory is not known here (Mamba, KDA, …).
LayerKind = Literal["full", "sliding", "mla", "linear", "other"]

LAYERS_LIMIT = 10_000
_NUMBER_LIMIT = 10**10
# Keys under which configs declare MTP layers: Qwen3.5/3.6; DeepSeek, GLM, Qwen3-Next, MiMo, ERNIE, LongCat; MiniMax.
MTP_KEYS = ("mtp_num_hidden_layers", "num_nextn_predict_layers", "num_mtp_modules", "num_mtp_layers", "mtp_num_layers")
_KINDS: Mapping[str, LayerKind] = {
    "full_attention": "full",
    "attention": "full",
    "linear_attention": "linear",
    "sliding_attention": "sliding",
    "chunked_attention": "sliding",
}
_NESTED = ("text_config", "llm_config", "language_config", "thinker_config")


@dataclass(frozen=True)
class LinearState:
    """A gated-delta-net layer: heads and head sizes of keys and values, width of the convolution, type of the recurrent state."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_kernel: int
    state_dtype: str


@dataclass(frozen=True)
class Experts:
    """Mixture of experts: how many, how many a token uses, width of one in elements."""

    count: int
    per_token: int
    width: int


@dataclass(frozen=True)
class Shape:
    """A model's shape. ``layers``: the kind of each decoder layer in order, MTP layers not among them. Sizes are in elements.

    ``mtp_layers`` and ``mtp_key``: MTP layers the config declares, and under which key. ``latent``: elements of MLA's vector.
    """

    architecture: str | NoData
    model_type: str
    dtype: str | NoData
    layers: tuple[LayerKind, ...]
    hidden_size: int
    vocab_size: int | NoData
    attention_heads: int
    kv_heads: int
    head_dim: int
    intermediate_size: int | NoData
    experts: Experts | NoData
    latent: int | NoData
    linear: LinearState | NoData
    sliding_window: int | NoData
    max_context: int | NoData
    rope_scaled: bool
    mtp_layers: int | NoData
    mtp_key: str
    multimodal: bool
    irregular: str = ""

    def count(self, kind: LayerKind) -> int:
        """How many decoder layers are of this kind."""
        return self.layers.count(kind)

    @property
    def hybrid(self) -> bool:
        """Whether layers with a state of fixed size stand beside attention layers."""
        return bool({"linear", "other"} & set(self.layers)) and len(set(self.layers)) > 1


def read_shape(config: Mapping[str, Any]) -> Shape:
    """The shape that a config.json states. Raises CheckpointError for a value no model has, naming the key."""
    text = _text_part(config)
    hidden = _need(text, "hidden_size", _NUMBER_LIMIT)
    heads = _need(text, "num_attention_heads", 100_000)
    kv_heads = _int(text, "num_key_value_heads", 100_000)
    head_dim = _int(text, "head_dim", 100_000)
    mtp_layers, mtp_key = _mtp(config, text)
    rope = text.get("rope_parameters") or text.get("rope_scaling") or {}
    rope_kind = rope.get("rope_type") or rope.get("type") if isinstance(rope, Mapping) else None
    return Shape(
        architecture=_architecture(config, text),
        model_type=_text(text, "model_type") or _text(config, "model_type") or "unknown",
        dtype=_dtype(config, text),
        layers=_layers(text),
        hidden_size=hidden,
        vocab_size=_int(text, "vocab_size", _NUMBER_LIMIT),
        attention_heads=heads,
        kv_heads=heads if isinstance(kv_heads, NoData) or kv_heads == 0 else kv_heads,
        head_dim=max(1, hidden // heads) if isinstance(head_dim, NoData) or head_dim == 0 else head_dim,
        intermediate_size=_int(text, "intermediate_size", _NUMBER_LIMIT),
        experts=_experts(text),
        latent=_latent(text),
        linear=_linear(text),
        sliding_window=_int(text, "sliding_window", _NUMBER_LIMIT),
        max_context=_int(text, "max_position_embeddings", _NUMBER_LIMIT),
        rope_scaled=rope_kind not in (None, "default"),
        mtp_layers=mtp_layers,
        mtp_key=mtp_key,
        multimodal="vision_config" in config or "audio_config" in config,
        irregular=_irregular(text),
    )


def _text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's own part of a config; the config itself when nothing is nested."""
    current = config
    for _ in range(2):
        for key in _NESTED:
            part = current.get(key)
            if part is None:
                continue
            if not isinstance(part, Mapping):
                raise CheckpointError(f"config.json: {key} is {type(part).__name__}, not an object")
            current = part
            break
    return current


def _int(config: Mapping[str, Any], key: str, limit: int) -> int | NoData:
    value = config.get(key)
    if value is None:
        return NoData(f"config.json does not state {key}")
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= limit:
        raise CheckpointError(f"config.json: {key} is {str(value)[:60]!r}; expected a whole number from 0 to {limit:,}")
    return value


def _need(config: Mapping[str, Any], key: str, limit: int) -> int:
    value = _int(config, key, limit)
    if isinstance(value, NoData) or value == 0:
        seen = "does not state" if isinstance(value, NoData) else "states 0 for"
        raise CheckpointError(
            f"config.json {seen} {key}, so this is no language model that can be judged",
            next_step="Name the folder of the served model, with its own config.json.",
        )
    return value


def _text(config: Mapping[str, Any], key: str) -> str:
    value = config.get(key)
    return value if isinstance(value, str) else ""


def _architecture(config: Mapping[str, Any], text: Mapping[str, Any]) -> str | NoData:
    for part in (config, text):
        names = part.get("architectures")
        if isinstance(names, list) and names and isinstance(names[0], str):
            return names[0]
    return NoData("config.json names no architecture")


def _dtype(config: Mapping[str, Any], text: Mapping[str, Any]) -> str | NoData:
    for part in (text, config):
        for key in ("dtype", "torch_dtype"):
            value = part.get(key)
            if isinstance(value, str) and value != "auto":
                return value.removeprefix("torch.")
    return NoData("config.json states no dtype")


def _layers(text: Mapping[str, Any]) -> tuple[LayerKind, ...]:
    """The kind of each decoder layer: named one by one, by an interval, or the same for all."""
    count = _need(text, "num_hidden_layers", LAYERS_LIMIT)
    if text.get("kv_lora_rank") and not (text.get("layer_types") or text.get("linear_attn_config")):
        return _alike("mla", count)
    named = text.get("layer_types") or text.get("layers_block_type")
    if named is not None:
        if not isinstance(named, list) or len(named) < count:
            size = len(named) if isinstance(named, list) else type(named).__name__
            raise CheckpointError(f"config.json: layer_types has {size} entries for {count} layers")
        return tuple(_KINDS.get(str(kind), "other") for kind in named[:count])
    if text.get("hybrid_override_pattern") or text.get("linear_attn_config") or text.get("attn_type_list"):
        return _alike("other", count)
    if "linear_num_value_heads" in text:
        every = _int(text, "full_attention_interval", LAYERS_LIMIT)
        step = 4 if isinstance(every, NoData) or every == 0 else every  # transformers' default for Qwen3-Next and Qwen3.5
        return tuple("full" if (number + 1) % step == 0 else "linear" for number in range(count))
    if any(key in text for key in ("ssm_state_size", "mamba_d_state", "mamba_n_heads", "state_size", "conv_L_cache")):
        return _alike("other", count)
    window = text.get("sliding_window")
    if not window or text.get("use_sliding_window") is False:
        return _alike("full", count)
    every = _int(text, "sliding_window_pattern", LAYERS_LIMIT)
    if isinstance(every, NoData) or every == 0:
        return _alike("sliding", count)
    return tuple("full" if (number + 1) % every == 0 else "sliding" for number in range(count))


def _alike(kind: LayerKind, count: int) -> tuple[LayerKind, ...]:
    return (kind,) * count


def _irregular(text: Mapping[str, Any]) -> str:
    """Why layers of one kind do not all need the same memory, as a sentence; empty when they do."""
    if text.get("global_head_dim") or text.get("num_global_key_value_heads"):
        return "its layers have heads of different sizes"
    if text.get("num_kv_shared_layers"):
        return "some of its layers use another layer's keys and values"
    if text.get("index_topk"):
        return "its sparse attention keeps an index beside the keys and values"
    return ""


def _experts(text: Mapping[str, Any]) -> Experts | NoData:
    for key in ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"):
        count = _int(text, key, 1_000_000)
        if isinstance(count, NoData) or count == 0:
            continue
        used = _first(text, ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k"))
        width = _first(text, ("moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size"))
        return Experts(count, 1 if isinstance(used, NoData) else used, 0 if isinstance(width, NoData) else width)
    return NoData("config.json names no experts: a dense model")


def _first(text: Mapping[str, Any], keys: tuple[str, ...]) -> int | NoData:
    for key in keys:
        if not isinstance(value := _int(text, key, _NUMBER_LIMIT), NoData):
            return value
    return NoData(f"config.json states none of {', '.join(keys)}")


def _latent(text: Mapping[str, Any]) -> int | NoData:
    rank, rope = _int(text, "kv_lora_rank", _NUMBER_LIMIT), _int(text, "qk_rope_head_dim", _NUMBER_LIMIT)
    if isinstance(rank, NoData) or isinstance(rope, NoData):
        return NoData("config.json states no latent attention (kv_lora_rank, qk_rope_head_dim)")
    return rank + rope


def _linear(text: Mapping[str, Any]) -> LinearState | NoData:
    keys = (
        "linear_num_key_heads",
        "linear_num_value_heads",
        "linear_key_head_dim",
        "linear_value_head_dim",
        "linear_conv_kernel_dim",
    )
    if "linear_num_value_heads" not in text:
        return NoData("config.json states no gated delta net (linear_num_value_heads)")
    key_heads, value_heads, key_dim, value_dim, kernel = (_need(text, key, 1_000_000) for key in keys)
    return LinearState(key_heads, value_heads, key_dim, value_dim, kernel, _text(text, "mamba_ssm_dtype") or "auto")


def _mtp(config: Mapping[str, Any], text: Mapping[str, Any]) -> tuple[int | NoData, str]:
    parts = [text, config]
    parts += [part["mtp_config"] for part in (text, config) if isinstance(part.get("mtp_config"), Mapping)]
    for part in parts:
        for key in MTP_KEYS:
            if not isinstance(value := _int(part, key, LAYERS_LIMIT), NoData):
                return value, key
    return NoData(f"config.json has none of {', '.join(MTP_KEYS)}"), ""
