"""Reads a run folder into plain data. Decoding is pure; ``load_run`` is the thin reader around it.

What is missing, cut short or garbled becomes ``NoData`` with a reason; only a folder without a readable ``run.json`` is an error.
No statistics here, and no opinion on what the data are good for.
"""

from __future__ import annotations

import gc
import math
import operator
import re
from binascii import a2b_base64
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pydantic_core

from audition.errors import BadInput
from audition.judge.files import MOST_RECORD, MOST_REQUESTS
from audition.judge.plain import HUGE, Garbled, check_types, instant, number, parse_json
from audition.judge.records import (
    ROW_BYTES,
    SCHEMA,
    LegRecord,
    ProbeRecord,
    RequestRecord,
    RunRecord,
    StreamEvent,
    StreamTimes,
    WorkloadRecord,
    leg_from_dict,
    request_from_dict,
    unpack_events,
    workload_from_dict,
)
from audition.plain_file import read_bytes
from audition.spike.model import Spike
from audition.units import NoData

T = TypeVar("T")
RESOLVED = "spike.resolved.json"
MOST_LEGS = 1000
"""Planned legs that are read; a night has room for some tens."""


@dataclass(frozen=True)
class WorkloadData:
    """One workload of one leg as found on disk."""

    name: str
    record: WorkloadRecord | NoData
    requests: tuple[RequestRecord, ...] | NoData


@dataclass(frozen=True)
class LegData:
    """One leg, planned or found. ``index`` counts from 1 as in the folder's name. ``reached``: whether it left a folder."""

    index: int
    arm: str
    record: LegRecord | NoData
    probes: tuple[ProbeRecord, ...] | NoData
    reached: bool = True
    workloads: dict[str, WorkloadData] = field(default_factory=dict)


@dataclass(frozen=True)
class RunData:
    """A whole run: its record, one entry a planned leg (those not reached are NoData), and how production came back."""

    record: RunRecord
    legs: tuple[LegData, ...]
    restore: dict[str, Any] | NoData


__all__ = ["Garbled", "parse_json"]  # also by name from `plain`


