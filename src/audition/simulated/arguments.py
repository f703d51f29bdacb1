"""vLLM's `serve` command line, as far as the simulation needs it: accept what vLLM accepts, refuse what it refuses.

What must not live here: acting on an argument; simulation settings (see `settings`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from audition.simulated.flags import JSON_VALUES, MANY, SHORT, SPECULATIVE_FIELDS, SWITCHES, VALUES

SERVE_USAGE = "usage: vllm serve [model_tag] [options]\nvllm serve: error: "
TOP_USAGE = (
    "usage: vllm [-h] [-v]\n"
    "            {chat,complete,serve,launch,bench,collect-env,download-kernels,preload,run-batch,snapshot}\n"
    "            ...\nvllm: error: "
)
DEFAULT_MODEL = "Qwen/Qwen3-0.6B"  # vLLM's own default when no model is named


class ArgumentsError(ValueError):
    """The command line is wrong; the text is what vLLM prints before it exits with status 2."""


class SpeculativeError(ValueError):
    """--speculative-config is JSON, but not a speculative configuration; vLLM dies with a traceback, exit 1."""


@dataclass(frozen=True, slots=True)
class Speculative:
    """A speculative-decoding configuration: the method, k, and synthetic acceptance when asked for."""

    method: str
    tokens: int
    synthetic_rates: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class ServeArguments:
    """The arguments the simulation acts on, with vLLM's defaults, and everything given for the log line."""

    model: str
    served_names: tuple[str, ...]
    host: str
    port: int
    max_model_len: int | None
    max_num_seqs: int
    max_num_batched_tokens: int
    gpu_memory_utilization: float
    tensor_parallel_size: int
    kv_cache_dtype: str
    prefix_caching: bool | None
    speculative: Speculative | None
    api_keys: tuple[str, ...]
    reasoning_parser: str
    tool_call_parser: str
    auto_tool_choice: bool
    shutdown_timeout: float
    access_log: bool
    log_stats: bool
    server_load: bool
    temperature: float
    enable_thinking: bool | None
    given: Mapping[str, object] = field(default_factory=dict)


def _flag_name(word: str) -> tuple[str, str | None, str]:
    """Split `--flag=value` or `-cc.mode=none`: the plain name, the value behind "=", the dotted path."""
    head, sign, value = word.partition("=")
    stem, _, path = head.partition(".")
    name = SHORT.get(stem, "") if not stem.startswith("--") else stem[2:].replace("_", "-")
    return name, value if sign else None, path


