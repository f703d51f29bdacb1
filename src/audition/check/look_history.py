"""Looking at earlier runs of a spike: how long boots and workloads took. An edge of the room: it judges nothing."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path

from audition.check.facts import LegTimes
from audition.judge.load import decode_leg, decode_run, decode_workload
from audition.judge.records import LegRecord, WorkloadRecord
from audition.load.arrivals import read_trace
from audition.plain_file import read_text
from audition.spike.model import Spike
from audition.units import NoData

MOST_BYTES = 16 * 1024 * 1024
"""Longest record that is read, in bytes; records of real runs have some hundred kilobytes."""
MOST_TRACE_BYTES = 64 * 1024 * 1024
"""Longest trace that is read, in bytes: millions of arrivals."""
MOST_RUNS = 20
"""Newest run folders that are read: older ones tell little about today's machine."""


@dataclass(frozen=True)
class History:
    """``boots``: seconds of clean boots by arm, oldest run first. ``times``: how long workloads took."""

    boots: dict[str, tuple[float, ...]] = field(default_factory=dict)
    times: LegTimes = field(default_factory=LegTimes)


def look_at_history(spike: Spike, records: Path, folder: Path) -> History:
    """What earlier runs of this spike tell. Rehearsals and other spikes are passed over, and so are records that cannot be read."""
    boots: dict[str, list[float]] = {}
    spent: dict[tuple[str, str], float] = {}
    for run in _runs(spike.name, records):
        for leg, workloads in _legs(run):
            boot = leg.boot
            if boot.source == "booted" and boot.clean and boot.seconds is not None:
                boots.setdefault(leg.arm, []).append(boot.seconds)
            for workload in workloads:
                if workload.complete:
                    key = (leg.arm, workload.workload)
                    spent[key] = max(spent.get(key, 0.0), workload.wall_s)
    traces = {w.trace: trace_seconds(folder / w.trace) for w in spike.workloads if w.trace is not None}
    return History({arm: tuple(found) for arm, found in boots.items()}, LegTimes(spent, traces))


def _runs(name: str, records: Path) -> list[Path]:
    """Folders of this spike's real runs, oldest first."""
    found = []
    try:
        candidates = [path for path in records.iterdir() if path.name.startswith(f"{name}_")]
    except OSError:
        return []
    for path in candidates:
        with contextlib.suppress(OSError, ValueError):
            run = decode_run(read_text(path / "run.json", MOST_BYTES))
            if run.spike == name and not run.rehearsal:
                found.append((run.started_at, path))
    return [path for _, path in sorted(found)][-MOST_RUNS:]


def _legs(run: Path) -> list[tuple[LegRecord, list[WorkloadRecord]]]:
    found = []
    for path in sorted(run.glob("legs/*/leg.json")):
        try:
            leg = decode_leg(read_text(path, MOST_BYTES))
        except (OSError, ValueError):
            continue
        found.append((leg, _workloads(path.parent, leg.workloads)))
    return found


def _workloads(folder: Path, names: list[str]) -> list[WorkloadRecord]:
    found = []
    for name in names:
        with contextlib.suppress(OSError, ValueError):
            found.append(decode_workload(read_text(folder / f"{name}.json", MOST_BYTES)))
    return found


def trace_seconds(path: Path) -> float | NoData:
    """The time of the last arrival in a trace, in seconds."""
    try:
        return max(read_trace(read_text(path, MOST_TRACE_BYTES)))
    except (OSError, ValueError) as error:
        return NoData(f"the trace {path.name} cannot be read: {error}")
