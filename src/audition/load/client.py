"""The HTTP client: one keep-alive connection a user, on asyncio. Connects, keeps limits in time, retries once.

What must not live here: what is sent (see ``workload``), how a response is taken in (see ``wire``), what it means (see ``stream``).

All times are ``time.monotonic()`` seconds. The loop may be uvloop's or asyncio's own.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from audition.judge.records import Outcome
from audition.load.body import Body
from audition.load.wire import Exchange, Gather, Wire

CONNECT_LIMIT_S = 10.0  # longest wait for a connection; within one host or site a connect takes milliseconds
_RETRY_WITHIN_S = 1.0  # a kept-alive connection lost sooner than this without one byte was closed by the server while idle


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


class Connection:
    """A user's connection: opened when needed, kept alive between requests. Use as ``async with``."""

    def __init__(self, target: Target, gather: Gather | None = None) -> None:
        self.target, self.gather = target, gather
        self._wire: Wire | None = None

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
        if isinstance(opened, Wire):
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

    async def _open(self, limit_s: float) -> Wire | Exchange:
        target = self.target
        loop = asyncio.get_running_loop()
        name = target.host if target.tls is not None else None
        try:
            async with asyncio.timeout(limit_s):
                _, wire = await loop.create_connection(
                    lambda: Wire(self.gather), target.host, target.port, ssl=target.tls, server_hostname=name
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

    def __init__(self, wire: Wire, deadline: float, silence_s: float) -> None:
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
