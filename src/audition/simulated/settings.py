"""The simulation's settings: every key of the AUDITION_SIM variable with its default, in one frozen dataclass.

What must not live here: vLLM's own arguments (see `arguments`) and anything that acts on a setting.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from itertools import pairwise
from pathlib import Path

from audition.simulated.faults import Fault, FaultError, parse_faults

VARIABLE = "AUDITION_SIM"


class SettingsError(ValueError):
    """AUDITION_SIM cannot be read: not JSON, an unknown key, or a value of the wrong type or range."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting of the simulation. Times in the unit of the name (_s seconds, _ms milliseconds).

    One engine step takes, with n decoding sequences, c thousand tokens of context held by them, p prompt tokens
    computed in this step and k drafted tokens per sequence (0 without speculative decoding):

        step_base_ms + step_per_seq_ms * n + step_per_ktoken_ms * c
          + k * (draft_ms + draft_per_seq_ms * n)          # only when n > 0
          + 1000 * p / prefill_tokens_s
    """

    seed: int = 0  # of texts, lengths, acceptance and shares
    version: str = "0.19.1"  # the vLLM release to look like
    boot_s: float = 2.0  # from the start of the process to "Application startup complete."
    stats_interval_s: float = 10.0  # between two "Engine 000:" lines

    # Timing. The defaults give 120 tok/s to one user and about 830 tok/s to 16, like the reference production.
    step_base_ms: float = 7.6
    step_per_seq_ms: float = 0.73
    step_per_ktoken_ms: float = 0.0
    prefill_tokens_s: float = 8000.0
    draft_ms: float = 0.6
    draft_per_seq_ms: float = 0.2
    step_jitter: float = 0.0  # standard deviation of one step's time, as a share of it
    cold_steps: int = 0  # the first so many steps after boot ...
    cold_factor: float = 1.0  # ... take so many times longer (compilation)

    # Share of drafts accepted at position 0, 1, ...: UNCONDITIONAL (as vLLM's per-position metric), non-increasing.
    acceptance: tuple[float, ...] = (0.85, 0.70, 0.55, 0.45, 0.36, 0.29, 0.23, 0.18)

    # KV cache.
    kv_tokens: int = 524_288  # capacity; a boot with a longer --max-model-len fails as in vLLM
    kv_logged_tokens: int = 0  # figure in the log line up to 0.20.0, whose formula differs; 0: kv_tokens
    block_size: int = 16  # tokens of one KV block, and the unit of a prefix-cache match

    # GPU memory, without a GPU.
    gpu_ledger: str = ""  # directory of the ledger files; empty: none is kept
    gpu_memory_mib: int = 20_000  # held on each GPU once booted
    gpu_total_mib: int = 24_564  # capacity of each GPU; a boot that does not fit fails as in vLLM
    gpus: tuple[int, ...] = ()  # indices; empty: 0 .. tensor parallel size - 1

    # Suspend and resume (POST /sim/suspend, /sim/resume; loopback only).
    park: bool = False
    suspend_gb_s: float = 1.7  # 10^9 bytes a second, over all GPUs together
    resume_gb_s: float = 4.5

    truth_log: str = ""  # JSONL, one line for each request at its end; empty: none
    model_max_len: int = 262_144  # context of the checkpoint, used when --max-model-len is absent
    answer_tokens: int = 220  # median natural length of an answer
    thinking_tokens: int = 160  # median natural length of the thinking before it
    answers: Mapping[str, str] = field(default_factory=dict)  # part of the last user message -> exact answer
    early_role_chunk: bool = False  # send the role chunk at arrival instead of just before the first token
    faults: tuple[Fault, ...] = ()

    @property
    def release(self) -> tuple[int, ...]:
        """The version as numbers: "0.19.1" is (0, 19, 1)."""
        return tuple(int(part) for part in self.version.split(".") if part.isdigit())

    @property
    def reasoning_key(self) -> str:
        """Key of the thinking text: `reasoning_content` up to 0.11, `reasoning` from 0.12."""
        return "reasoning" if self.release >= (0, 12) else "reasoning_content"


_DEFAULTS = Settings()
_ZERO_ALLOWED = {
    "seed", "boot_s", "step_base_ms", "step_per_seq_ms", "step_per_ktoken_ms", "draft_ms", "draft_per_seq_ms",
    "step_jitter", "cold_steps", "kv_logged_tokens", "gpu_memory_mib", "answer_tokens", "thinking_tokens",
}  # fmt: skip


def _scalar(name: str, value: object, default: object) -> object:
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise SettingsError(f"{VARIABLE}: {name} must be true or false, not {value!r}")
        return value
    if isinstance(default, str):
        if not isinstance(value, str):
            raise SettingsError(f"{VARIABLE}: {name} must be a string, not {value!r}")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SettingsError(f"{VARIABLE}: {name} must be a number, not {value!r}")
    if value < 0 or (value == 0 and name not in _ZERO_ALLOWED):
        raise SettingsError(f"{VARIABLE}: {name} must be above zero, not {value!r}")
    if isinstance(default, int):
        if value != int(value):
            raise SettingsError(f"{VARIABLE}: {name} must be a whole number, not {value!r}")
        return int(value)
    return float(value)


def _acceptance(value: object) -> tuple[float, ...]:
    rates = value if isinstance(value, list | tuple) else ()
    good = bool(rates) and all(isinstance(r, int | float) and 0 <= r <= 1 for r in rates)
    if not good or any(a < b for a, b in pairwise(rates)):
        raise SettingsError(
            f"{VARIABLE}: acceptance must be a non-increasing list of shares between 0 and 1 "
            f"(unconditional, one a position), not {value!r}"
        )
    return tuple(float(rate) for rate in rates)


def _field(name: str, value: object) -> object:
    if name == "acceptance":
        return _acceptance(value)
    if name == "faults":
        try:
            return parse_faults(value)
        except FaultError as error:
            raise SettingsError(f"{VARIABLE}: {error}") from error
    if name == "gpus":
        if not isinstance(value, list) or not all(isinstance(gpu, int) and gpu >= 0 for gpu in value):
            raise SettingsError(f"{VARIABLE}: gpus must be a list of GPU indices, not {value!r}")
        return tuple(value)
    if name == "answers":
        if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
            raise SettingsError(f"{VARIABLE}: answers must map a part of a prompt to an answer, not {value!r}")
        return value
    return _scalar(name, value, getattr(_DEFAULTS, name))


def parse_settings(values: object) -> Settings:
    """Build the settings from a decoded JSON object. Raises SettingsError naming the key that is wrong."""
    if not isinstance(values, dict):
        raise SettingsError(f"{VARIABLE} must be a JSON object, not {values!r}")
    names = {item.name for item in fields(Settings)}
    for name in values:
        if name not in names:
            raise SettingsError(f"{VARIABLE}: unknown key {name!r}; known keys: {', '.join(sorted(names))}")
    settings = Settings(**{name: _field(name, value) for name, value in values.items()})  # type: ignore[arg-type]
    if len(settings.release) < 2:
        raise SettingsError(f"{VARIABLE}: version must look like 0.19.1, not {settings.version!r}")
    return settings


def load_settings(environ: Mapping[str, str]) -> Settings:
    """Read AUDITION_SIM: inline JSON, or the path of a JSON file; absent or empty means all defaults.

    Raises SettingsError when it cannot be read.
    """
    text = environ.get(VARIABLE, "").strip()
    if not text:
        return Settings()
    if not text.startswith("{"):
        try:
            text = Path(text).read_text(encoding="utf-8")
        except OSError as error:
            raise SettingsError(f"{VARIABLE} is neither inline JSON nor a readable file: {error}") from error
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise SettingsError(f"{VARIABLE} is not JSON: {error}") from error
    return parse_settings(values)
