"""The body of a streamed answer (server-sent events) turned into token events. Pure: bytes and arrival times in, values out.

What must not live here: sockets, clocks, HTTP framing (the body arrives already de-chunked), statistics.

Rules of the event stream format are those of the HTML standard, section 9.2.6: lines end in CRLF, LF or CR; a line that begins
with a colon is a comment; several ``data`` lines of one event are joined by a line feed; a blank line ends the event.
"""

from __future__ import annotations

import codecs
import json
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import sub
from typing import Any, Literal

from pydantic_core import from_json

from audition.judge.records import EVENT_CONTENT, EVENT_EMPTY, EVENT_REASONING, EVENT_TOOL, StreamEvent

FaultKind = Literal["server-error", "not-an-event-stream", "not-json", "not-a-chunk", "bad-framing"]
_MOST_TOKENS = 2**62  # a count above it is no count; kept below what an array holds
_QUOTED = 200  # characters of a faulty text that are quoted in a fault


@dataclass(frozen=True)
class StreamFault:
    """Why a stream is no answer. ``server-error``: the server reported an error inside the stream; the others: not understood."""

    kind: FaultKind
    text: str


@dataclass(frozen=True)
class ToolCall:
    """One tool call put together from its parts. ``arguments`` is the text as sent, meant to be JSON."""

    name: str
    arguments: str
    id: str = ""


@dataclass(frozen=True)
class StreamResult:
    """What a stream held. ``events`` are on the clock of the arrival times that were fed.

    ``completion_tokens`` and ``prompt_tokens`` come from ``usage``, None when the server sent none. ``per_event``: the server said
    the tokens of every event, and they add up to ``completion_tokens``. ``done_at``: arrival of ``[DONE]``.
    ``cut``: the stream ended inside an event.
    """

    events: list[StreamEvent]
    content: str
    reasoning: str
    tool_calls: list[ToolCall]
    prompt_tokens: int | None
    completion_tokens: int | None
    per_event: bool
    finish_reason: str | None
    done_at: float | None
    cut: bool
    fault: StreamFault | None

    @property
    def filled_events(self) -> int:
        """Events with a non-empty delta."""
        return sum(1 for event in self.events if event.kind != EVENT_EMPTY)


@dataclass(frozen=True)
class StreamFigures:
    """What a stream held but its texts. ``at``, ``kinds`` and ``tokens``: one entry for each event, see ``StreamEvent``."""

    at: Sequence[float]
    kinds: bytearray
    tokens: list[int | None]
    prompt_tokens: int | None
    completion_tokens: int | None
    finish_reason: str | None
    done_at: float | None
    cut: bool
    fault: StreamFault | None

    @property
    def filled_events(self) -> int:
        """Events with a non-empty delta."""
        return len(self.kinds) - self.kinds.count(EVENT_EMPTY)


@dataclass
class _Call:
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    id: str = ""


