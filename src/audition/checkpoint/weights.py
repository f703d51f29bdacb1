"""Bytes of weights, in total and per GPU. Pure.

The rule for tensor parallelism n: matrices are split, so a GPU holds 1/n of them; vectors, norms, expert routers and MLA's
down-projections are copied to each; a key or value projection is split by at most the number of KV heads. With expert
parallelism a GPU holds ceil(E/n) of the E experts whole, without it 1/n of each: the same bytes where n divides E.
Source: the layers ColumnParallelLinear, RowParallelLinear, ReplicatedLinear, QKVParallelLinear and FusedMoE of vLLM.

What must not live here: files, KV cache, what an engine needs besides weights.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from typing import Literal

from audition.checkpoint.config import Shape
from audition.checkpoint.serving import Estimate, Serving
from audition.checkpoint.tensors import Group, Tensor, split_name
from audition.units import NoData

Sharing = Literal["split", "copied", "by-kv-head", "shared"]

# Range around the sum over the headers. Measured with vLLM 0.24 on one H200: 64.72 GiB loaded for 64.56 GiB of tensors, 66.29
# for 66.13 (+0.2 %); repacking for another kernel, padding and scales account for the rest of the range.
LOW, HIGH = 0.98, 1.04
_COPIED = re.compile(r"norm|(^|\.)(gate|router|shared_expert_gate|q_a_proj|kv_a_proj_with_mqa|fused_qkv_a_proj)$")
_KV = re.compile(r"(^|\.)(k_proj|v_proj)$")
_SHARED = re.compile(r"embed_tokens|shared_head\.head|lm_head")


@dataclass(frozen=True)
class Part:
    """Bytes of the tensors of one group that are divided over GPUs in one way."""

    group: Group
    sharing: Sharing
    size_bytes: int


@dataclass(frozen=True)
class Weights:
    """Bytes of all tensors that an engine loads, by group and by how they are divided. ``tensors``, ``files``: how many."""

    parts: tuple[Part, ...]
    tensors: int
    files: int

    def of(self, *groups: Group) -> int:
        """Bytes of these groups; of everything when none is named."""
        return sum(part.size_bytes for part in self.parts if not groups or part.group in groups)

    @property
    def total_bytes(self) -> int:
        """Bytes of everything."""
        return self.of()

    @property
    def expert_bytes(self) -> int:
        """Bytes of the routed experts, those of the MTP heads not among them."""
        return self.of("experts")

    @property
    def rest_bytes(self) -> int:
        """Bytes of everything but the routed experts."""
        return self.total_bytes - self.expert_bytes


def read_weights(grouped: Iterable[tuple[Tensor, Group]]) -> Weights:
    """Sum up tensors by group and sharing."""
    sums: dict[tuple[Group, Sharing], int] = {}
    files: set[str] = set()
    count = 0
    for tensor, group in grouped:
        key = (group, _sharing(tensor, group))
        sums[key] = sums.get(key, 0) + tensor.size_bytes
        files.add(tensor.file)
        count += 1
    return Weights(tuple(Part(*key, size) for key, size in sorted(sums.items())), count, len(files))


def _sharing(tensor: Tensor, group: Group) -> Sharing:
    if group == "experts":
        return "split" if len(tensor.shape) >= 2 else "copied"
    module = split_name(tensor.name)[0]
    if group == "mtp" and _SHARED.search(module):
        return "shared"  # the engine uses the target's embedding and output head for the drafts
    if len(tensor.shape) < 2 or _COPIED.search(module):
        return "copied"
    return "by-kv-head" if _KV.search(module) else "split"


def per_gpu(weights: Weights | NoData, shape: Shape, serving: Serving) -> Estimate | NoData:
    """Bytes of weights on each GPU under tensor parallelism, by the rule above, with its range.

    The MTP heads count only when they are used, the vision tower only when it is loaded. ``NoData`` for pipeline parallelism,
    whose division over GPUs this rule does not cover.
    """
    if serving.weights_bytes is not None:
        return Estimate(serving.weights_bytes * 0.99, serving.weights_bytes, serving.weights_bytes * 1.01)
    if isinstance(weights, NoData):
        return weights
    if serving.pipeline_parallel > 1:
        return NoData("weights per GPU are not estimated for pipeline parallelism")
    skipped = {group for group, skip in (("mtp", not serving.uses_mtp), ("vision", serving.language_model_only)) if skip}
    size = sum(part.size_bytes * _fraction(part, shape, serving) for part in weights.parts if part.group not in skipped)
    return Estimate(size * LOW, size, size * HIGH)


def _fraction(part: Part, shape: Shape, serving: Serving) -> float:
    ranks = serving.tensor_parallel
    if part.sharing == "shared":
        return 0.0
    if part.sharing == "copied":
        return 1.0
    if part.sharing == "by-kv-head":
        return 1 / min(ranks, max(1, shape.kv_heads))
    if part.group == "experts" and serving.expert_parallel and not isinstance(shape.experts, NoData):
        return ceil(shape.experts.count / ranks) / shape.experts.count
    return 1 / ranks
