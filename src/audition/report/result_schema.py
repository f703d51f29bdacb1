"""The JSON schema of ``result.json``, made from the dataclass that it is written from, and its reader. Pure.

``schema`` in the file names the version. A change of any field changes this schema, and a test compares it with the committed one:
nothing changes unseen.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from audition.errors import BadInput
from audition.judge.files import MOST_INSTANT
from audition.judge.result import RESULT_SCHEMA, Result
from audition.spike.schema import DIALECT


@cache
def _adapter() -> TypeAdapter[Result]:
    return TypeAdapter(Result)


def result_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of ``result.json``. Every field is required, no other is allowed."""
    schema = _adapter().json_schema(mode="serialization")
    for part in [schema, *schema.get("$defs", {}).values()]:
        if part.get("type") == "object" and "properties" in part:
            part["required"] = sorted(part["properties"])
            part["additionalProperties"] = False
    schema["properties"]["schema"] = {"const": RESULT_SCHEMA, "title": "Schema"}
    return {"$schema": DIALECT, **schema, "title": f"audition result, version {RESULT_SCHEMA}"}


def parse_result(text: str | bytes) -> Result:
    """A Result from the text of ``result.json``. Raises BadInput when it is none, or of another version."""
    try:
        result = _adapter().validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise BadInput("result.json cannot be read", seen=f"{place}: {first['msg']}") from error
    for at in [result, *result.legs]:
        for name in ("started_at", "ended_at"):
            value = getattr(at, name)
            if value is not None and not 0 <= value < MOST_INSTANT:
                raise BadInput("result.json cannot be read", seen=f"{name}: {value} is no instant")
    if result.schema != RESULT_SCHEMA:
        raise BadInput(f"result.json has format {result.schema}, this version reads {RESULT_SCHEMA}")
    return result
