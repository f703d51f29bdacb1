"""The exception tree. Every error says what was tried, what was seen, what production runs now, and what to type next.

Imports nothing of audition. Rendering to a terminal or to JSON happens in the command line; exit codes are fixed here
because they are part of the contract with scripts.
"""

from __future__ import annotations

from typing import ClassVar

EXIT_GO = 0
EXIT_INTERNAL = 1
EXIT_BAD_INPUT = 2
EXIT_NO_GO = 3
EXIT_INCONCLUSIVE = 4
EXIT_REFUSED = 5
EXIT_NOT_RESTORED = 7


class AuditionError(Exception):
    """Base of all errors of audition.

    ``what`` is one sentence. ``tried``, ``seen``, ``production`` and ``next_step`` are optional plain sentences; an empty
    text means that there is nothing to say under that heading.
    """

    exit_code: ClassVar[int] = EXIT_INTERNAL
    kind: ClassVar[str] = "internal error"

    def __init__(self, what: str, *, tried: str = "", seen: str = "", production: str = "", next_step: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.tried = tried
        self.seen = seen
        self.production = production
        self.next_step = next_step

    def parts(self) -> list[tuple[str, str]]:
        """The non-empty headings with their texts, in the order in which they are shown."""
        rows = [("tried", self.tried), ("seen", self.seen), ("production", self.production), ("next", self.next_step)]
        return [(name, text) for name, text in rows if text]


class BadInput(AuditionError):
    """The input cannot be understood. Nothing was touched."""

    exit_code = EXIT_BAD_INPUT
    kind = "bad input"


class Refused(AuditionError):
    """The input is understood, but the world does not allow it now. Nothing was touched."""

    exit_code = EXIT_REFUSED
    kind = "refused"


class InternalError(AuditionError):
    """A fault of audition or of the machine. Production is restored before this reaches the user."""


class ProductionNotRestored(AuditionError):
    """Production could not be verified as back. ``next_step`` holds the exact commands to type."""

    exit_code = EXIT_NOT_RESTORED
    kind = "PRODUCTION IS NOT BACK"
