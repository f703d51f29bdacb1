"""Which interactions on public record the arguments, the model and the version run into.

The records are data (`data/interactions.toml`); this module only decides whether their conditions hold. Pure, but for reading them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any

from audition.profile.arguments import Parsed
from audition.profile.finding import Finding, Level
from audition.profile.prefix_caching import prefix_caching
from audition.profile.speculation import Speculation, speculation_of
from audition.profile.tables import table, tables
from audition.units import NoData

_UNREAD = NoData("no checkpoint was read")


@dataclass(frozen=True)
class ModelFacts:
    """What is known about the model and the GPUs. NoData where nobody looked.

    ``model_type``: as in config.json. ``hybrid``: attention mixed with recurrent layers. ``gdn``: these are Gated DeltaNet layers.
    ``quantisation``: the method as in config.json (awq, gptq, compressed-tensors, fp8, …), empty for none. ``mtp_layers``: how many
    MTP layers the config names. ``max_model_len``: tokens, the model's own limit. ``compute_capability``: of the GPUs, e.g. 8.9.
    """

    model_type: str | NoData = _UNREAD
    hybrid: bool | NoData = _UNREAD
    gdn: bool | NoData = _UNREAD
    quantisation: str | NoData = _UNREAD
    mtp_layers: int | NoData = _UNREAD
    max_model_len: int | NoData = _UNREAD
    compute_capability: float | NoData = _UNREAD


@dataclass(frozen=True)
class Interaction:
    """One record: see the head of the data file for its parts."""

    code: str
    level: Level
    text: str
    hint: str
    references: tuple[str, ...]
    when: Mapping[str, Any]
    since: str = ""
    last: str = ""


@dataclass(frozen=True)
class _World:
    """Everything that a condition may ask."""

    parsed: Parsed
    facts: ModelFacts
    speculation: Speculation | None
    environment: Mapping[str, str]


_Answer = bool | NoData


@cache
def records() -> tuple[Interaction, ...]:
    """All interactions on record."""
    raw = tomllib.loads((files("audition.profile") / "data" / "interactions.toml").read_text(encoding="utf-8"))
    return tuple(Interaction(**{**one, "references": tuple(one["references"])}) for one in raw["interaction"])


def interactions(parsed: Parsed, facts: ModelFacts, version: str, *, environment: Mapping[str, str] | None = None) -> list[Finding]:
    """Findings for every record whose conditions hold for this version.

    ``environment``: the server's variables, as far as they are known. A record whose condition on the model cannot be decided
    becomes a warning that says what is not known. Raises BadInput when ``version`` names no version.
    """
    judged = table(version).version
    world = _World(parsed, facts, speculation_of(parsed), environment or {})
    found = [finding for record in records() if _in_range(record, judged) and (finding := _holds(record, world))]
    return [*found, *_heads(world)]


def _in_range(record: Interaction, version: str) -> bool:
    order = tables().versions.index
    return (not record.since or order(version) >= order(record.since)) and (not record.last or order(version) <= order(record.last))


def _holds(record: Interaction, world: _World) -> Finding | None:
    open_ends: list[str] = []
    for name, wanted in record.when.items():
        answer = _CONDITIONS[name](wanted, world)
        if isinstance(answer, NoData):
            open_ends.append(answer.reason)
        elif not answer:
            return None
    text, level = record.text, record.level
    if open_ends:
        text, level = f"{text} Whether it applies here is not known: {'; '.join(dict.fromkeys(open_ends))}.", "warning"
    if len(record.references) > 1:
        text += f" Also: {', '.join(record.references[1:])}."
    return Finding(level, record.code, text.removesuffix("."), record.hint, record.references[0])


def _speculation(wanted: str, world: _World) -> _Answer:
    asked = world.speculation
    if asked is None:
        return False
    if wanted == "any":
        return True
    if isinstance(asked.method, NoData):
        return False
    return asked.by_mtp if wanted == "mtp" else asked.by_ngram


def _k_at_least(wanted: int, world: _World) -> _Answer:
    k = world.speculation.k if world.speculation else 0
    return isinstance(k, int) and k >= wanted


def _prefix_caching(wanted: str, world: _World) -> _Answer:
    on = prefix_caching(world.parsed, world.facts.hybrid)
    return on if isinstance(on, NoData) else on == (wanted == "on")


def _context_above(wanted: int, world: _World) -> _Answer:
    given = world.parsed.given("--max-model-len")
    limit = given if isinstance(given, int) and given > 0 else world.facts.max_model_len
    return NoData("how long the context may be") if isinstance(limit, NoData) else limit > wanted


def _model(name: str, unknown: str) -> Callable[[bool, _World], _Answer]:
    def ask(wanted: bool, world: _World) -> _Answer:
        value: bool | NoData = getattr(world.facts, name)
        return NoData(unknown) if isinstance(value, NoData) else value == wanted

    return ask


def _qwen35(wanted: bool, world: _World) -> _Answer:
    kind = world.facts.model_type
    return False if isinstance(kind, NoData) else kind.startswith("qwen3_5") == wanted


def _matches(value: object, patterns: list[str]) -> bool:
    return isinstance(value, str) and any(fnmatchcase(value, pattern) for pattern in patterns)


def _kv_cache_dtype(wanted: list[str], world: _World) -> _Answer:
    return _matches(world.parsed.effective("--kv-cache-dtype"), wanted)


def _quantisation(wanted: list[str], world: _World) -> _Answer:
    given, of_model = world.parsed.given("--quantization"), world.facts.quantisation
    if isinstance(given, str):
        return _matches(given, wanted)
    return NoData("how the checkpoint is quantised") if isinstance(of_model, NoData) else _matches(of_model, wanted)


def _compute_capability(wanted: list[float], world: _World) -> _Answer:
    have = world.facts.compute_capability
    return NoData("which GPUs serve") if isinstance(have, NoData) else have in wanted


def _switched_on(wanted: list[str], world: _World) -> _Answer:
    return all(world.parsed.given(name) is True for name in wanted)


def _not_switched_off(wanted: list[str], world: _World) -> _Answer:
    return all(world.parsed.given(name) is not False for name in wanted)


def _not_switched_on(wanted: list[str], world: _World) -> _Answer:
    return all(world.parsed.given(name) is not True for name in wanted)


def _given(wanted: list[str], world: _World) -> _Answer:
    values = [world.parsed.given(name) for name in wanted]
    return all(not isinstance(value, NoData) and value is not None for value in values)


def _value(wanted: Mapping[str, list[str]], world: _World) -> _Answer:
    return all(_matches(world.parsed.given(name), patterns) for name, patterns in wanted.items())


def _environment(wanted: Mapping[str, list[str]], world: _World) -> _Answer:
    return all(_matches(world.environment.get(name), patterns) for name, patterns in wanted.items())


_CONDITIONS: Mapping[str, Callable[[Any, _World], _Answer]] = {
    "speculation": _speculation,
    "k_at_least": _k_at_least,
    "prefix_caching": _prefix_caching,
    "context_above": _context_above,
    "hybrid": _model("hybrid", "whether the model mixes attention with recurrent layers"),
    "gdn": _model("gdn", "whether the model has GDN layers"),
    "qwen35": _qwen35,
    "kv_cache_dtype": _kv_cache_dtype,
    "quantisation": _quantisation,
    "compute_capability": _compute_capability,
    "switched_on": _switched_on,
    "not_switched_on": _not_switched_on,
    "not_switched_off": _not_switched_off,
    "given": _given,
    "value": _value,
    "environment": _environment,
}


def _heads(world: _World) -> Iterator[Finding]:
    """The number of drafted tokens against the checkpoint's MTP layers (`SpeculativeConfig.__post_init__` of vLLM)."""
    asked, heads = world.speculation, world.facts.mtp_layers
    if asked is None or not asked.by_mtp or isinstance(heads, NoData):
        return
    if heads == 0:
        text = "MTP is asked for, and the checkpoint's config names no MTP layer; vLLM ends with an error or accepts no draft"
        yield Finding("blocking", "mtp-without-layers", text, "use a checkpoint with MTP layers, or take --speculative-config out")
        return
    if isinstance(asked.k, int) and asked.k > heads and asked.k % heads:
        text = f"num_speculative_tokens is {asked.k}, no multiple of the checkpoint's {heads} MTP layers; vLLM ends with an error"
        yield Finding("blocking", "k-no-multiple", text, f"set num_speculative_tokens to {asked.k // heads * heads}")
    elif isinstance(asked.k, int) and asked.k > heads:
        layers = "one MTP layer" if heads == 1 else f"{heads} MTP layers"
        text = (
            f"{asked.k} tokens are drafted with {layers}, used again for each further token, so acceptance falls with the position"
        )
        yield Finding("ok", "k-beyond-layers", text, "look at acceptance by position when choosing the number")
