"""Asking a server over HTTP whether it works, and waiting until it does. "Works" means that completions work.

Only the standard library's client; every call has one deadline for all of it, so that a server that drips bytes cannot hold anyone.
Measuring speed does not live here.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from audition.wayback.plan import EndpointPlan, Verification
from audition.wayback.server import Server, WaybackError

MOST_BYTES = 8 * 1024 * 1024
GREEDY_TRIES = 3
PROMPT = "The three primary colours are red, yellow and"


class NoAnswer(Exception):
    """The server did not answer as it should: one sentence."""


@dataclass(frozen=True)
class Limits:
    """Limits of a boot in seconds. ``failures``: how often in a row a completion may fail once the model answers; ``call_s``: one
    call."""

    boot_s: float
    silence_s: float
    poll_s: float = 0.25
    call_s: float = 60.0
    failures: int = 5


@dataclass(frozen=True)
class Readiness:
    """How a boot went; the kinds are those of the engines' boot outcome. ``seconds`` since the wait began."""

    kind: Literal["ready", "exited", "silent", "overrun", "wrong-model", "broken", "interrupted"]
    seconds: float
    detail: str = ""
    exit_code: int | None = None
    boot_id: str = ""


@dataclass(frozen=True)
class Check:
    """One point of a verification. ``ok`` None: it could not be checked and was not required."""

    name: str
    ok: bool | None
    detail: str


def _chunks(endpoint: EndpointPlan, path: str, body: dict[str, Any] | None, limit_s: float) -> Iterator[bytes]:
    """The body of a 200 answer in pieces as they come. Raises NoAnswer for anything else, and after ``limit_s`` seconds."""
    until = time.monotonic() + limit_s
    parts = urlsplit(endpoint.url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=limit_s)
    headers = {"Connection": "close", "Accept": "*/*"}
    if endpoint.api_key:
        headers["Authorization"] = f"Bearer {endpoint.api_key}"
    payload = None
    if body is not None:
        payload = json.dumps(body)
        headers["Content-Type"] = "application/json"
    watch = None
    try:
        connection.connect()
        watch = threading.Timer(until - time.monotonic(), _cut, (connection.sock,))  # one limit for all of it, headers included
        watch.daemon = True
        watch.start()
        connection.request("GET" if body is None else "POST", path, payload, headers)
        response = connection.getresponse()
        size = 0
        while True:
            piece = response.read1(65536)
            size += len(piece)
            if time.monotonic() >= until:
                raise NoAnswer(f"{path}: no complete answer within {limit_s:.0f} s")
            if response.status != 200:
                text = piece[:300].decode("utf-8", "replace")
                raise NoAnswer(f"{path}: HTTP {response.status} {text}")
            if not piece:
                return
            if size > MOST_BYTES:
                raise NoAnswer(f"{path}: more than {MOST_BYTES} bytes")
            yield piece
    except (OSError, http.client.HTTPException) as error:
        if time.monotonic() >= until:
            raise NoAnswer(f"{path}: no complete answer within {limit_s:.0f} s") from error
        raise NoAnswer(f"{path}: {type(error).__name__} {error}".strip()) from error
    finally:
        if watch is not None:
            watch.cancel()
        connection.close()


def _cut(connected: socket.socket) -> None:
    """End a call that takes too long; whoever reads from the socket sees its end."""
    with contextlib.suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)


def _json(endpoint: EndpointPlan, path: str, body: dict[str, Any] | None, limit_s: float) -> dict[str, Any]:
    raw = b"".join(_chunks(endpoint, path, body, limit_s))
    try:
        data = json.loads(raw)
    except ValueError as error:
        raise NoAnswer(f"{path}: the answer is no JSON: {raw[:200]!r}") from error
    if not isinstance(data, dict):
        raise NoAnswer(f"{path}: the answer is no JSON object: {raw[:200]!r}")
    return data


def served_models(endpoint: EndpointPlan, limit_s: float = 10.0) -> list[str]:
    """Names that /v1/models reports. Raises NoAnswer."""
    data = _json(endpoint, "/v1/models", None, limit_s).get("data")
    if not isinstance(data, list):
        raise NoAnswer("/v1/models: no list of models in the answer")
    return [str(entry["id"]) for entry in data if isinstance(entry, dict) and "id" in entry]


def _path(body: dict[str, Any]) -> str:
    return "/v1/chat/completions" if "messages" in body else "/v1/completions"


