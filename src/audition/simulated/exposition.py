"""The whole text of /metrics for one server.

What must not live here: counting (see `metrics`).
"""

from __future__ import annotations

from audition.simulated.arguments import ServeArguments
from audition.simulated.engine import Engine
from audition.simulated.metrics import (
    Exposition,
    cache_metrics,
    process_metrics,
    request_metrics,
    spec_decode_metrics,
)
from audition.simulated.protocol import Limits
from audition.simulated.settings import Settings

WAITING_HELP = (
    "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; 'deferred' = "
    "deferred by transient constraints (LoRA budget, KV transfer, blocked status). Sum of all reasons equals "
    "vllm:num_requests_waiting."
)
SLEEP_HELP = (
    "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; weights_offloaded = 1 means "
    "sleep level 1; discard_all = 1 means sleep level 2."
)


def _cache_config(out: Exposition, engine: Engine, arguments: ServeArguments, settings: Settings, max_model_len: int) -> None:
    labels = {
        "block_size": str(settings.block_size),
        "cache_dtype": arguments.kv_cache_dtype,
        "enable_prefix_caching": str(engine.prefix is not None),
        "gpu_memory_utilization": str(arguments.gpu_memory_utilization),
        "num_gpu_blocks": str(engine.kv.total),
        "num_cpu_blocks": "None",
        "prefix_caching_hash_algo": str(arguments.given.get("prefix_caching_hash_algo", "sha256")),
    }
    if settings.release >= (0, 24):
        labels["kv_cache_size_tokens"] = str(settings.kv_tokens)
        labels["kv_cache_max_concurrency"] = str(settings.kv_tokens / max_model_len)
    labels["engine"] = "0"
    out.plain("vllm:cache_config_info", "gauge", "Information of the LLMEngine CacheConfig", [(labels, 1.0)])


def metrics_text(engine: Engine, arguments: ServeArguments, settings: Settings, limits: Limits) -> str:
    """Everything a scrape shows, in vLLM's names for the release."""
    release = settings.release
    metrics = engine.metrics
    out = Exposition(limits.names[0])
    process_metrics(out, metrics)
    spec_decode_metrics(out, metrics)
    stopped = engine.paused  # a suspended engine reports nothing: the gauges keep saying 0
    running = 0 if stopped else len(engine.running)
    waiting = 0 if stopped else len(engine.waiting)
    out.gauge("vllm:num_requests_running", "Number of requests in model execution batches.", [({}, running)])
    out.gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.", [({}, waiting)])
    if release >= (0, 20):
        out.gauge(
            "vllm:num_requests_waiting_by_reason", WAITING_HELP,
            [({"reason": "capacity"}, waiting), ({"reason": "deferred"}, 0)],
        )  # fmt: skip
    if release >= (0, 12):
        out.gauge(
            "vllm:engine_sleep_state", SLEEP_HELP,
            [({"sleep_state": "awake"}, 1), ({"sleep_state": "weights_offloaded"}, 0), ({"sleep_state": "discard_all"}, 0)],
        )  # fmt: skip
    cache_metrics(out, metrics, engine.kv.usage, release)
    request_metrics(out, metrics, release)
    _cache_config(out, engine, arguments, settings, limits.max_model_len)
    out.plain(
        "http_requests_total", "counter", "Total number of requests by method, status and handler.",
        [
            ({"handler": handler, "method": method, "status": status}, number)
            for (handler, method, status), number in metrics.http.items()
        ],
    )  # fmt: skip
    return out.text()
