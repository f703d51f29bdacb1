"""Masks secrets in text. The one function through which everything passes that a run writes or shows. Pure.

Known values are masked wherever they stand, also in their JSON, URL, HTML, shell, base64 and ``repr`` forms; beyond that, text that
looks like a key is masked. What is masked here may come from a server that prints anything, so every pattern needs time in
proportion to the text: possessive quantifiers, and no pattern that begins anew inside a run of characters that it has already read.
"""

from __future__ import annotations

import base64
import html
import json
import re
import shlex
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import quote, quote_plus

MASK = "***"
MIN_LENGTH = 4
"""Known values shorter than this are not masked by value: they would blot out ordinary words."""

_SHORTEST_BASE64 = 8
_ESCAPED = re.compile(r"%[0-9A-F]{2}")
_ROUNDS = 8
"""Masking one thing may uncover another: the text is gone over until nothing changes, at most this often."""

_PATTERNS = [
    (re.compile(r"\bhf_[A-Za-z0-9]{16,}+\b"), MASK),
    (re.compile(r"\b(?:sk|pk|ghp|gho|ghs|glpat|xox[abp])[-_][A-Za-z0-9_-]{16,}+"), MASK),
    (re.compile(r"\bgithub_pat_[A-Za-z0-9_]{16,}+"), MASK),
    (re.compile(r"\bAKIA[0-9A-Z]{16}\b"), MASK),
    (re.compile(r"(?i)\b(bearer|basic) ++(?=[^\s\d]*+\d)[A-Za-z0-9._~+/=-]{8,}+"), rf"\1 {MASK}"),
    (re.compile(r"(://[^\s/:@]++):[^\s/@\"<>]++@"), rf"\1:{MASK}@"),
]
_DOTTED = re.compile(r"(?<![\w-])[\w-]++(?:\.[\w-]++){2,}+")
_TOKEN_HEAD = re.compile(r"\beyJ(?=[\w-]{8})")
_TOKEN_PART = 8
_NAMED_VALUE = re.compile(
    r"(?P<name>api[_-]?key|secret|passwd|password|access[_-]?key|(?:auth|hf|hub)[_-]?token|_token)"
    r"(?P<sep>\\?[\"']?\s*[:=]\s*\\?[\"']?)(?P<value>[^\s\"'\\,;&}\])\[{]++)",
    re.IGNORECASE,
)
_QUOTED_VALUE = re.compile(
    r"(?P<name>api[_-]?key|secret|passwd|password|access[_-]?key|(?:auth|hf|hub)[_-]?token|_token)"
    r"(?P<sep>\\?[\"']?\s*[:=]\s*(?:(?P<plain>\")|(?P<single>')|\\\"))"
    r"(?P<value>[^\s\"'\\,;&}\])\[{](?(plain)(?:[^\"\\\n]|\\.)*+|(?(single)[^'\n]*+|[^\"\\\n]*+)))"
    r"(?=(?(plain)\"|(?(single)'|\\\")))",
    re.IGNORECASE,
)
"""A value in quotes, up to the closing one: it may hold blanks."""
_KEY_WORD = re.compile(
    r"(?P<name>(?:api|access)[_-]?key)(?P<sep>\s{1,80})(?P<value>[^\s\"'\\,;&}\])\[{-][^\s\"'\\,;&}\])\[{]*+)", re.IGNORECASE
)
"""An option and its value on a command line: ``--api-key VALUE``. In a sentence, what follows the name of a variable is a word."""
_OPTION_VALUE = re.compile(
    r"(?P<name>[-_](?:key|token|secret|password|passwd))(?P<sep>\\?[\"']?[ \t]*+(?:,|\n[ \t]*+-)\s{0,80}\\?[\"']?)"
    r"(?P<value>[^\s\"'\\,;&}\])\[{-][^\s\"'\\,;&}\])\[{]*+)",
    re.IGNORECASE,
)
"""An option and its value as two items of a JSON, Python or YAML list."""
_LONGEST_OPTION = 64
_WORD_END = re.compile(r"(?<![\w-])[\w-]++$")
_NUMBER = re.compile(r"-?\d{1,6}(?:\.\d+)?|\$\{.*")
_NOT_SECRET = {"none", "null", "true", "false", '""', "''", "absent", "empty", "-", MASK.lower()}


def mask(text: str, secrets: Iterable[str] = ()) -> str:
    """The text without the given secret values and without anything that looks like a key. Masking twice changes nothing."""
    forms = _forms(secrets)
    for _ in range(_ROUNDS):
        masked = _once(text, forms)
        if masked == text:
            break
        text = masked
    return text


