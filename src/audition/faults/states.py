"""How far the patterns of a signature have been met by the lines seen so far: counts, sums, drops. No reading of logs here."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from audition.faults.clean import Line
from audition.faults.signature import Pattern, Signature

MAX_TEXT = 2000
"""Characters of a line that an excerpt keeps."""


class State:
    """One pattern. ``held``: its condition is met; ``first``, ``line``, ``captures``, ``excerpt``: of the line that met it."""

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self.held = False
        self.count = 0
        self.first = 0
        self.line = Line("", "", "")
        self.captures: dict[str, str] = {}
        self.excerpt: list[str] = []
        self._total = 0.0
        self._peak = float("-inf")
        self._frozen = False
        self._numbers = re.compile(pattern.regex.pattern.encode()) if pattern.drop_at_least is not None else None

    @property
    def done(self) -> bool:
        """Whether no later line can change anything."""
        return self.held and self.pattern.plain

    @property
    def active(self) -> bool:
        """Whether there is anything that a line could reset."""
        return self.count > 0 or self._peak > float("-inf")

    def turn(self, text: str) -> None:
        """Start the count anew, or freeze the highest value, if this line says so. A drop that was seen stays seen."""
        if self.pattern.reset_by is not None and self.pattern.reset_anchor in text and self.pattern.reset_by.search(text):
            self.count, self._total = 0, 0.0
            self._peak, self._frozen = float("-inf"), False
            self.held = self.held and self.pattern.drop_at_least is not None
        elif self.pattern.frozen_by and self.pattern.frozen_by in text:
            self._frozen = True

    def passes(self, block: bytes) -> bool:
        """For a drop: whether no drop can be in this whole block. Then its values are taken in, and its lines need not be seen."""
        if self._numbers is None or self.held:
            return self._numbers is not None
        p = self.pattern
        if (p.reset_anchor and p.reset_anchor.encode() in block) or (
            not self._frozen and p.frozen_by and p.frozen_by.encode() in block
        ):
            return False
        values = [float(m) for m in self._numbers.findall(block)]
        peak = self._peak if self._frozen else max([self._peak, *values])
        if values and peak - min(values) >= (p.drop_at_least or 0.0):
            return False
        self._peak = peak
        return True

    def offer(self, number: int, line: Line, before: Callable[[], Sequence[str]]) -> None:
        """Look at one line that holds the anchor. ``before`` gives the lines above it, for the excerpt."""
        p = self.pattern
        match = p.regex.search(line.text)
        if match is None:
            return
        if self.count == 0 and not self.held:
            self._keep(number, line, {k: v for k, v in match.groupdict().items() if v is not None}, before())
        self.count += 1
        if p.capture:
            value = float(match[p.capture])
            self._total += value
            if not self._frozen:
                self._peak = max(self._peak, value)
            if p.drop_at_least is not None and self._peak - value >= p.drop_at_least and not self.held:
                self.held = True
                self._keep(number, line, {"before": f"{self._peak:g}", "after": f"{value:g}"}, ())
        if p.drop_at_least is None:
            self.held = self.count >= p.count_at_least and (p.sum_at_least is None or self._total >= p.sum_at_least)

    def _keep(self, number: int, line: Line, captures: dict[str, str], before: Sequence[str]) -> None:
        self.first, self.line, self.captures = number, line, captures
        self.excerpt = [*before, line.text[:MAX_TEXT]]


class SignatureState:
    """All patterns of one signature, and whether a line has ruled it out."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        self.states = [State(p) for p in signature.patterns]
        self.forbidden = False

    def rule_out(self, text: str) -> None:
        """See whether this line rules the signature out."""
        forbid = self.signature.forbid
        if forbid is not None and not self.forbidden and self.signature.forbid_anchor in text and forbid.search(text):
            self.forbidden = True

    def held(self) -> State | None:
        """The state that met its condition first, when the signature as a whole is met."""
        held = [s for s in self.states if s.held]
        if self.forbidden or not held or (self.signature.require == "all" and len(held) < len(self.states)):
            return None
        return min(held, key=lambda s: s.first)
