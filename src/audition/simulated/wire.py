"""Write answers to the client: server-sent events in vLLM's shape, or one JSON object; and the truth of what was sent.

Streams are written straight from the engine's step, without waking a task for each chunk.
What must not live here: scheduling, validation, routing.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Coroutine, MutableMapping
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii as quote
from typing import Any
from uuid import uuid4
from zlib import crc32

from audition.simulated.answers import Part

Message = MutableMapping[str, Any]
Send = Callable[[Message], Coroutine[Any, Any, None]]

SSE_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8")]
JSON_HEADER = (b"content-type", b"application/json")
DONE = b"data: [DONE]\n\n"
NO_DELTA = b',"logprobs":null,"finish_reason":null,"token_ids":null}]'
REASONING_TOKENS_SINCE = (0, 30)  # usage tells reasoning tokens: seen in 0.32.0, not in 0.24.0


def compact(value: object) -> bytes:
    """JSON without spaces, as vLLM writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


class TruthLog:
    """Appends one JSON line for each request at its end; an empty path keeps none."""

    def __init__(self, path: str) -> None:
        if path:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644) if path else None

    def write(self, entry: dict[str, Any]) -> None:
        """Write one entry in one call."""
        if self._descriptor is not None:
            os.write(self._descriptor, compact(entry) + b"\n")


class Channel:
    """Writes body pieces of one response without suspending.

    uvicorn's `send` only waits while the transport's buffer is over its high-water mark. As long as it is not, the
    coroutine is run to its end here; otherwise the pieces queue up and a task drains them.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._cycle = getattr(send, "__self__", None)
        self._flow = getattr(self._cycle, "flow", None)
        self._backlog: list[Message] = []
        self._drainer: asyncio.Task[None] | None = None

    def write(self, body: bytes, last: bool = False) -> None:
        """Send one piece; `last` ends the response."""
        message = {"type": "http.response.body", "body": body, "more_body": not last}
        if self._backlog or self._flow is None or self._flow.write_paused:
            self._backlog.append(message)
            if self._drainer is None:
                self._drainer = asyncio.get_running_loop().create_task(self._drain())
            return
        try:
            self._send(message).send(None)
        except StopIteration:
            return
        raise RuntimeError("the HTTP server suspended a write although its buffer had room")

    async def _drain(self) -> None:
        while self._backlog:
            await self._send(self._backlog[0])
            del self._backlog[0]
        self._drainer = None


@dataclass(frozen=True, slots=True)
class Header:
    """What every piece of one answer carries, and how the release writes it."""

    request_id: str  # for the truth log: the client's X-Request-Id, or the answer's own id
    answer_id: str
    model: str
    created: int
    version: str
    release: tuple[int, ...]
    reasoning_key: str
    chat: bool
    prompt_tokens: int
    tools: tuple[tuple[str, str], ...]
    include_usage: bool = False
    continuous_usage: bool = False

    @property
    def fingerprint(self) -> str:
        """vLLM's system_fingerprint, stable for a version and model."""
        return f"vllm-{self.version}-{crc32(self.model.encode()):08x}"


class Answer:
    """What streamed and whole answers share: counts, usage and the truth."""

    def __init__(self, header: Header, send: Send, truth: TruthLog) -> None:
        self.header = header
        self.channel = Channel(send)
        self.send = send
        self.truth = truth
        self.arrival = time.monotonic()
        self.tokens = 0
        self.reasoning_tokens = 0
        self.planned: list[float] = []
        self.sent: list[float] = []
        self.chunk_tokens: list[int] = []

    def usage(self) -> dict[str, Any]:
        """The usage object after the tokens so far."""
        prompt = self.header.prompt_tokens
        usage: dict[str, Any] = {
            "prompt_tokens": prompt, "total_tokens": prompt + self.tokens, "completion_tokens": self.tokens,
        }  # fmt: skip
        if self.header.release >= REASONING_TOKENS_SINCE:
            usage["completion_tokens_details"] = {"reasoning_tokens": self.reasoning_tokens}
        return usage

    def count(self, parts: list[Part], tokens: int) -> None:
        """Add the tokens of one step."""
        self.tokens += tokens
        for kind, _, number in parts:
            if kind == "reasoning":
                self.reasoning_tokens += number

    def record(self, finish: str, stream: bool) -> None:
        """Write the truth of this request. Times are seconds of CLOCK_MONOTONIC."""
        self.truth.write(
            {
                "request_id": self.header.request_id, "id": self.header.answer_id, "stream": stream,
                "arrival": self.arrival, "ended": time.monotonic(), "planned": self.planned, "sent": self.sent,
                "tokens": self.chunk_tokens, "prompt_tokens": self.header.prompt_tokens,
                "completion_tokens": self.tokens, "finish": finish,
            }
        )  # fmt: skip


