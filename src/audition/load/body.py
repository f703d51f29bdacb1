"""The bytes of one response as they came, with the times at which they came. Nothing is understood here while a request runs.

What must not live here: sockets, what the bytes mean (see ``scan`` and ``stream``).

A body is kept in one buffer, framing of HTTP chunks included (RFC 9112, section 7.1), and two arrays: when each piece arrived, and
where it ended. Taking the framing off is left to whoever reads the body after the request.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from audition.load.scan import BodyReader

_LONGEST_SIZE_LINE = 4096  # bytes of a chunk's size line with its extensions; nobody needs more


class BadFraming(ValueError):
    """The body is not framed in HTTP chunks as its header says. ``before``: what ``Framing.strip`` had read until then."""

    before = b""


class Body:
    """Bytes with arrival times. ``chunked``: ``raw`` still holds the framing. ``base``: bytes already dropped from the front."""

    __slots__ = ("at", "base", "chunked", "ends", "raw", "reader")

    def __init__(self, chunked: bool = False) -> None:
        self.chunked = chunked
        self.raw = bytearray()
        self.at = array("d")
        self.ends = array("Q")
        self.base = 0
        self.reader: BodyReader | None = None  # who reads it while it still grows

    def add(self, at: float, data: bytes) -> None:
        """Append a piece that arrived at ``at`` (seconds, not decreasing)."""
        self.raw += data
        self.at.append(at)
        self.ends.append(self.base + len(self.raw))

    def drop(self, until: int) -> None:
        """Forget the bytes before position ``until``, counted from the start of the body; times are kept."""
        del self.raw[: until - self.base]
        self.base = until

    def pieces(self) -> Iterator[tuple[float, bytes]]:
        """(arrival, bytes) of the body without framing, in order. Raises BadFraming. Only for a body of which nothing was
        dropped."""
        framing, start = Framing(), 0
        for at, end in zip(self.at, self.ends, strict=True):
            data, broken = bytes(self.raw[start:end]), None
            start = end
            if self.chunked:
                try:
                    data = framing.strip(data)
                except BadFraming as error:
                    data, broken = error.before, error
            if data:
                yield at, data
            if broken is not None:
                raise broken


class Framing:
    """Takes the framing of HTTP chunks off, step by step. Whatever follows the last chunk is passed over."""

    def __init__(self) -> None:
        self._left = 0  # bytes still to come of the running chunk, with its closing CRLF
        self._line = b""
        self._ended = False

    @property
    def between(self) -> bool:
        """Whether the next byte begins a new chunk."""
        return self._left == 0 and not self._line and not self._ended

    def strip(self, data: bytes) -> bytes:
        """The body bytes in ``data``. Raises BadFraming."""
        out: list[bytes] = []
        place = 0
        while place < len(data):
            try:
                taken, body = self.step(data, place)
            except BadFraming as error:
                error.before = b"".join(out)
                raise
            place += taken
            if body:
                out.append(body)
        return out[0] if len(out) == 1 else b"".join(out)

    def step(self, data: bytes | bytearray, place: int) -> tuple[int, bytes]:
        """Read on from ``place`` to the end of a chunk at most. Returns (bytes read, body bytes among them). Raises BadFraming."""
        if self._ended:
            return len(data) - place, b""
        if self._left:
            return self._inside(data, place)
        end = data.find(b"\n", place)
        if end < 0:
            self._line += bytes(data[place:])
            if len(self._line) > _LONGEST_SIZE_LINE:
                raise BadFraming("an HTTP chunk has no size")
            return len(data) - place, b""
        line = self._line + bytes(data[place:end])
        self._line = b""
        try:
            size = int(line.split(b";")[0].strip(), 16)
        except ValueError:
            raise BadFraming(f"the size of an HTTP chunk reads {line[:40]!r}") from None
        if size == 0:
            self._ended = True
        else:
            self._left = size + 2
        read = end + 1 - place
        if self._left and end + 1 < len(data):
            more, body = self._inside(data, end + 1)
            return read + more, body
        return read, b""

    def _inside(self, data: bytes | bytearray, place: int) -> tuple[int, bytes]:
        read = min(self._left, len(data) - place)
        body = bytes(data[place : place + max(0, min(read, self._left - 2))])
        self._left -= read
        return read, body
