"""JSON of records into plain data, and the checks of single values: numbers, instants, types, characters. Pure; reads no file."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any, NoReturn

from pydantic import TypeAdapter, ValidationError

from audition.judge.files import MOST_INSTANT

HUGE = 1e300
"""Beyond it nothing was measured, and arithmetic overflows."""

_HALF = re.compile("[\ud800-\udfff]")
_HALF_ESCAPED = re.compile(r"\\u[dD][89a-fA-F]")


class Garbled(ValueError):
    """A record that is not what it should be; the message is one plain phrase."""


def _no_constant(name: str) -> NoReturn:
    raise Garbled(f"holds {name}, which is no measured number")


def _float(text: str) -> float:
    value = float(text)
    if not -HUGE < value < HUGE:
        raise Garbled(f"holds {text[:20]}, which is no measured number")
    return value


def _int(text: str) -> int:
    if len(text) > 300:
        raise Garbled(f"holds a number of {len(text)} digits, which is no measured number")
    return int(text)


def parse_json(text: str) -> Any:
    """JSON without NaN, Infinity and numbers beyond 1e300; half characters (lone surrogates, which no file can hold) become
    replacement characters. Raises Garbled."""
    try:
        data = json.loads(text, parse_constant=_no_constant, parse_float=_float, parse_int=_int)
        return _whole(data) if _HALF_ESCAPED.search(text) else data
    except Garbled:
        raise
    except (ValueError, RecursionError) as error:
        raise Garbled(f"is no valid JSON ({error})") from error


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return _HALF.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_whole(key): _whole(item) for key, item in value.items()}
    return [_whole(item) for item in value] if isinstance(value, list) else value


def number(name: str, value: Any, *, optional: bool = False, least: float | None = None) -> None:
    """Raises Garbled when a value is no number of use."""
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not -HUGE < value < HUGE:
        raise Garbled(f"`{name}` is {value!r}, expected a number")
    if least is not None and value < least:
        raise Garbled(f"`{name}` is {value!r}, expected at least {least:g}")


def instant(name: str, value: Any, *, optional: bool = False) -> None:
    """Raises Garbled when a value is no instant: Unix seconds from 1970 to the year 5138."""
    number(name, value, optional=optional)
    if value is not None and not 0 <= value < MOST_INSTANT:
        raise Garbled(f"`{name}` is {value!r}, expected Unix seconds")


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def check_types(kind: Any, data: Any) -> None:
    """Raises Garbled when plain data do not have the types of the fields of the dataclass ``kind``, and those inside it."""
    try:
        _adapter(kind).validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise Garbled(f"does not have the expected fields (`{place}`: {first['msg'][0].lower()}{first['msg'][1:]})") from error
