"""Types of values that the keys of a spike file share: durations, instants, names, command lines. No keys here."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from audition.units import parse_duration


def seconds(value: Any) -> float:
    """Seconds from a duration as people write it; ValueError, never another error, for everything else."""
    if isinstance(value, str | int | float):
        return parse_duration(value)
    raise ValueError("expected a duration such as 90s, 5m or 1h30m")


FIRST_INSTANT = datetime(2000, 1, 1, tzinfo=UTC)
LAST_INSTANT = datetime(2200, 1, 1, tzinfo=UTC)
"""Instants of slots lie from FIRST_INSTANT to before LAST_INSTANT: far from where dates end and where calendars are not worked out.
Own choice."""


def in_range(value: datetime) -> bool:
    """Whether an instant with a time zone lies between FIRST_INSTANT and LAST_INSTANT. Comparing never overflows."""
    return FIRST_INSTANT <= value < LAST_INSTANT


def instant(value: Any) -> datetime:
    """An instant from ISO 8601 text. A bare number is refused: nobody writes an agreed slot as a count of seconds.

    ValueError also outside of the years 2000 to 2199. A time without a zone comes through: the model says that one is needed.
    """
    if not isinstance(value, datetime | str):
        raise ValueError("expected an instant such as 2026-12-01T22:00:00+01:00")
    try:
        found = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except ValueError as error:
        raise ValueError("expected an instant such as 2026-12-01T22:00:00+01:00") from error
    if not in_range(found if found.tzinfo is not None else found.replace(tzinfo=UTC)):
        raise ValueError("expected an instant in the years 2000 to 2199")
    return found


_DURATION_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "number", "minimum": 0},
        {"type": "string", "pattern": r"^\s*(\d+(\.\d+)?\s*(ms|s|m|h|d)\s*)+$"},
    ]
}
Duration = Annotated[float, BeforeValidator(seconds), Field(ge=0, allow_inf_nan=False), WithJsonSchema(_DURATION_SCHEMA)]
Instant = Annotated[datetime, BeforeValidator(instant)]
Limit = Annotated[float, Field(allow_inf_nan=False)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]


def _split_words(value: Any) -> Any:
    """A command may be a list, or one text split as a POSIX shell splits words."""
    if isinstance(value, str):
        import shlex  # noqa: PLC0415 - only when a text is given

        return shlex.split(value)
    return value


def format_version(value: Any) -> Any:
    """The version is a number; Python would take ``true`` for 1."""
    if isinstance(value, bool):
        raise ValueError("expected 1")
    return value


def _words_schema(least: int) -> dict[str, Any]:
    return {"anyOf": [{"type": "array", "items": {"type": "string"}, "minItems": least}, {"type": "string", "minLength": least}]}


Argv = Annotated[list[str], BeforeValidator(_split_words), Field(min_length=1), WithJsonSchema(_words_schema(1), mode="validation")]
Words = Annotated[list[str], BeforeValidator(_split_words), WithJsonSchema(_words_schema(0), mode="validation")]


class Strict(BaseModel):
    """Unknown keys are errors; values do not change after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True)