def _text(choice: Any) -> str:
    if not isinstance(choice, dict):
        return ""
    holder = choice.get("message") or choice.get("delta") or choice
    if not isinstance(holder, dict):
        return ""
    return "".join(str(holder[key]) for key in ("reasoning", "reasoning_content", "content", "text") if holder.get(key))


def completion(endpoint: EndpointPlan, body: dict[str, Any], limit_s: float = 60.0) -> str:
    """The text of one non-streaming completion. Raises NoAnswer, also when there is neither text nor a counted token."""
    data = _json(endpoint, _path(body), {**body, "model": endpoint.model, "stream": False}, limit_s)
    choices = data.get("choices")
    if not isinstance(choices, list) or not choices:
        raise NoAnswer(f"{_path(body)}: no choices in the answer")
    text = _text(choices[0])
    usage = data.get("usage")
    tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
    if not text and not tokens:
        raise NoAnswer(f"{_path(body)}: an empty completion")
    return text


def stream(endpoint: EndpointPlan, body: dict[str, Any], limit_s: float = 60.0) -> str:
    """The text of one streaming completion, which must end with [DONE]. Raises NoAnswer."""
    path, text, pieces, done = _path(body), "", 0, False
    raw = b"".join(_chunks(endpoint, path, {**body, "model": endpoint.model, "stream": True}, limit_s))
    for line in raw.splitlines():
        if not line.startswith(b"data:"):
            continue
        payload = line[5:].strip()
        if payload == b"[DONE]":
            done = True
            break
        try:
            event = json.loads(payload)
        except ValueError as error:
            raise NoAnswer(f"{path}: a stream event is no JSON: {payload[:200]!r}") from error
        if not isinstance(event, dict) or event.get("error"):
            raise NoAnswer(f"{path}: the stream reports an error: {payload[:200]!r}")
        for choice in event.get("choices") or []:
            pieces += 1
            text += _text(choice)
    if not done:
        raise NoAnswer(f"{path}: the stream ended without [DONE]")
    if not pieces:
        raise NoAnswer(f"{path}: an empty stream")
    return text


def probe_body(chat: bool = False, tokens: int = 8) -> dict[str, Any]:
    """A small greedy request, as a completion or as a chat."""
    ask: dict[str, Any] = {"messages": [{"role": "user", "content": PROMPT}]} if chat else {"prompt": PROMPT}
    return {**ask, "max_tokens": tokens, "temperature": 0, "seed": 0}


def working_body(endpoint: EndpointPlan, limit_s: float, tokens: int = 8) -> dict[str, Any]:
    """A request body that the server answers: a plain completion, or a chat where plain ones are refused. Raises NoAnswer."""
    try:
        completion(endpoint, probe_body(False, tokens), limit_s)
    except NoAnswer as plain:
        try:
            completion(endpoint, probe_body(True, tokens), limit_s)
        except NoAnswer:
            raise plain from None
        return probe_body(True, tokens)
    return probe_body(False, tokens)


def record_greedy(endpoint: EndpointPlan, limit_s: float = 60.0) -> tuple[dict[str, Any], list[str], str]:
    """(request body, distinct answers of three tries, why there are none). Made before the window; never raises NoAnswer."""
    try:
        body = working_body(endpoint, limit_s, tokens=32)
        answers = [completion(endpoint, body, limit_s) for _ in range(GREEDY_TRIES)]
    except NoAnswer as error:
        return {}, [], f"production gave no greedy answer: {error}"
    return body, list(dict.fromkeys(answers)), ""


