"""What an engine keeps of a GPU's memory besides weights and KV cache. Pure; an estimate with a stated rule and a wide range.

vLLM measures this at boot with a dummy step; beforehand it can only be estimated:

- **driver**: CUDA sees less than nvidia-smi's total: 23.52 of 23.99 GiB on an RTX 4090 (vllm#42147), 79.33 of 79.65 GiB on an H100
  (vllm#50722). Taken as 0.5 GiB, range 0.3 to 0.65.
- **context**: memory outside torch, 0.3 GiB (0.05 to 1; 0.13 in vllm#50722); with several GPUs 0.2 GiB (0.05 to 1) for NCCL.
- **activations** of the largest step: tokens x 2 bytes x (8 x hidden + 3 x the widest layer), where the widest is the routed
  experts' input and output (top-k copies of a token), the gated MLP, or a GDN layer's projections. Range x 0.6 to x 2.
- **logits** of the sampler's dummy step: requests x vocabulary x 4 bytes x 2.5. Range x 0.5 to x 1.5.
- **graphs**: 0.0106 GiB for each captured CUDA graph, of which there are two sets up to the capture size (0.27 GiB for 26 graphs,
  0.36 for 34). Counted by vLLM since 0.21; before that graphs come on top of the utilisation. Range x 0.4 to x 1.6.
- **vision**: 0.4 GiB (0 to 2) when a vision tower is loaded, since its dummy step is measured too. With all of it, the 7.1 GiB
  of vllm#50722 (four H100, 1,024 requests: 5.66 activations, 0.13 outside torch, 1.34 graphs) lie in the range.

The factors were fitted to boots of one model on one H200 with vLLM 0.24: 1.73 GiB (32 requests, no drafts), 1.79 and 2.34 (32
requests, k = 3, warm and cold cache), 4.91 (1,024 requests). Other models and GPUs are
extrapolation: that is what the range is for.

What must not live here: weights, KV cache.
"""

from __future__ import annotations

from audition.checkpoint.config import Shape
from audition.checkpoint.serving import GIB, Estimate, Serving, exactly
from audition.units import NoData

DRIVER = Estimate(0.3 * GIB, 0.5 * GIB, 0.65 * GIB)
_CONTEXT = Estimate(0.05 * GIB, 0.3 * GIB, 1.0 * GIB)
_NCCL = Estimate(0.05 * GIB, 0.2 * GIB, 1.0 * GIB)
_VISION = Estimate(0.0, 0.4 * GIB, 2.0 * GIB)
_GRAPH_BYTES = 0.0106 * GIB
_CAPTURE_LIMIT = 512  # default of max_cudagraph_capture_size: twice max_num_seqs, at most this
_GRAPHS_COUNTED_SINCE = (0, 21)


def reserve(shape: Shape, serving: Serving) -> Estimate:
    """Bytes on each GPU that are neither weights nor KV cache, within the share that utilisation allows."""
    total = _CONTEXT + _activations(shape, serving) + _logits(shape, serving)
    if serving.tensor_parallel > 1:
        total = total + _NCCL
    if shape.multimodal and not serving.language_model_only:
        total = total + _VISION
    if isinstance(serving.version, NoData) or serving.version >= _GRAPHS_COUNTED_SINCE:
        total = total + _graphs(serving)
    return total


def _activations(shape: Shape, serving: Serving) -> Estimate:
    ranks = serving.tensor_parallel
    widths = [shape.attention_heads * shape.head_dim // ranks]
    if not isinstance(shape.intermediate_size, NoData):
        widths.append(2 * shape.intermediate_size // ranks)
    if not isinstance(shape.experts, NoData):
        widths.append(shape.experts.per_token * max(2 * shape.experts.width // ranks, shape.hidden_size))
    if not isinstance(shape.linear, NoData):
        keys, values = shape.linear.key_heads * shape.linear.key_dim, shape.linear.value_heads * shape.linear.value_dim
        widths.append(2 * (keys + values) // ranks)
    size = serving.batched_tokens * 2 * (8 * shape.hidden_size + 3 * max(widths))
    return Estimate(0.6 * size, size, 2.0 * size)


def _logits(shape: Shape, serving: Serving) -> Estimate:
    if isinstance(shape.vocab_size, NoData):
        return exactly(0)
    size = serving.seqs * shape.vocab_size * 4 * 2.5
    return Estimate(0.5 * size, size, 1.5 * size)


def _graphs(serving: Serving) -> Estimate:
    if serving.enforce_eager:
        return exactly(0)
    largest = serving.cudagraph_capture_size or min(2 * serving.seqs, _CAPTURE_LIMIT)
    size = (captures(largest) + captures(min(largest, serving.seqs * (1 + serving.drafts)))) * _GRAPH_BYTES
    return Estimate(0.4 * size, size, 1.6 * size)


def captures(largest: int) -> int:
    """How many batch sizes are captured up to ``largest``: 1, 2, 4, every 8th up to 256, every 16th beyond."""
    small = sum(size <= largest for size in (1, 2, 4))
    return small + min(largest, 256) // 8 + max(0, largest - 256) // 16
