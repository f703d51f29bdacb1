"""What a check found, as values: findings with stable codes, and the report that holds them. No rules and no looking here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from audition.errors import EXIT_GO, EXIT_REFUSED

Level = Literal["ok", "warning", "blocking"]
Group = Literal["arms", "arguments", "checkpoint", "speculation", "machine", "time"]
GROUPS: tuple[Group, ...] = ("arms", "arguments", "checkpoint", "speculation", "machine", "time")
_ORDER = {"blocking": 0, "warning": 1, "ok": 2}


@dataclass(frozen=True)
class Finding:
    """One thing that is known. ``code`` is stable, for scripts. ``arm``: empty when it belongs to the whole spike.

    ``hint``: what to type or write; ``reference``: a public thread or page that says why. Both may be empty.
    """

    group: Group
    level: Level
    code: str
    arm: str
    text: str
    hint: str = ""
    reference: str = ""


@dataclass(frozen=True)
class Row:
    """One argument, variable or property that two arms do not share, as each has it."""

    what: str
    arm: str
    reference_arm: str


@dataclass(frozen=True)
class Contrast:
    """In what ``arm`` differs from ``reference_arm``. ``trial``: the row on trial, as far as it can be told; empty when not.

    ``unknown``: why nothing can be said; then ``rows`` is empty.
    """

    arm: str
    reference_arm: str
    rows: tuple[Row, ...] = ()
    trial: str = ""
    unknown: str = ""


@dataclass(frozen=True)
class Entry:
    """One line of the timeline. Seconds from the beginning of the run; ``source`` says where the length comes from."""

    at_s: float
    seconds: float
    what: str
    source: str


@dataclass(frozen=True)
class Paste:
    """Text to paste: ``name`` says what it is and where it goes."""

    name: str
    text: str


@dataclass(frozen=True)
class Report:
    """Everything that a check has to say. ``elsewhere``: machine and Docker engine were left out."""

    spike: str
    elsewhere: bool
    findings: tuple[Finding, ...]
    contrast: Contrast | None = None
    timeline: tuple[Entry, ...] = ()
    control: tuple[Paste, ...] = field(default=())

    @property
    def blocking(self) -> list[Finding]:
        """The findings that stand in the way of a run."""
        return [finding for finding in self.findings if finding.level == "blocking"]

    @property
    def warnings(self) -> list[Finding]:
        """The findings that deserve a look before the window."""
        return [finding for finding in self.findings if finding.level == "warning"]

    @property
    def exit_code(self) -> int:
        """0 when nothing blocks, 5 when something does."""
        return EXIT_REFUSED if self.blocking else EXIT_GO


def in_order(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """By group, the gravest first. What is said of several arms in the same words stands there once, with all their names."""
    arms: dict[Finding, list[str]] = {}
    for found in findings:
        arms.setdefault(replace(found, arm=""), []).append(found.arm)
    merged = [replace(found, arm=", ".join(dict.fromkeys(name for name in names if name))) for found, names in arms.items()]
    return tuple(sorted(merged, key=lambda found: (GROUPS.index(found.group), _ORDER[found.level])))
