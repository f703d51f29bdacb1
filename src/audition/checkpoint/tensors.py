"""One tensor as a safetensors header states it, and what its name says. Pure.

Names decide much here, because a checkpoint carries no other description: which layer a tensor belongs to, whether it is an
expert's, the vision tower's, the MTP head's, and whether it is stored quantised.

What must not live here: reading files, sizes of engines.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, NamedTuple

Group = Literal["mtp", "vision", "experts", "embedding", "head", "rest"]

# Bits of an element by safetensors type name: https://github.com/huggingface/safetensors, safetensors/src/tensor.rs (Dtype).
DTYPE_BITS = {
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32,
    "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip
PLAIN_FLOATS = frozenset({"F16", "BF16", "F32", "F64"})
_VISION = re.compile(
    r"(?:^|\.)(?:visual|vision_tower|vision_model|vision_encoder|vision_embed_tokens|vision_projector|audio_tower|audio_model"
    r"|audio_encoder|multi_modal_projector|mm_projector|embed_vision|embed_audio|patch_merger)\."
)
_MTP = re.compile(r"(?:^|\.)mtp(?:_\w+)?\.")
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d{1,6})(?:\.|$)")
# The last part of a name that only a quantised module has: AWQ and GPTQ (q…, scales, g_idx), compressed-tensors and FP8
# (weight_…), bitsandbytes (absmax, quant_map, quant_state).
_QUANTISED_LEAF = re.compile(
    r"^(qweight|qzeros|scales|g_idx|absmax|nested_absmax|quant_map|nested_quant_map|quant_state|SCB|weight_format"
    r"|weight_(packed|scale|scale_inv|scale_2|global_scale|shape|zero_point|g_idx)|input_(scale|global_scale)"
    r"|\w+_(packed|blocks|scales|qweight|qzeros|scale_inv|weight_scale))$"
)


class Tensor(NamedTuple):
    """Name, safetensors type, shape (elements) and bytes of one tensor; ``file``: the file that holds it, without folder.

    A named tuple, because a checkpoint can have 100,000 of them and a frozen dataclass costs three times as much to make.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int
    file: str


def split_name(name: str) -> tuple[str, str]:
    """Module and the rest: ``a.q_proj.weight`` gives ``a.q_proj`` and ``weight``; ``….weight.absmax`` (bitsandbytes) too."""
    parts = name.split(".")
    if "weight" in parts[1:-1]:
        place = len(parts) - 1 - parts[::-1].index("weight")
        return ".".join(parts[:place]), parts[place + 1]
    return ".".join(parts[:-1]), parts[-1]


def layer_of(name: str) -> int | None:
    """The number after ``layers.`` in a name, or None when the tensor belongs to no layer."""
    found = _LAYER.search(name)
    return int(found.group(1)) if found else None


def group_of(name: str, decoder_layers: int) -> Group:
    """Which part of the model a tensor belongs to. A shared expert counts as rest: every token uses it.

    Two ways of naming multi-token-prediction heads are in use: a part of the name is ``mtp`` or begins with ``mtp_`` (Qwen, MiMo,
    ERNIE), or the layer's number lies beyond the decoder's (DeepSeek, GLM: ``model.layers.61`` with 61 decoder layers).
    """
    before, expert, _ = name.partition(".experts.")
    if not expert:
        return _group(name, decoder_layers)
    group = _group(before + ".", decoder_layers)
    return group if group in ("mtp", "vision") else "experts"


@lru_cache(maxsize=4096)  # nearly all tensors of a large checkpoint are experts', and those of a layer share their beginning
def _group(name: str, decoder_layers: int) -> Group:
    if _MTP.search(name):
        return "mtp"
    if _VISION.search(name):
        return "vision"
    number = layer_of(name)
    if number is not None:
        return "mtp" if number >= decoder_layers else "rest"
    if "embed_tokens." in name or "wte." in name or "word_embeddings." in name:
        return "embedding"
    return "head" if name.startswith("lm_head.") or ".lm_head." in name else "rest"


def is_quantised(tensor: Tensor) -> bool:
    """Whether this tensor is part of a quantised module, by its name or by a weight's narrow type."""
    leaf = split_name(tensor.name)[1]
    if _QUANTISED_LEAF.match(leaf):
        return True
    return leaf == "weight" and tensor.dtype not in PLAIN_FLOATS and len(tensor.shape) >= 2
