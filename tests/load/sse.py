"""Server-sent events as vLLM writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping


def chunk(delta: Mapping[str, object] | None = None, usage: int | None = None, finish: str | None = None) -> str:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    data: dict[str, object] = {"object": "chat.completion.chunk", "choices": choices}
    if usage is not None:
        data["usage"] = {"prompt_tokens": 7, "completion_tokens": usage, "total_tokens": 7 + usage}
    return f"data: {json.dumps(data)}\n\n"


DONE = "data: [DONE]\n\n"
ROLE = {"role": "assistant", "content": ""}
