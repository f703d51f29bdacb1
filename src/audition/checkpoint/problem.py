"""What this room says to people: one finding as a value, and the errors of reading. Rendering happens elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from audition.errors import BadInput

Level = Literal["ok", "warning", "blocking"]


@dataclass(frozen=True)
class Problem:
    """One finding about a checkpoint. ``hint``: what to type or change; ``reference``: a public issue; both may be empty."""

    level: Level
    code: str
    text: str
    hint: str = ""
    reference: str = ""


class CheckpointError(BadInput):
    """A checkpoint that cannot be read, or that says something no checkpoint says. Names the file."""

    kind: ClassVar[str] = "checkpoint"


class NotInCache(CheckpointError):
    """The model id is not in the cache that was looked at: an engine would have to download it at boot."""


def plain(text: str) -> str:
    """Text out of a checkpoint as it may stand on a terminal: what cannot be printed is escaped."""
    return text if text.isprintable() else ascii(text)[1:-1]
