"""Matches log lines against signatures in one pass and puts the root cause first. Keeps a bounded amount of text in memory.

Text goes through in blocks of bytes. A block is searched for a few words (``rror``, ``ERROR``, and the anchors of signatures whose
lines have neither); only lines that hold one are taken apart, and those of a traceback up to the exception's name. So a healthy
log costs about ten searches a block and nothing more. What a found line means is ``states``; taking prefixes off is ``clean``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from audition.faults.clean import Line, clean_line, strip_colours_bytes
from audition.faults.matcher_ending import BOOT, EXCEPTION, SERVED, Ending, ended_cleanly, ending_of, last_words, names_failure
from audition.faults.signature import Kind, Origin, Signature, shipped_signatures
from audition.faults.states import MAX_TEXT, SignatureState, State

_LINES_IN_BLOCK = 4096
_TAIL_BYTES = 65_536
_TAIL = 20
_EXCERPT = 6
_MAX_LINE = 16_384
_MAX_EXCEPTIONS = 200
_MAX_TRACEBACK = 500  # lines without an exception's name after which a traceback counts as over
_MAX_DULL = 4096
_AFTERGLOW = 4  # lines looked at after one with an error: messages have several lines
_ERRORS = (b"rror", b"ERROR")
_TRACEBACK = "Traceback (most recent call last)"
_READY = "Application startup complete"
_ENGINE_PROCESSES = ("Worker", "EngineCore", "VllmWorker")
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


@dataclass(frozen=True)
class Reading:
    """What a log tells. ``diagnoses``: root cause first; ``ending``: whether their absence means that all is well."""

    diagnoses: list[Diagnosis]
    ending: Ending


def diagnose(lines: Iterable[str], signatures: Sequence[Signature] | None = None) -> list[Diagnosis]:
    """What went wrong according to a log, root cause first; an empty list when nothing did. ``lines`` may be endless in size."""

    def blocks() -> Iterator[bytes]:
        source = iter(lines)
        while block := list(islice(source, _LINES_IN_BLOCK)):
            text = "".join(line if line.endswith("\n") else line + "\n" for line in block)
            yield text.encode("utf-8", "replace")

    return diagnose_blocks(blocks(), signatures)


def diagnose_blocks(blocks: Iterable[bytes], signatures: Sequence[Signature] | None = None) -> list[Diagnosis]:
    """The same for the bytes of a log, in pieces of any size as they are read; about a mebibyte each is fastest."""
    return read_blocks(blocks, signatures).diagnoses


def read_blocks(blocks: Iterable[bytes], signatures: Sequence[Signature] | None = None) -> Reading:
    """The same, with how the log ends."""
    scan = _Scan(shipped_signatures() if signatures is None else tuple(signatures))
    rest = b""
    for piece in blocks:
        end = piece.rfind(b"\n") + 1
        if end:
            scan.feed(rest + piece[:end])
            rest = piece[end:]
        elif len(rest) < _TAIL_BYTES:
            rest += piece
        else:  # a line without an end is cut
            scan.feed(rest + b"\n")
            rest = piece
    if rest:
        scan.feed(rest + b"\n")
    return scan.result()


class _Scan:
    def __init__(self, signatures: tuple[Signature, ...]) -> None:
        self._signatures = [SignatureState(s) for s in signatures]
        self._by_anchor: dict[str, list[State]] = {}
        for one in self._signatures:
            for state in one.states:
                if not state.pattern.at_end:
                    self._by_anchor.setdefault(state.pattern.anchor, []).append(state)
        self._drops = [s for states in self._by_anchor.values() for s in states if s.pattern.drop_at_least is not None]
        self._resets = [s for states in self._by_anchor.values() for s in states if s.pattern.reset_by is not None]
        self._forbids = [one for one in self._signatures if one.signature.forbid is not None]
        self._other_words = [w for s in self._resets for w in (s.pattern.reset_anchor, s.pattern.frozen_by) if w] + [
            o.signature.forbid_anchor for o in self._forbids
        ]
        self._dull: set[str] = set()  # texts that no signature looks at: logs repeat themselves
        self._counted = 0  # lines before the present block
        self._tail = b""
        self._exceptions: list[tuple[int, Line]] = []
        self._in_traceback: dict[str, tuple[str, int]] = {}  # process -> level, line at which it counts as over
        self._glow = 0
        self._ready_at = self._boot_at = self._served_at = 0
        self._text = False

    # -- one block of whole lines -------------------------------------------------------------------------------------------------

    def feed(self, block: bytes) -> None:
        if b"\x1b" in block:
            block = strip_colours_bytes(block)
        starts = self._lines_to_see(block)
        number, at, place = self._counted, 0, 0
        while True:
            if self._in_traceback or self._glow:
                start = at
            else:
                while place < len(starts) and starts[place] < at:
                    place += 1
                if place == len(starts):
                    break
                start = starts[place]
            if start >= len(block):
                break
            end = block.find(b"\n", start)
            number += block.count(b"\n", at, start) + 1
            self._see(number, clean_line(block[start : min(end, start + _MAX_LINE)].decode("utf-8", "replace")), block, start)
            at = end + 1
        self._text = self._text or not block.isspace()
        if max(self._served_at, self._ready_at) <= self._boot_at:
            served = max(block.rfind(word) for word in SERVED)
            self._served_at = self._counted + block.count(b"\n", 0, served) + 1 if served >= 0 else self._served_at
        self._counted += block.count(b"\n")
        self._tail = (self._tail + block[-_TAIL_BYTES:])[-_TAIL_BYTES:]

    def _lines_to_see(self, block: bytes) -> list[int]:
        """Where the lines begin that may matter, in order."""
        words = [*_ERRORS, _TRACEBACK.encode(), _READY.encode(), BOOT.encode()]
        quiet = {s.pattern.anchor for s in self._drops if s.passes(block)}
        for anchor, states in self._by_anchor.items():
            if anchor not in quiet and any(s.pattern.line == "any" and not s.done for s in states):
                words.append(anchor.encode())
        for one in self._forbids:
            if not one.forbidden:
                words.append(one.signature.forbid_anchor.encode())
        for state in self._resets:
            if state.active or state.pattern.anchor.encode() in block:
                words.append(state.pattern.reset_anchor.encode())
            if state.pattern.frozen_by and state.pattern.anchor not in quiet:
                words.append(state.pattern.frozen_by.encode())
        starts: set[int] = set()
        for word in dict.fromkeys(words):
            at = block.find(word)
            while at >= 0:
                starts.add(block.rfind(b"\n", 0, at) + 1)
                at = block.find(word, block.find(b"\n", at))
        return sorted(starts)

    def _see(self, number: int, line: Line, block: bytes, start: int) -> None:
        text = line.text
        dull = text in self._dull
        if not dull:
            for state in self._resets:
                state.turn(text)
            anchors = [anchor for anchor in self._by_anchor if anchor in text]
            for anchor in anchors:
                for state in self._by_anchor[anchor]:
                    if not state.done:
                        state.offer(number, line, lambda: self._before(block, start))
            for one in self._forbids:
                one.rule_out(text)
            if not anchors and not any(word in text for word in self._other_words) and len(self._dull) < _MAX_DULL:
                self._dull.add(text)
        error = "rror" in text or line.level in ("ERROR", "CRITICAL")
        self._glow = _AFTERGLOW if error and not dull else max(self._glow - 1, 0)
        self._follow(number, line)

    def _before(self, block: bytes, start: int) -> list[str]:
        """The lines before, without prefixes."""
        at = max(start - _TAIL_BYTES, 0)
        text = block[at:start] if at else self._tail + block[:start]
        return [clean_line(raw).text[:MAX_TEXT] for raw in text.decode("utf-8", "replace").splitlines()[-_EXCERPT:]]

    def _follow(self, number: int, line: Line) -> None:
        """Follow tracebacks, each process by itself, to the line that names the exception."""
        if _READY in line.text:
            self._ready_at = number
        elif BOOT in line.text:
            self._boot_at = number
        if _TRACEBACK in line.text:
            self._in_traceback[line.process] = line.level, number + _MAX_TRACEBACK
        elif line.process in self._in_traceback and EXCEPTION.match(line.text):
            level, _ = self._in_traceback.pop(line.process)
            if names_failure(Line(line.process, level, line.text)) and len(self._exceptions) < _MAX_EXCEPTIONS:
                self._exceptions.append((number, line))
        if self._in_traceback:
            self._in_traceback = {p: (level, until) for p, (level, until) in self._in_traceback.items() if until > number}

    # -- the end ------------------------------------------------------------------------------------------------------------------

    def result(self) -> Reading:
        tail = self._last_lines()
        if not ended_cleanly(tail):
            self._hear_silence(tail)
        found = [_diagnosis(one.signature, state) for one in self._signatures if (state := one.held()) is not None]
        found.sort(key=lambda d: (_ORDER[d.kind], d.line_number))
        up_at = max(self._ready_at, self._served_at)
        ending = ending_of(tail, text=self._text, boot_at=self._boot_at, up_at=up_at)
        return Reading([*self._unknown(found, tail), *found], ending)

    def _last_lines(self) -> list[tuple[int, Line]]:
        """The last lines with text, numbered. Lines that begin with ``#`` are a person's remarks."""
        raw = self._tail.decode("utf-8", "replace").split("\n")[:-1]
        first = self._counted - len(raw) + 1
        return [(first + i, clean_line(text)) for i, text in enumerate(raw) if text.strip() and not text.startswith("#")]

    def _hear_silence(self, tail: list[tuple[int, Line]]) -> None:
        """Silence: the engine's processes print nothing after a line, and the server never became ready. Lines of others, such as
        answers to health checks, do not end it; without the names of processes any line does."""
        after = False
        for number, line in reversed(tail):
            if after or number < self._ready_at:
                return
            for one in self._signatures:
                for state in one.states:
                    if state.pattern.at_end and not state.held and state.pattern.anchor in line.text:
                        place = tail.index((number, line))
                        before = [text.text[:MAX_TEXT] for _, text in tail[max(0, place - _EXCERPT) : place]]
                        state.offer(number, line, lambda before=before: before)  # type: ignore[misc]
            after = line.process.startswith(_ENGINE_PROCESSES) or not line.process

    def _unknown(self, found: list[Diagnosis], tail: list[tuple[int, Line]]) -> list[Diagnosis]:
        """A failure that no signature explains: there is a wrapper, or an exception that stopped the boot, and no cause."""
        if any(d.kind == "cause" for d in found):
            return []
        told = {d.line_number for d in found}
        open_ones = [(n, line) for n, line in self._exceptions if n not in told and n > self._ready_at]
        if not open_ones and self._exceptions and any(d.kind == "wrapper" for d in found):
            open_ones = [(n, line) for n, line in self._exceptions if n not in told]
        if not open_ones and not ended_cleanly(tail):
            ready = self._ready_at > self._boot_at
            open_ones = [(n, line) for n, line in last_words(tail, ready=ready) if n not in told and n > self._ready_at]
        wrapped = any(d.kind == "wrapper" for d in found)
        if not open_ones and (not wrapped or any(d.kind == "symptom" for d in found)):
            return []
        number, line = open_ones[0] if open_ones else (tail[-1] if tail else (self._counted, Line("", "", "")))
        named = line.text[:MAX_TEXT] if open_ones else ""
        excerpt = "\n".join(text.text[:MAX_TEXT] for _, text in tail[-_TAIL:])
        unknown = Diagnosis(
            "unknown", named or "something failed that the log does not name", "serve" if self._ready_at else "load", "cause",
            "unknown", number, line.process, {}, "No signature knows this failure.", "Read the excerpt and the log above it.", (),
            excerpt,
        )  # fmt: skip
        return [unknown]


def _diagnosis(signature: Signature, state: State) -> Diagnosis:
    return Diagnosis(
        signature.name, signature.title, signature.phase, signature.kind, signature.origin, state.first, state.line.process,
        dict(state.captures), signature.cause, signature.remedy, signature.references, "\n".join(state.excerpt),
    )  # fmt: skip
