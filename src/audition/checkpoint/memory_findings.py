"""What to say about memory, context and tensor parallelism before a checkpoint is served. Pure; part of ``findings``.

What must not live here: MTP heads (``findings``), formulas (``predict``).
"""

from __future__ import annotations

from audition.checkpoint.facts import Facts
from audition.checkpoint.predict import FORMULA_CHANGED, Prediction
from audition.checkpoint.problem import Problem
from audition.checkpoint.serving import GIB, Estimate, Serving
from audition.units import NoData

_VLLM = "https://github.com/vllm-project/vllm/issues/"


def memory_findings(facts: Facts, serving: Serving, prediction: Prediction) -> list[Problem]:
    """Division over GPUs, context, whether weights and one longest request fit, and which KV figure the log will show."""
    found = _division(facts, serving)
    found += _context(facts, serving)
    found += _fit(serving, prediction)
    found += _formula(facts, serving, prediction)
    return found


def _division(facts: Facts, serving: Serving) -> list[Problem]:
    """Heads and quantised widths against tensor parallelism."""
    ranks, shape = serving.tensor_parallel, facts.shape
    if ranks == 1:
        return []
    found = []
    if shape.attention_heads % ranks:
        text = f"{shape.attention_heads} attention heads cannot be divided over {ranks} GPUs: vLLM refuses it at boot."
        found.append(Problem("blocking", "heads-indivisible", text, "Take a tensor parallel size that divides the heads."))
    linear = shape.linear
    if not isinstance(linear, NoData) and (linear.key_heads % ranks or linear.value_heads % ranks):
        text = f"{linear.key_heads} key and {linear.value_heads} value heads of the GDN layers cannot be divided over {ranks} GPUs."
        found.append(Problem("blocking", "gdn-heads-indivisible", text, "Take a smaller tensor parallel size."))
    if "mla" not in shape.layers and shape.kv_heads < ranks:
        text = f"{shape.kv_heads} KV heads on {ranks} GPUs: each GPU keeps a whole one, so more GPUs do not shrink the cache."
        found.append(Problem("ok", "kv-heads-copied", text))
    block, experts = facts.quantisation.block, shape.experts
    if isinstance(block, NoData) or isinstance(experts, NoData) or serving.expert_parallel:
        return found
    if experts.width and experts.width % ranks == 0 and (experts.width // ranks) % block[0]:
        text = (
            f"Experts of width {experts.width} split over {ranks} GPUs are {experts.width // ranks} wide, no multiple of the "
            f"FP8 block of {block[0]}: vLLM refuses it."
        )
        found.append(Problem("blocking", "fp8-block-indivisible", text, "Add --enable-expert-parallel, or take fewer GPUs."))
    return found


def _context(facts: Facts, serving: Serving) -> list[Problem]:
    native, asked = facts.shape.max_context, serving.max_model_len
    if isinstance(native, NoData) or asked is None or asked <= native or facts.shape.rope_scaled:
        return []
    text = f"--max-model-len {asked:,} is more than the model's {native:,} tokens: vLLM refuses it at boot."
    return [Problem("blocking", "context-beyond-model", text, f"Take at most --max-model-len {native}, or configure rope scaling.")]


def _fit(serving: Serving, prediction: Prediction) -> list[Problem]:
    memory, times, length = prediction.kv_memory_bytes, prediction.concurrency, prediction.max_model_len
    if isinstance(memory, NoData):
        return [Problem("warning", "memory-unknown", f"Whether it fits is not known: {memory.reason}.")]
    if memory.high <= 0:
        text = f"The weights leave no room for a KV cache: {_weights(prediction)} of {_share(serving)} GiB per GPU."
        return [Problem("blocking", "weights-do-not-fit", text, "More GPUs, a smaller quantisation, or a higher utilisation.")]
    if isinstance(times, NoData) or isinstance(length, NoData):
        reason = times.reason if isinstance(times, NoData) else "the longest request is not known"
        text = f"About {_gib(memory)} GiB per GPU for the KV cache; how many tokens that is: {reason}."
        return [Problem("warning", "capacity-unknown", text)]
    longest = prediction.largest_context
    hint = "" if isinstance(longest, NoData) else f"About {longest.expected:,.0f} tokens fit; lower --max-model-len."
    if times.high < 1:
        text = f"One request of {length:,} tokens does not fit: about {_gib(memory)} GiB per GPU for the KV cache."
        return [Problem("blocking", "context-does-not-fit", text, hint)]
    if times.low < 1:
        text = (
            f"One request of {length:,} tokens may not fit: {_times(times)} requests, {_gib(memory)} GiB per GPU for the KV cache."
        )
        return [Problem("warning", "context-may-not-fit", text, hint)]
    capacity = prediction.capacity_tokens
    tokens = "" if isinstance(capacity, NoData) else f", {capacity.expected:,.0f} tokens in all"
    text = f"Expected: {_times(times)} requests of {length:,} tokens at once{tokens} ({_gib(memory)} GiB per GPU for the KV cache)."
    return [Problem("ok", "capacity", text)]


def _formula(facts: Facts, serving: Serving, prediction: Prediction) -> list[Problem]:
    """On a hybrid model, a version whose log counts tokens by the older formula misleads."""
    if not facts.shape.hybrid or isinstance(serving.version, NoData) or serving.version >= FORMULA_CHANGED:
        return []
    pool, capacity = prediction.pool_tokens, prediction.capacity_tokens
    if isinstance(pool, NoData) or isinstance(capacity, NoData):
        return []
    text = (
        f"vLLM up to 0.20.0 logs the KV cache size of a hybrid model by another formula: here about {pool.expected:,.0f} tokens, "
        f"where concurrency x max-model-len, the figure of later versions, is {capacity.expected:,.0f}."
    )
    return [Problem("warning", "kv-figure-formula", text, "Compare concurrency x max-model-len between arms.", f"{_VLLM}40691")]


def _weights(prediction: Prediction) -> str:
    weights = prediction.weights_bytes
    return "an unknown amount" if isinstance(weights, NoData) else f"{weights.expected / GIB:.1f}"


def _share(serving: Serving) -> str:
    return f"{serving.gpu_memory_bytes * serving.gpu_memory_utilization / GIB:.1f}"


def _gib(estimate: Estimate) -> str:
    return f"{max(0.0, estimate.low) / GIB:.1f} to {max(0.0, estimate.high) / GIB:.1f}"


def _times(estimate: Estimate) -> str:
    return f"{estimate.low:.1f} to {estimate.high:.1f}"
