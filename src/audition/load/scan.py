"""The fast way through a body: events that look like an event before them are recognised by one regular expression each.

A server writes the same JSON for every token but for the text, the id of the answer and the counts. The first event of a form is
read by the full parser (``stream``). A template is then made of it, with holes at those places, and *proved*: with other values in
the holes, the parser must find exactly those values at the right places and nothing else changed. An event that fits a proved
template needs no parser. Everything else, whatever it is, goes through the full parser, so that both ways give the same result.

What must not live here: sockets, clocks, what a request makes of its events (see ``chat``).
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

from audition.judge.records import EVENT_CONTENT, EVENT_REASONING
from audition.load.body import BadFraming, Body, Framing
from audition.load.stream import StreamFault, StreamFigures, StreamReader

MOST_TEMPLATES = 8  # forms remembered in a run; a server has one for the answer and one for the reasoning
_MOST_ATTEMPTS = 32  # forms looked at in a run
_MOST_LENGTHS = 4096
_TEXTS = (("content", EVENT_CONTENT), ("reasoning", EVENT_REASONING), ("reasoning_content", EVENT_REASONING))
_COUNTS = ("prompt_tokens", "total_tokens", "completion_tokens", "reasoning_tokens", "created")
_STRING = rb'(?!")[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+'  # not empty
_NUMBER = rb"(?:0|[1-9][0-9]{0,17}+)"
_HOLE = re.compile(
    r'"(?P<text>content|reasoning|reasoning_content)":"(?P<said>(?:[^"\\\x00-\x1f]|\\.)+)"'
    r'|"id":"(?P<id>[A-Za-z0-9_.:-]+)"'
    r'|"(?P<count>prompt_tokens|total_tokens|completion_tokens|reasoning_tokens|created)":(?P<number>0|[1-9][0-9]{0,17})(?=[,}])'
)
_PROBES = {"text": "\u2020 probe", "id": "probe-id"}


@dataclass(frozen=True)
class Template:
    """One proved form, as a whole HTTP chunk. ``size`` and ``total``, ``prompt``: groups of the pattern; 0: the form has none."""

    pattern: re.Pattern[bytes]
    kind: int
    prompt: int
    total: int


class Templates:
    """The forms seen so far. One for all requests of a run."""

    def __init__(self) -> None:
        self.known: list[Template] = []
        self.lengths: dict[bytes, int] = {}
        self._attempts = 0

    def length(self, size: bytes) -> int:
        """Bytes of a whole HTTP chunk from the digits of its size line, remembered in ``lengths``."""
        if len(self.lengths) > _MOST_LENGTHS:
            self.lengths.clear()
        length = self.lengths[size] = len(size) + 4 + int(size, 16)
        return length

    def learn(self, text: str, chunk: Any) -> None:
        """Make a template of a chunk that the full parser has understood, when it is a plain one and the template can be proved."""
        if len(self.known) >= MOST_TEMPLATES or self._attempts >= _MOST_ATTEMPTS or not _plain(chunk):
            return
        self._attempts += 1
        template = _template(text, chunk)
        if template is not None and template not in self.known:
            self.known.append(template)

    def prefer(self, place: int) -> None:
        """Try this one first from now on."""
        self.known.insert(0, self.known.pop(place))


def _plain(chunk: Any) -> bool:
    """One choice with one text, nothing else filled, no end."""
    choices = chunk.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or choices[0].get("finish_reason"):
        return False
    delta = choices[0].get("delta")
    return isinstance(delta, dict) and sum(bool(value) for value in delta.values()) == 1


def _template(text: str, chunk: dict[str, Any]) -> Template | None:
    delta = chunk["choices"][0]["delta"]
    key = next((name for name, _ in _TEXTS if isinstance(delta.get(name), str) and delta[name]), None)
    if key is None or "\n" in text:  # a chunk over several data lines
        return None
    pieces, groups, place, number = [rb"([0-9a-fA-F]{1,7})\r\ndata: ?"], {"size": 1}, 0, 1
    probe: list[str] = []
    wanted = json.loads(json.dumps(chunk))
    for hole in _HOLE.finditer(text):
        kind = "text" if hole["text"] else "id" if hole["id"] else "count"
        if (kind == "text" and (hole["text"] != key or "text" in groups)) or (kind == "id" and "id" in groups):
            return None
        start, end = hole.span({"text": "said", "id": "id", "count": "number"}[kind])
        literal = text[place:start]
        pieces.append(re.escape(literal.encode()))
        probe.append(literal)
        place = end
        if kind == "count":
            name = hole["count"]
            if name in groups:
                return None
            number += name in ("prompt_tokens", "completion_tokens")
            groups[name] = number
            pieces.append(b"(" + _NUMBER + b")" if name in ("prompt_tokens", "completion_tokens") else _NUMBER)
            value = 700_000 + len(groups)
            probe.append(str(value))
            if not _put(wanted, name, value):
                return None
        else:
            groups[kind] = 0
            pieces.append(_STRING if kind == "text" else rb"[A-Za-z0-9_.:-]++")
            probe.append(_PROBES[kind])
    if "text" not in groups:
        return None
    pieces.append(re.escape(text[place:].encode()) + rb"\n\n\r\n")
    probe.append(text[place:])
    wanted["choices"][0]["delta"][key] = _PROBES["text"]
    if "id" in groups:
        wanted["id"] = _PROBES["id"]
    try:
        proved = json.loads("".join(probe)) == wanted
    except ValueError:
        return None
    if not proved or _usage_outside(groups, wanted):
        return None
    return Template(
        re.compile(b"".join(pieces), re.DOTALL),
        dict(_TEXTS)[key],
        groups.get("prompt_tokens", 0),
        groups.get("completion_tokens", 0),
    )


def _put(chunk: dict[str, Any], name: str, value: int) -> bool:
    """Set a count where it belongs. False when the chunk has none there."""
    usage = chunk.get("usage")
    if name == "created":
        where: Any = chunk
    elif name == "reasoning_tokens":
        where = usage.get("completion_tokens_details") if isinstance(usage, dict) else None
    else:
        where = usage
    if not isinstance(where, dict) or name not in where:
        return False
    where[name] = value
    return True


def _usage_outside(groups: dict[str, int], chunk: dict[str, Any]) -> bool:
    """Whether the chunk has a usage object whose count is not in a hole: then its figures would be taken for constant."""
    return isinstance(chunk.get("usage"), dict) and not ("completion_tokens" in groups and "prompt_tokens" in groups)


class BodyReader:
    """Reads one body, at the end or piece by piece while it still grows (``advance``, which also frees what was read)."""

    def __init__(self, body: Body, templates: Templates) -> None:
        self._body, self._templates = body, templates
        self._framing = Framing()
        self._reader = StreamReader(keep_text=False, on_plain=templates.learn)
        self._place = 0  # bytes read, from the start of the body
        self._piece = 0  # index of the piece that holds that place
        self._broken = ""

    def advance(self, most: int) -> int:
        """Read about ``most`` bytes of those that are there, and free them. Returns how many were freed."""
        before = self._body.base
        self._read(min(self._place + most, self._body.base + len(self._body.raw)))
        self._body.drop(self._place)
        return self._place - before

    def finish(self, end: float) -> StreamFigures:
        """What the whole body held; ``end`` is when it ended, on the clock of its times."""
        self._read(self._body.base + len(self._body.raw))
        figures = self._reader.figures(end)
        if self._broken and figures.fault is None and figures.done_at is None:
            fault = StreamFault("bad-framing", self._broken)
            figures = StreamFigures(**{**vars(figures), "fault": fault})
        return figures

    def _read(self, until: int) -> None:
        while self._place < until and not self._broken:
            if self._body.chunked and self._framing.between and self._reader.between and self._fast(until):
                continue
            self._slow()

    def _slow(self) -> None:
        """Give the full parser what belongs to one piece, or one HTTP chunk of it."""
        body = self._body
        while body.ends[self._piece] <= self._place:
            self._piece += 1
        end, at, start = body.ends[self._piece] - body.base, body.at[self._piece], self._place - body.base
        if not body.chunked:
            self._reader.feed(at, bytes(body.raw[start:end]))
            self._place = end + body.base
            return
        try:
            # one HTTP chunk at most, so that the fast way is tried again behind it
            read, data = self._framing.step(body.raw[start:end], 0)
        except BadFraming as error:
            self._broken = str(error)
            self._place = body.base + len(body.raw)
            return
        self._place += read
        if data:
            self._reader.feed(at, data)

    def _fast(self, until: int) -> bool:
        """Read events for as long as they fit one of the templates. False when not even one did."""
        for number, template in enumerate(self._templates.known):
            if self._run(template, until):
                if number:
                    self._templates.prefer(number)
                return True
        return False

    def _run(self, template: Template, until: int) -> bool:
        body, reader, lengths = self._body, self._reader, self._templates.lengths
        raw, base, ends, at = body.raw, body.base, body.ends, body.at
        place = self._place - base
        piece, stop, match = self._piece, until - base, template.pattern.match
        add_at, totals, total_group, found, last = reader.at.append, list[bytes](), template.total, None, None
        while place < stop and (found := match(raw, place)) is not None:
            size, after = found[1], found.end()
            if after - place != (lengths.get(size) or self._templates.length(size)):
                break
            blank = after + base - 3  # the second line feed: with it the event is complete
            if ends[piece] <= blank:
                piece += 1
                if ends[piece] <= blank:
                    piece = bisect_right(ends, blank, piece)
            add_at(at[piece])
            if total_group:
                totals.append(found[total_group])
            place, last = after, found
        if last is None:
            return False
        self._place, self._piece = place + base, piece
        events = len(reader.at) - len(reader.kinds)
        reader.kinds.extend(bytes((template.kind,)) * events)
        if total_group:
            reader.totals.extend(map(int, totals))
            reader.note_events(int(last[template.prompt]), reader.totals[-1])
        else:
            reader.totals.extend([-1] * events)
            reader.note_events(None, None)
        return True


def read_body(body: Body, end: float, templates: Templates) -> StreamFigures:
    """What a whole body held; ``end`` is when it ended."""
    return BodyReader(body, templates).finish(end)
