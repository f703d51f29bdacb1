"""A server that sends exactly the bytes a test scripts, for streams that no real server would send on request."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

HANG, CLOSE, RESET = "hang", "close", "reset"
Step = bytes | str | float
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def part(body: str | bytes) -> bytes:
    """One HTTP chunk."""
    data = body.encode() if isinstance(body, str) else body
    return b"%x\r\n%s\r\n" % (len(data), data)


@dataclass
class Endpoint:
    """What the client is told."""

    url: str
    model: str = "m"
    api_key: str | None = None


@dataclass
class Scripted:
    """A running server. ``scripts``: one for each request in turn, the last one again and again; ``requests``: what came."""

    scripts: Sequence[Sequence[Step]]
    endpoint: Endpoint
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while await self._one(reader, writer):
                pass
        writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next((int(h.split(b":")[1]) for h in head.split(b"\r\n") if h.lower().startswith(b"content-length")), 0)
        self.requests.append(head + await reader.readexactly(length))
        for step in self.scripts[min(len(self.requests), len(self.scripts)) - 1]:
            if isinstance(step, bytes):
                writer.write(step)
                await writer.drain()
            elif isinstance(step, float):
                await asyncio.sleep(step)
            elif step == HANG:
                await reader.read()
                return False
            else:
                if step == RESET:
                    writer.transport.abort()
                return False
        return True


@asynccontextmanager
async def scripted(
    *scripts: Sequence[Step], api_key: str | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Scripted]:
    """A scripted server on a free loopback port."""
    running = Scripted(scripts, Endpoint("", api_key=api_key))
    server = await asyncio.start_server(running.serve, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    running.endpoint.url = f"http{'s' if tls else ''}://127.0.0.1:{port}"
    try:
        yield running
    finally:
        server.close()
