"""Logs with what is wrong in them, and what collectors, other processes and noise make of them. Used by tests and benchmarks."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

DATA = Path(__file__).parent.parent / "data"
FAILED = DATA / "logs" / "failed"
EXPECTED = {
    "att4_deepcopy_poison": "deepcopy-poison",
    "engine_dead_exit_zero": "worker-died",
    "free_memory_after_swap": "gpu-memory-not-free",
    "kv_too_small_for_max_len": "kv-too-small",
    "low_prefix_hit_mtp": "prefix-hits-lost-mtp",
    "mtp_weights_absent_zero_acceptance": "mtp-head-absent",
    "nccl_hang_no_p2p": "nccl-hang",
    "oom_kv_alloc": "cuda-out-of-memory",
    "port_in_use": "port-in-use",
    "stall_zero_generation_mtp_async": "stall-zero-generation",
    "crash_during_request.synthetic": "synthetic-acceptance-unsupported",
    "fail_bad_json": "bad-argument-value",
    "fail_bad_spec_field": "bad-config-field",
    "fail_kv_gt_memory": "kv-exceeds-memory",
    "fail_maxlen_gt_kvcache": "kv-too-small",
    "fail_no_mtp_head": "no-mtp-head",
    "fail_unknown_flag": "unknown-argument",
    "fail_wrong_model_path": "model-not-found",
}
"""Root cause of every log in ``data/logs/failed``."""

HEALTHY = [
    DATA / "boot-logs" / "healthy_mtp_boot_0.28.log",
    DATA / "vllm-0.24-h200" / "mtp-k3.boot.log",
    DATA / "vllm-0.32-cpu" / "mtp3.boot.log",
    DATA / "logs" / "healthy" / "vllm-0.24-h200-base.log",
]

WRAPS: dict[str, Callable[[str], str]] = {
    "plain": lambda t: t,
    "compose": lambda t: f"vllm-1  | {t}",
    "docker": lambda t: f"2026-05-17T20:29:58.123456789Z {t}",
    "journald": lambda t: f"May 17 20:29:58 gpu-host docker[4242]: {t}",
    "kubernetes": lambda t: f"2026-05-17T20:29:58.123Z stderr F {t}",
    "json": lambda t: json.dumps({"log": t + "\n", "stream": "stderr", "time": "2026-05-17T20:29:58Z"}, separators=(",", ":")),
    "colour": lambda t: f"\x1b[1;36m{t}\x1b[0;0m",
}

ACCESS = '(APIServer pid=1) INFO:     10.0.0.9:60114 - "POST /v1/chat/completions HTTP/1.1" 200 OK'
STATS = (
    "(APIServer pid=1) INFO 07-02 09:10:00 [loggers.py:271] Engine 000: Avg prompt throughput: 512.3 tokens/s, "
    "Avg generation throughput: {rate:.1f} tokens/s, Running: 3 reqs, Waiting: 0 reqs, "
    "GPU KV cache usage: 18.2%, Prefix cache hit rate: {hit:.1f}%"
)
PROXY = [
    'nginx-1  | 172.18.0.1 - - [02/Jul/2026:09:10:00 +0000] "POST /v1/chat/completions HTTP/1.1" 502 157 "-" "curl/8.5"',
    "nginx-1  | 2026/07/02 09:10:01 [error] 29#29: *7 connect() failed (111: Connection refused) while connecting to upstream",
    "watchdog-1  | 2026-07-02 probe of http://vllm:8000/health failed: timed out, error count 1 of 3",
]


@dataclass(frozen=True)
class Case:
    """One log of a corpus. ``expected`` None: nothing is wrong."""

    name: str
    lines: list[str]
    expected: str | None


def failed_lines(name: str) -> list[str]:
    """The lines of a failed log without a person's remarks, which a collector would not have put there."""
    return [line for line in (FAILED / f"{name}.log").read_text().splitlines() if not line.startswith("#")]


def mixed_corpus(seed: int, rounds: int) -> Iterator[Case]:
    """Every failed and healthy log under every prefix, with traffic before it and lines of neighbours in between.

    Noise that would change the truth is left out: silence at the end stays silence, and a failure's own figures are not touched.
    """
    rng = random.Random(seed)
    for number in range(rounds):
        for wrap, put in WRAPS.items():
            for name, expected in EXPECTED.items():
                lines = [put(line) for line in failed_lines(name)]
                yield Case(f"{name}/{wrap}/{number}", _noisy(lines, rng, put, quiet_end=expected == "nccl-hang"), expected)
            for path in HEALTHY:
                lines = [put(line) for line in path.read_text().splitlines() if not line.startswith("#")]
                yield Case(f"{path.stem}/{wrap}/{number}", _noisy(lines, rng, put, quiet_end=False), None)


def _noisy(lines: list[str], rng: random.Random, put: Callable[[str], str], *, quiet_end: bool) -> list[str]:
    out = [put(ACCESS) for _ in range(rng.randrange(300))]
    for place, line in enumerate(lines):
        out.append(line)
        if rng.random() < 0.15 and not (quiet_end and place == len(lines) - 1):
            out.append(rng.choice([put(ACCESS), *PROXY]))
    return out


def long_healthy_log(size: int, seed: int) -> bytes:
    """A healthy log of about ``size`` bytes: one boot, then months of traffic with statistics every few requests."""
    rng = random.Random(seed)
    part = "".join(
        f"{STATS.format(rate=rng.uniform(90, 400), hit=rng.uniform(50, 56))}\n" if n % 12 == 0 else f"{ACCESS}\n"
        for n in range(12_000)
    ).encode()
    boot = HEALTHY[1].read_bytes()
    return (boot + part * (size // len(part) + 1))[:size].rpartition(b"\n")[0] + b"\n"


def interleaved(a: list[str], b: list[str]) -> list[str]:
    """Lines of two logs in turn."""
    return [line for pair in zip_longest(a, b) for line in pair if line is not None]
