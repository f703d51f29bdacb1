"""The verb `announce` as a function: which announcement, its times, and where it goes."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path

import click

from audition.errors import EXIT_INTERNAL
from audition.judge.folder import judge_folder
from audition.report.announcing import Announcement, Times, all_clear, request, result
from audition.report.mask import mask
from audition.run.announcing import require_addresses, send
from audition.run.clearing import cleared_at
from audition.run.slot import find_slot, parse_at, refused_slot
from audition.spike.examples import find_spike
from audition.spike.parse import LoadedSpike, load_spike
from audition.spike.window import secret_names
from audition.units import NoData
from audition.windows.slots import NoSlot, Slot, show_instant


def announce(path: Path, *, all_clear: bool, run: Path | None, at: str | None, sending: bool, as_json: bool) -> int:
    """Print an announcement and send it if asked to. Exit code: 0, or 1 when it could not be delivered everywhere."""
    loaded = load_spike(Path(find_spike(str(path))))
    to = require_addresses(loaded.spike, os.environ) if sending else []
    names = secret_names(loaded.spike.window, loaded.spike.agreement) | set(loaded.spike.secrets)
    secrets = [value for name in names if (value := os.environ.get(name))]
    made = _made(loaded, cleared=all_clear, run=run, at=at)
    message = Announcement(mask(made.title, secrets), mask(made.body, secrets), made.bad)
    problems = send(message, to)
    if as_json:
        body = {"title": message.title, "body": message.body, "sent_to": len(to) - len(problems), "problems": problems}
        click.echo(json.dumps(body, ensure_ascii=False, indent=1))
    else:
        click.echo(message.body, nl=False)
        if sending and len(to) > len(problems):
            click.echo(f"sent to {len(to) - len(problems)} of {len(to)}", err=True)
        for text in problems:
            click.echo(f"warning: {text}", err=True)
    return EXIT_INTERNAL if problems else 0


def _made(loaded: LoadedSpike, *, cleared: bool, run: Path | None, at: str | None) -> Announcement:
    if cleared:
        return all_clear(loaded.spike, cleared_at(loaded, run))
    if run is not None:
        return result(loaded.spike, judge_folder(run)[1])
    return request(loaded.spike, _times(loaded, at))


def _times(loaded: LoadedSpike, at: str | None) -> Times:
    """The times of the request: the slot at ``--at``, else the one that is free now, else the next one. Raises BadInput,
    and Refused when that slot is not free."""
    window, now = loaded.spike.window, time.time()
    wanted = parse_at(at, window.zone, now) if at is not None else datetime.fromtimestamp(now, UTC)
    if at is None and window.opens is None and window.closes is None and not window.calendars:
        return Times(NoData("to be agreed"), NoData("to be agreed"))
    found: Slot | NoSlot | None = find_slot(loaded, wanted)
    if isinstance(found, NoSlot):
        if at is not None or found.next_free is None:
            raise refused_slot(
                loaded,
                found,
                "nothing to ask for: no slot is free" + ("" if at is None else f" at {show_instant(wanted, window)}"),
                verb="announce",
            )
        found = found.next_free
    end = found.end if found is not None and found.end is not None else NoData("not limited; to be agreed")
    return Times(wanted if found is None else max(wanted, found.start), end)
