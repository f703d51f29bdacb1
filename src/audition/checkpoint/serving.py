"""How a checkpoint is to be served, as far as memory depends on it, and the type of an estimate. Pure data.

What must not live here: reading command lines (``audition.profile``), formulas.
"""

from __future__ import annotations

from dataclasses import dataclass

from audition.units import NoData

GIB = 2**30
_NO_VERSION = NoData("the engine's version is not known")
MTP_METHODS = frozenset({"mtp"})  # older names end in ``_mtp`` and mean the same


@dataclass(frozen=True)
class Estimate:
    """A figure that is not known exactly: the likely value, and the range outside which it would be a surprise."""

    low: float
    expected: float
    high: float

    def holds(self, value: float) -> bool:
        """Whether a measured value lies in the range."""
        return self.low <= value <= self.high

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(self.low + other.low, self.expected + other.expected, self.high + other.high)

    def minus(self, other: Estimate) -> Estimate:
        """The difference; the widest range, since the two errors need not go together."""
        return Estimate(self.low - other.high, self.expected - other.expected, self.high - other.low)

    def times(self, factor: float) -> Estimate:
        """The estimate scaled by a factor of 0 or more."""
        return Estimate(self.low * factor, self.expected * factor, self.high * factor)


def exactly(value: float) -> Estimate:
    """An estimate without uncertainty."""
    return Estimate(value, value, value)


@dataclass(frozen=True)
class Speculation:
    """``method`` as in ``--speculative-config``; ``k``: num_speculative_tokens. ``model``: a drafter of its own, or empty."""

    method: str
    k: int
    model: str = ""

    @property
    def by_mtp(self) -> bool:
        """Whether the checkpoint's own MTP heads make the drafts."""
        return self.method in MTP_METHODS or self.method.endswith("_mtp")


@dataclass(frozen=True)
class Serving:
    """The settings that memory depends on. Bytes are per GPU.

    ``gpu_memory_bytes``: what nvidia-smi gives as total. ``gpu_memory_utilization``: pass the version's own default, which was 0.9
    and is 0.92 in 0.32 (0.24 already logs 0.9 among the non-default arguments). ``prefix_caching``: as it will be, asked for or
    by default. ``max_num_seqs`` and ``max_num_batched_tokens``: None means vLLM's default for this GPU. ``block_align_tokens``:
    smallest block of the attention kernel (16 on CUDA, 128 on a CPU). ``kv_cache_memory_bytes``: ``--kv-cache-memory-bytes``,
    which replaces the profiled amount. ``weights_bytes``: weights per GPU when they are known better than from the headers, such
    as from an earlier boot. ``version``: of vLLM, as numbers.
    """

    gpu_memory_bytes: int
    max_model_len: int | None = None
    gpu_memory_utilization: float = 0.9
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    expert_parallel: bool = False
    kv_cache_dtype: str = "auto"
    speculation: Speculation | None = None
    prefix_caching: bool = False
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    enforce_eager: bool = False
    cudagraph_capture_size: int | None = None
    language_model_only: bool = False
    state_dtype: str = "auto"
    block_align_tokens: int = 16
    kv_cache_memory_bytes: int | None = None
    weights_bytes: int | None = None
    version: tuple[int, ...] | NoData = _NO_VERSION

    @property
    def drafts(self) -> int:
        """Speculative tokens a step; 0 without speculation."""
        return self.speculation.k if self.speculation else 0

    @property
    def uses_mtp(self) -> bool:
        """Whether the checkpoint's MTP heads are loaded."""
        return self.speculation is not None and self.speculation.by_mtp

    @property
    def seqs(self) -> int:
        """Requests at once. vLLM's default for its API server: 1,024 from 70 GiB of GPU memory (but on an A100: 256), else 256.

        Source: ``get_batch_defaults`` in vllm/engine/arg_utils.py.
        """
        return self.max_num_seqs or (1024 if self.gpu_memory_bytes >= 70 * GIB else 256)

    @property
    def batched_tokens(self) -> int:
        """Tokens a step. vLLM's default for its API server: 8,192 from 70 GiB of GPU memory, else 2,048 (same source)."""
        return self.max_num_batched_tokens or (8192 if self.gpu_memory_bytes >= 70 * GIB else 2048)