class StreamReader:
    """Reads one stream step by step. Feed bytes in order, then call ``finish`` once.

    Never raises on content: the first thing that cannot be understood becomes the one fault, and the rest is ignored.
    ``keep_text`` False: the texts of the answer are thrown away. ``on_plain`` is called with the JSON text and the value of every
    chunk that was understood.
    """

    def __init__(self, *, keep_text: bool = True, on_plain: Callable[[str, Any], None] | None = None) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._decode = self._decoder.decode
        self._keep, self._on_plain = keep_text, on_plain
        self._tail = ""
        self._data: list[str] = []
        self._odd_line = ""
        self._any_data = False
        self._first = True
        self.at, self.kinds, self.totals = array("d"), bytearray(), array("q")  # totals: tokens so far, -1 where not said
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, _Call] = {}
        self._prompt_tokens: int | None = None
        self._total: int | None = None
        self._finish: str | None = None
        self._done_at: float | None = None
        self._fault: StreamFault | None = None

    @property
    def between(self) -> bool:
        """Whether the stream goes on and the next byte begins a new event."""
        pending = self._tail or self._data or self._decoder.getstate()[0]
        return not pending and self._fault is None and self._done_at is None

    def note_events(self, prompt: int | None, total: int | None) -> None:
        """Take notice of events whose times, kinds and totals were appended from outside; the figures are those of the last
        usage."""
        self._first, self._any_data = False, True
        if total is not None:
            self._total = total
        if prompt is not None:
            self._prompt_tokens = prompt

    def feed(self, at: float, data: bytes) -> None:
        """Take the bytes that arrived at ``at`` (seconds on any one clock, not decreasing)."""
        self._lines(at, self._decode(data), last=False)

    def finish(self, at: float) -> StreamResult:
        """The whole stream as values. A last event without its blank line still counts when it is complete."""
        return self._result(self._last(at))

    def figures(self, at: float) -> StreamFigures:
        """The same without texts."""
        cut = self._last(at)
        return StreamFigures(
            at=self.at,
            kinds=self.kinds,
            tokens=tokens_per_event(self.kinds, self.totals, self._total),
            prompt_tokens=self._prompt_tokens,
            completion_tokens=self._total,
            finish_reason=self._finish,
            done_at=self._done_at,
            cut=cut,
            fault=self._fault,
        )

    def _last(self, at: float) -> bool:
        """Read what is left. Returns whether the stream was cut inside an event."""
        self._lines(at, self._decode(b"", True), last=True)
        cut = False
        if self._data:
            cut = not self._complete("\n".join(self._data))
            if not cut:
                self._dispatch(at)
        if self._fault is None and not self._any_data and self._odd_line:
            self._fault = StreamFault("not-an-event-stream", f"no data line in the body, it reads {self._odd_line!r}")
        return cut

    def _lines(self, at: float, text: str, *, last: bool) -> None:
        text = self._tail + text
        if self._first and text:
            text = text.removeprefix("\ufeff")
            self._first = False
        if "\r" in text:
            held = text.endswith("\r") and not last  # it may be the first half of CRLF
            text = text[: len(text) - held].replace("\r\n", "\n").replace("\r", "\n") + "\r" * held
        lines = text.split("\n")
        self._tail = lines.pop()
        if last and self._tail:
            lines.append(self._tail)
            self._tail = ""
        for line in lines:
            if line:
                self._line(line)
            elif self._data:
                self._dispatch(at)

    def _line(self, line: str) -> None:
        name, _, value = line.partition(":")
        if name == "data":
            self._data.append(value.removeprefix(" "))
            self._any_data = True
        elif name not in ("", "event", "id", "retry") and not self._odd_line:
            self._odd_line = line[:_QUOTED]

    @staticmethod
    def _complete(text: str) -> bool:
        if text.strip() == "[DONE]":
            return True
        try:
            _loads(text)
        except (ValueError, RecursionError):
            return False
        return True

    def _dispatch(self, at: float) -> None:
        text = "\n".join(self._data)
        self._data.clear()
        if self._fault is not None or self._done_at is not None:
            return
        if text.strip() == "[DONE]":
            self._done_at = at
            return
        try:
            chunk = _loads(text)
        except (ValueError, RecursionError):
            self._fault = StreamFault("not-json", f"a data line is no JSON: {text[:_QUOTED]!r}")
            return
        fault = self._chunk(at, chunk)
        if fault is not None:
            self._fault = fault
        elif self._on_plain is not None:
            self._on_plain(text, chunk)

    def _chunk(self, at: float, chunk: Any) -> StreamFault | None:
        if not isinstance(chunk, dict):
            return StreamFault("not-a-chunk", f"a data line holds no object: {str(chunk)[:_QUOTED]!r}")
        if chunk.get("error") is not None or chunk.get("object") == "error":
            return StreamFault("server-error", _error_text(chunk))
        choices = chunk.get("choices")
        if not isinstance(choices, list):
            return StreamFault("not-a-chunk", f"a data line has no choices: {json.dumps(chunk)[:_QUOTED]}")
        total = self._usage(chunk.get("usage"))
        if not choices:
            return None
        kind = EVENT_EMPTY
        for choice in choices:
            if not isinstance(choice, dict):
                return StreamFault("not-a-chunk", f"a choice is no object: {json.dumps(choice)[:_QUOTED]}")
            kind |= self._choice(choice)
        self.at.append(at)
        self.kinds.append(kind)
        self.totals.append(-1 if total is None else total)
        return None

    def _usage(self, usage: Any) -> int | None:
        """Note the figures of one usage object. Returns the completion tokens so far, None when it does not say."""
        if not isinstance(usage, dict):
            return None
        prompt, total = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
        if prompt is not None:
            self._prompt_tokens = prompt
        if total is not None:
            self._total = total
        return total

    def _choice(self, choice: dict[str, Any]) -> int:
        """Collect one choice's delta (chat) or text (completions). Returns its kinds as a bit set."""
        kind = EVENT_EMPTY
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            self._finish = reason
        delta = choice.get("delta")
        parts: dict[str, Any] = delta if isinstance(delta, dict) else {"content": choice.get("text")}
        content = parts.get("content")
        if isinstance(content, str) and content:
            if self._keep:
                self._content.append(content)
            kind |= EVENT_CONTENT
        reasoning = parts.get("reasoning") or parts.get("reasoning_content")
        if isinstance(reasoning, str) and reasoning:
            if self._keep:
                self._reasoning.append(reasoning)
            kind |= EVENT_REASONING
        calls = parts.get("tool_calls")
        if isinstance(calls, list) and calls:
            for position, call in enumerate(calls):
                if isinstance(call, dict):
                    if self._keep:
                        self._tool(position, call)
                    kind |= EVENT_TOOL
        return kind

    def _tool(self, position: int, call: dict[str, Any]) -> None:
        index = call.get("index")
        known = self._calls.setdefault(index if isinstance(index, int) else position, _Call())
        if isinstance(call.get("id"), str):
            known.id = known.id or call["id"]
        function = call.get("function")
        if isinstance(function, dict):
            if isinstance(function.get("name"), str):
                known.name = known.name or function["name"]
            if isinstance(function.get("arguments"), str):
                known.arguments.append(function["arguments"])

    def _result(self, cut: bool) -> StreamResult:
        tokens = tokens_per_event(self.kinds, self.totals, self._total)
        rows = zip(self.at, tokens, self.kinds, strict=True)
        return StreamResult(
            events=[StreamEvent(at, count, kind) for at, count, kind in rows],
            content=whole_text("".join(self._content)),
            reasoning=whole_text("".join(self._reasoning)),
            tool_calls=[
                ToolCall(whole_text(call.name), whole_text("".join(call.arguments)), whole_text(call.id))
                for _, call in sorted(self._calls.items())
            ],
            prompt_tokens=self._prompt_tokens,
            completion_tokens=self._total,
            per_event=bool(tokens) and tokens[0] is not None,
            finish_reason=self._finish,
            done_at=self._done_at,
            cut=cut,
            fault=self._fault,
        )


