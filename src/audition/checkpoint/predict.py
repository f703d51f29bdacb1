"""What an engine will report about memory when it serves a checkpoint, said beforehand. Pure.

Two figures are called "KV cache size". Up to vLLM 0.20.0 the log gives ``blocks // groups x block``: the tokens of one group's
share of the pool, whatever a request really needs. From 0.20.1 (vllm#40691) it gives ``concurrency x max_model_len``, where
concurrency is the pool's blocks over the blocks that one longest request needs. For a hybrid model they differ by a factor of
three and more, so both are predicted, and only the second compares arms.

What must not live here: files, wording of findings, what was reported (``compare``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import floor

from audition.checkpoint.facts import Facts
from audition.checkpoint.kv import KvLayout, lay_out
from audition.checkpoint.reserve import DRIVER, reserve
from audition.checkpoint.serving import Estimate, Serving, exactly
from audition.checkpoint.weights import per_gpu
from audition.units import NoData

FORMULA_CHANGED = (0, 20, 1)  # vllm#40691
_ROUNDING = 1e-6  # tokens; a quotient times its divisor can fall just short of the whole number
_CONTEXT_LIMIT = 16_777_216  # tokens looked at when config.json states no limit


@dataclass(frozen=True)
class Prediction:
    """Bytes are per GPU. ``capacity_tokens``: concurrency x ``max_model_len``. ``pool_tokens``: blocks // groups x block.

    ``concurrency``: requests of ``max_model_len`` tokens at once. ``largest_context``: tokens of the longest request that fits
    alone, at most what the model allows. ``logged_tokens``: which of the two the engine's version prints, or why that is open.
    """

    max_model_len: int | NoData
    weights_bytes: Estimate | NoData
    reserve_bytes: Estimate
    kv_memory_bytes: Estimate | NoData
    layout: KvLayout | NoData
    blocks: Estimate | NoData
    concurrency: Estimate | NoData
    capacity_tokens: Estimate | NoData
    pool_tokens: Estimate | NoData
    largest_context: Estimate | NoData
    logged_tokens: Estimate | NoData


def predict(facts: Facts, serving: Serving) -> Prediction:
    """Memory and capacity for a way of serving. What cannot be predicted is ``NoData`` with the reason; never raises."""
    weights = per_gpu(facts.weights, facts.shape, serving)
    kept = reserve(facts.shape, serving)
    memory = _kv_memory(serving, weights, kept)
    layout = lay_out(facts.shape, serving, mtp_layers=_mtp_layers(facts, serving), kv_fp8=facts.quantisation.kv_cache_fp8)
    length = serving.max_model_len or facts.shape.max_context
    blocks = _blocks(layout, memory)
    concurrency, capacity = _concurrency(layout, blocks, length)
    pool, largest = _pool(layout, blocks, facts, serving)
    return Prediction(
        max_model_len=length,
        weights_bytes=weights,
        reserve_bytes=kept,
        kv_memory_bytes=memory,
        layout=layout,
        blocks=blocks,
        concurrency=concurrency,
        capacity_tokens=capacity,
        pool_tokens=pool,
        largest_context=largest,
        logged_tokens=_logged(serving, capacity, pool),
    )


def largest_context(layout: KvLayout, blocks: int, limit: int) -> int:
    """Tokens of the longest request that fits into a pool of ``blocks``, at most ``limit``; 0 when none fits.

    One block is set aside: vLLM's pool keeps a null block (``check_enough_kv_cache_memory``).
    """
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if layout.blocks_for(middle) <= blocks - 1:
            low = middle
        else:
            high = middle - 1
    return low


def _mapped(estimate: Estimate, function: Callable[[float], float]) -> Estimate:
    return Estimate(function(estimate.low), function(estimate.expected), function(estimate.high))


def _mtp_layers(facts: Facts, serving: Serving) -> int:
    """Attention layers that MTP adds: as many as the config declares, whatever k is, since one head is used again."""
    if not serving.uses_mtp:
        return 0
    declared = facts.mtp.declared
    return 1 if isinstance(declared, NoData) or declared == 0 else declared


def _kv_memory(serving: Serving, weights: Estimate | NoData, kept: Estimate) -> Estimate | NoData:
    if serving.kv_cache_memory_bytes is not None:
        return exactly(serving.kv_cache_memory_bytes)
    if isinstance(weights, NoData):
        return weights
    usable = exactly(serving.gpu_memory_bytes).minus(DRIVER).times(serving.gpu_memory_utilization)
    return usable.minus(weights).minus(kept)


def _blocks(layout: KvLayout | NoData, memory: Estimate | NoData) -> Estimate | NoData:
    if isinstance(layout, NoData):
        return layout
    if isinstance(memory, NoData):
        return memory
    return _mapped(memory, lambda size: max(0, floor(size / layout.bytes_per_block)))


_Pair = tuple[Estimate | NoData, Estimate | NoData]


def _concurrency(layout: KvLayout | NoData, blocks: Estimate | NoData, length: int | NoData) -> _Pair:
    """Concurrency, and tokens by the newer formula."""
    if isinstance(blocks, NoData) or isinstance(layout, NoData):
        return blocks, blocks
    if isinstance(length, NoData) or length < 1:
        reason = length if isinstance(length, NoData) else NoData("the longest request has no token")
        return reason, reason
    times = blocks.times(1 / layout.blocks_for(length))
    return times, _mapped(times, lambda value: floor(value * length + _ROUNDING))


def _pool(layout: KvLayout | NoData, blocks: Estimate | NoData, facts: Facts, serving: Serving) -> _Pair:
    """Tokens by the older formula, and the largest context."""
    if isinstance(blocks, NoData) or isinstance(layout, NoData):
        return blocks, blocks
    native = facts.shape.max_context
    limit = _CONTEXT_LIMIT if isinstance(native, NoData) else max(native, serving.max_model_len or 0)
    pool = _mapped(blocks, lambda count: floor(count) // layout.group_count * layout.block_tokens)
    return pool, _mapped(blocks, lambda count: largest_context(layout, floor(count), limit))


def _logged(serving: Serving, capacity: Estimate | NoData, pool: Estimate | NoData) -> Estimate | NoData:
    if isinstance(serving.version, NoData):
        return NoData("which formula the log uses depends on the version of vLLM, which is not known")
    return capacity if serving.version >= FORMULA_CHANGED else pool
