"""One connection as asyncio sees it: bytes and times of a response are stored as they come. The measured path parses no body.

What must not live here: connecting, limits in time, retries (see ``client``), what the bytes mean (see ``stream``).

All times are ``time.monotonic()`` seconds.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import cast

import httptools

from audition.judge.records import Outcome
from audition.load.body import BadFraming, Body

_KEPT_ERROR = 4096  # bytes of an error body that are kept
_MAYBE_END = b"\r\n\r\n"  # how the last piece of a body in HTTP chunks ends, with or without trailers
GATHER_S = 0.0004
"""How long reads are gathered. A twentieth of a decode step of the fastest reference figures (7.6 ms), and under the millisecond
within which first tokens are to be told."""
GATHER_FROM = 8  # streams open from which on reads are gathered; a single user's times are taken at once
_now = time.monotonic


@dataclass
class Exchange:
    """One request and what came back. ``raw``: the body as it arrived, see ``audition.load.body``.

    ``outcome`` says only what the transport saw: ok means a whole HTTP response below 400, whatever its body says.
    """

    sent: float | None = None
    headers: float | None = None
    end: float = 0.0
    status: int | None = None
    content_type: str = ""
    raw: Body = field(default_factory=Body)
    outcome: Outcome = "ok"
    detail: str = ""

    @property
    def chunks(self) -> list[tuple[float, bytes]]:
        """(arrival, bytes) of the body without HTTP framing, in order, up to where the framing can be read."""
        out: list[tuple[float, bytes]] = []
        with suppress(BadFraming):
            out.extend(self.raw.pieces())
        return out

    @property
    def body(self) -> bytes:
        """The whole body."""
        return b"".join(data for _, data in self.chunks)


class Gather:
    """Lets the loop rest for GATHER_S after it has read, while many streams are open, so that one waking reads what several streams
    have sent meanwhile. To be woken costs several times what reading does. Times of arrival are late by GATHER_S at most for it.
    """

    def __init__(self) -> None:
        self.open = 0  # requests under way
        self._planned = False

    def read(self) -> None:
        """Some stream was read."""
        if not self._planned and self.open >= GATHER_FROM:
            self._planned = True
            asyncio.get_running_loop().call_soon(self._rest)

    def _rest(self) -> None:
        self._planned = False
        time.sleep(GATHER_S)


class Wire(asyncio.Protocol):
    """One connection. ``begin`` starts an exchange; the future it returns is done when the exchange has ended.

    Header fields go through the HTTP parser at once. Of a body in HTTP chunks, only bytes and time are stored; the parser sees it
    when its last bytes could be the end of a response, so that it costs nothing for each token.
    """

    def __init__(self, gather: Gather | None = None) -> None:
        self.gather = gather
        self.transport: asyncio.Transport | None = None
        self.lost = False
        self.used = False
        self.last_byte = 0.0
        self.exchange: Exchange | None = None
        self._done: asyncio.Future[None] | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._until_eof = True
        self._chunked = False
        self._informational = False
        self._head = b""  # the last bytes of a header that is not complete
        self._body: Body | None = None  # set once the header is complete
        self._fed = 0  # bytes of the body that the parser has seen

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Bytes of a response."""
        self.last_byte = at = _now()
        body = self._body
        if body is None:
            self._header(at, data)
            return
        raw = body.raw
        raw += data
        body.at.append(at)
        body.ends.append(body.base + len(raw))
        if not body.chunked or raw.endswith(_MAYBE_END):
            self.settle()
        if self.gather is not None:
            self.gather.read()

    def eof_received(self) -> bool:
        """The server sends no more: the connection is closed."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone; a running exchange ends."""
        self.lost = True
        self.settle()
        exchange = self.exchange
        if exchange is None:
            return
        self.last_byte = _now()
        if exc is None and exchange.headers is not None and self._until_eof:
            self._finish()
        else:
            self.fail("dropped", f"the connection was lost: {exc or 'closed by the server'}")

    def _header(self, at: float, data: bytes) -> None:
        """Bytes before the header is complete; what follows it in the same piece is body."""
        while data and self._body is None:
            if self._parser is None:  # nothing was asked
                self.close()
                return
            seen = self._head + data
            end = seen.find(b"\r\n\r\n")
            inside = len(data) if end < 0 else end + 4 - len(self._head)
            self._head = seen[-3:] if end < 0 else b""
            if not self._feed(data[:inside]):
                return
            data = data[inside:]
        if data and self._body is not None:
            self._body.add(at, data)
            self.settle()

    def _feed(self, data: bytes | memoryview) -> bool:
        """Give the parser bytes. False when they are not HTTP; the exchange has failed then."""
        parser = self._parser
        if parser is None:
            return False
        try:
            parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.fail("protocol", f"the response is not HTTP: {error or type(error).__name__}")
            return False
        return True

    def settle(self) -> None:
        """Let the parser see all of the body that came; this ends the exchange when the response is complete."""
        body = self._body
        if body is None or self._parser is None:
            return
        start = self._fed - body.base
        self._fed = body.base + len(body.raw)
        if start < len(body.raw):
            self._feed(bytes(memoryview(body.raw)[start:]))

    # What httptools calls.

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header field."""
        exchange = self.exchange
        if exchange is None:
            return
        lowered = name.lower()
        if lowered == b"content-type":
            exchange.content_type = value.decode("latin-1").lower()
        elif lowered == b"content-length":
            self._until_eof = False
        elif lowered == b"transfer-encoding":
            self._until_eof = False
            self._chunked = value.lower().rpartition(b",")[2].strip() == b"chunked"

    def on_headers_complete(self) -> None:
        """The header is complete; what follows is body."""
        exchange = self.exchange
        if exchange is None or self._parser is None:
            return
        status = self._parser.get_status_code()
        self._informational = status < 200
        if not self._informational:
            exchange.headers = self.last_byte
            exchange.status = status
            exchange.raw = self._body = Body(self._chunked)

    def on_message_complete(self) -> None:
        """The response is complete."""
        if self._informational:
            self._until_eof = True
        else:
            self._finish()

    # What the user of the connection calls.

    def begin(self, request: bytes) -> tuple[Exchange, asyncio.Future[None]]:
        """Send one request. The exchange fills itself until the future is done."""
        assert self.transport is not None
        assert self.exchange is None
        self._parser = httptools.HttpResponseParser(self)
        self._until_eof, self._chunked, self._body, self._head, self._fed = True, False, None, b"", 0
        self.exchange = exchange = Exchange()
        self._done = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        exchange.sent = self.last_byte = _now()
        self.used = True
        return exchange, self._done

    def fail(self, outcome: Outcome, detail: str) -> None:
        """End the running exchange with a failure and close the connection."""
        exchange = self.exchange
        if exchange is not None:
            exchange.outcome, exchange.detail = outcome, detail
            self._end()
        self.close()

    def close(self) -> None:
        """Close the connection at once."""
        self.lost = True
        if self.transport is not None:
            self.transport.abort()

    @property
    def usable(self) -> bool:
        """Whether another request may be sent on this connection."""
        return not self.lost and self.transport is not None and not self.transport.is_closing()

    def _finish(self) -> None:
        exchange = self.exchange
        if exchange is None:
            return
        if exchange.status is not None and exchange.status >= 400:
            exchange.outcome = "http-error"
            exchange.detail = exchange.body[:_KEPT_ERROR].decode("utf-8", "replace")
        keep = self._parser is not None and not self._until_eof and self._parser.should_keep_alive()
        self._end()
        if not keep:
            self.close()

    def _end(self) -> None:
        if self.exchange is not None:
            self.exchange.end = max(self.last_byte, self.exchange.sent or 0.0) if self.exchange.outcome == "ok" else _now()
        self.exchange = None
        self._parser = self._body = None
        if self._done is not None and not self._done.done():
            self._done.set_result(None)
