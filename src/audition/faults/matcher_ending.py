"""What the end of a log tells by itself: last words that name a failure, a clean end, or nothing.

Finding signatures is ``matcher``. No reading of files here, and no signatures: a shell's last words have theirs as TOML.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from audition.faults.clean import Line

Ending = Literal["ready", "unfinished", "nothing known", "empty"]
"""``ready``: the server was ready or answered requests, and no boot began after it. ``unfinished``: lines of a server whose last
boot never became ready. ``nothing known``: no line of a server. ``empty``: no text at all."""

BOOT = "non-default args"
SERVED = (b"Avg generation throughput", b'" 200 OK')
"""Words of a server that answers; also where the line about readiness was cut off or is not printed."""
EXCEPTION = re.compile(
    r"^(?P<type>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Failure|Timeout|Abort|Fault)|(?:[a-z_]\w*\.)+[A-Z]\w*(?=: ))"
    r"(?:: (?P<message>.*))?$"
)
NO_FAILURES = ("SystemExit", "KeyboardInterrupt")
_CLEAN_ENDS = ("Application shutdown complete", "Finished server process")
_REACH = 5  # lines at the end that count as last words of a boot; libraries add a warning or two after the exception
_SAMPLE = 65_536
_MOST_ODD = 0.1  # share of signs that no text holds; of random bytes it is about a half


def names_failure(line: Line) -> bool:
    """Whether the line is an exception's name, logged as an error or bare, and not an ordinary exit."""
    match = EXCEPTION.match(line.text)
    return match is not None and line.level in ("", "ERROR", "CRITICAL") and match["type"].rpartition(".")[2] not in NO_FAILURES


def last_words(tail: Sequence[tuple[int, Line]], *, ready: bool) -> list[tuple[int, Line]]:
    """Exceptions without a traceback at the end of a log. Of a server that was ready only the very last line counts."""
    return [(number, line) for number, line in tail[-1 if ready else -_REACH :] if names_failure(line)]


def ended_cleanly(tail: Sequence[tuple[int, Line]]) -> bool:
    """Whether the server said at the end that it has shut down, so that silence after it is no failure."""
    return any(word in line.text for _, line in tail[-_REACH:] for word in _CLEAN_ENDS)


def ending_of(tail: Sequence[tuple[int, Line]], *, text: bool, boot_at: int, up_at: int) -> Ending:
    """How the log ends. ``boot_at``, ``up_at``: numbers of the last lines that tell of a boot's begin, of being up; 0: none."""
    if not text:
        return "empty"
    if up_at > boot_at:
        return "ready"
    return "unfinished" if boot_at or any(line.process or line.level for _, line in tail) else "nothing known"


def is_text(head: bytes) -> bool:
    """Whether the first bytes of a log are text. Zero bytes at its begin are let pass: truncating a log in use leaves them."""
    head = head.lstrip(b"\0")[:_SAMPLE]
    shown = head.decode("utf-8", "replace")
    odd = sum(letter == "\ufffd" or (letter < " " and letter not in "\t\n\r\x1b\b\f") for letter in shown)
    return odd <= _MOST_ODD * max(len(shown), 1)