@contextmanager
def no_collecting() -> Iterator[None]:
    """Pause Python's cycle collector: 100,000 records hold no cycles, and walking them again and again takes half of all time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _build(make: Callable[[Any], T], data: Any) -> T:
    try:
        return make(data)
    except Garbled:
        raise
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise Garbled(f"does not have the expected fields ({error})") from error


def decode_run(text: str) -> RunRecord:
    """RunRecord from the text of ``run.json``. Raises Garbled."""
    data = parse_json(text)
    record = _build(lambda d: RunRecord(**d), data)
    if record.schema != SCHEMA:
        raise Garbled(f"has record format {record.schema!r}, this version reads {SCHEMA}")
    instant("started_at", record.started_at)
    instant("ended_at", record.ended_at, optional=True)
    if not isinstance(record.legs_planned, list) or not all(isinstance(x, str) for x in record.legs_planned):
        raise Garbled("`legs_planned` is no list of arm names")
    if len(record.legs_planned) > MOST_LEGS:
        raise Garbled(f"plans {len(record.legs_planned)} legs, expected at most {MOST_LEGS}")
    check_types(RunRecord, data)
    return record


def decode_leg(text: str) -> LegRecord:
    """LegRecord from the text of ``leg.json``. Raises Garbled."""
    data = parse_json(text)
    record = _build(leg_from_dict, data)
    for name in ("started_at", "ended_at"):
        instant(name, getattr(record, name))
    number("boot.seconds", record.boot.seconds, optional=True, least=0)
    check_types(LegRecord, data)
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
    check_types(list[ProbeRecord], data)
    return probes


def decode_workload(text: str) -> WorkloadRecord:
    """WorkloadRecord from its JSON text. Raises Garbled."""
    data = parse_json(text)
    record = _build(workload_from_dict, data)
    instant("started_at", record.started_at)
    number("wall_s", record.wall_s, least=0)
    number("users", record.users, least=1)
    for group in (record.counters, record.gauges_after):
        for name, value in group.items() if isinstance(group, dict) else ():
            number(name, value)
    if not isinstance(record.complete, bool):
        raise Garbled(f"`complete` is {record.complete!r}, expected true or false")
    check_types(WorkloadRecord, data)
    return record


def decode_requests(data: bytes, expected: int | None = None) -> tuple[RequestRecord, ...]:
    """Request records from JSON lines. ``expected``: how many there must be, where that is known. Raises Garbled.

    A last line without its newline was cut; so was a file with gaps in the numbering. There may be 100,000 lines: they are parsed
    at once and checked column by column. Only when that finds something is each line looked at alone, to name the one.
    """
    if not data:
        raise Garbled("is empty")
    if not data.endswith(b"\n"):
        raise Garbled("is cut short: the last line has no end")
    records = _all_at_once(data)
    if records is None:
        records = []
        for number, line in enumerate(data[:-1].split(b"\n"), start=1):
            try:
                records.append(_request(line))
            except Garbled as error:
                raise Garbled(f"line {number} {error}") from error
    if sorted([r.index for r in records]) != list(range(len(records))):
        raise Garbled("is incomplete: the numbering of the requests has gaps or repeats")
    if expected is not None and len(records) != expected:
        raise Garbled(f"is incomplete: {len(records)} of {expected} requests")
    return tuple(records)


def _all_at_once(data: bytes) -> list[RequestRecord] | None:
    """The records of whole lines, or None when anything about them is not as it should be."""
    try:
        rows = pydantic_core.from_json(b"[" + data[:-1].replace(b"\n", b",") + b"]", allow_inf_nan=False)
        records = [request_from_dict(row) for row in rows]
        events = sum([len(a2b_base64(r.events, strict_mode=True)) % ROW_BYTES for r in records if r.events])
    except (TypeError, KeyError, ValueError, AttributeError):
        return None
    scheduled, end = [r.scheduled for r in records], [r.end for r in records]
    streams = list(zip(*[r.stream for r in records if r.stream is not None], strict=True))
    good = (
        not events
        and len(records) == data.count(b"\n")
        and _are_numbers([r.index for r in records], scheduled, end)
        and not any(map(operator.lt, end, scheduled))
        and _are_numbers([r.sent for r in records], [r.headers for r in records], optional=True)
        and _are_numbers([r.prompt_tokens for r in records], [r.completion_tokens for r in records], optional=True, least=0)
        and _are_numbers(*streams, optional=True)
        and {type(r.outcome) for r in records} == {type(r.events) for r in records} == {str}
        and _times_fit(records)
    )
    return records if good else None


def _times_fit(records: Iterable[RequestRecord]) -> bool:
    """Whether the times made from the events are in order and can be of so many events; base64 takes 4 characters for 3 bytes."""
    for record in records:
        if record.stream is None:
            continue
        first, _, last, events, _, _ = record.stream
        if first is None or last is None:
            if events or first is not None:
                return False
        elif first > last or not 0 < 4 * ROW_BYTES * events <= 3 * len(record.events):
            return False
    return True


def _are_numbers(*columns: Sequence[Any], optional: bool = False, least: float = -math.inf) -> bool:
    allowed = {int, float, type(None)} if optional else {int, float}
    for column in columns:
        kinds = set(map(type, column))
        if not kinds <= allowed:
            return False
        numbers = column if type(None) not in kinds else [x for x in column if x is not None]
        if numbers and not (max(numbers) < HUGE and min(numbers) > -HUGE and min(numbers) >= least):
            return False
    return True


def _request(line: bytes) -> RequestRecord:
    """One line. Raises Garbled with what is wrong."""
    try:
        data = pydantic_core.from_json(line, allow_inf_nan=False)
    except ValueError as error:
        raise Garbled(f"is no valid JSON ({error})") from error
    record = _build(request_from_dict, data)
    number("index", record.index, least=0)
    number("scheduled", record.scheduled)
    number("end", record.end, least=record.scheduled)
    for name, value in (("sent", record.sent), ("headers", record.headers)):
        if value is not None:
            number(name, value)
    for name, count in (("prompt_tokens", record.prompt_tokens), ("completion_tokens", record.completion_tokens)):
        if count is not None:
            number(name, count, least=0)
    if not isinstance(record.events, str) or not isinstance(record.outcome, str):
        raise Garbled("does not have the expected fields")
    rows = len(rows_of(record)) // ROW_BYTES
    if record.stream is not None:
        _check_stream(record.stream, rows)
    return record


def _check_stream(stream: StreamTimes, rows: int) -> None:
    """The times made from the events must be numbers, in order, and of no more events than there are."""
    first, answer, last, events, first_tokens, event_tokens = stream
    number("stream", events, least=0)
    for value in (first, answer, last, first_tokens, event_tokens):
        if value is not None:
            number("stream", value)
    whole = first is not None and last is not None and first <= last
    if events > rows or (whole if events == 0 else not whole):
        raise Garbled("holds times that do not belong to its events")


def rows_of(record: RequestRecord) -> bytes:
    """The packed rows of the events of one request. Raises Garbled when they cannot be read."""
    try:
        rows = a2b_base64(record.events, strict_mode=True) if record.events else b""
    except ValueError as error:
        raise Garbled(f"request {record.index} holds events that cannot be read ({error})") from error
    if len(rows) % ROW_BYTES:
        raise Garbled(f"request {record.index} holds events that cannot be read ({len(rows)} bytes)")
    return rows


def events_of(record: RequestRecord) -> list[StreamEvent]:
    """The events of one request. Raises Garbled when they cannot be unpacked."""
    rows_of(record)
    return unpack_events(record.events)


def _read_bytes(path: Path, most: int = MOST_RECORD) -> bytes:
    """Content of a file of at most ``most`` bytes. Raises Garbled with a plain phrase when that is not possible."""
    try:
        return read_bytes(path, most)
    except FileNotFoundError as error:
        raise Garbled("is missing") from error
    except OSError as error:
        raise Garbled(f"cannot be read ({error})") from error


def _read(path: Path) -> str:
    """Text of a file. Raises Garbled with a plain phrase when that is not possible."""
    try:
        return _read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise Garbled(f"cannot be read ({error})") from error


def _try(path: Path, decode: Callable[[str], T]) -> T | NoData:
    try:
        return decode(_read(path))
    except Garbled as error:
        return NoData(f"{path.name} {error}")


def _try_requests(path: Path, expected: int | None) -> tuple[RequestRecord, ...] | NoData:
    try:
        return decode_requests(_read_bytes(path, MOST_REQUESTS), expected)
    except Garbled as error:
        return NoData(f"{path.name} {error}")


def _load_workload(folder: Path, name: str) -> WorkloadData:
    record = _try(folder / f"{name}.json", decode_workload)
    if isinstance(record, NoData):
        return WorkloadData(name, record, record)
    file = Path(record.requests_file).name or f"{name}.requests.jsonl"
    return WorkloadData(name, record, _try_requests(folder / file, record.requests_recorded))


def _load_leg(folder: Path, index: int, arm: str) -> LegData:
    record = _try(folder / "leg.json", decode_leg)
    probes = _try(folder / "probes.json", decode_probes)
    found = {p.name.removesuffix(".json") for p in folder.glob("*.json")} - {"leg", "probes"}
    if not isinstance(record, NoData):
        found |= set(record.workloads)
        arm = record.arm
    return LegData(index, arm, record, probes, workloads={name: _load_workload(folder, name) for name in sorted(found)})


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
    with no_collecting():
        found = {index: _load_leg(path, index, arm) for index, arm, path in _leg_folders(folder / "legs")}
    for index, arm in enumerate(record.legs_planned, start=1):
        if index not in found:
            missing = NoData(f"leg {index} ({arm}) was not reached")
            found[index] = LegData(index, arm, missing, missing, reached=False)

    def decode_restore(text: str) -> dict[str, Any]:
        data = parse_json(text)
        if not isinstance(data, dict):
            raise Garbled("is no object")
        return data

    return RunData(record, tuple(found[i] for i in sorted(found)), _try(folder / "restore.json", decode_restore))


def load_spike(folder: Path) -> Spike:
    """The spike as it was run. Raises BadInput when it cannot be read: then there are no gates to judge by."""
    try:
        return Spike.model_validate_json(_read(folder / RESOLVED))
    except ValueError as cause:  # Garbled is one
        what = f"{folder / RESOLVED} cannot be read, so there are no gates to judge by"
        raise BadInput(what, seen=f"{RESOLVED} {cause}"[:500]) from cause


def restored_later(folder: Path) -> bool:
    """Whether the guard or `audition recover` brought production back after the run's own records were written."""
    for path in sorted(folder.glob("restored-by-*.json")):
        data = _try(path, parse_json)
        if isinstance(data, dict) and data.get("verified") is True:
            return True
    return False
