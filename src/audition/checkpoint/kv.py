"""How vLLM lays out a KV cache: pages, blocks, groups of layers, blocks a request needs. Pure.

The rules, as released versions apply them (``vllm/v1/core/kv_cache_utils.py``, ``vllm/v1/kv_cache_interface.py``,
``vllm/platforms/interface.py``), checked against boots of 0.24 on an H200 and 0.32 on a CPU (tests/checkpoint):

1. Attention keeps keys and values of every KV head for each token: 2 x heads x head size x bytes, per layer and GPU. MLA keeps
   one latent vector. TurboQuant packs a head's key and value into one slot.
2. A GDN layer keeps a state of fixed size per sequence: the convolution's last inputs, (2 x key heads x key size + value heads x
   value size) x (kernel - 1 + k), and the recurrent state, value heads x value size x key size.
3. All layers of a hybrid share one pool of equal pages, so the attention block grows until its page holds a GDN state, and the
   state is padded to the page.
4. Layers of one kind are put into groups of equal size: the smallest kind's count, or the largest's when that is less than 1.5
   times as many. A block is one page for every layer of a group; kinds that do not fill their last group waste the rest.
5. A request of L tokens needs ceil(L / block) blocks in each full-attention group, and in each GDN group 1 + k blocks (2 + k with
   prefix caching), because each drafted token has a state of its own.

What must not live here: how much memory there is, files, wording.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from audition.checkpoint.config import LayerKind, Shape
from audition.checkpoint.serving import Serving
from audition.units import NoData

DEFAULT_BLOCK = 16  # tokens; CacheConfig.DEFAULT_BLOCK_SIZE
_PADDING_LIMIT = 1.5  # rule 4
_CELL_BYTES = {"bfloat16": 2, "float16": 2, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "fp8_inc": 1}
_STATE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
# TurboQuant presets: bits of a key (8: FP8 without a norm beside it) and of a value. A value has 4 bytes of scale and zero point,
# a key of fewer than 8 bits 2 bytes of norm. Source: model_executor/layers/quantization/turboquant/config.py.
_TURBOQUANT = {
    "turboquant_k8v4": (8, 4),
    "turboquant_4bit_nc": (4, 4),
    "turboquant_k3v4_nc": (3, 4),
    "turboquant_3bit_nc": (3, 3),
}
_TURBOQUANT_PLAIN_EACH_SIDE = 2  # layers at both ends of a model that is no hybrid stay unpacked (same source)


@dataclass(frozen=True)
class KvGroup:
    """A kind of layer: how many there are, MTP layers among them, and into how many groups they are put."""

    kind: LayerKind
    layers: int
    groups: int


@dataclass(frozen=True)
class KvLayout:
    """A KV cache on one GPU. ``block_tokens``: tokens of an attention block. ``bytes_per_block``: of
    the pool, all layers of a group.

    ``kv_bytes_per_token``: all attention layers. ``state_bytes_per_sequence``: all GDN layers, with a copy for each draft and,
    under prefix caching, for the last checkpoint; before padding. ``padding``: share of a GDN page that is padding, 0 to 1.
    """

    block_tokens: int
    page_bytes: int
    bytes_per_block: int
    groups: tuple[KvGroup, ...]
    kv_bytes_per_token: int
    state_bytes_per_sequence: int
    padding: float
    state_blocks: int
    window_tokens: int

    @property
    def group_count(self) -> int:
        """How many block tables a request has."""
        return sum(group.groups for group in self.groups)

    def blocks_for(self, tokens: int) -> int:
        """Blocks of the pool that a request of so many tokens needs at most."""
        needed = 0
        for group in self.groups:
            if group.kind == "linear":
                needed += group.groups * self.state_blocks
            elif group.kind == "sliding":
                kept = min(tokens, self.window_tokens)
                needed += group.groups * min(ceil(kept / self.block_tokens) + 1, ceil(tokens / self.block_tokens) + 1)
            else:
                needed += group.groups * ceil(tokens / self.block_tokens)
        return needed


def cell_bytes(shape: Shape, serving: Serving, *, kv_fp8: bool = False) -> int | NoData:
    """Bytes that one attention layer keeps for one token on one GPU. ``kv_fp8``: what ``auto`` means for this checkpoint."""
    dtype = serving.kv_cache_dtype
    if dtype == "auto":
        dtype = "fp8" if kv_fp8 else "bfloat16"  # 16 bits whatever the type of the weights: vLLM serves float32 ones in 16 bits
    heads = max(1, ceil(shape.kv_heads / serving.tensor_parallel))
    if dtype in _TURBOQUANT:
        if "mla" in shape.layers:
            return NoData("TurboQuant does not store latent attention")
        slot = _turboquant_slot(shape.head_dim, dtype)
        return heads * slot
    if dtype not in _CELL_BYTES:
        return NoData(f"the size of a token in KV cache type {dtype} is not known here")
    if "mla" in shape.layers:
        if isinstance(shape.latent, NoData):
            return shape.latent
        return shape.latent * _CELL_BYTES[dtype] or NoData("config.json states a latent vector of no elements")
    return 2 * heads * shape.head_dim * _CELL_BYTES[dtype]


def _turboquant_slot(head_dim: int, preset: str) -> int:
    key_bits, value_bits = _TURBOQUANT[preset]
    key = head_dim if key_bits == 8 else ceil(head_dim * key_bits / 8) + 2
    slot = key + ceil(head_dim * value_bits / 8) + 4
    return slot + slot % 2


def state_bytes(shape: Shape, serving: Serving) -> int | NoData:
    """Bytes of one GDN layer's state for one sequence on one GPU (rule 2)."""
    linear = shape.linear
    if isinstance(linear, NoData):
        return linear
    width = 2 * linear.key_heads * linear.key_dim + linear.value_heads * linear.value_dim
    conv = width // serving.tensor_parallel * (linear.conv_kernel - 1 + serving.drafts) * 2
    dtype = serving.state_dtype if serving.state_dtype != "auto" else linear.state_dtype
    element = _STATE_BYTES.get(dtype, 2)  # auto: the type of the model, 16 bits
    return conv + linear.value_heads // serving.tensor_parallel * linear.value_dim * linear.key_dim * element


