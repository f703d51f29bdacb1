"""The lines of a boot, in order, as data: what vLLM of the chosen version prints, and when memory is taken.

Texts follow boots captured from 0.24.0 (one H200) and 0.32.0, and logs of 0.19 and 0.28.
What must not live here: printing and waiting (see `boot`).
"""

from __future__ import annotations

from dataclasses import dataclass

from audition.simulated.arguments import ServeArguments
from audition.simulated.settings import Settings

API, ENGINE, WORKER = "APIServer", "EngineCore", "Worker"
GIB_PER_MIB = 1 / 1024


@dataclass(frozen=True, slots=True)
class BootLine:
    """One line. at: share of the boot time when it appears. memory: share of the GPU memory held from then on."""

    at: float
    process: str
    source: str
    text: str
    level: str = "INFO"
    memory: float | None = None


def _architectures(model: str) -> tuple[str, str]:
    """Target and MTP architecture, guessed from the model's name; Qwen3.6-35B-A3B's unless it says otherwise."""
    name = model.lower()
    if "glm" in name:
        return "Glm4MoeForCausalLM", "Glm4MoeMTPModel"
    if "deepseek" in name:
        return "DeepseekV3ForCausalLM", "DeepSeekMTPModel"
    if "qwen3.6" in name and "a3b" not in name and "moe" not in name:
        return "Qwen3_5ForConditionalGeneration", "Qwen3_5MTP"
    return "Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeMTP"


def _banner(arguments: ServeArguments, settings: Settings) -> list[BootLine]:
    source = "api_utils.py:339"
    rows = (
        "",
        "       █     █     █▄   ▄█",
        f" ▄▄ ▄█ █     █     █ ▀▄▀ █  version {settings.version}",
        f"  █▄█▀ █     █     █     █  model   {arguments.model}",
        "   ▀▀  ▀▀▀▀▀ ▀▀▀▀▀ ▀     ▀",
        "",
    )
    if settings.release < (0, 15):
        return [BootLine(0.0, API, "api_server.py:1896", f"vLLM API server version {settings.version}")]
    return [BootLine(0.0, API, source, row) for row in rows]


def _front(arguments: ServeArguments, max_model_len: int) -> list[BootLine]:
    target, draft = _architectures(arguments.model)
    lines = [
        BootLine(0.0, API, "api_utils.py:273", f"non-default args: {dict(arguments.given)!r}"),
        BootLine(0.06, API, "model.py:598", f"Resolved architecture: {target}"),
        BootLine(0.06, API, "model.py:1725", f"Using max model len {max_model_len}"),
    ]
    if arguments.kv_cache_dtype.startswith("fp8"):
        lines.append(
            BootLine(
                0.06, API, "cache.py:279",
                f"Using {arguments.kv_cache_dtype} data type to store kv cache. It reduces the GPU memory footprint and "
                "boosts the performance. Meanwhile, it may cause accuracy drop without a proper scaling factor",
            )
        )  # fmt: skip
    spec = arguments.speculative
    if spec is not None and "ngram" not in spec.method:
        if spec.method.endswith("_mtp"):
            text = f"method `{spec.method}` is deprecated and replaced with mtp."
            lines.append(BootLine(0.1, API, "speculative.py:402", text, "WARNING"))
        lines.append(BootLine(0.1, API, "model.py:598", f"Resolved architecture: {draft}"))
        if spec.tokens > 1:
            text = (
                "Enabling num_speculative_tokens > 1 will run multiple times of forward on same MTP layer,"
                "which may result in lower acceptance rate"
            )
            lines.append(BootLine(0.1, API, "speculative.py:761", text, "WARNING"))
    text = f"Chunked prefill is enabled with max_num_batched_tokens={arguments.max_num_batched_tokens}."
    lines.append(BootLine(0.12, API, "scheduler.py:252", text))
    lines.append(BootLine(0.12, API, "vllm.py:1006", "Asynchronous scheduling is enabled."))
    return lines


