"""The agreed slot and the people who share the GPUs, as keys of the spike file. No calendar is read and no clock asked here.

Calendars are evaluated in ``audition.windows``, fetched in ``audition.run.slot``; announcements are worded in
``audition.report.announcing``.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, Field, model_validator

from audition.spike.values import Instant, Name, Strict

_LONGEST_PATTERN = 500  # characters


def _zone(value: str) -> str:
    """An IANA name that this machine's time zone data know."""
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError("expected an IANA time zone such as Europe/Berlin") from error
    return value


def _pattern(value: str) -> str:
    if len(value) > _LONGEST_PATTERN:
        raise ValueError(f"a pattern may have {_LONGEST_PATTERN} characters at most")
    try:
        re.compile(value)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"expected a regular expression ({error})") from error
    return value


def _address(value: str) -> str:
    if not re.match(r"https?://[^/\s?#]+", value) or re.search(r"[\s\x00-\x1f\x7f]", value):
        raise ValueError("a calendar's address begins with http:// or https:// and holds no blanks")
    if "@" in value.split("/")[2]:
        raise ValueError("an address with a user name belongs into a variable: use `url_env` (not shown)")
    return value


class EventMatch(Strict):
    """Which events of a calendar count: those that fulfil every key given."""

    summary: Annotated[str, Field(min_length=1), AfterValidator(_pattern)] | None = Field(
        default=None, description="Regular expression that is found in the event's title; case is ignored."
    )
    category: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="One of the event's categories; case is ignored."
    )
    calendar: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="Name of the calendar inside the file (NAME or X-WR-CALNAME); case is ignored."
    )


class CalendarRule(Strict):
    """One calendar and what its events mean for the spike."""

    name: Name = Field(description="Short name, used in messages.")
    file: str | None = Field(default=None, description="iCalendar file, relative to the spike file; or `url`, or `url_env`.")
    url: Annotated[str, AfterValidator(_address)] | None = Field(
        default=None, description="Address of an iCalendar file that anybody may know; or `file`, or `url_env`."
    )
    url_env: str | None = Field(default=None, description="Name of the variable that holds a private address; or `file`, or `url`.")
    rule: Literal["only during", "never during"] = Field(description="Whether the spike runs only during the events, or never.")
    match: EventMatch = Field(default=EventMatch(), description="Which events count; default: all.")
    transparent: Literal["count", "skip"] = Field(
        default="count", description="Events marked as free time: counted (all-day events are often marked so), or skipped."
    )
    unreachable: Literal["block", "ignore"] = Field(
        default="block", description="A calendar that cannot be read: no slot is free (unknown is not free), or it is left out."
    )

    @model_validator(mode="after")
    def _one_source(self) -> CalendarRule:
        if sum(value is not None for value in (self.file, self.url, self.url_env)) != 1:
            raise ValueError("give exactly one of `file`, `url` and `url_env`")
        return self


class Window(Strict):
    """The agreed slot, as instants with a time zone, and the calendars that it must respect."""

    opens: Instant | None = Field(default=None, description="Not before this instant.")
    closes: Instant | None = Field(default=None, description="Production is back by this instant.")
    zone: Annotated[str, AfterValidator(_zone)] | None = Field(
        default=None, description="IANA time zone of `--at 22:00`, of all-day events and of times without a zone in calendars."
    )
    calendars: list[CalendarRule] = Field(default=[], description="Calendars that say when the spike may run.")

    @model_validator(mode="after")
    def _zones(self) -> Window:
        for key in ("opens", "closes"):
            value = getattr(self, key)
            if value is not None and value.tzinfo is None:
                raise ValueError(f"`{key}` needs a time zone, e.g. 2026-12-01T22:00:00+01:00")
        if self.opens and self.closes and self.opens >= self.closes:
            raise ValueError("`opens` must be before `closes`")
        return self

    @model_validator(mode="after")
    def _names(self) -> Window:
        names = [calendar.name for calendar in self.calendars]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two calendars are called `{name}`")
        return self


class Sharer(Strict):
    """Somebody who shares the GPUs."""

    name: str = Field(min_length=1, description="Person or project that shares the GPUs.")
    contact: str | None = Field(default=None, description="How to reach them: mail address, room, channel.")


class Agreement(Strict):
    """Who has to agree to the slot, whom to call, and where it is announced."""

    shared_with: list[Sharer] = Field(default=[], description="Who shares the GPUs and has to agree.")
    call: str | None = Field(default=None, description="Whom to call during the slot, with a telephone number or channel.")
    announce_env: list[str] = Field(
        default=[], description="Names of variables that hold apprise addresses to which announcements are sent."
    )


def secret_names(window: Window, agreement: Agreement) -> set[str]:
    """Names of the variables whose values are addresses that only their owner knows; they are masked everywhere."""
    return {calendar.url_env for calendar in window.calendars if calendar.url_env is not None} | set(agreement.announce_env)
