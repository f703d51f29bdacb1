"""How much of a run folder is read: limits of files and of instants. A folder may hold anything; see ``audition.plain_file``."""

MOST_RECORD = 64 << 20
"""Bytes of a record that are read; the largest one known, ``probes.json`` with all answers, has less than 1 MiB."""

MOST_REQUESTS = 1 << 30
"""Bytes of a file of requests that are read: 100,000 requests of 1,000 events each, at 9.4 bytes an event."""

MOST_INSTANT = 1e11
"""Unix seconds below which an instant of a record must lie (the year 5138); calendars end in the year 9999."""
