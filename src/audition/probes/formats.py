"""Probes of other forms of question and answer: JSON to a schema, and pictures. What must not live here: text quality."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from typing import Any

from audition.judge.records import ProbeRecord
from audition.probes.ask import Answer, Asker, Message, Transcript, questions
from audition.probes.text import contains

_TOKENS = 200  # the answer has about 40, some models write it with much white space
_SIDE = 64  # pixels; smaller pictures are refused by some vision towers
_NO_PICTURES = ("multimodal", "multi-modal", "image", "vision", "content must be", "string type")
"""What servers say when a model takes no pictures; vLLM: `... is not a multimodal model`, `At most 0 image(s) may be provided`."""


def _absent(probe: str, answer: Answer, seen: Transcript) -> ProbeRecord | None:
    return ProbeRecord(probe, None, f"no server answered: {answer.failure}", seen.text()) if answer.absent else None


async def json_schema(asker: Asker) -> ProbeRecord:
    """An answer asked for in a JSON schema (``response_format``), streamed and not, fits it. Contents are reported only."""
    known, seen, problems, remarks = questions()["json_schema"], Transcript(), [], []
    form = {"type": "json_schema", "json_schema": {"name": "journey", "schema": known["schema"], "strict": True}}
    for stream in (False, True):
        name = "streamed" if stream else "not streamed"
        answer = await asker.ask(known["ask"], max_tokens=_TOKENS, stream=stream, temperature=0, response_format=form)
        seen.add(name, answer)
        if gone := _absent("json_schema", answer, seen):
            return gone
        problem, value = schema_problem(answer, known["schema"])
        if problem:
            problems.append(f"{name}: {problem}")
        elif wrong := [key for key, right in known["expect"].items() if value.get(key) != right]:
            remarks.append(f"{name}: fits, but {', '.join(wrong)} not as expected")
    detail = "; ".join([*problems, *remarks]) or "fits the schema, streamed and not"
    return ProbeRecord("json_schema", not problems, detail, seen.text())


def schema_problem(answer: Answer, schema: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """(what is wrong, the value). Checks what the shipped schema uses: an object with exactly these keys of these types."""
    if answer.failure:
        return answer.failure[:300], {}
    try:
        value = json.loads(answer.content)
    except ValueError:
        return f"no JSON: {answer.content[:80]!r}", {}
    if not isinstance(value, dict):
        return f"no object: {answer.content[:80]!r}", {}
    if missing := [key for key in schema["required"] if key not in value]:
        return f"without {', '.join(missing)}", value
    if surplus := [key for key in value if key not in schema["properties"]]:
        return f"with {', '.join(surplus)}, which the schema forbids", value
    types: dict[str, type] = {"string": str, "integer": int, "boolean": bool}
    for key, rule in schema["properties"].items():
        found = value[key]
        if not isinstance(found, types[rule["type"]]) or (rule["type"] == "integer" and isinstance(found, bool)):
            return f"{key} is no {rule['type']}: {found!r}", value
    return "", value


def picture(colour: tuple[int, int, int], side: int = _SIDE) -> bytes:
    """A PNG (RFC 2083) of one colour, ``side`` by ``side`` pixels."""

    def part(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + bytes(colour) * side) * side
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", header) + part(b"IDAT", zlib.compress(rows)) + part(b"IEND", b"")


async def vision(asker: Asker) -> ProbeRecord:
    """A picture of one colour is named rightly. Not judged when the server says that the model takes no pictures."""
    known, seen = questions()["vision"], Transcript()
    red, green, blue = known["colour"]
    url = f"data:image/png;base64,{base64.b64encode(picture((red, green, blue))).decode()}"
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": known["ask"]}]
    messages: list[Message] = [{"role": "user", "content": content}]
    answer = await asker.ask(messages, max_tokens=64, temperature=0)
    seen.add("one colour", answer)
    if gone := _absent("vision", answer, seen):
        return gone
    if answer.status in (400, 415, 422, 500) and any(word in answer.failure.lower() for word in _NO_PICTURES):
        return ProbeRecord("vision", None, f"the model takes no pictures: {answer.failure[:200]}", seen.text())
    if answer.failure:
        return ProbeRecord("vision", False, answer.failure[:300], seen.text())
    passed = contains(answer.content, known["accept"])
    detail = "the colour was named" if passed else f"expected {known['accept'][0]!r}, got {answer.content[:60]!r}"
    return ProbeRecord("vision", passed, detail, seen.text())
