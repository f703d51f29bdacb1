"""A server that streams ready-made chunks at a steady pace to as many clients as ask: cheap, so that clients can be measured.

usage: paced_server.py PORT SECONDS_BETWEEN_TOKENS. It listens on loopback only.
"""

from __future__ import annotations

import asyncio
import re
import sys
from typing import cast

import uvloop

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
ABSENT = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"
MOST = 4096  # tokens of one answer


def chunk(number: int) -> bytes:
    """The chunk of one token, as vLLM 0.24 writes it."""
    body = (
        'data: {"id":"chatcmpl-abcdef0123456789","object":"chat.completion.chunk","created":1764590000,"model":"m",'
        '"choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null,"token_ids":null}],'
        '"usage":{"prompt_tokens":37,"total_tokens":%d,"completion_tokens":%d}}\n\n'
    )
    return (body % (37 + number, number)).encode()


CHUNKS = [b"%x\r\n%s\r\n" % (len(chunk(n)), chunk(n)) for n in range(MOST + 1)]


class Client(asyncio.Protocol):
    """One connection."""

    def __init__(self, server: Server) -> None:
        self.server, self.received = server, b""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way back."""
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Answer a request once it is whole."""
        self.received += data
        head, blank, body = self.received.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        if not blank or (length and len(body) < int(length[1])):
            return
        self.received = b""
        tokens = re.search(rb'"max_tokens": ?(\d+)', body)
        if tokens is None:
            self.transport.write(ABSENT)
            return
        self.transport.write(HEAD)
        self.server.streams.append([self, 1, min(int(tokens[1]), MOST)])


class Server:
    """All streams, one chunk each at every beat."""

    def __init__(self, beat: float) -> None:
        self.beat = beat
        self.streams: list[list[object]] = []

    async def run(self) -> None:
        """For ever."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            due = max(due + self.beat, loop.time() - 1.0)
            await asyncio.sleep(max(0.0, due - loop.time()))
            left = []
            for stream in self.streams:
                client, number, last = cast(Client, stream[0]), cast(int, stream[1]), cast(int, stream[2])
                if client.transport.is_closing():
                    continue
                if number > last:
                    client.transport.write(END)
                    continue
                client.transport.write(CHUNKS[number])
                stream[1] = number + 1
                left.append(stream)
            self.streams = left


async def main(port: int, beat: float) -> None:
    """Serve."""
    server = Server(beat)
    await asyncio.get_running_loop().create_server(lambda: Client(server), "127.0.0.1", port, backlog=4096)
    await server.run()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), float(sys.argv[2])))
