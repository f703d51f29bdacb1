"""The JSON schema of spike files, for editors. Generated from the model; what an editor accepts, ``parse`` accepts or explains."""

from __future__ import annotations

from typing import Any

from audition.spike.keys import all_models
from audition.spike.metrics import METRICS, PROBES
from audition.spike.model import Spike

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of a spike file, with the description of every key.

    Durations may be texts or numbers, commands lists or one text, legs names of arms. Metrics and probes are offered by name.
    """
    schema = Spike.model_json_schema(by_alias=True, mode="validation")
    definitions = schema["$defs"]
    legs = next(choice for choice in schema["properties"]["legs"]["anyOf"] if choice.get("type") == "array")
    legs["items"] = {"anyOf": [{"type": "string", "description": "Name of the arm."}, legs["items"]]}
    schema["properties"]["probes"]["items"] = {"type": "string", "enum": sorted(PROBES)}
    gate = definitions["Gate"]["properties"]
    for key, names in (("metric", METRICS), ("probe", PROBES)):
        text = next(choice for choice in gate[key]["anyOf"] if choice.get("type") == "string")
        text["enum"] = sorted(names)
    definitions["Workload"]["oneOf"] = [{"required": [key]} for key in ("requests", "duration", "trace")]
    definitions["Gate"]["oneOf"] = [{"required": [key]} for key in ("metric", "probe", "all", "any")]
    for model in all_models():
        part = schema if model is Spike else definitions[model.__name__]
        for name, field in model.model_fields.items():
            part["properties"][name]["description"] = field.description
    _strip(schema)
    return {"$schema": DIALECT, "title": "audition spike file", **schema}


def _strip(node: Any) -> None:
    """Remove what hides the descriptions in editors (titles made from names) or is no JSON Schema (``discriminator``)."""
    if isinstance(node, dict):
        if isinstance(node.get("title"), str):
            del node["title"]
        if isinstance(node.get("discriminator"), dict):
            del node["discriminator"]
        for value in node.values():
            _strip(value)
    elif isinstance(node, list):
        for value in node:
            _strip(value)
