"""How much work a regular expression of a checkpoint can be, so that none is matched without a bound. Pure.

Python's matcher goes back and tries again: with one repetition inside another a name of 100 characters can take longer than a day.
Ignore lists of published checkpoints need no such thing. A pattern is taken apart with the standard library's own parser, and one
without a known bound is not understood.

What must not live here: what a pattern means for a checkpoint.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from math import factorial
from typing import Any

PATTERN_LIMIT = 1_000  # characters
OPEN_LIMIT = 3  # repetitions in one pattern
WAYS_LIMIT = 10_000  # combinations of alternatives
_STEPS_PER_US = 60  # of the matcher on one core; measured, rounded down
_REPEATS = frozenset({"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"})
_SINGLE = frozenset({"LITERAL", "NOT_LITERAL", "IN", "ANY", "AT", "FAILURE"})


class _NotBounded(Exception):
    """The pattern has no bound that is known here."""


@dataclass(frozen=True)
class Weight:
    """``opened``: repetitions of no fixed length. ``ways``: combinations of alternatives. ``repeats``: repetitions of any kind."""

    opened: int = 0
    ways: int = 1
    repeats: int = 0

    def microseconds(self, length: int) -> int:
        """What matching a name of that many characters takes at most, roughly, in microseconds."""
        steps: int = self.ways * length**self.opened // factorial(self.opened)
        return 1 + steps // _STEPS_PER_US


@lru_cache(maxsize=8192)
def weight(pattern: str) -> Weight | None:
    """How much work the pattern is; None when it is no regular expression, too long, or has no known bound. Never raises."""
    if len(pattern) > PATTERN_LIMIT:
        return None
    try:
        re.compile(pattern)
        found = _of(import_module("re._parser").parse(pattern))
    except (re.error, RecursionError, OverflowError, _NotBounded):
        return None
    return found if found.opened <= OPEN_LIMIT and found.ways <= WAYS_LIMIT else None


def _of(parts: Any) -> Weight:
    """The weight of a sequence of parts. Raises _NotBounded."""
    opened, ways, repeats = 0, 1, 0
    for sign, argument in parts:
        each = _of_part(str(sign), argument)
        opened, ways, repeats = opened + each.opened, ways * each.ways, repeats + each.repeats
    return Weight(opened, ways, repeats)


def _of_part(sign: str, argument: Any) -> Weight:
    if sign in _SINGLE:
        return Weight()
    if sign in _REPEATS:
        least, most, inner = argument
        within = _of(inner)
        if most > 1 and (within.repeats or within.ways > 1):
            raise _NotBounded
        if most > 1:
            return Weight(within.opened + (least != most), within.ways, 1)
        return Weight(within.opened, within.ways + 1, within.repeats + 1)
    if sign in {"SUBPATTERN", "ASSERT", "ASSERT_NOT"}:
        return _of(argument[-1])
    if sign == "ATOMIC_GROUP":
        return _of(argument)
    if sign == "BRANCH":
        branches = [_of(branch) for branch in argument[1]]
        return Weight(
            sum(branch.opened for branch in branches),
            sum(branch.ways for branch in branches),
            sum(branch.repeats for branch in branches),
        )
    raise _NotBounded  # back references
