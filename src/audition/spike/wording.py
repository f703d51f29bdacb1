"""What pydantic finds wrong, in plain words with key paths. Its own wording and its tags of unions never reach the user."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from audition.spike import keys
from audition.spike.document import Document, is_reported
from audition.spike.model import Spike
from audition.spike.problems import Path, Problem, nearest, say, shorten

_EXPECTED = {
    "string_type": "a text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "finite_number": "a finite number",
}
_BOUND = {
    "greater_than_equal": ("ge", "or more"),
    "greater_than": ("gt", "and above"),
    "less_than_equal": ("le", "or less"),
    "less_than": ("lt", "and below"),
}


def place(loc: tuple[str | int, ...], root: type[BaseModel] = Spike) -> tuple[Path, Any]:
    """The key path of a pydantic location, and the type that the model has there.

    A location names the chosen member of a discriminated union; that is no key of the file and is left out.
    """
    path: list[str | int] = []
    here: Any = root
    for part in loc:
        if part == "[key]":
            continue
        members = keys.models(here)
        if isinstance(part, str) and len(members) > 1:
            here = next((member for member in members if keys.tag(member) == part), here)
            continue
        path.append(part)
        here = keys.below(here, part)
    return tuple(path), here


def parent(path: Path, loc: tuple[str | int, ...]) -> list[type[BaseModel]]:
    """The models of the mapping that holds the last key of a location; used to name valid keys."""
    members = keys.models(place(loc[:-1])[1])
    return members if path else []


def problem_of(document: Document, error: Any) -> Problem | None:
    """One of pydantic's error records as a problem; None when the same place was already reported."""
    kind, loc, found, context = error["type"], error["loc"], error["input"], error.get("ctx", {})
    path, here = place(loc)
    if is_reported(found):
        return None
    if kind == "missing":
        return _missing(document, path, loc)
    if kind == "extra_forbidden":
        return _unknown_key(document, path, loc)
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        return _bad_tag(document, path, here, found)
    text, hint = _words(kind, found, context, here, str(error["msg"]))
    return replace(document.problem(path, text, hint), secret="(not shown)" in text)


def _missing(document: Document, path: Path, loc: tuple[str | int, ...]) -> Problem:
    name = str(path[-1])
    known = next((keys.key(m, name) for m in parent(path, loc) if name in m.model_fields), None)
    hint = f"{name}: {known.description} ({known.type})" if known is not None else ""
    return document.problem(path, "the key is missing", hint)


def _unknown_key(document: Document, path: Path, loc: tuple[str | int, ...]) -> Problem:
    valid = [name for model in parent(path, loc) for name in model.model_fields]
    return document.problem(path, f"unknown key `{shorten(str(path[-1]))}`", nearest(path[-1], valid), at_key=True)


def _bad_tag(document: Document, path: Path, here: Any, found: Any) -> Problem:
    valid = [name for model in keys.models(here) if (name := keys.tag(model)) is not None]
    kind = found.get("kind") if isinstance(found, dict) else None
    at = (*path, "kind")
    if not isinstance(found, dict):
        return document.problem(path, f"expected a mapping, found {say(found)}")
    if "kind" not in found:
        return document.problem(at, "the key is missing", f"kind: {', '.join(valid)}")
    return document.problem(at, f"expected one of {', '.join(valid)}, found {say(kind)}", nearest(kind, valid))


def _words(kind: str, found: Any, context: dict[str, Any], here: Any, message: str) -> tuple[str, str]:
    """Text and hint of one error at a value."""
    if kind == "literal_error":
        valid = keys.literals(here)
        expected = f"one of {', '.join(valid)}" if len(valid) > 1 else valid[0]
        return f"expected {expected}, found {say(found)}", nearest(found, valid) if len(valid) > 1 else ""
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind]}, found {say(found)}", _type_hint(kind, found)
    if kind in _BOUND:
        name, words = _BOUND[kind]
        return f"expected {context[name]} {words}, found {say(found)}", ""
    special: dict[str, Callable[[], tuple[str, str]]] = {
        "too_short": lambda: (f"expected at least {_count(context['min_length'])}, found {_had(found)}", ""),
        "string_too_short": lambda: ("expected a text, found an empty one", ""),
        "string_pattern_mismatch": lambda: _pattern(found, str(context["pattern"])),
        "value_error": lambda: _own_words(message, found),
    }
    if kind in special:
        return special[kind]()
    return f"not valid here: {message}; found {say(found)}", ""


def _type_hint(kind: str, found: Any) -> str:
    if found is None:
        return "leave the key out to take its default, or give it a value"
    if kind == "string_type" and isinstance(found, bool | int | float):
        return f'put it in quotes: "{str(found).lower() if isinstance(found, bool) else found}"'
    if kind in ("int_type", "float_type") and isinstance(found, str) and found.strip().lstrip("-").replace(".", "", 1).isdigit():
        return "write it without quotes"
    if kind == "list_type" and isinstance(found, str):
        return "write a list: [a, b], or one `- ` line for each entry"
    return ""


def _pattern(found: Any, pattern: str) -> tuple[str, str]:
    if "://" in pattern:
        shown = "one with a user name (not shown)" if "@" in str(found) else say(found)
        return f"expected an address without a path, found {shown}", "for example http://127.0.0.1:5002"
    return (
        f"expected a short name (letters, digits, dots, hyphens and underscores; at most 63), found {say(found)}",
        "",
    )


def _own_words(message: str, found: Any) -> tuple[str, str]:
    text = message.removeprefix("Value error, ")
    if text.endswith("(not shown)"):
        return text, ""
    if text.startswith("expected") and ", got " not in text:
        text = f"{text}, found {say(found)}"
    elif ", got " in text:
        text = f"{text.split(', got ')[0]}, found {say(found)}"
    elif isinstance(found, str):
        text = f"{text[:1].lower()}{text[1:]}: found {say(found)}"
    return text, ""


def _count(number: int) -> str:
    return "one entry" if number == 1 else f"{number} entries"


def _had(found: Any) -> str:
    size = len(found) if isinstance(found, list) else 0
    return "none" if size == 0 else f"{size}"
