"""Prompts that are not shipped: the user's own files, and long documents of a given number of tokens.

What must not live here: the order in which prompts are sent, salts (see ``prompts``).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

from audition.errors import BadInput
from audition.load.client import Endpoint, fetch
from audition.load.prompts import Message, Prompt

LONG_TOLERANCE = 0.01  # a long prompt may differ from the wanted length by this share
_TRIES = 6  # corrections of a long document's length; each one brings it nearer by the error of words a token, a few percent
_ROLES = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "chatgpt": "assistant", "system": "system"}
_QUESTION = "\n\nWhich three rooms are named most often in these notes? Answer in one sentence."


def read_prompts(path: Path) -> tuple[Prompt, ...]:
    """The prompts of a file: JSON lines with ``text`` or ``messages`` (and ``id``, ``language``, ``tools``), or ShareGPT's JSON,
    a list of objects with ``conversations``. Of a conversation, everything up to its last user turn is sent.

    Raises BadInput with the place of the first entry that is neither.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the prompts in {path} cannot be read: {error}", next_step="give a file of JSON lines in UTF-8") from error
    prompts: list[Prompt] = []
    for place, entry in _entries(text, path):
        problem = ""
        try:
            prompt = _entry(entry, f"{path.stem}-{len(prompts) + 1}")
        except ValueError as error:
            prompt, problem = None, str(error)
        if problem:
            raise BadInput(
                f"{path}, {place}: {problem}", seen=json.dumps(entry, ensure_ascii=False)[:200],
                next_step='write {"text": "..."} or {"messages": [{"role": "user", "content": "..."}]} on each line',
            )  # fmt: skip
        if prompt is not None:
            prompts.append(prompt)
    if not prompts:
        raise BadInput(f"{path} holds no prompt with a user's turn", next_step="give a file with at least one prompt")
    return tuple(prompts)


def _entries(text: str, path: Path) -> Iterator[tuple[str, Any]]:
    if text.lstrip().startswith("["):
        try:
            rows = json.loads(text)
        except ValueError as error:
            raise BadInput(f"{path} is no JSON: {error}", next_step="give JSON lines, or a JSON list as ShareGPT has it") from error
        yield from ((f"entry {number}", row) for number, row in enumerate(rows, start=1))
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                yield f"line {number}", json.loads(line)
            except ValueError as error:
                raise BadInput(f"{path}, line {number}: no JSON ({error})", next_step="give one JSON object a line") from error


def _entry(entry: Any, name: str) -> Prompt | None:
    """One prompt; None for a ShareGPT conversation without a user's turn. Raises ValueError in plain words."""
    if not isinstance(entry, dict):
        raise ValueError("expected an object")
    ident, language, tools = entry.get("id", name), entry.get("language", ""), entry.get("tools", [])
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise ValueError("`tools` is no list of objects")
    conversation = entry.get("conversations", entry.get("conversation"))
    if isinstance(conversation, list):
        messages = _sharegpt(conversation)
        if messages is None:
            return None
    elif isinstance(entry.get("messages"), list):
        messages = entry["messages"]
        if not messages or not all(isinstance(m, dict) and isinstance(m.get("role"), str) for m in messages):
            raise ValueError("`messages` is no list of objects with a `role`")
    else:
        text = entry.get("text", entry.get("prompt"))
        if not isinstance(text, str) or not text.strip():
            raise ValueError("expected `text` or `messages`")
        messages = [{"role": "user", "content": text}]
    return Prompt(str(ident), str(language), tuple(messages), tuple(tools))


def _sharegpt(turns: list[Any]) -> list[Message] | None:
    messages: list[Message] = []
    for turn in turns:
        role = _ROLES.get(str(turn.get("from", turn.get("role"))).lower()) if isinstance(turn, dict) else None
        text = turn.get("value", turn.get("content")) if role else None
        if role is None or not isinstance(text, str):
            raise ValueError("a turn has no known `from` or no text in `value`")
        messages.append({"role": role, "content": text})
    last = max((at for at, message in enumerate(messages) if message["role"] == "user"), default=None)
    return None if last is None else messages[: last + 1]


