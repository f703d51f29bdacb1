"""The HTTP client: one keep-alive connection a user, on asyncio. The measured path parses no body, it stores bytes and times.

What must not live here: what is sent (see ``workload``), what the bytes mean (see ``stream``).

All times are ``time.monotonic()`` seconds. The loop may be uvloop's or asyncio's own.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol, cast
from urllib.parse import urlsplit

import httptools

from audition.judge.records import Outcome
from audition.load.body import BadFraming, Body

CONNECT_LIMIT_S = 10.0  # longest wait for a connection; within one host or site a connect takes milliseconds
_RETRY_WITHIN_S = 1.0  # a kept-alive connection lost sooner than this without one byte was closed by the server while idle
_KEPT_ERROR = 4096  # bytes of an error body that are kept
_MAYBE_END = b"\r\n\r\n"  # how the last piece of a body in HTTP chunks ends, with or without trailers
GATHER_S = 0.0004
"""How long reads are gathered. A twentieth of a decode step of the fastest reference figures (7.6 ms), and under the millisecond
within which first tokens are to be told."""
GATHER_FROM = 8  # streams open from which on reads are gathered; a single user's times are taken at once
_now = time.monotonic


class Endpoint(Protocol):
    """Where a server answers: base URL without a path, the model's name, the API key if there is one."""

    @property
    def url(self) -> str:
        """Base URL, http or https, without a path."""

    @property
    def model(self) -> str:
        """Name of the model as the server lists it."""

    @property
    def api_key(self) -> str | None:
        """Sent as a bearer token."""


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


