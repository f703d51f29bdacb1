"""Masks secrets in text. The one function through which everything passes that a run writes or shows. Pure.

Known values are masked wherever they stand, also in their JSON and URL forms; beyond that, text that looks like a key is masked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from urllib.parse import quote

MASK = "***"
MIN_LENGTH = 4
"""Known values shorter than this are not masked by value: they would blot out ordinary words."""

_NAMED = (
    r"(?P<name>\b[\w-]{0,48}?(?:api[_-]?key|secret|passwd|password|access[_-]?key|auth[_-]?token|hf[_-]?token|hub[_-]?token|_token))"
    r"(?P<sep>\\?[\"']?\s*(?:[:=]|(?<=key)\s)\s*\\?[\"']?)(?P<value>[^\s\"'\\,;&}\])\[{]+)"
)
_PATTERNS = [
    (re.compile(r"\bhf_[A-Za-z0-9]{16,}\b"), MASK),
    (re.compile(r"\b(?:sk|pk|ghp|gho|ghs|glpat|xox[abp])[-_][A-Za-z0-9_-]{16,}"), MASK),
    (re.compile(r"\bgithub_pat_[A-Za-z0-9_]{16,}"), MASK),
    (re.compile(r"\bAKIA[0-9A-Z]{16}\b"), MASK),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}"), MASK),
    (re.compile(r"(?i)\b(bearer|basic) +(?=\S*\d)[A-Za-z0-9._~+/=-]{8,}"), rf"\1 {MASK}"),
    (re.compile(r"(://[^\s/:@]+):[^\s/@]+@"), rf"\1:{MASK}@"),
]
_NAMED_VALUE = re.compile(_NAMED, re.IGNORECASE)
_NUMBER = re.compile(r"-?\d{1,6}(?:\.\d+)?|\$\{.*")
_NOT_SECRET = {"none", "null", "true", "false", '""', "''", "absent", "empty", MASK.lower()}


def mask(text: str, secrets: Iterable[str] = ()) -> str:
    """The text without the given secret values and without anything that looks like a key. Masking twice changes nothing."""
    for form in _forms(secrets):
        text = text.replace(form, MASK)
    for pattern, into in _PATTERNS:
        text = pattern.sub(into, text)
    return _NAMED_VALUE.sub(_mask_named, text)


def _mask_named(match: re.Match[str]) -> str:
    """Numbers and the words for nothing are no secrets, and masking them would break JSON."""
    value = match["value"]
    if value.lower() in _NOT_SECRET or _NUMBER.fullmatch(value):
        return match[0]
    return f"{match['name']}{match['sep']}{MASK}"


def _forms(secrets: Iterable[str]) -> list[str]:
    forms: set[str] = set()
    for secret in secrets:
        if len(secret) >= MIN_LENGTH and secret != MASK:
            forms |= {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], quote(secret, safe="")}
    return sorted(forms, key=lambda f: (-len(f), f))
