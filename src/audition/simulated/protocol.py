"""Read a request body as vLLM's OpenAI server would: what is asked for, or the error it answers with.

What must not live here: HTTP and the engine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from audition.simulated.answers import Ask, choose_tools
from audition.simulated.arguments import ServeArguments
from audition.simulated.schema import instance
from audition.simulated.tokens import content_text, render_chat, split_tokens


class ApiError(Exception):
    """An error answer: HTTP status, vLLM's error type, its message and the parameter it speaks of."""

    def __init__(self, status: int, kind: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = message
        self.param = param

    def body(self) -> dict[str, Any]:
        """The JSON body."""
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.status}
        return {"error": error}


def bad_request(message: str, param: str | None = None) -> ApiError:
    """A 400 answer."""
    return ApiError(400, "BadRequestError", message, param)


@dataclass(frozen=True, slots=True)
class Limits:
    """What the server allows: served names, context length in tokens, and the release whose wording it uses."""

    names: tuple[str, ...]
    max_model_len: int
    release: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Completion:
    """A request for a completion, understood."""

    ask: Ask
    prompt: str
    prompt_tokens: int
    chat: bool
    stream: bool
    include_usage: bool
    continuous_usage: bool
    stop: tuple[str, ...]
    greedy: bool
    sampling_seed: int | None


def decode(body: bytes) -> dict[str, Any]:
    """The JSON object of a request. Raises ApiError 400."""
    try:
        value = json.loads(body)
    except ValueError as error:
        raise bad_request(f"[{{'type': 'json_invalid', 'msg': 'JSON decode error', 'ctx': {{'error': '{error}'}}}}]") from None
    if not isinstance(value, dict):
        raise bad_request("[{'type': 'dict_type', 'loc': ('body',), 'msg': 'Input should be a valid dictionary'}]")
    return value


def check_model(body: Mapping[str, Any], limits: Limits) -> None:
    """Raise vLLM's 404 when the body names a model that is not served."""
    model = body.get("model")
    if model is not None and model not in limits.names:
        raise ApiError(404, "NotFoundError", f"The model `{model}` does not exist.", "model")


def _too_long(limits: Limits, prompt_tokens: int, wanted: int) -> ApiError:
    head = f"This model's maximum context length is {limits.max_model_len} tokens. "
    if limits.release >= (0, 16):
        return bad_request(
            f"{head}However, you requested {wanted} output tokens and your prompt contains {prompt_tokens} input tokens, "
            f"for a total of {prompt_tokens + wanted} tokens. Please reduce the length of the input prompt or the number "
            f"of requested output tokens. (parameter=input_tokens, value={prompt_tokens})",
            "input_tokens",
        )
    if prompt_tokens >= limits.max_model_len:
        return bad_request(
            f"{head}However, your request has {prompt_tokens} input tokens. Please reduce the length of the input messages."
        )
    room = f"({wanted} > {limits.max_model_len} - {prompt_tokens})"
    return bad_request(
        f"'max_tokens' or 'max_completion_tokens' is too large: {wanted}. {head[:-2]} and your request has "
        f"{prompt_tokens} input tokens {room}."
    )


def _count(body: Mapping[str, Any], name: str, default: int | None, least: int = 0) -> int | None:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise bad_request(f"[{{'type': 'int_parsing', 'loc': ('body', '{name}'), 'input': {value!r}}}]", name)
    if value < least:
        raise bad_request(f"{name} must be at least {least}, got {value}.", name)
    return value


def _max_tokens(body: Mapping[str, Any], limits: Limits, prompt_tokens: int, default: int | None) -> int:
    wanted = _count(body, "max_completion_tokens", _count(body, "max_tokens", default, 1), 1)
    room = limits.max_model_len - prompt_tokens
    if room < 1 or (wanted or 0) > room:
        raise _too_long(limits, prompt_tokens, wanted or 0)
    return room if wanted is None else wanted


def _structured(body: Mapping[str, Any], prompt: str) -> str | None:
    """The text that a structured-output request must produce, or None."""
    form = body.get("response_format")
    extra = body.get("structured_outputs")
    schema: Any = body.get("guided_json") or (extra.get("json") if isinstance(extra, dict) else None)
    choices: Any = body.get("guided_choice") or (extra.get("choice") if isinstance(extra, dict) else None)
    if isinstance(form, dict) and form.get("type") == "json_schema":
        schema = (form.get("json_schema") or {}).get("schema") or {"type": "object"}
    elif isinstance(form, dict) and form.get("type") == "json_object":
        return json.dumps({"answer": prompt.strip()[:60] or "none"})
    if isinstance(choices, list) and choices:
        return str(next((choice for choice in choices if str(choice).lower() in prompt.lower()), choices[0]))
    if isinstance(schema, str):
        schema = json.loads(schema)
    return json.dumps(instance(schema, prompt)) if isinstance(schema, dict) else None


