"""Reads a run folder into plain data. Decoding is pure; ``load_run`` is the thin reader around it.

What is missing, cut short or garbled becomes ``NoData`` with a reason; only a folder without a readable ``run.json`` is an error.
No statistics here, and no opinion on what the data are good for.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from audition.errors import BadInput
from audition.judge.records import (
    SCHEMA,
    LegRecord,
    ProbeRecord,
    RequestRecord,
    RunRecord,
    WorkloadRecord,
    leg_from_dict,
    unpack_events,
    workload_from_dict,
)
from audition.units import NoData

T = TypeVar("T")


@dataclass(frozen=True)
class WorkloadData:
    """One workload of one leg as found on disk."""

    name: str
    record: WorkloadRecord | NoData
    requests: tuple[RequestRecord, ...] | NoData


@dataclass(frozen=True)
class LegData:
    """One leg, planned or found. ``index`` counts from 1 as in the folder's name."""

    index: int
    arm: str
    record: LegRecord | NoData
    probes: tuple[ProbeRecord, ...] | NoData
    workloads: dict[str, WorkloadData] = field(default_factory=dict)


@dataclass(frozen=True)
class RunData:
    """A whole run: its record, one entry a planned leg (those not reached are NoData), and how production came back."""

    record: RunRecord
    legs: tuple[LegData, ...]
    restore: dict[str, Any] | NoData


class Garbled(ValueError):
    """A record that is not what it should be; the message is one plain phrase."""


def _no_constant(name: str) -> NoReturn:
    raise Garbled(f"holds {name}, which is no measured number")


def parse_json(text: str) -> Any:
    """JSON without NaN and Infinity. Raises Garbled."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except Garbled:
        raise
    except (ValueError, RecursionError) as error:
        raise Garbled(f"is no valid JSON ({error})") from error


def _number(name: str, value: Any, *, optional: bool = False, least: float | None = None) -> None:
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Garbled(f"`{name}` is {value!r}, expected a number")
    if least is not None and value < least:
        raise Garbled(f"`{name}` is {value!r}, expected at least {least:g}")


def _build(make: Callable[[Any], T], data: Any) -> T:
    try:
        return make(data)
    except Garbled:
        raise
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise Garbled(f"does not have the expected fields ({error})") from error


def decode_run(text: str) -> RunRecord:
    """RunRecord from the text of ``run.json``. Raises Garbled."""
    record = _build(lambda d: RunRecord(**d), parse_json(text))
    if record.schema != SCHEMA:
        raise Garbled(f"has record format {record.schema!r}, this version reads {SCHEMA}")
    _number("started_at", record.started_at)
    _number("ended_at", record.ended_at, optional=True)
    if not isinstance(record.legs_planned, list) or not all(isinstance(x, str) for x in record.legs_planned):
        raise Garbled("`legs_planned` is no list of arm names")
    return record


def decode_leg(text: str) -> LegRecord:
    """LegRecord from the text of ``leg.json``. Raises Garbled."""
    record = _build(leg_from_dict, parse_json(text))
    for name in ("started_at", "ended_at"):
        _number(name, getattr(record, name))
    _number("boot.seconds", record.boot.seconds, optional=True, least=0)
    if not isinstance(record.facts, dict) or not isinstance(record.arm, str):
        raise Garbled("does not have the expected fields")
    return record


def decode_probes(text: str) -> tuple[ProbeRecord, ...]:
    """ProbeRecords from the text of ``probes.json``. Raises Garbled."""
    data = parse_json(text)
    if not isinstance(data, list):
        raise Garbled("is no list")
    probes = tuple(_build(lambda d: ProbeRecord(**d), row) for row in data)
    for probe in probes:
        if probe.passed is not None and not isinstance(probe.passed, bool):
            raise Garbled(f"probe `{probe.probe}`: `passed` is {probe.passed!r}, expected true, false or null")
    return probes


def decode_workload(text: str) -> WorkloadRecord:
    """WorkloadRecord from its JSON text. Raises Garbled."""
    record = _build(workload_from_dict, parse_json(text))
    _number("wall_s", record.wall_s, least=0)
    _number("users", record.users, least=1)
    for group in (record.counters, record.gauges_after):
        for name, value in (group or {}).items():
            _number(name, value)
    if not isinstance(record.complete, bool):
        raise Garbled(f"`complete` is {record.complete!r}, expected true or false")
    return record


def decode_requests(text: str, expected: int | None = None) -> tuple[RequestRecord, ...]:
    """Request records from JSON lines. ``expected``: how many there must be, where that is known. Raises Garbled.

    A last line without its newline was cut; so was a file with gaps in the numbering.
    """
    if not text:
        raise Garbled("is empty")
    if not text.endswith("\n"):
        raise Garbled("is cut short: the last line has no end")
    records = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            records.append(_request(line))
        except Garbled as error:
            raise Garbled(f"line {number} {error}") from error
    indices = sorted(r.index for r in records)
    if indices != list(range(len(records))):
        raise Garbled("is incomplete: the numbering of the requests has gaps or repeats")
    if expected is not None and len(records) != expected:
        raise Garbled(f"is incomplete: {len(records)} of {expected} requests")
    return tuple(records)


def _request(line: str) -> RequestRecord:
    record = _build(lambda d: RequestRecord(**d), parse_json(line))
    _number("index", record.index, least=0)
    _number("scheduled", record.scheduled)
    _number("end", record.end)
    for name in ("sent", "headers"):
        _number(name, getattr(record, name), optional=True)
    for name in ("prompt_tokens", "completion_tokens"):
        _number(name, getattr(record, name), optional=True, least=0)
    if record.end < record.scheduled:
        raise Garbled("ends before it was scheduled")
    if not isinstance(record.events, str) or not isinstance(record.outcome, str):
        raise Garbled("does not have the expected fields")
    return record


def events_of(record: RequestRecord) -> list[Any]:
    """The events of one request. Raises Garbled when they cannot be unpacked."""
    try:
        return unpack_events(record.events)
    except Exception as error:
        # struct.error is no ValueError; both mean that the packed text is broken.
        if type(error).__name__ == "error" or isinstance(error, ValueError):
            raise Garbled(f"request {record.index} holds events that cannot be read ({error})") from error
        raise


def _read(path: Path) -> str:
    """Text of a file. Raises Garbled with a plain phrase when that is not possible."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise Garbled("is missing") from error
    except (OSError, UnicodeDecodeError) as error:
        raise Garbled(f"cannot be read ({error})") from error