def _load(arguments: ServeArguments, settings: Settings) -> list[BootLine]:
    size = arguments.tensor_parallel_size
    spec = arguments.speculative
    weights_gib = settings.gpu_memory_mib * GIB_PER_MIB * 0.6
    lines = [
        BootLine(
            0.16, ENGINE, "core.py:112",
            f"Initializing a V1 LLM engine (v{settings.version}) with config: model='{arguments.model}', "
            f"tensor_parallel_size={size}, kv_cache_dtype={arguments.kv_cache_dtype}",
        ),
        BootLine(
            0.2, WORKER, "parallel_state.py:1588",
            f"world_size={size} rank=0 local_rank=0 distributed_init_method=tcp://HOST:PORT backend=nccl", memory=0.03,
        ),
        BootLine(0.22, WORKER, "gpu_model_runner.py:5160", f"Starting to load model {arguments.model}..."),
    ]  # fmt: skip
    if spec is not None and "ngram" not in spec.method:
        detected = "Detected MTP model. Sharing target model {} weights with the draft model."
        lines += [
            BootLine(0.4, WORKER, "gpu_model_runner.py:5184", "Loading drafter model...", memory=0.5),
            BootLine(0.42, WORKER, "llm_base_proposer.py:1379", detected.format("embedding")),
            BootLine(0.42, WORKER, "llm_base_proposer.py:1435", detected.format("lm_head")),
        ]
    took = settings.boot_s * 0.24
    text = f"Model loading took {weights_gib:.2f} GiB memory and {took:.6f} seconds"
    lines.append(BootLine(0.46, WORKER, "gpu_model_runner.py:5255", text, memory=0.6))
    text = (
        f"Setting attention block size to {1072 * (2 if spec else 1)} tokens to ensure that attention page size "
        "is >= mamba page size."
    )
    lines.append(BootLine(0.46, WORKER, "interface.py:773", text))
    if not arguments.given.get("enforce_eager"):
        text = f"torch.compile took {settings.boot_s * 0.2:.2f} s in total"
        lines.append(BootLine(0.68, WORKER, "monitor.py:53", text))
    return lines


def kv_lines(settings: Settings, max_model_len: int) -> list[BootLine]:
    """Size and concurrency of the KV cache: two lines up to 0.27.1, one from 0.28.

    Up to 0.20.0 the logged size came from another formula, so the settings can state it apart (kv_logged_tokens).
    """
    tokens = settings.kv_tokens
    if settings.release <= (0, 20, 0) and settings.kv_logged_tokens:
        tokens = settings.kv_logged_tokens
    size = f"GPU KV cache size: {tokens:,} tokens"
    ratio = settings.kv_tokens / max_model_len
    concurrency = f"Maximum concurrency for {max_model_len:,} tokens per request: {ratio:.2f}x"
    if settings.release >= (0, 28):
        return [BootLine(0.76, ENGINE, "kv_cache_utils.py:1702", f"{size}, {concurrency}")]
    return [
        BootLine(0.76, ENGINE, "kv_cache_utils.py:2146", size),
        BootLine(0.76, ENGINE, "kv_cache_utils.py:2147", concurrency),
    ]


def _finish(arguments: ServeArguments, settings: Settings, max_model_len: int) -> list[BootLine]:
    kv_gib = settings.gpu_memory_mib * GIB_PER_MIB * 0.35
    text = f"Available KV cache memory: {kv_gib:.2f} GiB"
    lines = [BootLine(0.75, WORKER, "gpu_worker.py:508", text), *kv_lines(settings, max_model_len)]
    if not arguments.given.get("enforce_eager"):
        text = f"Graph capturing finished in {max(1, round(settings.boot_s * 0.1))} secs, took 0.37 GiB"
        lines.append(BootLine(0.9, WORKER, "gpu_model_runner.py:6656", text, memory=1.0))
    unit = "s" if settings.release >= (0, 20) else "seconds"
    text = f"init engine (profile, create kv cache, warmup model) took {settings.boot_s * 0.46:.2f} {unit}"
    lines.append(BootLine(0.92, ENGINE, "core.py:337", text, memory=1.0))
    address = f"http://{arguments.host}:{arguments.port}"
    return [
        *lines,
        BootLine(0.96, API, "api_server.py:577", "Supported tasks: ['generate']"),
        BootLine(0.98, API, "api_server.py:581", f"Starting vLLM server on {address}"),
        BootLine(0.98, API, "launcher.py:37", "Available routes are:"),
        *(BootLine(0.98, API, "launcher.py:46", f"Route: {path}, Methods: {methods}") for path, methods in ROUTES.items()),
    ]


ROUTES = {
    "/health": "GET",
    "/load": "GET",
    "/version": "GET",
    "/metrics": "GET",
    "/tokenize": "POST",
    "/v1/models": "GET",
    "/v1/chat/completions": "POST",
    "/v1/completions": "POST",
}


def boot_lines(arguments: ServeArguments, settings: Settings, max_model_len: int) -> list[BootLine]:
    """Every line up to uvicorn's own, in order of time."""
    return [
        *_banner(arguments, settings),
        *_front(arguments, max_model_len),
        *_load(arguments, settings),
        *_finish(arguments, settings, max_model_len),
    ]
