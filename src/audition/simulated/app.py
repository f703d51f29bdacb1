"""The ASGI application: routes, authorization, and the hand-over of completions to the engine.

What must not live here: the boot, signals, the EngineCore process, the format of answers.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from itertools import count
from random import Random
from typing import Any
from uuid import uuid4

from audition.simulated.answers import compose
from audition.simulated.arguments import ServeArguments
from audition.simulated.engine import Engine, Job
from audition.simulated.exposition import metrics_text
from audition.simulated.injection import Injector
from audition.simulated.park import Park, ParkError
from audition.simulated.protocol import (
    ApiError,
    Completion,
    Limits,
    bad_request,
    chat_messages,
    check_model,
    decode,
    read_chat,
    read_completion,
    wants_thinking,
)
from audition.simulated.settings import Settings
from audition.simulated.tokens import render_chat, split_tokens, token_id
from audition.simulated.wire import (
    SSE_HEADERS,
    Header,
    Message,
    Send,
    StreamedAnswer,
    TruthLog,
    WholeAnswer,
    compact,
)

Receive = Callable[[], Awaitable[Message]]
DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."


class Application:
    """One server's HTTP side. `dead` is set once the EngineCore is gone; `closing` once it is shutting down."""

    def __init__(
        self, arguments: ServeArguments, settings: Settings, *, limits: Limits, engine: Engine, injector: Injector,
        park: Park,
    ) -> None:  # fmt: skip
        self.arguments = arguments
        self.settings = settings
        self.limits = limits
        self.engine = engine
        self.injector = injector
        self.park = park
        self.truth = TruthLog(settings.truth_log)
        self.dead = False
        self.load = 0
        self._sampled = count(1)
        self._created = int(time.time())
        self._routes: dict[tuple[str, str], Callable[[Message, Receive, Send], Awaitable[None]]] = {
            ("GET", "/health"): self._health,
            ("GET", "/ping"): self._health,
            ("GET", "/load"): self._load,
            ("GET", "/version"): self._version,
            ("GET", "/metrics"): self._metrics,
            ("GET", "/v1/models"): self._models,
            ("POST", "/tokenize"): self._tokenize,
            ("POST", "/v1/chat/completions"): self._chat,
            ("POST", "/v1/completions"): self._completion,
            ("GET", "/sim/state"): self._sim,
            ("POST", "/sim/suspend"): self._sim,
            ("POST", "/sim/resume"): self._sim,
        }

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one request, or the life span of the server."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        path = scope["path"]
        try:
            if path.startswith("/v1") and not self._authorized(scope):
                await self._json(send, 401, {"error": "Unauthorized"})
                return
            route = self._routes.get((scope["method"], path))
            if route is None:
                known = any(path == other for _, other in self._routes)
                status, detail = (405, "Method Not Allowed") if known else (404, "Not Found")
                await self._json(send, status, {"detail": detail})
                return
            await route(scope, receive, send)
        except ApiError as error:
            await self._json(send, error.status, error.body())
            self._count_http(scope, error.status)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return

    def _authorized(self, scope: Message) -> bool:
        if not self.arguments.api_keys or scope["method"] == "OPTIONS":
            return True
        given = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
        scheme, _, key = given.partition(" ")
        return scheme.lower() == "bearer" and key in self.arguments.api_keys

    def _count_http(self, scope: Message, status: int) -> None:
        key = (scope["path"], scope["method"], f"{status // 100}xx")
        self.engine.metrics.http[key] = self.engine.metrics.http.get(key, 0) + 1

    async def _reply(self, send: Send, status: int, body: bytes, kind: bytes) -> None:
        headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _json(self, send: Send, status: int, value: object) -> None:
        await self._reply(send, status, compact(value), b"application/json")

    async def _health(self, _scope: Message, _receive: Receive, send: Send) -> None:
        dead_status = 503 if self.settings.release >= (0, 11) else 500
        await self._reply(send, dead_status if self.dead else 200, b"", b"text/plain; charset=utf-8")

    async def _load(self, _scope: Message, _receive: Receive, send: Send) -> None:
        await self._json(send, 200, {"server_load": self.load if self.arguments.server_load else 0})

    async def _version(self, _scope: Message, _receive: Receive, send: Send) -> None:
        await self._json(send, 200, {"version": self.settings.version})

    async def _metrics(self, _scope: Message, _receive: Receive, send: Send) -> None:
        text = metrics_text(self.engine, self.arguments, self.settings, self.limits)
        await self._reply(send, 200, text.encode(), b"text/plain; version=0.0.4; charset=utf-8")

    async def _models(self, scope: Message, _receive: Receive, send: Send) -> None:
        data: list[dict[str, Any]] = [
            {
                "id": name, "object": "model", "created": self._created, "owned_by": "vllm",
                "root": self.arguments.model, "parent": None, "max_model_len": self.limits.max_model_len,
                "permission": [],
            }
            for name in self.limits.names
        ]  # fmt: skip
        await self._json(send, 200, {"object": "list", "data": data})
        self._count_http(scope, 200)

    async def _body(self, receive: Receive) -> dict[str, Any]:
        pieces = []
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise bad_request("The client went away before its request was read.")
            pieces.append(message["body"])
            if not message["more_body"]:
                return decode(b"".join(pieces))

    async def _tokenize(self, scope: Message, receive: Receive, send: Send) -> None:
        body = await self._body(receive)
        check_model(body, self.limits)
        if "messages" in body:
            text = render_chat(chat_messages(body), body.get("tools"), wants_thinking(body, self.arguments))
        elif isinstance(body.get("prompt"), str):
            text = body["prompt"]
        else:
            raise bad_request("[{'type': 'missing', 'loc': ('body', 'prompt'), 'msg': 'Field required'}]", "prompt")
        tokens = split_tokens(text)
        answer: dict[str, Any] = {
            "count": len(tokens), "max_model_len": self.limits.max_model_len, "tokens": [token_id(t) for t in tokens],
            "token_strs": tokens if body.get("return_token_strs") else None,
        }  # fmt: skip
        await self._json(send, 200, answer)
        self._count_http(scope, 200)

    async def _chat(self, scope: Message, receive: Receive, send: Send) -> None:
        body = await self._body(receive)
        await self._generate(read_chat(body, self.arguments, self.limits), body, scope, receive, send)

    async def _completion(self, scope: Message, receive: Receive, send: Send) -> None:
        body = await self._body(receive)
        await self._generate(read_completion(body, self.arguments, self.limits), body, scope, receive, send)

    def _header(self, request: Completion, body: dict[str, Any], scope: Message) -> Header:
        given = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
        prefix = "chatcmpl-" if request.chat else "cmpl-"
        answer_id = prefix + (given or uuid4().hex[:16])
        return Header(
            request_id=given or answer_id, answer_id=answer_id, model=body.get("model") or self.limits.names[0],
            created=int(time.time()), version=self.settings.version, release=self.settings.release,
            reasoning_key=self.settings.reasoning_key, chat=request.chat, prompt_tokens=request.prompt_tokens,
            tools=tuple(request.ask.tool_calls), include_usage=request.include_usage,
            continuous_usage=request.continuous_usage,
        )  # fmt: skip

    def _job(self, request: Completion, sink: StreamedAnswer | WholeAnswer, sabotage: Any) -> Job:
        ask = request.ask
        if not request.greedy:
            seed = next(self._sampled) if request.sampling_seed is None else f"seed {request.sampling_seed}"
            key = f"{request.prompt}\x00{seed}"
        else:
            key = request.prompt
        script = compose(self.settings, ask, key, sabotage.degenerate)
        hashes = self.engine.prefix.hashes(request.prompt) if self.engine.prefix is not None else ()
        draws = Random(f"{self.settings.seed}\x00drafts\x00{key}")
        return Job(
            script, sink, request.prompt_tokens, ask.max_tokens, hashes=hashes, draws=draws, stop=request.stop,
            sabotage=sabotage,
        )  # fmt: skip

    async def _generate(self, request: Completion, body: dict[str, Any], scope: Message, receive: Receive, send: Send) -> None:
        if self.dead:
            raise ApiError(500, "InternalServerError", DEAD)
        sabotage = self.injector.next_request(request.stream)
        if sabotage.status is not None:
            raise ApiError(sabotage.status, "InternalServerError", "Internal server error")
        header = self._header(request, body, scope)
        sink = StreamedAnswer(header, send, self.truth) if request.stream else WholeAnswer(header, send, self.truth)
        if isinstance(sink, StreamedAnswer):
            await send({"type": "http.response.start", "status": 200, "headers": SSE_HEADERS})
            if self.settings.early_role_chunk:
                sink.open()
        job = self._job(request, sink, sabotage)
        self.load += 1
        self.engine.submit(job)
        try:
            while (await receive())["type"] != "http.disconnect":
                pass  # the response is written by the engine; this returns when it is complete or the client is gone
        finally:
            self.load -= 1
        if not job.finished:
            self.engine.abort(job)
            sink.record("abort", request.stream)
        self._count_http(scope, 200)

    async def _sim(self, scope: Message, _receive: Receive, send: Send) -> None:
        client = (scope.get("client") or ("",))[0]
        if not self.settings.park or client not in ("127.0.0.1", "::1"):
            await self._json(send, 404, {"detail": "Not Found"})
            return
        try:
            if scope["path"] == "/sim/suspend":
                await self.park.suspend()
            elif scope["path"] == "/sim/resume":
                await self.park.resume()
        except ParkError as error:
            await self._json(send, 409, {"error": str(error), "state": self.park.state})
            return
        await self._json(send, 200, {"state": self.park.state})


def stop_everything(engine: Engine, finish: str) -> None:
    """End every unfinished request with vLLM's error event (or a 500); the truth log calls its end `finish`."""
    for job in engine.jobs():
        job.sink.fail(DEAD, finish)
        engine.abort(job)
