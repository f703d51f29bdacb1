"""The texts of boots that fail, as (process, source, text) lines; worded as vLLM's own.

What must not live here: deciding that a boot fails (see `boot`).
"""

from __future__ import annotations

Line = tuple[str, str, str]  # process, source of an ERROR line or "" for a raw line, text


def _failed(*cause: Line, core: str) -> list[Line]:
    return [
        *cause,
        ("EngineCore", "core.py:1136", "EngineCore failed to start."),
        (
            "APIServer", "",
            f"RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {core}",
        ),
    ]  # fmt: skip


def out_of_memory(total_mib: int, held_mib: int) -> list[Line]:
    """The KV cache cannot be allocated (as in vLLM #42147). Sizes in MiB."""
    source = "multiproc_executor.py:962"
    free = max(0.0, total_mib - held_mib - 400)
    text = (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {free / 1024 + 0.9:.2f} GiB. GPU 0 has a total "
        f"capacity of {total_mib / 1024:.2f} GiB of which {free:.2f} MiB is free. Including non-PyTorch memory, this "
        f"process has {(total_mib - free) / 1024:.2f} GiB memory in use."
    )
    path = "/usr/local/lib/python3.12/dist-packages/vllm/v1/worker/gpu_model_runner.py"
    return _failed(
        ("Worker", source, "WorkerProc hit an exception."),
        ("Worker", source, "Traceback (most recent call last):"),
        ("Worker", source, f'  File "{path}", line 6390, in _allocate_kv_cache_tensors'),
        ("Worker", source, "    tensor = torch.zeros("),
        ("Worker", source, text),
        core="{'EngineCore': 1}",
    )


def memory_taken(gpu: int, total_mib: int, free_mib: int, utilization: float) -> list[Line]:
    """Somebody else holds the memory at startup (as in vLLM #42017). Sizes in MiB."""
    source = "multiproc_executor.py:870"
    text = (
        f"ValueError: Free memory on device cuda:{gpu} ({free_mib / 1024:.2f}/{total_mib / 1024:.2f} GiB) on startup is "
        f"less than desired GPU memory utilization ({utilization:g}, {utilization * total_mib / 1024:.2f} GiB). Decrease "
        "GPU memory utilization or reduce GPU memory used by other processes."
    )
    return _failed(
        ("Worker", source, "WorkerProc failed to start."),
        ("Worker", source, "Traceback (most recent call last):"),
        ("Worker", source, text),
        core="{'EngineCore': 1}",
    )


def context_too_long(max_model_len: int, kv_tokens: int, kv_gib: float) -> list[Line]:
    """One request of full length does not fit the KV cache (as in vLLM #34076). Lengths in tokens."""
    source = "core.py:1108"
    text = (
        f"ValueError: To serve at least one request with the models's max seq len ({max_model_len}), "
        f"({kv_gib * max_model_len / kv_tokens:.2f} GiB KV cache is needed, which is larger than the available KV cache "
        f"memory ({kv_gib:.2f} GiB). Based on the available memory, the estimated maximum model length is {kv_tokens}. "
        "Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
    )
    return _failed(("EngineCore", source, "Traceback (most recent call last):"), ("EngineCore", source, text), core="{}")


def port_in_use(host: str, port: int) -> str:
    """The traceback when the port is taken, for standard error."""
    return (
        "Traceback (most recent call last):\n"
        '  File "/usr/local/bin/vllm", line 10, in <module>\n'
        "    sys.exit(main())\n"
        '  File "/usr/local/lib/python3.12/dist-packages/vllm/entrypoints/openai/api_server.py", line 512, in '
        "create_server_socket\n"
        "    sock.bind(addr)\n"
        "OSError: [Errno 98] Address already in use\n"
        f"ERROR:    [Errno 98] error while attempting to bind on address ('{host}', {port}): address already in use\n"
    )