def _tool_calls(body: Mapping[str, Any], arguments: ServeArguments, prompt: str, answered: bool) -> list[tuple[str, str]]:
    tools = body.get("tools")
    choice = body.get("tool_choice", "auto" if tools else "none")
    if not tools or choice == "none":
        return []
    if choice == "auto" and not (arguments.auto_tool_choice and arguments.tool_call_parser):
        raise bad_request('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set')
    return [] if answered else choose_tools(tools, choice, prompt)


def _options(body: Mapping[str, Any]) -> tuple[bool, bool, bool]:
    stream = bool(body.get("stream"))
    options = body.get("stream_options") or {}
    if options and not stream:
        raise bad_request("Stream options can only be defined when `stream=True`.", "stream_options")
    include = bool(options.get("include_usage"))
    return stream, include, include and bool(options.get("continuous_usage_stats"))


def _stops(body: Mapping[str, Any]) -> tuple[str, ...]:
    stop = body.get("stop") or ()
    return (stop,) if isinstance(stop, str) else tuple(str(item) for item in stop)


def chat_messages(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The messages of a chat body. Raises ApiError 400 when there are none or one is not an object."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(item, dict) for item in messages):
        raise bad_request("[{'type': 'missing', 'loc': ('body', 'messages'), 'msg': 'Field required'}]", "messages")
    return messages


def wants_thinking(body: Mapping[str, Any], arguments: ServeArguments) -> bool:
    """Whether the model thinks first: the request says so, else the server's default, else if it has a parser for it."""
    kwargs = body.get("chat_template_kwargs") or {}
    asked = kwargs.get("enable_thinking") if isinstance(kwargs, dict) else None
    if isinstance(asked, bool):
        return asked
    if arguments.enable_thinking is not None:
        return arguments.enable_thinking
    return bool(arguments.reasoning_parser)


def _sampling(body: Mapping[str, Any], arguments: ServeArguments) -> tuple[bool, int | None]:
    temperature = body.get("temperature")
    temperature = arguments.temperature if temperature is None else temperature
    if isinstance(temperature, bool) or not isinstance(temperature, int | float) or temperature < 0:
        raise bad_request(f"temperature must be non-negative, got {temperature!r}.", "temperature")
    if (_count(body, "n", 1, 1) or 1) > 1:
        raise bad_request("The simulated server answers n = 1 only.", "n")
    return temperature == 0, _count(body, "seed", None, -(1 << 63))


def read_chat(body: Mapping[str, Any], arguments: ServeArguments, limits: Limits) -> Completion:
    """Understand a /v1/chat/completions body. Raises ApiError as vLLM would answer."""
    check_model(body, limits)
    messages = chat_messages(body)
    thinking = wants_thinking(body, arguments)
    stream, include, continuous = _options(body)
    users = [content_text(item.get("content")) for item in messages if item.get("role") == "user"]
    last_user = users[-1] if users else ""
    answered = messages[-1].get("role") == "tool"
    calls = _tool_calls(body, arguments, last_user, answered)
    prompt = render_chat(messages, body.get("tools"), thinking)
    prompt_tokens = len(split_tokens(prompt))
    greedy, seed = _sampling(body, arguments)
    ask = Ask(
        last_user=last_user,
        thinking=thinking,
        reasoning_parsed=bool(arguments.reasoning_parser),
        max_tokens=_max_tokens(body, limits, prompt_tokens, None),
        min_tokens=_count(body, "min_tokens", 0) or 0,
        ignore_eos=bool(body.get("ignore_eos")),
        tool_calls=tuple(calls),
        exact=_structured(body, last_user),
        tool_result=content_text(messages[-1].get("content")) if answered else "",
        said="\n".join(users),
    )
    return Completion(ask, prompt, prompt_tokens, True, stream, include, continuous, _stops(body), greedy, seed)


def read_completion(body: Mapping[str, Any], arguments: ServeArguments, limits: Limits) -> Completion:
    """Understand a /v1/completions body. Raises ApiError as vLLM would answer."""
    check_model(body, limits)
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str):
        prompt = prompt[0]
    if isinstance(prompt, list) and prompt and all(isinstance(item, int) for item in prompt):
        prompt = " ".join(f"t{item}" for item in prompt)
    if not isinstance(prompt, str) or not prompt:
        raise bad_request("Either prompt or prompt_embeds must be provided and non-empty (one prompt a request).", "prompt")
    stream, include, continuous = _options(body)
    prompt_tokens = len(split_tokens(prompt))
    greedy, seed = _sampling(body, arguments)
    ask = Ask(
        last_user=prompt,
        thinking=False,
        reasoning_parsed=False,
        max_tokens=_max_tokens(body, limits, prompt_tokens, 16),
        min_tokens=_count(body, "min_tokens", 0) or 0,
        ignore_eos=bool(body.get("ignore_eos")),
        exact=_structured(body, prompt),
    )
    return Completion(ask, prompt, prompt_tokens, False, stream, include, continuous, _stops(body), greedy, seed)