def _once(text: str, forms: list[str]) -> str:
    for form in forms:
        text = text.replace(form, MASK)
    for pattern, into in _PATTERNS:
        text = pattern.sub(into, text)
    if "eyJ" in text:
        text = _DOTTED.sub(_mask_tokens, text)
    text = _QUOTED_VALUE.sub(_mask_named, text)
    for pattern in (_OPTION_VALUE, _KEY_WORD):
        text = pattern.sub(_mask_option, text)
    return _NAMED_VALUE.sub(_mask_named, text)


def _mask_tokens(match: re.Match[str]) -> str:
    """JSON web tokens (RFC 7519: three parts joined by dots, the first one beginning with ``eyJ``) inside words joined by dots."""
    parts, at = match[0].split("."), 0
    out: list[str] = []
    while at < len(parts):
        found = _TOKEN_HEAD.search(parts[at])
        if found and len(parts[at + 1 : at + 3]) == 2 and min(map(len, parts[at + 1 : at + 3])) >= _TOKEN_PART:
            out.append(parts[at][: found.start()] + MASK)
            at += 3
        else:
            out.append(parts[at])
            at += 1
    return ".".join(out)


def _mask_option(match: re.Match[str]) -> str:
    """Only behind an option: the word that ends here begins with a dash. How far is looked back is limited."""
    start = match.end("name")
    word = _WORD_END.search(match.string[max(0, start - _LONGEST_OPTION) : start])
    return _mask_named(match) if word and word[0].startswith("-") else match[0]


def _mask_named(match: re.Match[str]) -> str:
    """Numbers and the words for nothing are no secrets, and masking them would break JSON."""
    value = match["value"]
    if value.lower() in _NOT_SECRET or _NUMBER.fullmatch(value):
        return match[0]
    return f"{match['name']}{match['sep']}{MASK}"


def _forms(secrets: Iterable[str]) -> list[str]:
    """How the values may be spelled in text, longest first."""
    return list(_all_forms(tuple(secrets)))


@lru_cache(maxsize=32)
def _all_forms(secrets: tuple[str, ...]) -> tuple[str, ...]:
    forms: set[str] = set()
    for secret in secrets:
        if len(secret) >= MIN_LENGTH and secret != MASK:
            forms |= _plain_forms(secret) | _base64_forms(_bytes(secret))
    return tuple(sorted(forms - {""}, key=lambda form: (-len(form), form)))


def _plain_forms(secret: str) -> set[str]:
    """JSON (once and inside a JSON text), Python's ``repr``, URLs, HTML, shell and YAML quoting. A value that is no UTF-8 (bytes as
    lone surrogates) is spelled as a log that was read leniently shows it, too."""
    raw = _bytes(secret)
    once = {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    twice = {json.dumps(form)[1:-1] for form in once}
    urls = {quote(raw, safe=""), quote(raw), quote_plus(raw)}
    urls |= {_ESCAPED.sub(lambda match: match[0].lower(), url) for url in urls}
    quoted = {shlex.quote(secret).strip("'"), secret.replace("'", "''"), html.escape(secret), html.escape(secret, quote=False)}
    quoted |= {secret.replace("'", "'\\''"), secret.replace("|", "\\|")}
    return {secret, repr(secret)[1:-1], raw.decode("utf-8", "replace")} | once | twice | urls | quoted


def _base64_forms(raw: bytes) -> set[str]:
    """What every base64 text that holds these bytes must hold (RFC 4648, both alphabets), whatever stands before and after them:
    the characters that depend on the secret alone, for each of the three places at which it may begin in a group of three bytes.
    So ``user:secret`` of HTTP's basic scheme is found, too. Short remains would blot out ordinary words and are left out."""
    forms: set[str] = set()
    for before in range(3):
        text = base64.b64encode(b"\0" * before + raw).decode("ascii").rstrip("=")
        first = -(-before * 8 // 6)  # characters with bits of what stands before
        whole = (before + len(raw)) * 8 // 6  # characters without bits of what stands after
        inner = text[first:whole]
        if len(inner) >= _SHORTEST_BASE64:
            forms |= {inner, inner.replace("+", "-").replace("/", "_")}
    return forms


def _bytes(secret: str) -> bytes:
    try:
        return secret.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a lone surrogate that stands for no byte
        return secret.encode("utf-8", "surrogatepass")
