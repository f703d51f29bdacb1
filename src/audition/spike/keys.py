"""The keys of the spike file, read off the model: which exist where, of which type, with which default and meaning.

Pure introspection of ``audition.spike.model``. No parsing and no texts of errors here.
"""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from audition.spike.model import Argv, Duration, Leg, Spike, Words


@dataclass(frozen=True)
class Key:
    """One key: ``owner`` is the model that it belongs to. ``default`` is None for keys that must be given."""

    owner: type[BaseModel]
    name: str
    type: str
    default: str | None
    description: str


@cache
def _hints(model: type[BaseModel]) -> dict[str, Any]:
    return get_type_hints(model, include_extras=True)


def annotation_of(model: type[BaseModel], name: str) -> Any:
    """The type of one key as the model writes it, ``Annotated`` included."""
    return _hints(model)[name]


def alternatives(annotation: Any) -> list[Any]:
    """The members of a union without None, without ``Annotated`` wrappers; a plain type is its own only member."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return alternatives(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return [a for member in get_args(annotation) if member is not type(None) for a in alternatives(member)]
    return [annotation]


def models(annotation: Any) -> list[type[BaseModel]]:
    """The models among the alternatives of an annotation."""
    return [a for a in alternatives(annotation) if isinstance(a, type) and issubclass(a, BaseModel)]


def items(annotation: Any) -> Any:
    """The type of the elements of a list or of the values of a mapping; ``Any`` for everything else."""
    for alternative in alternatives(annotation):
        if get_origin(alternative) in (list, dict):
            return get_args(alternative)[-1]
    return Any


def below(annotation: Any, part: str | int) -> Any:
    """The type of what stands under one key or index; ``Any`` where the model says nothing."""
    if isinstance(part, str):
        for model in models(annotation):
            if part in model.model_fields:
                return annotation_of(model, part)
    return items(annotation)


def literals(annotation: Any) -> list[str]:
    """The values that a choice allows, as texts; empty for a type that is no choice."""
    return [str(value) for a in alternatives(annotation) if get_origin(a) is Literal for value in get_args(a)]


def tag(model: type[BaseModel]) -> str | None:
    """The value of ``kind`` that selects this model among several, or None."""
    field = model.model_fields.get("kind")
    return literals(field.annotation)[0] if field is not None else None


_PLAIN: dict[Any, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    datetime: "instant with a time zone",
    Any: "anything",
}


_PLURAL = {
    "text": "texts",
    "whole number": "whole numbers",
    "mapping": "mappings",
    "mapping, or the name of an arm": "mappings, or names of arms",
}


def type_words(annotation: Any) -> str:
    """A type in plain words, e.g. ``list of text``, ``duration``, ``one of: process, compose``."""
    if annotation == Duration:
        return "duration"
    if annotation in (Argv, Words):
        return "list of text, or one text split like a shell does"
    if get_origin(annotation) in (Union, types.UnionType):
        words = dict.fromkeys(type_words(a) for a in get_args(annotation) if a is not type(None))
        return " or ".join(words)
    if get_origin(annotation) is Annotated:
        inner = get_args(annotation)[0]
        return type_words(inner) if models(inner) != [Leg] else "mapping, or the name of an arm"
    if choice := literals(annotation):
        return f"one of: {', '.join(choice)}" if len(choice) > 1 else f"always {choice[0]}"
    if get_origin(annotation) is list:
        item = type_words(get_args(annotation)[0])
        return f"list of {_PLURAL.get(item, item)}"
    if get_origin(annotation) is dict:
        return f"mapping of names to {type_words(get_args(annotation)[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "mapping"
    return _PLAIN.get(annotation, "anything")


def default_words(model: type[BaseModel], name: str) -> str | None:
    """A key's default as it would be written in the file; None for a key that must be given."""
    field = model.model_fields[name]
    if field.is_required():
        return None
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is None:
        return "none"
    if isinstance(value, BaseModel):
        return "the defaults of its keys"
    if isinstance(value, float) and value.is_integer() and "duration" in type_words(annotation_of(model, name)):
        return f"{int(value)}s"
    return json.dumps(value, ensure_ascii=False)


def key(owner: type[BaseModel], name: str) -> Key:
    """One key of one model. KeyError when the model has no such key."""
    field = owner.model_fields[name]
    words = type_words(annotation_of(owner, name))
    return Key(owner, name, words, default_words(owner, name), field.description or "")


def all_models(root: type[BaseModel] = Spike) -> Iterator[type[BaseModel]]:
    """Every model that a spike file can hold, each once, from the top down."""
    seen: list[type[BaseModel]] = []
    waiting = [root]
    while waiting:
        model = waiting.pop(0)
        if model in seen:
            continue
        seen.append(model)
        yield model
        for field in model.model_fields.values():
            waiting += models(field.annotation) + models(items(field.annotation))


def all_keys() -> Iterator[Key]:
    """Every key of the spike file, each once."""
    for model in all_models():
        for name in model.model_fields:
            yield key(model, name)