class StreamedAnswer(Answer):
    """A stream of server-sent events. One chunk holds all tokens of one step."""

    def __init__(self, header: Header, send: Send, truth: TruthLog) -> None:
        super().__init__(header, send, truth)
        kind = "chat.completion.chunk" if header.chat else "text_completion"
        common = {"id": header.answer_id, "object": kind, "created": header.created, "model": header.model}
        self._prefix = b"data: " + compact(common)[:-1] + b',"choices":'
        self._delta = self._prefix + (b'[{"index":0,"delta":{' if header.chat else b'[{"index":0,')
        self._close = b"}" if header.chat else b""
        self._role_sent = not header.chat
        self._pending = 0  # tokens that showed no text yet
        self._tools_open: set[str] = set()

    def _usage_text(self) -> bytes:
        """The usage of a chunk, written by hand because it is written for every chunk."""
        if not self.header.continuous_usage:
            return b""
        prompt = self.header.prompt_tokens
        text = f',"usage":{{"prompt_tokens":{prompt},"total_tokens":{prompt + self.tokens},"completion_tokens":{self.tokens}'
        if self.header.release >= REASONING_TOKENS_SINCE:
            text += f',"completion_tokens_details":{{"reasoning_tokens":{self.reasoning_tokens}}}'
        return text.encode() + b"}"

    def open(self) -> None:
        """Send the role chunk, which carries no token."""
        if self._role_sent:
            return
        self._role_sent = True
        body = (
            self._delta + b'"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]'
            + self._usage_text() + b',"prompt_token_ids":null,"prompt_text":null}\n\n'
        )  # fmt: skip
        self.channel.write(body)

    def _fields(self, parts: list[Part]) -> bytes:
        """The delta's fields for the parts of one step."""
        if len(parts) == 1 and parts[0][0] == "content":
            name = "content" if self.header.chat else "text"
            return f'"{name}":{quote(parts[0][1])}'.encode()
        texts: dict[str, str] = {}
        calls: list[dict[str, Any]] = []
        for kind, text, _ in parts:
            if kind.startswith("tool:"):
                calls.append(self._tool_delta(kind, text))
                continue
            key = self.header.reasoning_key if kind == "reasoning" else "content" if self.header.chat else "text"
            texts[key] = texts.get(key, "") + text
        if len(texts) > 1:
            texts = {key: text for key, text in texts.items() if text}
        fields = [f"{quote(key)}:{quote(text)}".encode() for key, text in texts.items() if text or not calls]
        if calls:
            fields.append(b'"tool_calls":' + compact(calls))
        return b",".join(fields)

    def _tool_delta(self, kind: str, text: str) -> dict[str, Any]:
        index = int(kind.removeprefix("tool:"))
        if kind in self._tools_open:
            return {"index": index, "function": {"arguments": text}}
        self._tools_open.add(kind)
        function = {"name": self.header.tools[index][0], "arguments": text}
        return {"id": f"chatcmpl-tool-{uuid4().hex[:16]}", "type": "function", "index": index, "function": function}

    def deliver(self, parts: list[Part], tokens: int, planned: float, finish: str | None) -> None:
        """Write the chunk of one step, and the end of the stream when it is the last."""
        self.open()
        self.count(parts, tokens)
        if finish is None and not any(part[1] for part in parts):
            self._pending += tokens
            return
        fields = self._fields(parts) or (b'"content":""' if self.header.chat else b'"text":""')
        if finish is None:
            tail = NO_DELTA
        else:
            tail = b',"logprobs":null,"finish_reason":"' + finish.encode() + b'","stop_reason":null,"token_ids":null}]'
        body = self._delta + fields + self._close + tail + self._usage_text() + b"}\n\n"
        self.channel.write(body)
        self.planned.append(planned)
        self.sent.append(time.monotonic())
        self.chunk_tokens.append(tokens + self._pending)
        self._pending = 0
        if finish is not None:
            self._end(finish)

    def _end(self, finish: str) -> None:
        if self.header.include_usage:
            fingerprint = compact(self.header.fingerprint)
            usage = compact(self.usage())
            self.channel.write(self._prefix + b'[],"usage":' + usage + b',"system_fingerprint":' + fingerprint + b"}\n\n")
        self.record(finish, True)  # before the end, so that a client that has seen the end finds the truth
        self.channel.write(DONE, last=True)

    def fail(self, message: str, finish: str = "error") -> None:
        """An error event inside the 200 response, then the end, as vLLM does when its engine dies or it shuts down."""
        error = {"error": {"message": message, "type": "InternalServerError", "param": None, "code": 500}}
        self.channel.write(b"data: " + json.dumps(error).encode() + b"\n\n")
        self.record(finish, True)
        self.channel.write(DONE, last=True)


