"""What is wrong in a spike file, as values, and the one error that reports all of it.

No parsing and no checks here: only how a problem is worded and shown.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from audition.errors import BadInput

Path = tuple[str | int, ...]
"""Where a value stands: keys of mappings and indices of lists, from the top of the file."""

_SHOWN = 60
_LISTED = 50


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong. ``line`` and ``column`` count from 1; 0 when the problem is the file as a whole.

    ``path`` is the key path (``arms[1].engine.files[0]``), empty at the top of the file. ``text`` says what was expected and what
    was found; ``hint`` what to write instead, empty when there is nothing to say. ``excerpt`` is the line of the file; ``secret``
    says that the line may hold a secret and must not be shown.
    """

    line: int
    column: int
    path: str
    text: str
    hint: str = ""
    excerpt: str = ""
    secret: bool = False

    def render(self, name: str) -> str:
        """The problem on one to three terminal lines."""
        place = f"{name}:{self.line}" if self.line else name
        head = f"{place}: {self.path}: {self.text}" if self.path else f"{place}: {self.text}"
        rows = [head]
        if self.excerpt:
            rows.append(f"    {self.line} | {self.excerpt}")
        if self.hint:
            rows.append(f"    {self.hint}")
        return "\n".join(rows)


class BadSpike(BadInput):
    """A spike file that cannot be used. ``problems`` holds every problem of the file, in the order of its lines."""

    def __init__(self, name: str, problems: Iterable[Problem], *, next_step: str = "") -> None:
        self.name = name
        rows_of = sorted(problems, key=lambda problem: (problem.line, problem.column))
        hidden = {problem.line for problem in rows_of if problem.secret}
        self.problems = tuple(replace(p, excerpt="") if p.line in hidden else p for p in rows_of)
        count = len(self.problems)
        rows = "\n".join(problem.render(name) for problem in self.problems[:_LISTED])
        if count > _LISTED:
            rows += f"\n... and {count - _LISTED} more"
        what = rows if count == 1 else f"{name} has {count} errors:\n{rows}"
        super().__init__(what, next_step=next_step)


def show_path(path: Path) -> str:
    """``("arms", 1, "engine", "files", 0)`` as ``arms[1].engine.files[0]``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part and all(c.isalnum() or c in "_-" for c in part):
            text += f".{part}" if text else part
        else:
            text += f"[{shorten(part)!r}]"
    return text


def shorten(text: str) -> str:
    """A text cut to what fits on a terminal line."""
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def say(value: Any) -> str:
    """A found value in plain words: ``the text 'three'``, ``the whole number 3``, ``nothing``, ``a list``."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"the whole number {shorten(str(value))}"
    if isinstance(value, float):
        return f"the number {value:g}" if math.isfinite(value) else "a number that is not finite"
    if isinstance(value, str):
        return f"the text {shorten(value)!r}" if value else "an empty text"
    if isinstance(value, list):
        return "an empty list" if not value else "a list"
    return "an empty mapping" if not value else "a mapping"


def nearest(found: Any, valid: Iterable[str]) -> str:
    """A hint that names the valid value nearest to ``found``, or lists all when none is near and they are few."""
    choices = list(valid)
    if isinstance(found, str):
        lowered = {choice.lower(): choice for choice in choices}
        if match := difflib.get_close_matches(found.lower()[:200], lowered, n=1, cutoff=0.6):
            return f"did you mean `{lowered[match[0]]}`?"
    if choices and len(choices) <= 24:
        return f"valid here: {', '.join(choices)}"
    return ""
