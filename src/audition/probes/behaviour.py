"""Probes of what clients rely on: conversation, thinking, tool calls, long prompts. What must not live here: text quality."""

from __future__ import annotations

import json
from typing import Any

from audition.judge.records import ProbeRecord
from audition.probes.ask import Answer, Asker, Message, Transcript, questions
from audition.probes.text import contains, degenerate

BLOCK_TOKENS = 1072
"""Block of hybrid models: ``Setting attention block size to 1072 tokens`` (vllm#38182). Some failures need a longer prompt."""

_NOTES = (150, 75)  # notes in the long prompt, about 25 tokens each: first two blocks and more, then just above one
_THINKING_TOKENS = 2048


def _unjudged(probe: str, answer: Answer, seen: Transcript) -> ProbeRecord | None:
    return ProbeRecord(probe, None, f"no server answered: {answer.failure}", seen.text()) if answer.absent else None


async def conversation(asker: Asker) -> ProbeRecord:
    """Two turns; the second answer needs what the first message said."""
    known, seen = questions()["conversation"], Transcript()
    messages: list[Message] = [{"role": "user", "content": known["first"]}]
    first = await asker.ask(messages, max_tokens=96, temperature=0)
    seen.add("first", first)
    if gone := _unjudged("conversation", first, seen):
        return gone
    if first.failure or not first.content.strip():
        return ProbeRecord("conversation", False, f"first turn: {first.failure or 'an empty answer'}", seen.text())
    messages += [{"role": "assistant", "content": first.content}, {"role": "user", "content": known["second"]}]
    second = await asker.ask(messages, max_tokens=64, temperature=0)
    seen.add("second", second)
    if gone := _unjudged("conversation", second, seen):
        return gone
    if second.failure:
        return ProbeRecord("conversation", False, f"second turn: {second.failure}", seen.text())
    passed = contains(second.content, known["accept"])
    detail = "" if passed else f"expected {known['accept'][0]!r} in the second turn, got {second.content[:60]!r}"
    return ProbeRecord("conversation", passed, detail or "the second turn used the first", seen.text())


async def thinking(asker: Asker) -> ProbeRecord:
    """With ``enable_thinking`` the reasoning comes apart from the answer; without it there is none."""
    ask, seen = questions()["thinking"]["ask"], Transcript()
    on = await asker.ask(ask, max_tokens=_THINKING_TOKENS, thinking=True)
    seen.add("enable_thinking true", on)
    off = await asker.ask(ask, max_tokens=512, thinking=False)
    seen.add("enable_thinking false", off)
    for answer in (on, off):
        if gone := _unjudged("thinking", answer, seen):
            return gone
    passed, detail = judge_thinking(on, off)
    return ProbeRecord("thinking", passed, detail, seen.text())


def judge_thinking(on: Answer, off: Answer) -> tuple[bool | None, str]:
    """(passed, detail) from the answers with and without ``enable_thinking``."""
    for name, answer in (("with thinking", on), ("without thinking", off)):
        if answer.failure:
            return False, f"{name}: {answer.failure}"
        if "<think>" in answer.content or "</think>" in answer.content:
            return False, f"{name}: the answer holds <think> marks, the reasoning parser does not work"
    if off.reasoning.strip():
        return False, "without thinking: reasoning came although enable_thinking was false"
    if not off.content.strip():
        return False, "without thinking: the answer is empty"
    if not on.reasoning.strip():
        return None, "with thinking: no reasoning came; the model has no thinking mode, or the server leaves it out"
    if not on.content.strip():
        if on.finish_reason == "length":
            return None, f"with thinking: the reasoning did not end within {_THINKING_TOKENS} tokens"
        return False, "with thinking: reasoning came, but no answer"
    return True, "reasoning came apart from the answer, and none when switched off"


def _tool(name: str, argument: str) -> list[dict[str, Any]]:
    parameters = {
        "type": "object",
        "properties": {argument: {"type": "string", "description": "Name of the city"}},
        "required": [argument],
    }
    return [{"type": "function", "function": {"name": name, "description": "Current weather of a city", "parameters": parameters}}]


async def tool_call(asker: Asker) -> ProbeRecord:
    """The right tool with the right argument, in a whole response and in a streamed one."""
    known, seen, problems = questions()["tool_call"], Transcript(), []
    tools = _tool(known["name"], known["argument"])
    for stream in (False, True):
        name = "streamed" if stream else "not streamed"
        answer = await asker.ask(known["ask"], max_tokens=256, stream=stream, temperature=0, tools=tools, tool_choice="auto")
        seen.add(name, answer)
        if gone := _unjudged("tool_call", answer, seen):
            return gone
        if wrong := tool_problem(answer, known):
            problems.append(f"{name}: {wrong}")
    detail = "; ".join(problems) or "the right call, streamed and not"
    return ProbeRecord("tool_call", not problems, detail, seen.text())


def tool_problem(answer: Answer, known: dict[str, Any]) -> str:
    """What is wrong with an answer that should be one tool call; empty when it is right."""
    if answer.failure:
        return answer.failure
    if not answer.tool_calls:
        return f"no tool call, but {answer.content[:60]!r}"
    call = answer.tool_calls[0]
    if call.name != known["name"]:
        return f"expected a call of {known['name']}, got {call.name!r}"
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        return f"the arguments are no JSON: {call.arguments[:80]!r}"
    value = arguments.get(known["argument"]) if isinstance(arguments, dict) else None
    if not isinstance(value, str) or not contains(value, known["accept"]):
        return f"expected {known['argument']} = {known['accept'][0]!r}, got {call.arguments[:80]!r}"
    return ""


def long_text(notes: int, code_word: str) -> str:
    """A run of numbered notes, no two alike, with the code word in the first third."""
    lines = [
        f"Note {n}: shelf {n * 7 % 90 + 10} of room {n * 13 % 40 + 1} holds {n * 31 % 500 + 20} letters, counted by clerk {n % 17}."
        for n in range(1, notes + 1)
    ]
    lines.insert(notes // 3, f"Note: the code word for the north archive is {code_word}.")
    return "\n".join(lines)


async def long_prompt(asker: Asker) -> ProbeRecord:
    """A prompt longer than one KV block, with one fact in it that the answer must give."""
    known, seen = questions()["long_prompt"], Transcript()
    answer = Answer()
    for notes in _NOTES:
        text = f"{long_text(notes, known['accept'][0])}\n\n{known['ask']}"
        answer = await asker.ask(text, max_tokens=64, temperature=0)
        seen.add(f"{notes} notes", answer)
        if answer.status not in (400, 413, 422):
            break
    if gone := _unjudged("long_prompt", answer, seen):
        return gone
    if answer.status in (400, 413, 422):
        return ProbeRecord("long_prompt", None, f"the server takes no such prompt: {answer.failure[:300]}", seen.text())
    if answer.failure:
        return ProbeRecord("long_prompt", False, answer.failure[:300], seen.text())
    if answer.prompt_tokens is None or answer.prompt_tokens <= BLOCK_TOKENS:
        why = f"the prompt had {answer.prompt_tokens} tokens by the server's count, more than {BLOCK_TOKENS} are needed"
        return ProbeRecord("long_prompt", None, why, seen.text())
    if wrong := degenerate(answer.content):
        return ProbeRecord("long_prompt", False, wrong, seen.text())
    passed = contains(answer.content, known["accept"])
    detail = f"a prompt of {answer.prompt_tokens} tokens: " + (
        "answered rightly" if passed else f"expected {known['accept'][0]!r}, got {answer.content[:60]!r}"
    )
    return ProbeRecord("long_prompt", passed, detail, seen.text())