def _try(path: Path, decode: Callable[[str], T]) -> T | NoData:
    try:
        return decode(_read(path))
    except Garbled as error:
        return NoData(f"{path.name} {error}")


def _load_workload(folder: Path, name: str) -> WorkloadData:
    record = _try(folder / f"{name}.json", decode_workload)
    if isinstance(record, NoData):
        return WorkloadData(name, record, record)
    file = Path(record.requests_file).name or f"{name}.requests.jsonl"
    expected = record.requests_recorded
    return WorkloadData(name, record, _try(folder / file, lambda text: decode_requests(text, expected)))


def _load_leg(folder: Path, index: int, arm: str) -> LegData:
    record = _try(folder / "leg.json", decode_leg)
    probes = _try(folder / "probes.json", decode_probes)
    found = {p.name.removesuffix(".json") for p in folder.glob("*.json")} - {"leg", "probes"}
    if not isinstance(record, NoData):
        found |= set(record.workloads)
        arm = record.arm
    return LegData(index, arm, record, probes, {name: _load_workload(folder, name) for name in sorted(found)})


def _leg_folders(legs: Path) -> Iterable[tuple[int, str, Path]]:
    if not legs.is_dir():
        return
    for folder in sorted(legs.iterdir()):
        match = re.fullmatch(r"(\d+)-(.+)", folder.name)
        if match and folder.is_dir():
            yield int(match[1]), match[2], folder


def load_run(folder: Path) -> RunData:
    """Read a run folder. Raises BadInput when it holds no readable ``run.json``; all else that is wrong becomes NoData."""
    try:
        record = decode_run(_read(folder / "run.json"))
    except Garbled as error:
        raise BadInput(
            f"{folder} is no run folder: run.json {error}",
            tried="to read the records of a run",
            seen=f"run.json {error}",
            next_step="give a folder that `audition run` or `audition rehearse` wrote, e.g. _iteration_log/<spike>_<date>",
        ) from error
    found = {index: _load_leg(path, index, arm) for index, arm, path in _leg_folders(folder / "legs")}
    for index, arm in enumerate(record.legs_planned, start=1):
        if index not in found:
            missing = NoData(f"leg {index} ({arm}) was not reached")
            found[index] = LegData(index, arm, missing, missing)

    def decode_restore(text: str) -> dict[str, Any]:
        data = parse_json(text)
        if not isinstance(data, dict):
            raise Garbled("is no object")
        return data

    return RunData(record, tuple(found[i] for i in sorted(found)), _try(folder / "restore.json", decode_restore))
