"""Turns the text of one argument into its typed value, as the version's parser would, or says what is wrong with it.

Pure. What the value means for the server is not decided here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from audition.profile.flag import Flag

_HUMAN = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_FACTORS = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
"""Small letters count in thousands, capital ones in powers of 1024: vLLM's `human_readable_int`."""
MOST = 2**63 - 1
"""Largest whole number that is understood: engines keep counts of tokens and bytes in 64 bits."""
DEPTH = 100
"""Levels of brackets that are read; published settings have fewer than 10. Own choice."""
_SHOWN = 60
_VARIABLE = re.compile(r"\$\{?\w+")
_TABLE = re.compile(r"\s*\{.*\}\s*", re.DOTALL)


@dataclass(frozen=True)
class Problem:
    """Why a text is no value: a code for the finding, what is wrong, and what to type."""

    code: str
    text: str
    hint: str = ""


def typed(flag: Flag, text: str) -> Any | Problem:
    """The value of one word."""
    if flag.none and text in {"", "None"}:
        return None
    if _VARIABLE.search(text) and flag.type not in {"str", "json-or-text"}:
        return Problem(
            "variable-left", f"{flag.name} still holds a variable, so its value is not known here", "resolve the profile first"
        )
    if flag.type in {"int", "human-int", "human-int-or-auto"}:
        return _integer(flag, text)
    if flag.type == "float":
        return _real(flag, text)
    if flag.type == "json" or (flag.type == "json-or-text" and _TABLE.fullmatch(text)):
        return parse_json(flag.name, text)
    return _chosen(flag, text)


def _integer(flag: Flag, text: str) -> Any | Problem:
    wanted = "a whole number" if flag.type == "int" else "a whole number such as 32768, 32k (32,000) or 32K (32,768)"
    compact = text.strip()
    if flag.type == "human-int-or-auto" and compact.lower() in {"auto", "-1"}:
        return -1
    found = _HUMAN.fullmatch(compact) if flag.type != "int" else None
    if found and "." in found[1] and found[2].isupper():
        return Problem(
            "bad-number", f"{flag.name}: {text!r} has a decimal point before a capital letter", f"{flag.name} {text.lower()}"
        )
    try:
        if found:
            value = int(float(found[1]) * _FACTORS[found[2]]) if "." in found[1] else int(found[1]) * _FACTORS[found[2]]
        else:
            value = int(compact)
    except (ValueError, OverflowError):  # thousands of digits are refused by int itself
        value = None
    if value is None or abs(value) > MOST:
        return Problem("bad-number", f"{flag.name} wants {wanted}, got {_shown(text)}", f"write {flag.name} as {wanted}")
    return value if found else _among(flag, value, text)


def _real(flag: Flag, text: str) -> Any | Problem:
    try:
        value = float(text)
        if math.isfinite(value):
            return value
        return Problem(
            "bad-number", f"{flag.name} wants a finite number, got {_shown(text)}", f"write {flag.name} as a number such as 0.9"
        )
    except ValueError:
        hint = f"{flag.name} {text[:_SHOWN].replace(',', '.')}" if "," in text else f"write {flag.name} as a number such as 0.9"
        return Problem("bad-number", f"{flag.name} wants a number, got {_shown(text)}", hint)


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


def parse_json(name: str, text: str) -> Any | Problem:
    """The value of a JSON text. A problem names the place, and the cause where it is a common one."""
    if too_deep(text):
        return Problem("bad-json", f"{name}: its JSON is nested too deeply to be understood", f"write {name} with fewer brackets")
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        shown = text[max(0, error.pos - 12) : error.pos + 12]
        said = f"{name}: no valid JSON at character {error.pos + 1} (near {shown!r}): {error.msg}"
        return Problem("bad-json", said, _json_hint(name, text))
    except ValueError:  # a number of thousands of digits
        return Problem("bad-json", f"{name}: its JSON holds a number that is too long", f"write the numbers of {name} shorter")


def too_deep(text: str) -> bool:
    """Whether brackets are nested deeper than any setting's, so that reading them could exhaust the stack."""
    if text.count("[") + text.count("{") <= DEPTH:
        return False
    depth = 0
    for sign in text:
        if sign in "[{":
            depth += 1
            if depth > DEPTH:
                return True
        elif sign in "]}":
            depth = max(0, depth - 1)
    return False


def _json_hint(name: str, text: str) -> str:
    if "'" in text and '"' not in text:
        return f"JSON wants double quotes; put single quotes around the whole: {name} '{text.replace(chr(39), chr(34))}'"
    if re.search(r"[{,]\s*[A-Za-z_]\w*\s*:", text):
        return f"the quotes around the keys are gone, often eaten by a shell: put single quotes around the whole value of {name}"
    if re.search(r"\b(?:True|False|None)\b", text):
        return "JSON writes true, false and null in small letters"
    if re.search(r",\s*[}\]]", text):
        return "take out the comma before the closing bracket"
    return f"put single quotes around the whole value of {name} and check its brackets"


def _among(flag: Flag, value: Any, text: str) -> Any | Problem:
    if flag.choices is None or flag.open or value in flag.choices:
        return value
    return Problem("bad-choice", f"{flag.name} does not accept {text!r}", _choices_hint(flag))


def _chosen(flag: Flag, text: str) -> Any | Problem:
    if flag.choices is None or flag.open:
        return text
    wanted = text.lower().replace("-", "_") if flag.type == "custom" else text
    return _among(flag, wanted, text)


def _choices_hint(flag: Flag) -> str:
    named: Sequence[Any] = flag.choices or ()
    listed = ", ".join(str(choice) for choice in named[:24])
    return f"choose from {listed}{', …' if len(named) > 24 else ''}"
