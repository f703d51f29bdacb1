"""Named units and the type for a value that was not measured.

Lowest room of the house: imports nothing of audition. No input, output or clock here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Generic, NoReturn, TypeVar

T = TypeVar("T")

_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")


@dataclass(frozen=True)
class NoData:
    """A value that was not measured, with the reason in plain words. Never replaced by 0, NaN or an empty text."""

    reason: str

    def __bool__(self) -> NoReturn:
        raise TypeError(f"absent value used as a truth value ({self.reason}): test with isinstance(x, NoData)")


@dataclass(frozen=True)
class Measured(Generic[T]):
    """A value that was measured. ``samples`` counts the observations behind it."""

    value: T
    samples: int = 1


def parse_duration(text: str | int | float) -> float:
    """Seconds from ``90``, ``"90s"``, ``"1h30m"``, ``"250ms"``. A bare number is seconds.

    Raises ValueError with the accepted forms when the text is anything else, or negative.
    """
    if isinstance(text, bool):
        raise ValueError("expected a duration such as 90s, 5m or 1h30m, got a truth value")
    if isinstance(text, int | float):
        if not 0 <= text < float("inf"):
            raise ValueError(f"expected a duration of 0 seconds or more, got {text!r}")
        return float(text)
    compact = text.strip().lower()
    parts = _PART.findall(compact)
    if not parts or _PART.sub("", compact).strip():
        raise ValueError(f"expected a duration such as 90s, 5m or 1h30m, got {text!r}")
    return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)


def format_duration(seconds: float) -> str:
    """Seconds as people say them: ``0.8 s``, ``42 s``, ``5 min 10 s``, ``1 h 05 min``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        minutes, rest = divmod(whole, 60)
        return f"{minutes} min" if rest == 0 else f"{minutes} min {rest} s"
    hours, rest = divmod(whole, 3600)
    return f"{hours} h {rest // 60:02d} min"