class WholeAnswer(Answer):
    """One JSON object at the end."""

    def __init__(self, header: Header, send: Send, truth: TruthLog) -> None:
        super().__init__(header, send, truth)
        self._texts: dict[str, list[str]] = {}

    def deliver(self, parts: list[Part], tokens: int, planned: float, finish: str | None) -> None:
        """Collect, and answer when these are the last tokens."""
        self.count(parts, tokens)
        for kind, text, _ in parts:
            self._texts.setdefault(kind, []).append(text)
        if finish is None:
            return
        self.planned.append(planned)
        self.sent.append(time.monotonic())
        self.chunk_tokens.append(self.tokens)
        self.record(finish, False)
        respond(self.send, self.channel, 200, self._body(finish))

    def _text(self, kind: str) -> str:
        return "".join(self._texts.get(kind, ()))

    def _message(self) -> dict[str, Any]:
        calls = [
            {
                "id": f"chatcmpl-tool-{uuid4().hex[:16]}",
                "type": "function",
                "function": {"name": name, "arguments": self._text(f"tool:{index}")},
            }
            for index, (name, _) in enumerate(self.header.tools)
        ]
        message: dict[str, Any] = {
            "role": "assistant", "content": self._text("content") or None, "refusal": None, "annotations": None,
            "audio": None, "function_call": None, "tool_calls": calls,
        }  # fmt: skip
        if not calls:
            del message["tool_calls"]
        message[self.header.reasoning_key] = self._text("reasoning") or None
        return message

    def _body(self, finish: str) -> dict[str, Any]:
        header = self.header
        choice: dict[str, Any] = {"index": 0}
        if header.chat:
            choice["message"] = self._message()
        else:
            choice["text"] = self._text("content")
        choice.update(logprobs=None, finish_reason=finish, stop_reason=None, token_ids=None)
        return {
            "id": header.answer_id, "object": "chat.completion" if header.chat else "text_completion",
            "created": header.created, "model": header.model, "choices": [choice], "service_tier": None,
            "system_fingerprint": header.fingerprint, "usage": {**self.usage(), "prompt_tokens_details": None},
            "prompt_logprobs": None, "kv_transfer_params": None,
        }  # fmt: skip

    def fail(self, message: str, finish: str = "error") -> None:
        """Answer 500."""
        error = {"error": {"message": message, "type": "InternalServerError", "param": None, "code": 500}}
        self.record(finish, False)
        respond(self.send, self.channel, 500, error)


def respond(send: Send, channel: Channel, status: int, value: object) -> None:
    """Send a whole JSON response without suspending."""
    body = value if isinstance(value, bytes) else compact(value)
    headers = [JSON_HEADER, (b"content-length", str(len(body)).encode())]
    try:
        send({"type": "http.response.start", "status": status, "headers": headers}).send(None)
    except StopIteration:
        channel.write(body, last=True)
        return
    raise RuntimeError("the HTTP server suspended the start of a response")
