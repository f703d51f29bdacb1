"""The runs of a records folder, one row each. The folders are the truth; a cache file beside them only saves reading them again.

Fast on purpose: a row needs the beginning of ``result.json``, and from the cache only one look at two files a run. No run is judged
here, and nothing heavy is imported.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from audition.errors import BadInput
from audition.judge.files import MOST_INSTANT, MOST_RECORD
from audition.plain_file import open_plain, read_bytes
from audition.report.documents import Document, Paragraph, Table, escaped, to_text

CACHE = ".audition-history.json"
CACHE_VERSION = 1
RUN, RESULT = "run.json", "result.json"
_HEAD = 32 * 1024
_TRACES = ("legs", "spike.yaml", "spike.resolved.json", RESULT)
_REASON = 60
_VERDICTS = ("GO", "NO-GO", "INCONCLUSIVE")

State = Literal["judged", "not judged", "damaged"]


@dataclass(frozen=True)
class Row:
    """One run folder. ``started_at`` Unix seconds, None when it cannot be known. ``problem``: why it is not judged, or what is
    damaged; ``verdict`` None for both. ``production_back`` None: not recorded."""

    folder: str
    state: State
    problem: str
    run_id: str = ""
    spike: str = ""
    rehearsal: bool = False
    started_at: float | None = None
    ended: str = ""
    production_back: bool | None = None
    production: str = ""
    candidate: str = ""
    verdict: str | None = None
    reason: str = ""
    audition_version: str = ""


class _Damaged(ValueError):
    """A file that is not what it should be, in one phrase."""


def history(folder: Path, *, cache: bool = True) -> list[Row]:
    """Every run of a records folder, the newest first, damaged ones last. ``cache``: read and write the cache file.

    A folder that is itself a run gives that run. Raises BadInput when the folder cannot be read.
    """
    if (folder / RUN).exists():
        return [read_row(folder, folder.resolve().name)]
    try:
        places = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        raise BadInput(
            f"{folder} cannot be read as a folder of runs",
            seen=error.strerror or str(error),
            next_step="give the folder that holds the run folders, e.g. audition history _iteration_log",
        ) from error
    known = _read_cache(folder) if cache else {}
    fresh: dict[str, Any] = {}
    rows: list[Row] = []
    for name in places:
        key = _key(folder / name)
        if key is None:
            continue
        row = _cached(known.get(name), key, name)
        if row is None:
            row = read_row(folder / name, name)
            fresh[name] = {"key": key, "row": asdict(row)}
        else:
            fresh[name] = known[name]
        rows.append(row)
    if cache and fresh != known:
        _write_cache(folder, fresh)
    return sorted(rows, key=lambda row: (row.started_at is not None, row.started_at or 0.0, row.folder), reverse=True)


def read_row(path: Path, name: str) -> Row:
    """The row of one run folder, from its files."""
    try:
        run = _object(path / RUN, whole=True)
        started = _number(run.get("started_at"))
        if not isinstance(run.get("run_id"), str) or started is None:
            raise _Damaged(f"{RUN} does not have the expected fields")
    except _Damaged as damage:
        return Row(name, "damaged", str(damage), started_at=None)
    base: dict[str, Any] = {
        "run_id": run["run_id"],
        "spike": _text(run.get("spike")),
        "rehearsal": run.get("rehearsal") is True,
        "started_at": started,
        "ended": _text(run.get("ended")),
        "production_back": run["production_back"] if isinstance(run.get("production_back"), bool) else None,
        "audition_version": _text(run.get("audition_version")),
    }
    if not (path / RESULT).exists():
        why = "it has no recorded end" if base["ended"] == "running" else "it was not judged"
        return Row(name, "not judged", f"{why}; `audition judge` makes up for that", **base)
    try:
        result = _result(path / RESULT, run["run_id"])
    except _Damaged as damage:
        return Row(name, "damaged", str(damage), **base)
    reasons = result.get("reasons")
    reason = _text(reasons[0]) if isinstance(reasons, list) and reasons else ""
    base |= {key: _text(result.get(key)) for key in ("production", "candidate")}
    if isinstance(result.get("production_back"), bool):
        base["production_back"] = result["production_back"]
    return Row(name, "judged", "", verdict=result["verdict"], reason=reason, **base)


def _result(path: Path, run_id: str) -> Mapping[str, Any]:
    result = _object(path)
    if result.get("verdict") not in ("GO", "NO-GO", "INCONCLUSIVE"):
        result = _object(path, whole=True)
    if result.get("schema") != 1:
        raise _Damaged(f"{RESULT} has format {result.get('schema')!r}, this version reads 1")
    if result.get("verdict") not in ("GO", "NO-GO", "INCONCLUSIVE"):
        raise _Damaged(f"{RESULT} has no verdict")
    if result.get("run_id") != run_id:
        raise _Damaged(f"{RESULT} is of another run")
    return result


def _object(path: Path, *, whole: bool = False) -> Mapping[str, Any]:
    """A JSON object, or as much of it as its first ``_HEAD`` bytes hold; that the file has its end is looked at in any case."""
    import pydantic_core  # noqa: PLC0415 - lazily: not needed when the cache knows everything

    try:
        if whole:
            data = tail = read_bytes(path, MOST_RECORD)
        else:
            with open_plain(path) as file:
                data = file.read(_HEAD)
                tail = data if len(data) < _HEAD else _tail(file)
    except OSError as error:
        raise _Damaged(f"{path.name} cannot be read ({error.strerror or error})") from error
    partial = not whole and tail is not data
    if not tail.rstrip().endswith(b"}"):
        raise _Damaged(f"{path.name} is cut short")
    try:
        value = pydantic_core.from_json(data, allow_inf_nan=False, allow_partial=partial)
    except ValueError as error:
        raise _Damaged(f"{path.name} is no valid JSON") from error
    if not isinstance(value, dict):
        raise _Damaged(f"{path.name} is no object")
    return value


def _tail(file: Any) -> bytes:
    file.seek(-16, os.SEEK_END)
    return bytes(file.read())


def _number(value: object) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < MOST_INSTANT
    return float(value) if good else None  # type: ignore[arg-type]


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


# -- the cache ----------------------------------------------------------------------------------------------------------


def _key(path: Path) -> list[list[int]] | None:
    """What tells whether a run's files changed; None for a folder that is no run."""
    key = [_look(path / RUN), _look(path / RESULT)]
    return key if key[0] or key[1] or any((path / trace).exists() for trace in _TRACES) else None