def _is_flag(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and not word[1].isdigit()


def _spelling(name: str) -> str:
    short = next((f"/{key}" for key, value in SHORT.items() if value == name), "")
    return f"--{name}{short}"


def _decode(name: str, text: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise ArgumentsError(
            f"{SERVE_USAGE}argument {_spelling(name)}: Value {text} cannot be converted to <function loads at 0x7f095f49d260>."
        ) from None


def _collect(words: Sequence[str]) -> tuple[dict[str, object], list[str]]:
    """Read the words into flag values and positionals. Raises ArgumentsError as vLLM's parser would."""
    given: dict[str, object] = {}
    positional: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not _is_flag(word):
            positional.append(word)
            continue
        if word.startswith("-O") and word[2:].isdigit():
            given["optimization-level"] = int(word[2:])
            continue
        name, value, path = _flag_name(word)
        bare = name.removeprefix("no-")
        if name in SWITCHES or bare in SWITCHES:
            given[bare] = name in SWITCHES
            continue
        if name not in VALUES:
            rest = [word, *([words[at]] if at < len(words) and not _is_flag(words[at]) and value is None else [])]
            raise ArgumentsError(f"{TOP_USAGE}unrecognized arguments: {' '.join(rest)}")
        values = [value] if value is not None else []
        while value is None and at < len(words) and not _is_flag(words[at]) and (name in MANY or not values):
            values.append(words[at])
            at += 1
        if not values:
            wanted = "at least one argument" if name in MANY else "one argument"
            raise ArgumentsError(f"{SERVE_USAGE}argument {_spelling(name)}: expected {wanted}")
        _store(given, name, path, [text for text in values if text is not None])
    return given, positional


def _store(given: dict[str, object], name: str, path: str, values: list[str]) -> None:
    if path:  # -cc.mode=none: one key of a JSON value
        inner = given.setdefault(name, {})
        if isinstance(inner, dict):
            inner[path] = values[0]
    elif name in MANY:
        given[name] = values
    elif name in JSON_VALUES:
        given[name] = _decode(name, values[0])
    else:
        given[name] = _typed(values[0])


def _typed(text: str) -> object:
    """A number where the text is one, so that the log line shows it as vLLM does."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _whole(given: Mapping[str, object], name: str, default: int) -> int:
    """A whole number; vLLM also reads 1k (1,000), 1K (1,024), 2.5m and so on for lengths."""
    text = str(given.get(name, default))
    scale = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
    try:
        if text[-1:] in scale:
            return int(float(text[:-1]) * scale[text[-1]])
        return int(text)
    except ValueError:
        raise ArgumentsError(f"{SERVE_USAGE}argument {_spelling(name)}: invalid int value: {text!r}") from None


def _real(given: Mapping[str, object], name: str, default: float) -> float:
    try:
        return float(str(given.get(name, default)))
    except ValueError:
        raise ArgumentsError(f"{SERVE_USAGE}argument {_spelling(name)}: invalid float value: {given[name]!r}") from None


def _speculative(value: object) -> Speculative | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise SpeculativeError(f"Input should be a valid dictionary, got {value!r}")
    unknown = sorted(set(value) - SPECULATIVE_FIELDS)
    if unknown:
        raise SpeculativeError(
            f"1 validation error for SpeculativeConfig\n{unknown[0]}\n  Unexpected keyword argument "
            f"[type=unexpected_keyword_argument, input_value={value[unknown[0]]!r}, "
            f"input_type={type(value[unknown[0]]).__name__}]"
        )
    tokens = value.get("num_speculative_tokens", 1)
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1:
        raise SpeculativeError(f"num_speculative_tokens\n  Input should be greater than 0, got {tokens!r}")
    rates = value.get("synthetic_acceptance_rates")
    if value.get("rejection_sample_method") != "synthetic" or rates is None:
        return Speculative(str(value.get("method", "mtp")), tokens)
    if not isinstance(rates, list) or len(rates) != tokens:
        raise SpeculativeError(f"synthetic_acceptance_rates must hold {tokens} rates, got {rates!r}")
    return Speculative(str(value.get("method", "mtp")), tokens, tuple(float(rate) for rate in rates))


def _with_short_forms(given: Mapping[str, object]) -> object:
    """The value of --speculative-config, or one made of --spec-method, --spec-model and --spec-tokens (newer vLLM)."""
    fields = {"spec-method": "method", "spec-model": "model", "spec-tokens": "num_speculative_tokens"}
    made = {key: given[name] for name, key in fields.items() if name in given}
    return given.get("speculative-config") or (made or None)


def _names(given: Mapping[str, object], name: str) -> tuple[str, ...]:
    value = given.get(name)
    return tuple(str(item) for item in value) if isinstance(value, list) else ()


def _thinking(given: Mapping[str, object]) -> bool | None:
    kwargs: Any = given.get("default-chat-template-kwargs")
    value = kwargs.get("enable_thinking") if isinstance(kwargs, dict) else None
    return value if isinstance(value, bool) else None


def parse_arguments(words: Sequence[str], environ: Mapping[str, str]) -> ServeArguments:
    """Read the words after `serve`. Raises ArgumentsError (exit 2) or SpeculativeError (exit 1 after a banner)."""
    given, positional = _collect(words)
    if len(positional) > 1:
        raise ArgumentsError(f"{TOP_USAGE}unrecognized arguments: {' '.join(positional[1:])}")
    model = positional[0] if positional else str(given.get("model", DEFAULT_MODEL))
    overrides = given.get("override-generation-config")
    temperature = overrides.get("temperature", 1.0) if isinstance(overrides, dict) else 1.0
    keys = _names(given, "api-key") or tuple(key for key in (environ.get("VLLM_API_KEY", ""),) if key)
    served = _names(given, "served-model-name") or (model,)
    shown: dict[str, object] = {"model_tag": model} if positional else {}
    shown.update({name.replace("-", "_"): value for name, value in given.items() if name != "api-key"})
    caching = given.get("enable-prefix-caching")
    return ServeArguments(
        model=model,
        served_names=served,
        host=str(given.get("host", "0.0.0.0")),
        port=_whole(given, "port", 8000),
        max_model_len=_whole(given, "max-model-len", 0) if given.get("max-model-len") not in (None, "auto") else None,
        max_num_seqs=_whole(given, "max-num-seqs", 256),
        max_num_batched_tokens=_whole(given, "max-num-batched-tokens", 8192),
        gpu_memory_utilization=_real(given, "gpu-memory-utilization", 0.9),
        tensor_parallel_size=_whole(given, "tensor-parallel-size", 1),
        kv_cache_dtype=str(given.get("kv-cache-dtype", "auto")),
        prefix_caching=caching if isinstance(caching, bool) else None,
        speculative=_speculative(_with_short_forms(given)),
        api_keys=keys,
        reasoning_parser=str(given.get("reasoning-parser", "")),
        tool_call_parser=str(given.get("tool-call-parser", "")),
        auto_tool_choice=bool(given.get("enable-auto-tool-choice", False)),
        shutdown_timeout=_real(given, "shutdown-timeout", 0.0),
        access_log=not given.get("disable-uvicorn-access-log", False),
        log_stats=not given.get("disable-log-stats", False),
        server_load=bool(given.get("enable-server-load-tracking", False)),
        temperature=float(temperature),
        enable_thinking=_thinking(given),
        given=shown,
    )
