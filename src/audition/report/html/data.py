"""Reads from a run folder what only the drawing needs: request times, readings over time, the restore. Thinned, never averaged.

The figures of a run are ``audition.judge``'s; nothing here is a figure. Where the judge has no figure of a workload, nothing of it
is drawn. Long files are thinned while reading: every n-th request is parsed, and the chart says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pydantic_core

from audition.judge.files import MOST_RECORD, MOST_REQUESTS
from audition.judge.load import Garbled, decode_workload, parse_json
from audition.judge.records import RequestRecord, WorkloadRecord, request_from_dict
from audition.judge.result import LegResult, Result
from audition.judge.timing import Timing, gaps_between_events, timing_of
from audition.plain_file import read_bytes
from audition.units import NoData

T = TypeVar("T")

MAX_REQUESTS = 1000
"""Requests of one workload of one leg that are drawn; of more, every n-th in the order of the file."""

MAX_GAPS = 10_000
"""Gaps between events that are looked at in one workload of one leg."""

MAX_READINGS = 160
"""Readings of ``/metrics`` that are drawn of one workload of one leg."""

MAX_TEXT = 65_536
"""Bytes of a text file that the report shows."""

SHARES = (0.0, 0.01, *(round(0.025 * n, 3) for n in range(1, 40)), 0.99, 0.995, 1.0)
"""Shares at which a distribution is drawn. At the size of a chart, a curve through these cannot be told from one through all."""

MEASURES = ("ttft", "tpot", "inter_chunk_latency", "e2e_latency")
"""The distributions that are drawn, by their names in the catalogue of metrics."""


@dataclass(frozen=True)
class Reading:
    """One reading of the engine's metrics. ``at``: seconds since the workload's t0. ``tok_s``: since the reading drawn before."""

    at: float
    tok_s: float | None
    running: float | None
    waiting: float | None
    kv_usage: float | None


@dataclass(frozen=True)
class Drawn:
    """One workload of one leg as it is drawn. ``curves``: for each of MEASURES its values in seconds at SHARES, or why there are
    none. ``taken`` of ``recorded`` requests were looked at."""

    record: WorkloadRecord | NoData
    curves: dict[str, list[float] | NoData]
    taken: int = 0
    recorded: int = 0
    readings: list[Reading] = field(default_factory=list)


@dataclass(frozen=True)
class Folder:
    """What was found in a run folder besides the result. ``drawn`` by leg and workload."""

    drawn: dict[tuple[int, str], Drawn]
    restore: dict[str, Any] | NoData
    spike_text: str | NoData

    def of(self, leg: int, workload: str) -> Drawn | None:
        """One workload of one leg, None when it left no file."""
        return self.drawn.get((leg, workload))


def read_folder(run_dir: Path, result: Result) -> Folder:
    """Everything that is drawn. Total: what cannot be read is NoData with the reason."""
    drawn: dict[tuple[int, str], Drawn] = {}
    for leg in result.legs:
        for place in sorted((run_dir / "legs").glob(f"{leg.index:02d}-*")):
            for name in _workloads(place):
                drawn[leg.index, name] = _workload(place, leg, name)
    restore = _try(run_dir / "restore.json", _object)
    return Folder(drawn, restore, _try(run_dir / "spike.yaml", _shown))


def _workloads(place: Path) -> list[str]:
    return sorted({p.name.removesuffix(".json") for p in place.glob("*.json")} - {"leg", "probes"})


def _workload(place: Path, leg: LegResult, name: str) -> Drawn:
    record = _try(place / f"{name}.json", decode_workload)
    if isinstance(record, NoData):
        return Drawn(record, dict.fromkeys(MEASURES, record))
    file = place / (Path(record.requests_file).name or f"{name}.requests.jsonl")
    readings = _try(place / f"{name}.telemetry.jsonl", _readings)
    seen = [] if isinstance(readings, NoData) else readings
    taken = _try_bytes(file, _requests, MOST_REQUESTS)
    if isinstance(taken, NoData):
        return Drawn(record, dict.fromkeys(MEASURES, taken), readings=seen)
    requests, recorded = taken
    return Drawn(record, _curves(requests, leg, name), len(requests), recorded, seen)


def _requests(data: bytes) -> tuple[list[RequestRecord], int]:
    """Every n-th request record of a file, and how many there are. Raises ValueError, TypeError or KeyError."""
    lines = data.split(b"\n")[:-1]
    every = max(1, math.ceil(len(lines) / MAX_REQUESTS))
    rows = pydantic_core.from_json(b"[" + b",".join(lines[::every]) + b"]", allow_inf_nan=False)
    return [request_from_dict(row) for row in rows], len(lines)


def _curves(requests: Sequence[RequestRecord], leg: LegResult, workload: str) -> dict[str, list[float] | NoData]:
    """The distributions; NoData where the judge has no figure either."""
    out: dict[str, list[float] | NoData] = {}
    try:
        columns = columns_of([t for t in map(timing_of, requests) if t.ok])
    except Garbled as error:
        return dict.fromkeys(MEASURES, NoData(str(error)))
    for measure in MEASURES:
        figure = leg.figure(workload, measure, "p50")
        if figure is None or figure.value is None:
            out[measure] = NoData(figure.missing if figure is not None else f"the judge has no {measure} of this leg")
        else:
            values = columns[measure]
            out[measure] = at_shares(values) if values else NoData("none of the requests that are drawn has one")
    return out


def columns_of(good: Sequence[Timing]) -> dict[str, list[float]]:
    """Values in seconds of each of MEASURES, as the catalogue of metrics defines them. Raises Garbled."""
    seen = [(t, t.first, t.last) for t in good if t.first is not None and t.last is not None]
    every = max(1, math.ceil(sum(t.events for t in good) / MAX_GAPS))
    return {
        "ttft": [first - t.record.scheduled for t, first, _ in seen],
        "tpot": [
            (last - first) / t.later_tokens
            for t, first, last in seen
            if t.tokens is not None and not t.record.tokens_estimated and t.later_tokens and last > first
        ],
        "inter_chunk_latency": [gap / 1e6 for gap in gaps_between_events(good[::every])],
        "e2e_latency": [t.record.end - t.record.scheduled for t in good],
    }


def at_shares(values: Iterable[float]) -> list[float]:
    """The smallest value that at least each of SHARES of the values do not exceed. ``values`` must not be empty."""
    ordered = sorted(values)
    count = len(ordered)
    return [ordered[min(max(math.ceil(share * count - 1e-9), 1), count) - 1] for share in SHARES]


def _readings(text: str) -> list[Reading]:
    rows = [row for line in text.splitlines() if isinstance(row := parse_json(line), dict) and "at" in row]
    every = max(1, math.ceil((len(rows) - 1) / MAX_READINGS))
    kept = rows[::every] + (rows[-1:] if rows and (len(rows) - 1) % every else [])
    out: list[Reading] = []
    before: dict[str, Any] | None = None
    for row in kept:
        speed = None
        if before is not None and row["at"] > before["at"]:
            now, then = row.get("generation_tokens"), before.get("generation_tokens")
            if now is not None and then is not None and now >= then:
                speed = (now - then) / (row["at"] - before["at"])
        out.append(Reading(float(row["at"]), speed, row.get("running"), row.get("waiting"), row.get("kv_usage")))
        before = row
    return out


def _object(text: str) -> dict[str, Any]:
    data = parse_json(text)
    if not isinstance(data, dict):
        raise Garbled("is no object")
    return data


def _shown(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "\n[cut here by the report]"


def _try(path: Path, read: Callable[[str], T]) -> T | NoData:
    return _try_bytes(path, lambda data: read(data.decode("utf-8")))


def _try_bytes(path: Path, read: Callable[[bytes], T], most: int = MOST_RECORD) -> T | NoData:
    try:
        return read(read_bytes(path, most))
    except FileNotFoundError:
        return NoData(f"{path.name} is missing")
    except OSError as error:
        return NoData(f"{path.name} cannot be read ({error.strerror or error})")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, ArithmeticError) as error:
        return NoData(f"{path.name} cannot be read ({error})")
