"""The annotated reference and the JSON schema: both must know every key of the model."""

from typing import Any

import pytest

from audition.spike.document import read_document
from audition.spike.examples import example_names, find_spike
from audition.spike.keys import Key, all_keys, all_models
from audition.spike.metrics import METRICS, PROBES
from audition.spike.model import Spike
from audition.spike.parse import parse_spike
from audition.spike.reference import annotate, first_places, reference_text
from audition.spike.schema import DIALECT, json_schema
from spike.spike_texts import BASE, changed

KEYS = list(all_keys())


def test_the_reference_is_itself_a_valid_spike() -> None:
    assert parse_spike(reference_text(), "reference.yaml").name == "reference"


def test_the_model_has_many_keys_and_every_model_is_walked() -> None:
    assert {"ProcessEngine", "ComposeEngine", "SimulatedEngine", "Gate", "Note", "Sampling"} <= {m.__name__ for m in all_models()}
    assert len(KEYS) > 80


@pytest.mark.parametrize("key", KEYS, ids=lambda key: f"{key.owner.__name__}.{key.name}")
def test_every_key_is_described_and_stands_in_the_reference(key: Key) -> None:
    assert len(key.description) > 5
    assert key.description.endswith(".")
    document = read_document(reference_text())
    places = {(found.owner, found.name): path for found, path in first_places(document)}
    assert (key.owner, key.name) in places, f"reference.yaml does not show {key.owner.__name__}.{key.name}"
    line = document.keys[places[(key.owner, key.name)]][0]
    comment: list[str] = []
    for row in reversed(document.lines[: line - 1]):
        if not row.strip().startswith("#:"):
            break
        comment.insert(0, row.strip().removeprefix("#:").strip())
    text = " ".join(comment)
    assert key.description in text
    assert f"[{key.type}; " in text
    assert ("must be given" if key.default is None else f"default: {key.default}]") in text


def test_the_comments_of_the_reference_are_those_of_the_model() -> None:
    assert annotate(reference_text()) == reference_text(), (
        "renew the comments: python -m audition.spike.reference > new.yaml, then put it in place of reference.yaml"
    )


def test_a_reference_that_misses_a_key_would_be_noticed() -> None:
    shorter = reference_text().replace("sidecars: stop\n", "")
    found = {(key.owner, key.name) for key, _ in first_places(read_document(shorter))}
    assert (Spike, "sidecars") not in found
    assert len(found) == len(KEYS) - 1


def property_of(schema: dict[str, Any], key: Key) -> dict[str, Any]:
    part = schema if key.owner is Spike else schema["$defs"][key.owner.__name__]
    found: dict[str, Any] = part["properties"][key.name]
    return found


@pytest.mark.parametrize("key", KEYS, ids=lambda key: f"{key.owner.__name__}.{key.name}")
def test_the_schema_describes_every_key(key: Key) -> None:
    assert property_of(json_schema(), key)["description"] == key.description


def test_the_schema_has_no_key_that_the_model_lacks() -> None:
    schema = json_schema()
    assert schema["$schema"] == DIALECT
    parts = {"Spike": schema, **schema["$defs"]}
    assert {(name, key) for name, part in parts.items() for key in part["properties"]} == {(k.owner.__name__, k.name) for k in KEYS}
    assert all(part["additionalProperties"] is False for part in parts.values())


def test_the_schema_requires_what_the_model_requires() -> None:
    schema = json_schema()
    parts = {"Spike": schema, **schema["$defs"]}
    required = {(name, key) for name, part in parts.items() for key in part.get("required", [])}
    assert required == {(k.owner.__name__, k.name) for k in KEYS if k.default is None}


def test_the_schema_knows_the_short_forms() -> None:
    schema = json_schema()
    legs = next(choice for choice in schema["properties"]["legs"]["anyOf"] if choice.get("type") == "array")
    assert [choice.get("type", choice.get("$ref")) for choice in legs["items"]["anyOf"]] == ["string", "#/$defs/Leg"]
    command = schema["$defs"]["ProcessEngine"]["properties"]["command"]
    assert [choice["type"] for choice in command["anyOf"]] == ["array", "string"]
    for owner, name in (("Boot", "limit"), ("Workload", "deadline"), ("Drain", "budget"), ("Stop", "grace")):
        choices = schema["$defs"][owner]["properties"][name]["anyOf"]
        assert {choice["type"] for choice in choices} == {"number", "string"}


def test_the_schema_offers_the_names_of_metrics_and_probes() -> None:
    schema = json_schema()
    gate = schema["$defs"]["Gate"]["properties"]
    assert set(gate["metric"]["anyOf"][0]["enum"]) == set(METRICS)
    assert set(gate["probe"]["anyOf"][0]["enum"]) == set(PROBES)
    assert set(schema["properties"]["probes"]["items"]["enum"]) == set(PROBES)


def accepts(schema: dict[str, Any], node: dict[str, Any], value: Any) -> bool:
    """A small reading of the schema: types, properties, required keys, items, choices. Enough to hold the examples against it."""
    import re

    if "$ref" in node:
        return accepts(schema, schema["$defs"][node["$ref"].rsplit("/", 1)[1]], value)
    if "anyOf" in node and not any(accepts(schema, choice, value) for choice in node["anyOf"]):
        return False
    if "oneOf" in node and sum(accepts(schema, choice, value) for choice in node["oneOf"]) != 1:
        return False
    kinds: dict[str, type | tuple[type, ...]] = {
        "object": dict, "array": list, "string": str, "boolean": bool, "number": (int, float), "integer": int, "null": type(None),
    }  # fmt: skip
    kind = node.get("type")
    if kind is not None and (not isinstance(value, kinds[kind]) or (isinstance(value, bool) and kind in ("number", "integer"))):
        return False
    if "const" in node and value != node["const"]:
        return False
    if "enum" in node and value not in node["enum"]:
        return False
    if "pattern" in node and isinstance(value, str) and not re.search(node["pattern"], value):
        return False
    if isinstance(value, dict):
        known, free = node.get("properties", {}), node.get("additionalProperties", True)
        if any(key not in value for key in node.get("required", [])):
            return False
        if free is False and not set(value) <= set(known):
            return False
        rest = free if isinstance(free, dict) else {}
        return all(accepts(schema, known.get(key, rest), inner) for key, inner in value.items())
    if isinstance(value, list):
        return len(value) >= node.get("minItems", 0) and all(accepts(schema, node.get("items", {}), inner) for inner in value)
    return True


def test_the_schema_accepts_the_reference_and_the_examples() -> None:
    schema = json_schema()
    texts = [reference_text(), BASE, *(find_spike(name).read_text() for name in example_names())]
    for text in texts:
        assert accepts(schema, schema, read_document(text).data)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("users: 16", "users: three"),
        ("name: base", "name: base\nnmae: x"),
        ("requests: 64}", "requests: 64, deadline: soon}"),
        ("role: candidate", "role: candidat"),
        ("metric: output_tok_s", "metric: output_toks"),
        ("      service: vllm\n", ""),
        ("requests: 64}", "requests: 64, duration: 1m}"),
    ],
)
def test_the_schema_refuses_what_the_parser_refuses(old: str, new: str) -> None:
    schema = json_schema()
    assert not accepts(schema, schema, read_document(changed(old, new)).data)
