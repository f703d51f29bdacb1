"""The record that an all-clear rests on: the newest real run of the spike, brought back and verified..

How the all-clear is worded is ``report.announcing``'s. What is not on record is refused: an all-clear is a promise to others.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from audition.errors import Refused
from audition.judge.files import MOST_RECORD
from audition.judge.load import decode_run
from audition.judge.plain import instant, parse_json
from audition.judge.records import RunRecord
from audition.plain_file import read_bytes
from audition.spike.parse import LoadedSpike, resolve

_NEXT = "audition status, and `audition recover` unless it says that nothing is unfinished"


def cleared_at(loaded: LoadedSpike, run: Path | None = None) -> datetime:
    """When production was verified as back, in UTC, by the records of a run. ``run``: its folder; None: the newest real run's.

    Raises Refused when there is no such run, it is a rehearsal or another spike's, or its records do not say ``verified``.
    """
    name = loaded.spike.name
    folder = run if run is not None else _newest(name, resolve(loaded.folder, loaded.spike.records.folder))
    try:
        record = _record(folder)
    except (OSError, ValueError) as error:
        raise _refused(f"the record of {folder} cannot be read", f"run.json: {error}") from error
    if record.spike != name:
        raise _refused(f"{folder} is a run of {record.spike[:100]!r}, not of {name!r}", "")
    if record.rehearsal:
        raise _refused(f"{folder} is a rehearsal, which touched nothing real", "")
    found: list[float] = []
    seen = []
    for path in (folder / "restore.json", *sorted(folder.glob("restored-by-*.json"))):
        try:
            found.append(_verified(path))
        except FileNotFoundError:
            seen.append(f"there is no {path.name}")
        except (OSError, ValueError) as error:
            seen.append(f"{path.name} {error}")
    if not found:
        raise _refused(f"{folder} does not say that production is back and verified", "; ".join(seen))
    return datetime.fromtimestamp(max(found), UTC)


def _refused(what: str, seen: str) -> Refused:
    return Refused(f"no all-clear: {what}", seen=seen, production="not known here: see `audition status`", next_step=_NEXT)


def _record(folder: Path) -> RunRecord:
    return decode_run(read_bytes(folder / "run.json", MOST_RECORD).decode("utf-8"))


def _verified(path: Path) -> float:
    """When a verified restore ended, in Unix seconds. Raises OSError, and ValueError with what the record says instead."""
    data: Any = parse_json(read_bytes(path, MOST_RECORD).decode("utf-8"))
    if not isinstance(data, dict) or data.get("verified") is not True:
        raise ValueError("does not say `verified: true`")
    ended = data.get("ended")
    instant("ended", ended)
    if not ended:
        raise ValueError("does not say when it ended")
    return float(ended)


def _newest(name: str, records: Path) -> Path:
    """The folder of the newest real run of a spike; one that cannot be read counts by its own time. Raises Refused without one."""
    own = re.compile(rf"{re.escape(name)}_(\d{{4}}-\d\d-\d\d)(?:_\d+)?")
    real: list[tuple[float, Path]] = []
    broken: list[tuple[float, Path]] = []
    try:
        folders = [path for path in records.iterdir() if path.name.startswith(f"{name}_")]
    except OSError as error:
        raise _refused("no run of this spike is on record", f"{records}: {error.strerror}") from error
    for path in folders:
        try:
            record = _record(path)
        except (OSError, ValueError):
            if own.fullmatch(path.name) is not None and path.is_dir():
                broken.append((path.stat().st_mtime, path))
            continue
        if record.spike == name and not record.rehearsal:
            real.append((record.started_at, path))
    newest = max([*real, *broken], default=None)
    if newest is None:
        raise _refused("no run of this spike is on record", f"{records} holds no run of {name} that is no rehearsal")
    return newest[1]