def tokens_per_event(kinds: bytes | bytearray, totals: Sequence[int], final: int | None) -> list[int | None]:
    """Tokens of each event from its kind, the completion tokens so far (-1: not said) and the last figure of the stream.

    The server counts along only when every event with a non-empty delta carries a figure; then an event's tokens are the difference
    to the figure before it. Tokens counted before the first non-empty delta belong to that delta, and tokens that only a later
    figure shows belong to the last one, so that the sum equals ``final``. Otherwise, or when a figure falls, all are None.
    """
    unknown: list[int | None] = [None] * len(kinds)
    if final is None or not kinds:
        return unknown
    first, last = len(kinds) - len(kinds.lstrip(b"\0")), len(kinds.rstrip(b"\0")) - 1
    if last < 0:  # nothing but empty deltas
        first, last = 0, len(kinds) - 1
    so_far = list(totals)
    if -1 in so_far:
        if any(total < 0 and (kind or not any(kinds)) for kind, total in zip(kinds, so_far, strict=True)):
            return unknown
        for place, total in enumerate(so_far):
            if total < 0:
                so_far[place] = so_far[place - 1] if place else 0
    counts: list[int] = list(map(sub, so_far, [0, *so_far]))
    if min(counts) < 0 or final < so_far[-1]:
        return unknown
    counts[first] += sum(counts[:first])
    counts[:first] = [0] * first
    counts[last] += final - so_far[-1]
    return list(counts)


def read_stream(chunks: Iterable[tuple[float, bytes]], end: float) -> StreamResult:
    """A whole body from (arrival, bytes) pairs; ``end`` is when it ended. Same clock for both."""
    reader = StreamReader()
    for at, data in chunks:
        reader.feed(at, data)
    return reader.finish(end)


def _loads(text: str) -> Any:
    """JSON, read by the faster of two parsers; the other one also takes halves of surrogate pairs. Raises ValueError."""
    try:
        return from_json(text)
    except ValueError:
        return json.loads(text)


def whole_text(text: str) -> str:
    """The text with halves of surrogate pairs joined, and a replacement character for each half without the other."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _count(value: Any) -> int | None:
    return min(value, _MOST_TOKENS) if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _error_text(chunk: dict[str, Any]) -> str:
    error = chunk.get("error")
    if isinstance(error, dict):
        code = error.get("code")
        return whole_text(f"{error.get('message', '')}".strip() + (f" (code {code})" if code is not None else ""))
    return whole_text(str(error if error is not None else chunk.get("message", chunk))[:_QUOTED])
