"""Where the verbs that run a spike show what happens: what ``--events`` names, asked before any wait."""

from __future__ import annotations

import sys
from pathlib import Path

from audition.run.events_file import EventsSink, open_events


def events_to(name: str | None, spike: Path) -> EventsSink:
    """Where JSON lines go; nowhere when none are wanted. ``-`` is standard error. ``spike``: the spike file. Raises BadInput."""
    if name is None:
        return EventsSink()
    if name == "-":
        return EventsSink(sys.stderr.fileno() if sys.stderr is not None else None)
    return open_events(name, spike)
