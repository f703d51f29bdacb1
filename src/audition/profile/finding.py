"""One thing that a check found: how bad it is, what was seen and why it matters, what to type, where it is on record.

Nothing here decides what a finding leads to.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "blocking"]
LEVELS: tuple[Level, ...] = ("ok", "warning", "blocking")
"""From harmless to blocking."""


@dataclass(frozen=True)
class Finding:
    """One finding.

    ``code`` names the kind of finding (lower case, dashes) and stays stable between versions of audition. ``text`` is one or two
    plain sentences: what was seen and why it matters. ``hint`` is what to type or change, empty where there is nothing to do.
    ``reference`` is a public URL, or empty. Raises ValueError for an unknown level or an empty code or text.
    """

    level: Level
    code: str
    text: str
    hint: str = ""
    reference: str = ""

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise ValueError(f"level must be one of {', '.join(LEVELS)}, got {self.level!r}")
        if not self.code or not self.text:
            raise ValueError("a finding needs a code and a text")


def worst(findings: Iterable[Finding]) -> Level:
    """The worst level among the findings; ``ok`` where there are none."""
    return max((finding.level for finding in findings), key=LEVELS.index, default="ok")
