"""JSON answers and pictures, against servers that answer what a test scripts."""

import asyncio
import json
import zlib
from typing import Any

import pytest

from audition.judge.records import ProbeRecord
from audition.probes import run_probes
from audition.probes.ask import Answer, questions
from audition.probes.formats import picture, schema_problem
from load.scripted import Step, scripted

SCHEMA = questions()["json_schema"]["schema"]
GOOD = {"origin": "Basel", "destination": "Milan", "minutes": 263, "before_noon": False}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (json.dumps(GOOD), ""),
        (json.dumps({**GOOD, "minutes": 9}), ""),
        ("Basel, Milan", "no JSON"),
        ("[1]", "no object"),
        (json.dumps({**GOOD, "minutes": "263"}), "minutes is no integer"),
        (json.dumps({**GOOD, "minutes": True}), "minutes is no integer"),
        (json.dumps({**GOOD, "extra": 1}), "with extra"),
        (json.dumps({"origin": "Basel"}), "without destination"),
    ],
)
def test_answers_and_the_schema(content: str, said: str) -> None:
    problem, _ = schema_problem(Answer(content=content), SCHEMA)
    assert problem.startswith(said) if said else not problem


def response(status: int, value: Any) -> Step:
    body = json.dumps(value).encode()
    return b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


def saying(content: str) -> Step:
    return response(200, {"choices": [{"message": {"role": "assistant", "content": content}, "finish_reason": "stop"}]})


async def asked(probe: str, *steps: Step) -> tuple[ProbeRecord, list[bytes]]:
    async with scripted(*[[step] for step in steps]) as server:
        records = await run_probes(server.endpoint, [probe], deadline_s=5)
        return records[0], server.requests


@pytest.mark.parametrize(
    ("step", "passed", "said"),
    [
        (saying("It is red."), True, "named"),
        (saying("Blue"), False, "Blue"),
        (response(400, {"error": {"message": "m is not a multimodal model"}}), None, "takes no pictures"),
        (response(400, {"error": {"message": "At most 0 image(s) may be provided in one prompt."}}), None, "takes no pictures"),
        (response(400, {"error": {"message": "max_tokens is too large"}}), False, "max_tokens"),
    ],
)
def test_vision(step: Step, passed: bool | None, said: str) -> None:
    record, requests = asyncio.run(asked("vision", step))
    assert record.passed is passed
    assert said in record.detail
    assert b"data:image/png;base64," in requests[0]


def test_a_server_that_ignores_the_schema_fails() -> None:
    record, requests = asyncio.run(asked("json_schema", saying("From Basel to Milan.")))
    assert record.passed is False
    assert "no JSON" in record.detail
    assert b'"json_schema"' in requests[0]


def test_the_picture_is_a_png_of_one_colour() -> None:
    data = picture((1, 2, 3), 8)
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    begin = data.index(b"IDAT") + 4
    length = int.from_bytes(data[begin - 8 : begin - 4])
    assert zlib.decompress(data[begin : begin + length]) == (b"\0" + b"\1\2\3" * 8) * 8
