"""Make a value that satisfies a JSON schema, for `response_format` and for the arguments of tool calls.

What must not live here: requests, tokens. Only the common part of JSON schema is understood: type, enum, const,
properties, required, items, anyOf/oneOf, minItems, minimum, $ref to the schema's own $defs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MAX_DEPTH = 12
_PLACE = re.compile(r"\b(?:in|for|at|near|of)\s+([A-Z][\w-]+(?:\s[A-Z][\w-]+)*)")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def _string(name: str, schema: Mapping[str, Any], prompt: str) -> str:
    if schema.get("format") == "date":
        return "2025-06-01"
    place = _PLACE.search(prompt)
    if place and re.search(r"city|place|location|town|country|name", name, re.IGNORECASE):
        return place.group(1)
    quoted = re.search(r"['\"]([^'\"]+)['\"]", prompt)
    text = quoted.group(1) if quoted else (prompt.strip().splitlines() or ["value"])[-1]
    text = text or "value"
    minimum = int(schema.get("minLength", 0))
    return text[: int(schema.get("maxLength", 80))].ljust(minimum, "x")


def _number(schema: Mapping[str, Any], prompt: str) -> float:
    found = _NUMBER.search(prompt)
    value = float(found.group()) if found else 1.0
    if "exclusiveMinimum" in schema:
        value = max(value, float(schema["exclusiveMinimum"]) + 1)
    if "minimum" in schema:
        value = max(value, float(schema["minimum"]))
    if "maximum" in schema:
        value = min(value, float(schema["maximum"]))
    return value


def _object(schema: Mapping[str, Any], prompt: str, root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    properties = schema.get("properties") or {}
    return {key: instance(value, prompt, key, root, depth + 1) for key, value in properties.items()}


def instance(schema: Mapping[str, Any], prompt: str, name: str = "", root: Mapping[str, Any] | None = None, depth: int = 0) -> Any:
    """A value for the schema, taken from the prompt where it offers one (numbers, places, quoted words).

    Nested deeper than MAX_DEPTH, or of an unknown type, the value is null.
    """
    root = schema if root is None else root
    if depth > MAX_DEPTH:
        return None
    if "$ref" in schema:
        target: Any = root
        for part in str(schema["$ref"]).removeprefix("#/").split("/"):
            target = target.get(part, {}) if isinstance(target, Mapping) else {}
        return instance(target, prompt, name, root, depth + 1)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        options = schema["enum"]
        return next((option for option in options if str(option).lower() in prompt.lower()), options[0])
    for choice in ("anyOf", "oneOf", "allOf"):
        if schema.get(choice):
            return instance(schema[choice][0], prompt, name, root, depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else None)
    if isinstance(kind, list):
        kind = kind[0] if kind else None
    match kind:
        case "object":
            return _object(schema, prompt, root, depth)
        case "array":
            count = max(1, int(schema.get("minItems", 1)))
            return [instance(schema.get("items") or {"type": "string"}, prompt, name, root, depth + 1)] * count
        case "string":
            return _string(name, schema, prompt)
        case "integer":
            return int(_number(schema, prompt))
        case "number":
            return _number(schema, prompt)
        case "boolean":
            return True
    return None