def wait_ready(
    server: Server,
    endpoint: EndpointPlan,
    limits: Limits,
    *,
    give_up: Callable[[], bool] = lambda: False,
    on_poll: Callable[[], None] = lambda: None,
    strangers: Callable[[], list[str]] = list,
) -> Readiness:
    """Wait until a completion works under the expected model name, or tell how the boot failed.

    ``on_poll`` is called at every look (to pass log lines on); ``strangers``: who else listens on the port. Raises WaybackError
    when looking at the server is impossible for 30 s.
    """
    began = time.monotonic()
    first = ""
    seen_bytes, last_byte = -1, began
    wrong = failed = 0
    blind_since: float | None = None
    while True:
        on_poll()
        now = time.monotonic()
        try:
            view = server.view()
            blind_since = None
        except WaybackError:
            blind_since = blind_since or now
            if now - blind_since > 30:
                raise
            time.sleep(limits.poll_s)
            continue
        first = first or view.boot_id
        if view.state != "running":
            return Readiness("exited", now - began, view.detail, view.exit_code)
        if view.boot_id != first or (view.restarts or 0) > 0:
            return Readiness("exited", now - began, f"it restarted while it was waited for: {view.detail}", view.exit_code)
        problem, detail = _try_once(endpoint, min(limits.call_s, max(1.0, limits.boot_s - (now - began))), strangers)
        seconds = time.monotonic() - began
        if problem == "":
            after = server.view()
            if after.state == "running" and after.boot_id == first:
                return Readiness("ready", seconds, "", None, first)
            continue
        wrong = wrong + 1 if problem == "wrong-model" else 0
        failed = failed + 1 if problem == "broken" else 0
        if wrong >= 3:
            return Readiness("wrong-model", seconds, detail)
        if failed >= limits.failures:
            return Readiness("broken", seconds, detail)
        size = server.log_size()
        if size != seen_bytes:
            seen_bytes, last_byte = size, time.monotonic()
        if give_up():
            return Readiness("interrupted", seconds, "asked to give up")
        if seconds >= limits.boot_s:
            return Readiness("overrun", seconds, f"not ready after {limits.boot_s:.0f} s: {detail}")
        if time.monotonic() - last_byte >= limits.silence_s:
            return Readiness("silent", seconds, f"no new log line for {limits.silence_s:.0f} s: {detail}")
        time.sleep(limits.poll_s)


def _try_once(endpoint: EndpointPlan, call_s: float, strangers: Callable[[], list[str]]) -> tuple[str, str]:
    """("", "") when it works; else ("closed" | "wrong-model" | "broken", detail)."""
    try:
        models = served_models(endpoint, min(call_s, 10.0))
    except NoAnswer as error:
        return "closed", str(error)
    if endpoint.model not in models:
        return "wrong-model", f"{endpoint.url} serves {', '.join(models) or 'no model'}, not {endpoint.model}"
    others = strangers()
    if others:
        return "wrong-model", f"{endpoint.url} is also answered by {'; '.join(others)}, which is not this server"
    try:
        working_body(endpoint, call_s)
    except NoAnswer as error:
        return "broken", str(error)
    return "", ""


def verify(endpoint: EndpointPlan, plan: Verification, call_s: float = 60.0) -> list[Check]:
    """Identity, a non-streaming and a streaming completion, the greedy answer. The hold time and the snapshot are checked by
    ``restore``."""
    checks = precheck(endpoint, call_s)
    asked = any(check.name == "stream" for check in checks)
    return [*checks, _greedy(endpoint, plan, call_s)] if asked else checks


def precheck(endpoint: EndpointPlan, limit_s: float = 60.0) -> list[Check]:
    """Identity, a non-streaming and a streaming completion: what ``verify`` asks of a production that is back, to be asked before
    anything is touched. ``limit_s``: seconds for one call. Ends at the first point without which the next cannot be asked."""
    checks = []
    try:
        models = served_models(endpoint, min(limit_s, 10.0))
        checks.append(Check("model", endpoint.model in models, f"serves {', '.join(models)}"))
        body = working_body(endpoint, limit_s)
        checks.append(Check("completion", True, "a completion works"))
    except NoAnswer as error:
        checks.append(Check("completion" if checks else "model", False, str(error)))
        return checks
    try:
        stream(endpoint, body, limit_s)
        checks.append(Check("stream", True, "a streaming completion works"))
    except NoAnswer as error:
        checks.append(Check("stream", False, str(error)))
    return checks


def _greedy(endpoint: EndpointPlan, plan: Verification, call_s: float) -> Check:
    required = plan.greedy == "require"
    if not plan.greedy_answers:
        return Check("greedy", None, f"no answer was recorded before: {plan.greedy_missing}")
    given = ""
    for _ in range(GREEDY_TRIES):
        try:
            given = completion(endpoint, plan.greedy_body, call_s)
        except NoAnswer as error:
            return Check("greedy", False if required else None, str(error))
        if given in plan.greedy_answers:
            return Check("greedy", True, "the greedy answer equals one recorded before")
    return Check(
        "greedy",
        False if required else None,
        f"the greedy answer is {given[:200]!r}, recorded was {plan.greedy_answers[0][:200]!r}",
    )
