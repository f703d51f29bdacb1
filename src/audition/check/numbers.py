"""Numbers as they stand in arguments, variables and profiles, read with a bound. Pure.

Text from a profile can be anything: ``²`` is a digit to ``str.isdigit`` but no number, ``nan`` is a float, and thousands of digits
are refused by ``int`` itself. What is no number within the bound is None here, and a finding elsewhere; it is never an exception.
"""

from __future__ import annotations

import re

MOST = 10**15
"""Beyond any count of tokens, requests, GPUs or bytes of a machine, and exact as a float. Own choice."""
_WHOLE = re.compile(r"[0-9]{1,16}")
_FACTORS = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}


def whole(text: str, *, suffixes: bool = False) -> int | None:
    """A whole number from 0 to ``MOST``, with vLLM's suffixes where asked for (``32k``: 32,000, ``32K``: 32,768); else None."""
    factor = _FACTORS.get(text[-1:], 1) if suffixes else 1
    digits = text[:-1] if factor > 1 else text
    if not _WHOLE.fullmatch(digits):
        return None
    value = int(digits) * factor
    return value if value <= MOST else None


def share(text: str) -> float | None:
    """A share above 0 and up to 1; None for anything else."""
    try:
        value = float(text[:60])
    except ValueError:
        return None
    return value if 0 < value <= 1 else None
