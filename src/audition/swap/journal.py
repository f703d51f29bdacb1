"""The journal as data: entries, their legality as a table, and replay into a state. Pure; the sqlite file is ``run.journal``.

Every effect leaves *intent* before it and *done* (or *failed*) after it. Replay never guesses: an intent without an end means that
the effect may or may not have happened, and recovery looks at the world.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

Mark = Literal["intent", "done", "failed"]

LEGAL: dict[str | None, tuple[Mark, ...]] = {
    None: ("intent",),
    "intent": ("done", "failed"),
    "done": ("intent",),
    "failed": ("intent",),
}
"""Last mark of a step -> marks that may follow for that step. A step may be tried again after it ended."""


@dataclass(frozen=True)
class Entry:
    """One line of the journal. ``at``: Unix seconds. ``fence``: the fencing number of the writer; it never falls."""

    seq: int
    at: float
    fence: int
    step: str
    kind: str
    mark: Mark
    data: dict[str, Any] = field(default_factory=dict)


class IllegalEntry(Exception):
    """The journal holds an entry that cannot follow the ones before it; names both."""


@dataclass(frozen=True)
class JournalState:
    """What the journal says. ``open_step``: intent without an end. ``restored``: a restore step is done with ``verified`` true.

    ``touched``: an effect on production's world may have happened. ``closed``: the lock was given back after a verified end.
    """

    entries: int = 0
    fence: int = 0
    armed: bool = False
    touched: bool = False
    restored: bool = False
    closed: bool = False
    open_step: str | None = None
    last_step: str | None = None
    last_at: float | None = None


TOUCHING = frozenset({"close-entry", "stop-sidecars", "stop", "start", "park", "unpark"})


def replay(entries: Iterable[Entry]) -> JournalState:
    """The state after these entries. Raises IllegalEntry when they cannot be a journal (order, fence, marks)."""
    marks: dict[str, Mark] = {}
    state: dict[str, Any] = {"entries": 0, "fence": 0}
    for entry in entries:
        if entry.fence < state["fence"]:
            raise IllegalEntry(f"entry {entry.seq}: fence {entry.fence} after {state['fence']}: a stale writer")
        taken_over = entry.fence > state["fence"]
        if entry.mark not in LEGAL[marks.get(entry.step)] and not (taken_over and entry.mark == "intent"):
            raise IllegalEntry(f"entry {entry.seq}: {entry.mark} of {entry.step} after {marks.get(entry.step)}")
        marks[entry.step] = entry.mark
        state["fence"] = entry.fence
        state["entries"] += 1
        state["last_step"], state["last_at"] = entry.step, entry.at
        state["open_step"] = entry.step if entry.mark == "intent" else None
        if entry.kind in TOUCHING:
            state["touched"], state["restored"] = True, False
        if entry.mark == "done":
            if entry.kind == "arm-guard":
                state["armed"] = True
            elif entry.kind == "restore":
                state["restored"] = bool(entry.data.get("verified"))
            elif entry.kind == "release-lock":
                state["closed"] = bool(state.get("restored")) or not state.get("touched")
    return JournalState(**state)
