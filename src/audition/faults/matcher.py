"""Matches log lines against signatures in one pass and puts the root cause first. Keeps a bounded amount of text in memory.

Lines go through in blocks: a block that holds no anchor of any signature costs one search an anchor and nothing more.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from audition.faults.clean import Line, clean_line, strip_colours
from audition.faults.signature import Kind, Origin, Pattern, Signature, shipped_signatures

_BLOCK = 256
_TAIL = 20
_MAX_LINE = 2000
_EXCERPT = 6
_TRACEBACK = "Traceback (most recent call last)"
_READY = "Application startup complete"
_EXCEPTION = re.compile(
    r"^(?P<type>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Failure|Timeout|Abort))(?:: (?P<message>.*))?$"
)
_ORDER: dict[Kind, int] = {"cause": 0, "symptom": 1, "wrapper": 2}


@dataclass(frozen=True)
class Diagnosis:
    """One recognised failure. ``line_number`` counts from 1; ``captures``: the named parts of the match; ``excerpt``: log text.

    ``name`` is ``unknown`` for a failure that no signature knows: then ``title`` is the innermost exception.
    """

    name: str
    title: str
    phase: str
    kind: Kind
    origin: Origin
    line_number: int
    process: str
    captures: dict[str, str]
    cause: str
    remedy: str
    references: tuple[str, ...]
    excerpt: str


def diagnose(lines: Iterable[str], signatures: Sequence[Signature] | None = None) -> list[Diagnosis]:
    """What went wrong according to a log, root cause first; an empty list when nothing did. ``lines`` may be endless in size."""
    scan = _Scan(shipped_signatures() if signatures is None else tuple(signatures))
    source = iter(lines)
    while block := list(islice(source, _BLOCK)):
        scan.feed(block)
    return scan.result()


@dataclass
class _State:
    pattern: Pattern
    count: int = 0
    total: float = 0.0
    peak: float = float("-inf")
    first: int = 0
    held: bool = False
    line: Line = field(default_factory=lambda: Line("", "", ""))
    captures: dict[str, str] = field(default_factory=dict)
    excerpt: list[str] = field(default_factory=list)

    def offer(self, number: int, line: Line, before: Sequence[str]) -> None:
        p = self.pattern
        if p.reset_by is not None and p.reset_by.search(line.text):
            self.count, self.total, self.held = 0, 0.0, False
            return
        match = p.regex.search(line.text)
        if match is None:
            return
        if self.count == 0 or p.at_end:
            self.first, self.line = number, line
            self.captures = {k: v for k, v in match.groupdict().items() if v is not None}
            self.excerpt = [*before, line.text[:_MAX_LINE]]
        self.count += 1
        if p.capture:
            value = float(match[p.capture])
            self.total += value
            self.peak = max(self.peak, value)
            if p.drop_at_least is not None and self.peak - value >= p.drop_at_least and not self.held:
                self.held, self.first, self.line = True, number, line
                self.captures, self.excerpt = {"before": f"{self.peak:g}", "after": f"{value:g}"}, [line.text[:_MAX_LINE]]
        if p.drop_at_least is None:
            enough = self.count >= p.count_at_least
            self.held = enough and (p.sum_at_least is None or self.total >= p.sum_at_least)


class _Scan:
    def __init__(self, signatures: tuple[Signature, ...]) -> None:
        self._states = [(s, [_State(p) for p in s.patterns]) for s in signatures]
        self._by_anchor: dict[str, list[_State]] = {}
        for _, states in self._states:
            for state in states:
                self._by_anchor.setdefault(state.pattern.anchor, []).append(state)
        self._resets = [s for _, states in self._states for s in states if s.pattern.reset_by is not None]
        self._forbid = [(s.name, s.forbid_anchor, s.forbid) for s in signatures if s.forbid is not None]
        self._forbidden: set[str] = set()
        self._number = 0
        self._tail: deque[str] = deque(maxlen=_TAIL)
        self._last_text = 0
        self._exceptions: list[tuple[int, Line]] = []
        self._in_traceback: dict[str, str] = {}
        self._ready_at = 0

    def feed(self, block: list[str]) -> None:
        joined = strip_colours("".join(line if line.endswith("\n") else line + "\n" for line in block))
        anchors = [a for a in self._by_anchor if a in joined]
        watch = bool(self._in_traceback) or _TRACEBACK in joined or _READY in joined
        counting = any(s.count for s in self._resets) or any(anchor in joined for _, anchor, _ in self._forbid)
        if not (anchors or watch or counting):
            self._number += len(block)
            self._remember(block)
            return
        recent: deque[str] = deque(maxlen=_EXCERPT)
        for raw in block:
            self._number += 1
            line = clean_line(raw)
            for anchor in anchors:
                if anchor in line.text:
                    for state in self._by_anchor[anchor]:
                        state.offer(self._number, line, list(recent))
            if counting or anchors:
                self._watch_others(line)
            if watch or anchors:
                self._follow(line)
            recent.append(line.text[:_MAX_LINE])
        self._remember(block)

    def _remember(self, block: list[str]) -> None:
        for offset in range(len(block) - 1, -1, -1):
            if block[offset].strip() and not block[offset].startswith("#"):
                self._last_text = self._number - len(block) + offset + 1
                break
        self._tail.extend(raw for raw in block[-_TAIL:] if raw.strip())

    def _watch_others(self, line: Line) -> None:
        for state in self._resets:
            if state.count and state.pattern.anchor not in line.text:
                reset = state.pattern.reset_by
                if reset is not None and reset.search(line.text):
                    state.count, state.total, state.held = 0, 0.0, False
        for name, anchor, expression in self._forbid:
            if anchor in line.text and expression.search(line.text):
                self._forbidden.add(name)

    def _follow(self, line: Line) -> None:
        """Follow tracebacks, each process by itself, to the line that names the exception."""
        if _READY in line.text:
            self._ready_at = self._number
        if _TRACEBACK in line.text:
            self._in_traceback[line.process] = line.level
        elif line.process in self._in_traceback and (match := _EXCEPTION.match(line.text)):
            level = self._in_traceback.pop(line.process)
            if level not in ("WARNING", "INFO", "DEBUG") and match["type"].rpartition(".")[2] not in (
                "SystemExit",
                "KeyboardInterrupt",
            ):
                self._exceptions.append((self._number, line))

    def result(self) -> list[Diagnosis]:
        found: list[Diagnosis] = []
        for signature, states in self._states:
            held = [s for s in states if s.held and (not s.pattern.at_end or s.first == self._last_text)]
            if signature.name in self._forbidden or not held or (signature.require == "all" and len(held) < len(states)):
                continue
            found.append(self._diagnosis(signature, min(held, key=lambda s: s.first)))
        found.sort(key=lambda d: (_ORDER[d.kind], d.line_number))
        return [*self._unknown(found), *found]

    def _diagnosis(self, signature: Signature, state: _State) -> Diagnosis:
        return Diagnosis(
            signature.name, signature.title, signature.phase, signature.kind, signature.origin, state.first, state.line.process,
            dict(state.captures), signature.cause, signature.remedy, signature.references, "\n".join(state.excerpt),
        )  # fmt: skip

    def _unknown(self, found: list[Diagnosis]) -> list[Diagnosis]:
        """A failure that no signature explains: there is a wrapper, or an exception that stopped the boot, and no cause."""
        if any(d.kind == "cause" for d in found):
            return []
        told = {d.line_number for d in found}
        open_ones = [(n, line) for n, line in self._exceptions if n not in told and n > self._ready_at]
        if not open_ones and self._exceptions and any(d.kind == "wrapper" for d in found):
            open_ones = [(n, line) for n, line in self._exceptions if n not in told]
        wrapped = any(d.kind == "wrapper" for d in found)
        if not open_ones and (not wrapped or any(d.kind == "symptom" for d in found)):
            return []
        number, line = open_ones[0] if open_ones else (self._last_text, Line("", "", ""))
        title = line.text[:_MAX_LINE] or "something failed that the log does not name"
        tail = "\n".join(clean_line(raw).text[:_MAX_LINE] for raw in self._tail)
        unknown = Diagnosis(
            "unknown", title, "serve" if self._ready_at else "load", "cause", "unknown", number, line.process, {},
            "No signature knows this failure.", "Read the excerpt and the log above it.", (), tail,
        )  # fmt: skip
        return [unknown]
