"""Every endpoint of a real simulated server, as a client sees it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from simulated.simserver import NAME, Reply, Server, Start, deltas, events

KEY = {"authorization": "Bearer key"}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def ask(server: Server, text: str = "Tell me a story.", **body: Any) -> Reply:
    return server.chat(text, KEY, **body)


def stream(server: Server, text: str = "Tell me a story.", **body: Any) -> list[dict[str, Any]]:
    return server.stream(text, KEY, **body)


def message(reply: Reply) -> dict[str, Any]:
    assert reply.status == 200, reply.body
    found: dict[str, Any] = reply.json["choices"][0]["message"]
    return found


def test_health_version_load_and_models(plain: Server) -> None:
    assert (plain.get("/health").status, plain.get("/health").body) == (200, b"")
    assert plain.get("/version").json == {"version": "0.19.1"}
    assert plain.get("/load").json == {"server_load": 0}
    models = plain.request("GET", "/v1/models", headers=KEY).json
    assert [model["id"] for model in models["data"]] == [NAME]
    assert models["data"][0]["max_model_len"] == 32768


def test_unknown_paths_and_methods(plain: Server) -> None:
    assert plain.get("/nothing").status == 404
    assert plain.request("POST", "/health").status == 405


def test_a_wrong_key_is_refused_under_v1_only(plain: Server) -> None:
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "key"}):
        reply = plain.request("GET", "/v1/models", headers=headers)
        assert (reply.status, reply.json) == (401, {"error": "Unauthorized"})
    assert plain.get("/metrics").status == 200


def test_a_wrong_model_name_is_404_as_vllm_says_it(plain: Server) -> None:
    reply = plain.request("POST", "/v1/chat/completions", {"model": "other", "messages": [{"role": "user"}]}, KEY)
    assert reply.status == 404
    assert reply.json["error"] == {
        "message": "The model `other` does not exist.", "type": "NotFoundError", "param": "model", "code": 404,
    }  # fmt: skip


def test_a_prompt_longer_than_the_context_is_400(plain: Server) -> None:
    reply = ask(plain, "word " * 40_000)
    assert reply.status == 400
    assert "This model's maximum context length is 32768 tokens." in reply.json["error"]["message"]
    assert ask(plain, "short", max_tokens=40_000).status == 400


@pytest.mark.parametrize(
    "body",
    [b"{", b"[]", {"model": NAME}, {"model": NAME, "messages": []}, {"model": NAME, "messages": ["x"]},
     {"model": NAME, "messages": [{"role": "user", "content": "x"}], "max_tokens": "many"},
     {"model": NAME, "messages": [{"role": "user", "content": "x"}], "temperature": -1},
     {"model": NAME, "messages": [{"role": "user", "content": "x"}], "stream_options": {"include_usage": True}}],
)  # fmt: skip
def test_bad_bodies_are_400(plain: Server, body: Any) -> None:
    reply = plain.request("POST", "/v1/chat/completions", body, KEY)
    assert reply.status == 400
    assert reply.json["error"]["type"] == "BadRequestError"


def test_whole_chat_answer(plain: Server) -> None:
    reply = ask(plain, "What is 17 + 25?")
    assert message(reply)["content"] == "17 + 25 = 42."
    assert len(message(reply)["reasoning"]) > 20
    usage = reply.json["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert reply.json["choices"][0]["finish_reason"] == "stop"


def test_streamed_chat_answer_is_the_whole_answer_in_pieces(plain: Server) -> None:
    whole = ask(plain)
    chunks = stream(plain)
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert deltas(chunks) == message(whole)["content"]
    assert deltas(chunks, "reasoning") == message(whole)["reasoning"]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == whole.json["usage"]["completion_tokens"]
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks[:-2])


def test_usage_only_when_asked_for(plain: Server) -> None:
    chunks = stream(plain, "Say hi", max_tokens=4, stream_options=None)
    assert all("usage" not in chunk for chunk in chunks)
    counted = stream(
        plain, max_tokens=12, stream_options={"include_usage": True, "continuous_usage_stats": True}
    )  # fmt: skip
    steps = [chunk["usage"]["completion_tokens"] for chunk in counted]
    assert steps[0] == 0
    assert steps == sorted(steps)
    assert steps[-1] == 12


def test_thinking_can_be_switched_off(plain: Server) -> None:
    reply = ask(plain, chat_template_kwargs={"enable_thinking": False})
    assert message(reply)["reasoning"] is None
    chunks = stream(plain, chat_template_kwargs={"enable_thinking": False})
    assert deltas(chunks, "reasoning") == ""
    assert deltas(chunks) == message(reply)["content"]


def test_lengths_are_obeyed(plain: Server) -> None:
    limited = ask(plain, max_tokens=9)
    assert limited.json["usage"]["completion_tokens"] == 9
    assert limited.json["choices"][0]["finish_reason"] == "length"
    forced = ask(plain, "What is 1 + 1?", max_tokens=300, ignore_eos=True)
    assert forced.json["usage"]["completion_tokens"] == 300
    at_least = ask(plain, "What is 1 + 1?", min_tokens=250, max_tokens=600)
    assert 250 <= at_least.json["usage"]["completion_tokens"] < 600


def test_stop_strings_end_the_answer(plain: Server) -> None:
    quiet = {"enable_thinking": False}
    full = message(ask(plain, chat_template_kwargs=quiet))["content"]
    word = full.split()[5]
    stopped = ask(plain, stop=[word], chat_template_kwargs=quiet)
    assert message(stopped)["content"] == full[: full.index(word)]
    assert stopped.json["choices"][0]["finish_reason"] == "stop"


def test_sampled_answers_differ_and_seeded_ones_do_not(plain: Server) -> None:
    texts = {message(ask(plain, temperature=1.0, max_tokens=40))["reasoning"] for _ in range(3)}
    assert len(texts) == 3
    seeded = {message(ask(plain, temperature=1.0, seed=5, max_tokens=40))["reasoning"] for _ in range(2)}
    assert len(seeded) == 1


def test_tool_calls_whole_and_streamed(plain: Server) -> None:
    question = "What is the weather in Oslo?"
    reply = ask(plain, question, tools=[WEATHER])
    call = message(reply)["tool_calls"][0]
    assert reply.json["choices"][0]["finish_reason"] == "tool_calls"
    assert call["function"]["name"] == "get_weather"
    assert json.loads(call["function"]["arguments"]) == {"city": "Oslo"}
    chunks = stream(plain, question, tools=[WEATHER])
    pieces = [piece for chunk in chunks for choice in chunk["choices"] for piece in choice["delta"].get("tool_calls", [])]
    assert pieces[0]["function"]["name"] == "get_weather"
    assert json.loads("".join(piece["function"]["arguments"] for piece in pieces)) == {"city": "Oslo"}
    assert chunks[-2]["choices"][0]["finish_reason"] == "tool_calls"
    turns = [
        {"role": "user", "content": question},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "4 degrees"},
    ]
    body = {"model": NAME, "messages": turns, "tools": [WEATHER], "temperature": 0}
    answer = plain.request("POST", "/v1/chat/completions", body, KEY)
    assert "4 degrees" in message(answer)["content"]


def test_tools_without_a_parser_are_refused(mtp: Server) -> None:
    reply = mtp.chat("weather?", tools=[WEATHER])
    assert reply.status == 400
    assert "--enable-auto-tool-choice" in reply.json["error"]["message"]
    required = mtp.chat("weather in Rome?", tools=[WEATHER], tool_choice="required")
    assert required.json["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "get_weather"


def test_structured_output_is_valid_json(plain: Server) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}, "n": {"type": "integer"}}}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    value = json.loads(message(ask(plain, "How many people live in Lima? 7", response_format=form))["content"])
    assert value == {"city": "Lima", "n": 7}
    assert json.loads(message(ask(plain, "x", response_format={"type": "json_object"}))["content"])


def test_text_completions_whole_and_streamed(plain: Server) -> None:
    body = {"model": NAME, "prompt": "Once upon a time", "max_tokens": 20, "temperature": 0}
    whole = plain.request("POST", "/v1/completions", body, KEY)
    assert whole.status == 200
    assert whole.json["object"] == "text_completion"
    assert whole.json["usage"]["completion_tokens"] == 20
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    chunks = events(plain.request("POST", "/v1/completions", body, KEY).body)
    text = "".join(choice["text"] for chunk in chunks for choice in chunk["choices"])
    assert text == whole.json["choices"][0]["text"]
    assert chunks[-1]["usage"]["completion_tokens"] == 20


def test_tokenize_agrees_with_usage(plain: Server) -> None:
    messages = [{"role": "user", "content": "An unbelievably long question, isn't it?"}]
    counted = plain.request("POST", "/tokenize", {"model": NAME, "messages": messages}).json
    reply = plain.request("POST", "/v1/chat/completions", {"model": NAME, "messages": messages, "max_tokens": 1}, KEY)
    assert counted["count"] == len(counted["tokens"]) == reply.json["usage"]["prompt_tokens"]
    prompt = plain.request("POST", "/tokenize", {"model": NAME, "prompt": "one two three"}).json
    assert (prompt["count"], prompt["max_model_len"]) == (3, 32768)


def test_the_clients_request_id_is_kept(plain: Server) -> None:
    reply = plain.chat("Hi", {**KEY, "x-request-id": "spike-7"}, max_tokens=3)
    assert reply.json["id"] == "chatcmpl-spike-7"
    assert plain.truth()[-1]["request_id"] == "spike-7"


def test_old_releases_say_reasoning_content_and_old_metric_names(start: Start) -> None:
    server = start("--reasoning-parser", "qwen3", version="0.11.0", early_role_chunk=True)
    chunks = server.stream("Tell me a story.", max_tokens=10)
    assert deltas(chunks, "reasoning_content")
    assert not deltas(chunks, "reasoning")
    metrics = server.metrics()
    assert metrics["vllm:gpu_cache_usage_perc"] == 0
    assert "vllm:time_per_output_token_seconds_count" in metrics


def test_key_from_the_environment(start: Start) -> None:
    server = start(env={"VLLM_API_KEY": "secret"})
    assert server.get("/v1/models").status == 401
    assert server.request("GET", "/v1/models", headers={"authorization": "Bearer secret"}).status == 200
    assert "secret" not in server.log