def _look(path: Path) -> list[int]:
    try:
        seen = os.stat(path)
    except OSError:
        return []
    return [seen.st_mtime_ns, seen.st_ctime_ns, seen.st_size, seen.st_ino]


def _cached(entry: object, key: list[list[int]], name: str) -> Row | None:
    """The row of the cache when it is of these files and every field is what it should be, else None: the folder is read anew."""
    if not isinstance(entry, dict) or entry.get("key") != key or not isinstance(entry.get("row"), dict):
        return None
    row = entry["row"]
    if row.keys() != _FIELDS or row["folder"] != name or not all(isinstance(row[field], str) for field in _TEXTS):
        return None
    good = (
        row["state"] in ("judged", "not judged", "damaged")
        and row["verdict"] in ((None, *_VERDICTS) if isinstance(row["verdict"], str | None) else ())
        and isinstance(row["rehearsal"], bool)
        and isinstance(row["production_back"], bool | None)
        and (row["started_at"] is None or _number(row["started_at"]) is not None)
    )
    return Row(**row) if good else None


_FIELDS = {field.name for field in fields(Row)}
_TEXTS = _FIELDS - {"verdict", "rehearsal", "production_back", "started_at"}


def _read_cache(folder: Path) -> dict[str, Any]:
    try:
        data = json.loads(read_bytes(folder / CACHE, MOST_RECORD))
    except (OSError, ValueError, RecursionError):
        return {}
    good = isinstance(data, dict) and data.get("version") == CACHE_VERSION and isinstance(data.get("runs"), dict)
    return data["runs"] if good else {}


def _write_cache(folder: Path, runs: Mapping[str, Any]) -> None:
    """A cache that cannot be written is no trouble: the next listing reads the folders again."""
    beside = folder / f"{CACHE}.{os.getpid()}.tmp"
    with suppress(OSError):
        try:
            beside.unlink(missing_ok=True)
            with beside.open("x", encoding="utf-8") as file:  # never through a link that lies there
                file.write(json.dumps({"version": CACHE_VERSION, "runs": runs}, ensure_ascii=True))
            beside.replace(folder / CACHE)
        finally:
            beside.unlink(missing_ok=True)


# -- words --------------------------------------------------------------------------------------------------------------


def history_text(rows: list[Row]) -> str:
    """The table for people, and one line that counts. Plain text."""
    if not rows:
        return "No runs.\n"
    table = [[_when(row), _safe(row.folder), _safe(row.spike), *_cells(row)] for row in rows]
    doc: Document = [Table(["started", "folder", "spike", "verdict", "production", "why"], table), Paragraph(_count(rows))]
    return to_text(doc)


def _cells(row: Row) -> list[str]:
    back = {True: "back", False: "NOT BACK", None: "-"}[row.production_back]
    if row.verdict is None:
        return [row.state, back, _safe(row.problem)]
    reason = _safe(row.reason)
    short = reason if len(reason) <= _REASON else reason[: _REASON - 3] + "..."
    return [f"{'rehearsal ' if row.rehearsal else ''}{row.verdict}", back, short]


def _when(row: Row) -> str:
    if row.started_at is None:
        return "-"
    return datetime.fromtimestamp(row.started_at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _count(rows: list[Row]) -> str:
    kinds = list(_kinds(rows))
    rehearsals = sum(row.rehearsal for row in rows)
    more = f"; {rehearsals} of them {'is a rehearsal' if rehearsals == 1 else 'are rehearsals'}" if rehearsals else ""
    return f"{len(rows)} run{'s' if len(rows) != 1 else ''}: {', '.join(kinds)}{more}."


def _kinds(rows: list[Row]) -> Iterator[str]:
    for kind in ("GO", "NO-GO", "INCONCLUSIVE", "not judged", "damaged"):
        count = sum((row.verdict or row.state) == kind for row in rows)
        if count:
            yield f"{count} {kind}"


def _safe(text: str) -> str:
    """Without control characters, which names of folders and broken files may hold."""
    return "".join(c if c.isprintable() else escaped(c) for c in text)
