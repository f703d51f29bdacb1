"""One request of a workload: its body before it is sent, its record after it has ended. Pure.

What must not live here: sockets, clocks, which prompt comes next.
"""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from audition.judge.records import EVENT_CONTENT, EVENT_TOOL, Outcome, RequestRecord, StreamTimes
from audition.load.body import Body
from audition.load.prompts import Message
from audition.load.scan import BodyReader, Templates
from audition.load.stream import StreamFigures
from audition.load.wire import Exchange
from audition.spike.model import Workload

CHAT_PATH = "/v1/chat/completions"
_DETAIL = 500  # characters of a server's error text that a record keeps
_LONGEST_S = 4000.0  # from the start of a workload: a gap between two events up to it fits into a packed row
_MOST_PACKED = 65534  # tokens of one event that fit into a packed row
_BROKEN_FINISH = {"error", "abort"}  # finish reasons with which vLLM ends a request that it did not complete


@dataclass(frozen=True)
class Sent:
    """One request that was issued, with what came back. Times on the monotonic clock."""

    index: int
    user: int
    prompt_id: str
    scheduled: float
    exchange: Exchange
    templates: Templates = field(default_factory=Templates)


def request_body(
    workload: Workload, model: str, messages: list[Message], *, continuous: bool, tools: Sequence[dict[str, Any]] = ()
) -> bytes:
    """The JSON body, asking for the token count of every chunk when ``continuous``; sampling only as the workload sets it."""
    options = {"include_usage": True, **({"continuous_usage_stats": True} if continuous else {})}
    body: dict[str, object] = {
        "model": model,
        "messages": messages,
        "stream": True,
        "stream_options": options,
        "max_tokens": workload.max_tokens,
        **workload.sampling.model_dump(exclude_none=True),
    }
    if workload.thinking is not None:
        body["chat_template_kwargs"] = {"enable_thinking": workload.thinking}
    if tools:
        body |= {"tools": list(tools), "tool_choice": "auto"}
    if workload.ignore_eos:
        body["ignore_eos"] = True
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def judge_exchange(exchange: Exchange, stream: StreamFigures) -> tuple[Outcome, str, float]:
    """Outcome, detail and end of a request from what the transport saw and what the body says.

    A stream that said ``[DONE]`` is whole even when the connection failed afterwards. A whole HTTP response whose stream has
    neither a finish reason nor ``[DONE]`` was cut by the server.
    """
    fault = stream.fault
    if exchange.outcome != "ok":
        if exchange.outcome not in ("dropped", "stalled", "deadline"):
            return exchange.outcome, exchange.detail[:_DETAIL], exchange.end
        if fault is None and stream.done_at is not None:
            return "ok", f"whole answer, then: {exchange.detail}"[:_DETAIL], stream.done_at
    if fault is not None and fault.kind == "server-error":
        return "error-in-stream", fault.text[:_DETAIL], exchange.end
    if exchange.outcome != "ok":
        return exchange.outcome, exchange.detail[:_DETAIL], exchange.end
    if fault is not None:
        return "protocol", fault.text[:_DETAIL], exchange.end
    if stream.finish_reason in _BROKEN_FINISH:
        return "error-in-stream", f"the server ended the answer with finish reason {stream.finish_reason}", exchange.end
    if stream.finish_reason is None and stream.done_at is None:
        seen = f"{stream.filled_events} events" if len(stream.kinds) else "an empty body"
        return "dropped", f"the stream ended without a finish reason after {seen}", exchange.end
    return "ok", "" if stream.done_at is not None else "no [DONE] at the end", exchange.end


def pack(at: Sequence[float], tokens: Sequence[int | None], kinds: Sequence[int], t0: float) -> str:
    """Events as text, byte for byte what ``audition.judge.records.pack_events`` makes of the same events on a clock from ``t0``."""
    fields: list[int] = []
    add, previous = fields.append, 0
    for when, count, kind in zip(at, tokens, kinds, strict=True):
        gap = round((when - t0) * 1e6) - previous
        if not 0 <= gap <= 0xFFFFFFFF:
            gap = min(max(gap, 0), 0xFFFFFFFF)
        previous += gap
        add(gap)
        add(65535 if count is None else count if count < _MOST_PACKED else _MOST_PACKED)
        add(kind)
    return b64encode(struct.pack("<" + "IHB" * len(kinds), *fields)).decode("ascii")


def times_of(at: Sequence[float], tokens: Sequence[int | None], kinds: bytes | bytearray, t0: float) -> StreamTimes | None:
    """What ``audition.judge.records.stream_times`` makes of the packed events, without unpacking; None where only that can say."""
    first = len(kinds) - len(kinds.lstrip(b"\0"))
    if first == len(kinds):
        return StreamTimes(None, None, None, 0, None, None)
    if at[0] < t0 or at[-1] - t0 > _LONGEST_S:
        return None
    rest = kinds[first:]
    answer = next((place for place, kind in enumerate(rest, first) if kind & (EVENT_CONTENT | EVENT_TOOL)), None)
    said = [count for count in tokens[first:] if count is not None]
    if not said:
        last, events, whole = len(kinds.rstrip(b"\0")) - 1, len(rest) - rest.count(0), None
    elif len(said) < len(rest) or max(said) > _MOST_PACKED:
        return None
    else:
        idle = sum(1 for kind, count in zip(rest, said, strict=True) if not kind and not count) if 0 in rest else 0
        last = next(place for place in range(len(kinds) - 1, -1, -1) if kinds[place] or tokens[place])
        events, whole = len(rest) - idle, sum(said)

    def second(place: int) -> float:
        return round((at[place] - t0) * 1e6) / 1e6

    return StreamTimes(second(first), None if answer is None else second(answer), second(last), events, tokens[first], whole)


def record_of(sent: Sent, t0: float) -> RequestRecord:
    """The record of one request, read from its stored bytes as far as nobody has read them yet. Times become seconds since
    ``t0``."""
    exchange = sent.exchange
    body = Body() if exchange.outcome == "http-error" else exchange.raw
    stream = (body.reader or BodyReader(body, sent.templates)).finish(exchange.end)
    outcome, detail, end = judge_exchange(exchange, stream)
    tokens, estimated = stream.completion_tokens, False
    if tokens is None and (stream.filled_events or outcome == "ok"):
        tokens, estimated = stream.filled_events, True
    return RequestRecord(
        index=sent.index,
        user=sent.user,
        prompt_id=sent.prompt_id,
        scheduled=sent.scheduled - t0,
        sent=None if exchange.sent is None else exchange.sent - t0,
        headers=None if exchange.headers is None else exchange.headers - t0,
        end=end - t0,
        outcome=outcome,
        detail=detail,
        http_status=exchange.status,
        prompt_tokens=stream.prompt_tokens,
        completion_tokens=tokens,
        tokens_estimated=estimated,
        finish_reason=stream.finish_reason,
        events=pack(stream.at, stream.tokens, stream.kinds, t0),
        stream=times_of(stream.at, stream.tokens, stream.kinds, t0),
    )