def document(words: int, seed: int) -> str:
    """A document of about so many words, the same for the same seed: notes of an archive, no two alike, then a question on them."""
    draw = random.Random(f"document/{seed}")
    rooms = [
        "the map room",
        "the north cellar",
        "the reading hall",
        "the copper vault",
        "the attic",
        "the bindery",
        "the long gallery",
    ]
    verbs = ["moved", "counted", "repaired", "catalogued", "returned", "borrowed", "measured", "photographed"]
    things = [
        "letters",
        "survey maps",
        "ledgers",
        "glass plates",
        "sea charts",
        "seed lists",
        "bridge drawings",
        "bound newspapers",
    ]
    people = ["the night clerk", "an apprentice", "two surveyors", "the archivist", "a visitor from the port", "the bookbinder"]
    lines, made, number = [], 0, 0
    while made < words:
        number += 1
        line = (
            f"Note {number}: on day {draw.randrange(1, 366)} {draw.choice(people)} {draw.choice(verbs)} "
            f"{draw.randrange(2, 900)} {draw.choice(things)} in {draw.choice(rooms)}, shelf {draw.randrange(1, 400)}, "
            f"and left at {draw.randrange(6, 23)} o'clock."
        )
        lines.append(line)
        made += line.count(" ") + 1
    whole = "\n".join(lines).split(" ")
    return " ".join(whole[: max(1, words)]) + _QUESTION


async def long_prompts(endpoint: Endpoint, tokens: int, how_many: int, seed: int) -> tuple[Prompt, ...]:
    """Documents whose whole prompt (template and salt included, which vary by a few tokens) has ``tokens`` tokens, +-
    LONG_TOLERANCE.

    The server counts them: by ``/tokenize``, or by the ``usage`` of a one-token answer where it has no such path. Raises BadInput
    when it does neither, or when the length cannot be met.
    """
    count = await _counter(endpoint, tokens)
    made = []
    for number in range(how_many):
        made.append(
            Prompt(
                f"long-{tokens}-{number + 1}",
                "en",
                ({"role": "user", "content": await _fitted(count, tokens, seed * 100 + number)},),
            )
        )
    return tuple(made)


Counter = Callable[[str], Coroutine[Any, Any, int]]


async def _counter(endpoint: Endpoint, tokens: int) -> Counter:
    async def by_tokenize(text: str) -> int:
        body = {"model": endpoint.model, "messages": [{"role": "user", "content": text}]}
        answer = await _post(endpoint, "/tokenize", body)
        most = answer.get("max_model_len")
        if isinstance(most, int) and tokens >= most:
            raise BadInput(
                f"prompts of {tokens} tokens were asked for, the server takes {most} with the answer", next_step="ask for fewer"
            )
        return _number(answer, "count")

    async def by_usage(text: str) -> int:
        body = {"model": endpoint.model, "messages": [{"role": "user", "content": text}], "max_tokens": 1}
        answer = await _post(endpoint, "/v1/chat/completions", body)
        return _number(answer.get("usage") or {}, "prompt_tokens")

    for counter in (by_tokenize, by_usage):
        try:
            await counter("one two three")
        except LookupError:
            continue
        return counter
    raise BadInput(
        "the server does not count tokens, so that no prompt of a given length can be made",
        tried="/tokenize, and the usage of an answer",
        next_step="give the long prompts as `prompts_file`",
    )  # fmt: skip


async def _post(endpoint: Endpoint, path: str, body: dict[str, Any]) -> dict[str, Any]:
    exchange = await fetch(endpoint, "POST", path, body, deadline_s=600.0)
    if exchange.outcome != "ok":
        raise LookupError(f"HTTP {exchange.status}: {exchange.detail[:200]}")
    try:
        answer = json.loads(exchange.body)
    except ValueError as error:
        raise LookupError("no JSON") from error
    if not isinstance(answer, dict):
        raise LookupError("no object")
    return answer


def _number(answer: dict[str, Any], key: str) -> int:
    value = answer.get(key)
    if not isinstance(value, int) or value <= 0:
        raise LookupError(f"no {key}")
    return value


async def _fitted(count: Counter, tokens: int, seed: int) -> str:
    words = max(1, tokens // 2)
    found = 0
    for _ in range(_TRIES):
        text = document(words, seed)
        try:
            found = await count(text)
        except LookupError as error:
            raise BadInput(
                f"the server does not take a prompt of about {tokens} tokens: {error}", next_step="ask for fewer `prompt_tokens`"
            ) from error
        if abs(found - tokens) <= max(LONG_TOLERANCE * tokens, 4):
            return text
        words = max(1, words + round((tokens - found) * words / found))
    raise BadInput(
        f"no prompt of {tokens} tokens could be made: the last one had {found}",
        next_step="ask for more `prompt_tokens`, or another number",
    )
