"""What the arguments say about speculative decoding: the method, the number of drafted tokens, and what the version makes of them.

Pure. Interactions with other arguments and with the model are told by `interactions`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from audition.profile.arguments import Parsed
from audition.profile.finding import Finding
from audition.profile.tables import Life, tables
from audition.units import NoData

CONFIG = "--speculative-config"
_SHORT = {"--spec-method": "method", "--spec-model": "model", "--spec-tokens": "num_speculative_tokens"}
"""The arguments that set one key each (0.22.0 on): vLLM refuses both an argument and the key."""
_OWN_COUNT = frozenset({"ngram", "ngram_gpu", "draft_model", "eagle", "eagle3", "medusa", "mlp_speculator"})
"""Methods that know no number of tokens by themselves: without one vLLM ends with an error. MTP takes it from the checkpoint."""


@dataclass(frozen=True)
class Speculation:
    """Speculative decoding as asked for.

    ``method``: NoData where vLLM works it out from the drafter. ``k``: drafted tokens a step; NoData where the checkpoint decides.
    ``model``: a drafter of its own, or empty. ``keys``: everything given, by key. ``unknown_keys``: those that the version lacks.
    """

    method: str | NoData
    k: int | NoData
    model: str
    keys: Mapping[str, Any]
    unknown_keys: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def by_mtp(self) -> bool:
        """Whether the checkpoint's own MTP heads make the drafts."""
        return isinstance(self.method, str) and (self.method == "mtp" or self.method.endswith("_mtp"))

    @property
    def by_ngram(self) -> bool:
        """Whether the drafts are copied from the prompt."""
        return isinstance(self.method, str) and self.method.startswith("ngram")


def speculation_of(parsed: Parsed) -> Speculation | None:
    """What a command line asks for, or None where it asks for no speculation or its JSON could not be read (see the findings).

    The findings here are about method and number only; unknown keys are found by `arguments.parse` already.
    """
    given = parsed.given(CONFIG)
    keys: dict[str, Any] = {str(k).replace("-", "_"): v for k, v in given.items()} if isinstance(given, dict) else {}
    findings: list[Finding] = []
    for name, key in _SHORT.items():
        value = parsed.given(name)
        if isinstance(value, NoData) or value is None:
            continue
        if key in keys:
            text = f"{name} and the key {key!r} of {CONFIG} are both given; vLLM refuses to start"
            findings.append(Finding("blocking", "given-twice", text, f"take {name} out"))
        keys[key] = value
    if not keys:
        return None
    config = parsed.table.configs.get("SpeculativeConfig")
    unknown = tuple(key for key in keys if config is not None and key not in config.keys)
    method, k = keys.get("method"), keys.get("num_speculative_tokens")
    said: str | NoData = method if isinstance(method, str) else NoData("no method is given; vLLM works it out from the drafter")
    findings += _about_method(parsed, said, keys)
    findings += _about_count(said, keys)
    count: int | NoData = k if isinstance(k, int) and not isinstance(k, bool) else NoData("num_speculative_tokens is not given")
    return Speculation(said, count, str(keys.get("model") or ""), keys, unknown, tuple(findings))


def _about_method(parsed: Parsed, method: str | NoData, keys: Mapping[str, Any]) -> Iterator[Finding]:
    version, known = parsed.table.version, parsed.table.methods
    if isinstance(known, NoData):
        return
    if isinstance(method, NoData):
        if not keys.get("model"):
            text = (
                f"{CONFIG} names neither a method nor a drafter; vLLM {version} cannot tell how to speculate and ends with an error"
            )
            yield Finding("blocking", "method-missing", text, 'add "method": "mtp" for a checkpoint with MTP heads')
        return
    if method not in known:
        yield _unknown_method(method, version, known)
    elif method.endswith("_mtp") and "mtp" in known:
        text = f"the method {method!r} is an old name; vLLM {version} logs it as deprecated and takes it for 'mtp'"
        yield Finding("warning", "method-deprecated", text, 'write "method": "mtp"')


def _unknown_method(method: str, version: str, known: tuple[str, ...]) -> Finding:
    every = tables()
    life = every.life_of_method(method)
    text, hint = f"vLLM {version} knows no method {method!r} of speculative decoding, and ends with an error", ""
    if isinstance(life, Life):
        text += f"; {every.told(life, version)}"
        had, again = every.before(life, version), every.after(life, version)
        early = not had
        hint = f"use vLLM {again} or newer" if early else f"use vLLM {had}, or another method"
        older = [m for m in known if m.endswith("_mtp")]
        if early and method == "mtp" and older:
            hint += f"; this version names each family's own: {', '.join(older)}"
    elif close := difflib.get_close_matches(method, known, n=1, cutoff=0.5):
        hint = f"did you mean {close[0]!r}?"
    return Finding("blocking", "method-unknown", text, hint or f"choose from {', '.join(known)}")


def _about_count(method: str | NoData, keys: Mapping[str, Any]) -> Iterator[Finding]:
    k = keys.get("num_speculative_tokens")
    if k is None:
        if isinstance(method, str) and method in _OWN_COUNT:
            text = f"the method {method!r} wants num_speculative_tokens; vLLM ends with an error without it"
            yield Finding("blocking", "count-missing", text, 'add "num_speculative_tokens": 3')
        return
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        text = f"num_speculative_tokens must be a whole number of 1 or more, got {k!r}"
        yield Finding("blocking", "count-bad", text, 'write "num_speculative_tokens": 3, without quotes around the number')
