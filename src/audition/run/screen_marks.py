"""The signs that the screen draws with, and plain ones for terminals that have no others. Pure."""

from __future__ import annotations

from dataclasses import dataclass

_FRAMES_A_SECOND = 4


@dataclass(frozen=True)
class Marks:
    """One set of signs. ``levels``: rising, for little curves; ``frames``: what turns while something is waited for."""

    done: str
    running: str
    cut: str
    to_come: str
    dot: str
    warning: str
    bar: str
    rest: str
    none: str
    levels: str
    frames: str

    def turn(self, now: float) -> str:
        """The sign that turns, at ``now`` seconds."""
        return self.frames[int(now * _FRAMES_A_SECOND) % len(self.frames)]


UNICODE = Marks("✔", "▶", "✘", "·", "●", "⚠", "━", "─", "–", "▁▂▃▄▅▆▇█", "⠋⠙⠸⠴⠦⠇")
ASCII = Marks("+", ">", "x", ".", "*", "!", "=", "-", "-", "_.-=*#", "|/-\\")
