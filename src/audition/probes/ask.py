"""One question of a probe: sent, answered, taken apart. What must not live here: judging the answer."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

import yaml

from audition.load.client import Endpoint, fetch
from audition.load.stream import ToolCall, read_stream, whole_text
from audition.load.wire import Exchange

Message = dict[str, Any]
_PATH = "/v1/chat/completions"


@cache
def questions() -> dict[str, Any]:
    """The questions of all probes, as ``data/questions.yaml`` holds them."""
    text = resources.files("audition.probes").joinpath("data", "questions.yaml").read_text(encoding="utf-8")
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


def sample_answers() -> dict[str, str]:
    """Question -> what a sane model answers, for questions with a right answer. For simulated servers and tests."""
    known = questions()
    rows = [*known["canary"]["exact"], *known["canary"]["language"]]
    out = {row["ask"]: str(row["sample"]) for row in rows}
    out[known["conversation"]["second"]] = known["conversation"]["sample"]
    for name in ("long_prompt", "json_schema", "vision"):
        out[known[name]["ask"]] = known[name]["sample"]
    return out


@dataclass(frozen=True)
class Answer:
    """What came back. ``failure`` empty: an answer came. ``absent``: no server was there, so nothing can be judged."""

    content: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    failure: str = ""
    status: int | None = None
    absent: bool = False


class Asker:
    """Asks one server. ``deadline_s``: longest wait for one answer; after one that was not met nothing more is asked."""

    def __init__(self, endpoint: Endpoint, deadline_s: float) -> None:
        self._endpoint, self._deadline = endpoint, deadline_s
        self._template_options = True
        self._hangs = False

    async def ask(
        self, messages: list[Message] | str, *, max_tokens: int, thinking: bool = False, stream: bool = False, **body: Any
    ) -> Answer:
        """One chat completion. ``thinking`` goes into ``chat_template_kwargs``, once more without where the server refuses that."""
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        body = {"model": self._endpoint.model, "messages": messages, "max_tokens": max_tokens, **body}
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        if not self._template_options:
            return await self._send(body, stream)
        answer = await self._send({**body, "chat_template_kwargs": {"enable_thinking": thinking}}, stream)
        if answer.status in (400, 422) and "chat_template_kwargs" in answer.failure:
            self._template_options = False
            return await self._send(body, stream)
        return answer

    async def _send(self, body: Message, stream: bool) -> Answer:
        if self._hangs:
            return Answer(failure=f"not asked: an earlier question got no answer within {self._deadline:g} s", absent=True)
        exchange = await fetch(self._endpoint, "POST", _PATH, body, deadline_s=self._deadline)
        self._hangs = exchange.outcome in ("stalled", "deadline")
        if exchange.outcome != "ok":
            status = f"HTTP {exchange.status}: " if exchange.status else ""
            absent = exchange.outcome in ("refused", "cancelled")
            return Answer(failure=f"{status}{exchange.detail}", status=exchange.status, absent=absent)
        return _streamed(exchange) if stream else whole_answer(exchange.body, exchange.status)


def _streamed(exchange: Exchange) -> Answer:
    result = read_stream(exchange.chunks, exchange.end)
    failure = ""
    if result.fault is not None:
        failure = f"{result.fault.kind}: {result.fault.text}"
    elif result.finish_reason is None and result.done_at is None:
        failure = "the stream ended without a finish reason"
    return Answer(
        content=result.content,
        reasoning=result.reasoning,
        tool_calls=result.tool_calls,
        finish_reason=result.finish_reason,
        prompt_tokens=result.prompt_tokens,
        failure=failure,
        status=exchange.status,
    )


def whole_answer(body: bytes, status: int | None) -> Answer:
    """The answer of a response that is not streamed. Anything that is no chat completion becomes a failure."""
    try:
        data = json.loads(body)
        choice = data["choices"][0]
        message = choice["message"]
        calls = [
            ToolCall(whole_text(str(call["function"]["name"])), whole_text(str(call["function"]["arguments"])))
            for call in message.get("tool_calls") or []
        ]
        usage = data.get("usage") or {}
        return Answer(
            content=whole_text(str(message.get("content") or "")),
            reasoning=whole_text(str(message.get("reasoning") or message.get("reasoning_content") or "")),
            tool_calls=calls,
            finish_reason=choice.get("finish_reason"),
            prompt_tokens=usage.get("prompt_tokens"),
            status=status,
        )
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        shown = body[:200].decode("utf-8", "replace")
        return Answer(failure=f"the response is no chat completion ({type(error).__name__}): {shown}", status=status)


@dataclass
class Transcript:
    """What was asked and answered, as a probe's evidence."""

    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, name: str, answer: Answer) -> None:
        """Keep one answer; long texts are cut to 1,500 characters."""
        row: dict[str, Any] = {"question": name}
        for key in ("content", "reasoning", "failure"):
            if value := getattr(answer, key):
                row[key] = value[:1500]
        if answer.tool_calls:
            row["tool_calls"] = [{"name": call.name, "arguments": call.arguments[:500]} for call in answer.tool_calls]
        self.rows.append({**row, "finish_reason": answer.finish_reason, "prompt_tokens": answer.prompt_tokens})

    def text(self) -> str:
        """The evidence as JSON."""
        return json.dumps(self.rows, ensure_ascii=False)
