"""What a fault signature is, and reading the shipped ones. Matching is ``matcher``.

One TOML file a signature in ``signatures/``. Keys: ``name``; ``title``; ``phase``; ``kind`` (cause: may be a root cause; symptom:
a consequence, shown when there is no cause; wrapper: only says that something above failed); ``origin`` (whose fault: candidate,
environment or unknown); ``cause``, ``remedy``, ``versions``, ``references``; ``require`` (any or all of the patterns); ``forbid``
(an expression that rules it out) with its ``forbid_anchor``. Each of ``[[patterns]]``: ``anchor`` (literal text that every match
holds), ``regex`` (with named captures), and a condition: ``count_at_least``, ``sum_at_least`` or ``drop_at_least`` of
``capture`` (the highest value counts up to a line with ``frozen_by``); ``reset_by`` (a line that starts the count anew) with its
``reset_anchor``; ``at_end`` (silence: the engine's
processes print nothing after it). ``line`` says what else such a line holds: ``error`` (the default: an error's name or level, as
nearly all failures have), so that gigabytes are searched for two words alone; ``any`` makes the anchor a search of its own.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

Kind = Literal["cause", "symptom", "wrapper"]
Origin = Literal["candidate", "environment", "unknown"]
PHASES = ("arguments", "config", "memory", "load", "serve")
_PATTERN_KEYS = {
    "anchor", "regex", "count_at_least", "sum_at_least", "drop_at_least", "capture", "reset_by", "reset_anchor", "frozen_by",
    "at_end", "line",
}  # fmt: skip


@dataclass(frozen=True)
class Pattern:
    """One expression with its condition; without one, a single match suffices."""

    anchor: str
    regex: re.Pattern[str]
    count_at_least: int = 1
    sum_at_least: float | None = None
    drop_at_least: float | None = None
    capture: str = ""
    reset_by: re.Pattern[str] | None = None
    reset_anchor: str = ""
    frozen_by: str = ""
    at_end: bool = False
    line: Literal["error", "any"] = "error"

    @property
    def plain(self) -> bool:
        """Whether one match settles it, so that later ones need not be looked for."""
        return self.count_at_least == 1 and self.sum_at_least is None and self.drop_at_least is None and not self.at_end


@dataclass(frozen=True)
class Signature:
    """One kind of failure. See the module's text for the fields."""

    name: str
    title: str
    phase: str
    kind: Kind
    origin: Origin
    patterns: tuple[Pattern, ...]
    cause: str
    remedy: str
    versions: str = "any"
    references: tuple[str, ...] = ()
    require: Literal["any", "all"] = "any"
    forbid: re.Pattern[str] | None = None
    forbid_anchor: str = ""


def parse_signature(text: str) -> Signature:
    """A signature from TOML text. Raises ValueError naming what is wrong."""
    data: dict[str, Any] = tomllib.loads(text)
    name = data.get("name", "?")
    try:
        raw = data.pop("patterns")
        forbid = data.pop("forbid", None)
        signature = Signature(
            **{**data, "references": tuple(data.get("references", []))},
            patterns=tuple(_pattern(p) for p in raw),
            forbid=re.compile(forbid) if forbid else None,
        )
    except (KeyError, TypeError, re.error) as error:
        raise ValueError(f"signature {name}: {error}") from error
    if signature.phase not in PHASES or signature.kind not in ("cause", "symptom", "wrapper") or not signature.patterns:
        raise ValueError(f"signature {name}: phase, kind or patterns are not valid")
    return signature


def _pattern(data: dict[str, Any]) -> Pattern:
    unknown = set(data) - _PATTERN_KEYS
    if unknown:
        raise KeyError(f"unknown pattern key {sorted(unknown)[0]}")
    reset = data.get("reset_by")
    if (reset is None) != (data.get("reset_anchor") is None):
        raise KeyError("reset_by and reset_anchor belong together")
    return Pattern(**{**data, "regex": re.compile(data["regex"]), "reset_by": re.compile(reset) if reset is not None else None})


@lru_cache(maxsize=1)
def shipped_signatures() -> tuple[Signature, ...]:
    """All signatures that come with audition, by name. Raises ValueError when a file is broken."""
    folder = Path(__file__).parent / "signatures"
    return tuple(parse_signature(p.read_text(encoding="utf-8")) for p in sorted(folder.glob("*.toml")))
