"""Checks the keys of JSON arguments against the dataclasses that vLLM of a version makes of them."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from audition.profile.finding import Finding
from audition.profile.flag import Config, Flag, FlagTable
from audition.profile.tables import Life, tables


def check_keys(given: Mapping[str, tuple[Flag, Any]], table: FlagTable) -> list[Finding]:
    """Findings about JSON arguments with keys: unknown-key, bad-choice, bad-json (no table of keys at all)."""
    found: list[Finding] = []
    for name, (flag, value) in given.items():
        config = table.configs.get(flag.config)
        if config is None or value is None or not flag.config:
            continue
        if isinstance(value, dict):
            found += _keys(name, value, config, table)
        elif flag.kind == "json" and isinstance(value, list | str | int | float) and not isinstance(value, bool):
            text = f"{name} wants a JSON table of keys, got {type(value).__name__}"
            found.append(Finding("blocking", "bad-json", text, f"write {name} '{{\"key\": value}}'"))
    return found


def _keys(name: str, value: Mapping[str, Any], config: Config, table: FlagTable) -> Iterator[Finding]:
    for key, item in value.items():
        known = config.keys.get(key)
        if known is None:
            yield _unknown_key(name, key, config, table)
        elif known.choices is not None and known.types <= {"literal", "none"} and item is not None and item not in known.choices:
            if config.name == "SpeculativeConfig" and key == "method":
                continue  # `speculation` says more about methods
            listed = ", ".join(str(choice) for choice in known.choices[:20])
            yield Finding(
                "blocking", "bad-choice", f"{name}: {key} does not accept {item!r} in vLLM {table.version}", f"choose from {listed}"
            )


def _unknown_key(name: str, key: str, config: Config, table: FlagTable) -> Finding:
    every = tables()
    life = every.life_of_key(config.name, key)
    text, hint = f"{name}: vLLM {table.version} knows no key {key!r}", ""
    if isinstance(life, Life):
        text += f"; {every.told(life, table.version)}"
    elif close := difflib.get_close_matches(key, list(config.keys), n=1, cutoff=0.6):
        hint = f"did you mean {close[0]!r}?"
    if config.forbids_others:
        return Finding("blocking", "unknown-key", f"{text}, and ends with an error", hint or f"take {key!r} out of {name}")
    return Finding("warning", "unknown-key", f"{text}, and drops it without a word", hint or f"take {key!r} out of {name}")
