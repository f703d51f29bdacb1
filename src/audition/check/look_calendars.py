"""Looking at the window's calendars that lie in files. An edge of the room: it judges nothing, fetches nothing."""

from __future__ import annotations

from pathlib import Path

from audition.errors import BadInput
from audition.plain_file import read_text
from audition.spike.parse import resolve
from audition.spike.window import Window
from audition.units import NoData
from audition.windows.ics import BadCalendar, Calendar, parse_calendar

MOST_BYTES = 8 * 1024 * 1024
"""Longest calendar that is read, in bytes; the same as a run's."""


def look_at_calendars(window: Window, folder: Path) -> dict[str, Calendar | NoData]:
    """The calendars in files by name, NoData for one that cannot be read. Those with an address are left out: no network here."""
    found: dict[str, Calendar | NoData] = {}
    for rule in window.calendars:
        if rule.file is None:
            continue
        try:
            found[rule.name] = parse_calendar(read_text(resolve(folder, rule.file), MOST_BYTES), rule.name, window.zone)
        except OSError as error:
            found[rule.name] = NoData(f"{rule.file} cannot be read: {error.strerror}")
        except UnicodeDecodeError:
            found[rule.name] = NoData(f"{rule.file} is no UTF-8 text")
        except BadCalendar as error:
            found[rule.name] = NoData(error.reason)
        except BadInput as error:
            found[rule.name] = NoData(error.what)
    return found