def lay_out(shape: Shape, serving: Serving, *, mtp_layers: int = 0, kv_fp8: bool = False) -> KvLayout | NoData:
    """The layout of the KV cache, or why it is not known. ``mtp_layers``: attention layers that speculation adds."""
    if shape.irregular:
        return NoData(f"the KV cache is not predicted: {shape.irregular}")
    if "other" in shape.layers:
        return NoData("the KV cache is not predicted: the config names layers whose state is not known here")
    cell = cell_bytes(shape, serving, kv_fp8=kv_fp8)
    if isinstance(cell, NoData):
        return cell
    counts: dict[LayerKind, int] = {}
    for kind in shape.layers:
        counts[kind] = counts.get(kind, 0) + 1
    attention: LayerKind = "mla" if "mla" in counts else "full" if "full" in counts or "sliding" not in counts else "sliding"
    counts[attention] = counts.get(attention, 0) + mtp_layers
    if not counts[attention]:
        return NoData("the KV cache is not predicted: no layer attends")
    state = state_bytes(shape, serving) if "linear" in counts else 0
    if isinstance(state, NoData):
        return state
    return _assembled(shape, serving, counts, cell, state)


def _assembled(shape: Shape, serving: Serving, counts: Mapping[LayerKind, int], cell: int, state: int) -> KvLayout:
    align = serving.block_align_tokens
    block = max(ceil(DEFAULT_BLOCK / align) * align, align * ceil(state / (align * cell)))
    page = block * cell
    smallest, largest = min(counts.values()), max(counts.values())
    size = largest if largest < smallest * _PADDING_LIMIT else smallest
    groups = tuple(KvGroup(kind, count, ceil(count / size)) for kind, count in sorted(counts.items()))
    attending = sum(count for kind, count in counts.items() if kind != "linear")
    per_token, per_block = attending * cell, size * page
    if len(counts) == 1 and serving.kv_cache_dtype in _TURBOQUANT:
        plain = min(2 * _TURBOQUANT_PLAIN_EACH_SIDE, attending)
        unpacked = 4 * max(1, ceil(shape.kv_heads / serving.tensor_parallel)) * shape.head_dim  # 2 bytes, key and value
        per_token = (attending - plain) * cell + plain * unpacked
        per_block = block * per_token
    state_blocks = 1 + serving.drafts + int(serving.prefix_caching)
    window = 0 if isinstance(shape.sliding_window, NoData) else shape.sliding_window
    return KvLayout(
        block_tokens=block,
        page_bytes=page,
        bytes_per_block=per_block,
        groups=groups,
        kv_bytes_per_token=per_token,
        state_bytes_per_sequence=counts.get("linear", 0) * state * state_blocks,
        padding=(page - state) / page if state else 0.0,
        state_blocks=state_blocks,
        window_tokens=max(0, window - 1) + serving.batched_tokens,
    )