@dataclass(frozen=True)
class Target:
    """An endpoint taken apart: where to connect and which headers every request carries."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    head: bytes

    @staticmethod
    def of(endpoint: Endpoint) -> Target:
        """From a base URL. Raises ValueError when it is no http or https URL."""
        parts = urlsplit(endpoint.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"expected an http or https URL, got {endpoint.url!r}")
        tls = ssl.create_default_context() if parts.scheme == "https" else None
        lines = [f"Host: {parts.netloc.rpartition('@')[2]}", "User-Agent: audition", "Accept: */*"]
        if endpoint.api_key is not None:
            lines.append(f"Authorization: Bearer {endpoint.api_key}")
        port = parts.port or (443 if tls else 80)
        return Target(parts.hostname, port, tls, "".join(f"{line}\r\n" for line in lines).encode("latin-1"))

    def request(self, method: str, path: str, body: bytes = b"", request_id: str = "") -> bytes:
        """The bytes of one HTTP/1.1 request with a JSON body."""
        extra = f"X-Request-Id: {request_id}\r\n" if request_id else ""
        if body:
            extra += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        return f"{method} {path} HTTP/1.1\r\n".encode("ascii") + self.head + extra.encode("ascii") + b"\r\n" + body


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


class _Wire(asyncio.Protocol):
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
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
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
        return False

    def connection_lost(self, exc: Exception | None) -> None:
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


class Connection:
    """A user's connection: opened when needed, kept alive between requests. Use as ``async with``."""

    def __init__(self, target: Target, gather: Gather | None = None) -> None:
        self.target, self.gather = target, gather
        self._wire: _Wire | None = None

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close at once; a running exchange ends as cancelled."""
        if self._wire is not None:
            self._wire.fail("cancelled", "the client closed the connection")
            self._wire = None

    def growing(self) -> Body | None:
        """The body that still grows, None when no answer is under way."""
        exchange = self._wire.exchange if self._wire is not None else None
        return exchange.raw if exchange is not None and exchange.status == 200 else None

    def settle(self) -> None:
        """Let the HTTP parser see what has come, so that it may be dropped. This may end the exchange."""
        if self._wire is not None:
            self._wire.settle()

    async def open(self) -> None:
        """Connect ahead of the first send. A failure is left to the send, which reports it."""
        opened = await self._open(CONNECT_LIMIT_S)
        if isinstance(opened, _Wire):
            self._wire = opened

    async def send(self, request: bytes, *, deadline_s: float, silence_s: float) -> Exchange:
        """One exchange. Never raises on what the network does: ``outcome`` says it. Both limits count in seconds from the send.

        Cancelling the task closes the connection and raises ``asyncio.CancelledError`` as usual.
        """
        started = time.monotonic()
        exchange = await self._attempt(request, started, deadline_s, silence_s)
        idle_close = exchange.outcome == "dropped" and exchange.headers is None and exchange.detail.startswith("kept:")
        if idle_close:
            exchange = await self._attempt(request, started, deadline_s, silence_s)
        return exchange

    async def _attempt(self, request: bytes, started: float, deadline_s: float, silence_s: float) -> Exchange:
        wire = self._wire
        if wire is None or not wire.usable:
            opened = await self._open(min(CONNECT_LIMIT_S, deadline_s))
            if isinstance(opened, Exchange):
                return opened
            wire = self._wire = opened
        kept = wire.used
        exchange, done = wire.begin(request)
        watch = _Watch(wire, started + deadline_s, silence_s)
        try:
            await done
        except asyncio.CancelledError:
            wire.fail("cancelled", "cancelled")
            raise
        finally:
            watch.stop()
        if kept and exchange.outcome == "dropped" and exchange.end - (exchange.sent or 0.0) < _RETRY_WITHIN_S:
            exchange.detail = f"kept: {exchange.detail}"
        return exchange

    async def _open(self, limit_s: float) -> _Wire | Exchange:
        target = self.target
        loop = asyncio.get_running_loop()
        name = target.host if target.tls is not None else None
        try:
            async with asyncio.timeout(limit_s):
                _, wire = await loop.create_connection(
                    lambda: _Wire(self.gather), target.host, target.port, ssl=target.tls, server_hostname=name
                )
        except TimeoutError:
            return _not_connected("refused", f"no connection to {target.host}:{target.port} within {limit_s:.0f} s")
        except ssl.SSLError as error:
            return _not_connected("protocol", f"TLS with {target.host}:{target.port} failed: {error}")
        except OSError as error:
            return _not_connected("refused", f"no connection to {target.host}:{target.port}: {error}")
        return wire


def _not_connected(outcome: Outcome, detail: str) -> Exchange:
    return Exchange(end=time.monotonic(), outcome=outcome, detail=detail)


class _Watch:
    """Ends an exchange at its deadline, or when no byte came for too long. One timer at a time, re-armed when it fires."""

    def __init__(self, wire: _Wire, deadline: float, silence_s: float) -> None:
        self._wire, self._deadline, self._silence = wire, deadline, silence_s
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        self._arm(time.monotonic())

    def _arm(self, now: float) -> None:
        until = min(self._deadline, self._wire.last_byte + self._silence)
        self._handle = self._loop.call_later(max(until - now, 0.001), self._fire)

    def _fire(self) -> None:
        now = time.monotonic()
        self._wire.settle()
        if self._wire.exchange is None:
            return
        if now >= self._deadline:
            self._wire.fail("deadline", "the request took longer than its deadline")
        elif now - self._wire.last_byte >= self._silence:
            self._wire.fail("stalled", f"no byte for {self._silence:g} s")
        else:
            self._arm(now)

    def stop(self) -> None:
        """No more limits."""
        if self._handle is not None:
            self._handle.cancel()


async def fetch(
    endpoint: Endpoint, method: str, path: str, body: object = None, *, deadline_s: float = 30.0, request_id: str = ""
) -> Exchange:
    """One request on a connection of its own, for what is not measured (metrics, probes). ``body`` is sent as JSON."""
    target = Target.of(endpoint)
    data = b"" if body is None else json.dumps(body, ensure_ascii=False).encode()
    async with Connection(target) as connection:
        return await connection.send(target.request(method, path, data, request_id), deadline_s=deadline_s, silence_s=deadline_s)
