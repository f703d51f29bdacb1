"""Several runs side by side: figures of the same arms, ratios between runs without an interval, and why these may mean nothing.

Inside one run interleaved legs make a ratio that counts; between runs nothing does: the same stack has given 462 and 844 tok/s an
hour apart. So this module computes no interval and no verdict across runs, and names every recorded difference. Reads run folders.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from audition.errors import BadInput
from audition.judge.confounds import differences, parse_arguments
from audition.judge.files import MOST_RECORD
from audition.judge.folder import judge_folder
from audition.judge.load import load_spike
from audition.judge.result import Result
from audition.plain_file import read_bytes
from audition.report.documents import Bullets, Document, Heading, Table
from audition.report.environment import Environment, arguments_for, shared_environment
from audition.report.progress import is_whole
from audition.report.result_schema import parse_result
from audition.report.words import LEG_FIGURES, MAIN_FIGURES, day, number, ratio_text, workloads_of
from audition.spike.metrics import METRICS
from audition.spike.model import Spike
from audition.units import NoData

APART = (
    "Runs are not interleaved: the same stack has given 462 and 844 tok/s within an hour. A ratio between runs has no interval and "
    "decides nothing; only the paired ratio inside a run does."
)


@dataclass(frozen=True)
class LoadedRun:
    """One run to be compared. ``label``: its folder's name, made unique."""

    label: str
    result: Result
    spike: Spike


@dataclass(frozen=True)
class Cell:
    """One figure of one arm of one run. ``values``: leg by leg; ``mean``: their geometric mean, the arithmetic one when one is not
    positive; ``ratio``: mean / mean of the same role in the first run; None where there is nothing to divide."""

    run: str
    arm: str
    role: str
    values: list[float]
    mean: float | None
    ratio: float | None


@dataclass(frozen=True)
class Line:
    """One figure across all runs. ``paired``: the ratio of candidate to production inside each run, as text with its interval."""

    workload: str
    metric: str
    stat: str
    unit: str
    cells: list[Cell]
    paired: dict[str, str]


@dataclass(frozen=True)
class RunsCompared:
    """Runs side by side; the first one is the reference."""

    runs: list[dict[str, Any]]
    lines: list[Line]
    caveats: list[str] = field(default_factory=list)


def load_runs(folders: Sequence[Path]) -> list[LoadedRun]:
    """Read the runs, judging those that have no result yet. Raises BadInput for fewer than two, the same one twice, or no run."""
    if len(folders) < 2:
        raise BadInput("comparing needs at least two runs", next_step="audition compare RUN RUN...; audition history lists them")
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise BadInput("a run was given twice", next_step="name each run once")
    names = [folder.resolve().name for folder in folders]
    labels = [f"{name} ({n})" if names.count(name) > 1 else name for n, name in enumerate(names, start=1)]
    return [LoadedRun(label, *_load(folder)) for label, folder in zip(labels, folders, strict=True)]


def load_one(folder: Path) -> LoadedRun:
    """One run by itself. Raises BadInput when the folder is no run."""
    return LoadedRun(folder.resolve().name, *_load(folder))


def _load(folder: Path) -> tuple[Result, Spike]:
    path = folder / "result.json"
    if not path.exists():
        spike, result = judge_folder(folder)
        return result, spike
    try:
        return parse_result(read_bytes(path, MOST_RECORD)), load_spike(folder)
    except OSError as error:
        raise BadInput(f"{path} cannot be read", seen=error.strerror or str(error)) from error
    except BadInput as error:
        raise BadInput(
            f"{folder}: {error.what}", tried="to compare it", seen=error.seen, next_step=f"audition judge {folder}"
        ) from error


def compare_runs(runs: Sequence[LoadedRun]) -> RunsCompared:
    """The figures that at least two of the runs have, and everything that was recorded and differs."""
    heads = [
        {
            "run": run.label,
            "run_id": run.result.run_id,
            "date": day(run.result.started_at),
            "spike": run.result.spike,
            "verdict": run.result.verdict,
            "rehearsal": run.result.rehearsal,
            "production": run.result.production,
            "candidate": run.result.candidate,
        }
        for run in runs
    ]
    return RunsCompared(heads, _lines(runs), [APART, *_caveats(runs)])


def _lines(runs: Sequence[LoadedRun]) -> list[Line]:
    workloads = dict.fromkeys(w for run in runs for w in workloads_of(run.result))
    keys = [(w, metric, stat) for w in workloads for metric, stat in MAIN_FIGURES] + [("", metric, "") for metric in LEG_FIGURES]
    lines = []
    for workload, metric, stat in keys:
        cells: list[Cell] = []
        for role in ("production", "candidate"):
            cells += _cells(runs, role, workload, metric, stat)
        if len({cell.run for cell in cells}) >= 2:
            paired = {run.label: _paired(run.result, workload, metric, stat) for run in runs}
            lines.append(Line(workload, metric, stat, METRICS[metric].unit, cells, paired))
    return lines


def _cells(runs: Sequence[LoadedRun], role: str, workload: str, metric: str, stat: str) -> list[Cell]:
    cells: list[Cell] = []
    first: float | None = None
    for place, run in enumerate(runs):
        arm = run.result.production if role == "production" else run.result.candidate
        figures = [leg.figure(workload, metric, stat) for leg in run.result.legs if leg.arm == arm]
        values = [f.value for f in figures if f is not None and f.value is not None]
        mean = _mean(values)
        if place == 0:
            first = mean
        if values:
            ratio = mean / first if place and first and mean is not None and first > 0 else None
            cells.append(Cell(run.label, arm, role, values, mean, ratio))
    return cells


def _mean(values: Sequence[float]) -> float | None:
    if not values:
        return None
    if min(values) > 0:
        return math.exp(sum(map(math.log, values)) / len(values))
    return sum(values) / len(values)


def _paired(result: Result, workload: str, metric: str, stat: str) -> str:
    wanted = (result.candidate, result.production, workload, metric, stat)
    found = [c for c in result.comparisons if (c.arm, c.reference_arm, c.workload, c.metric, c.stat) == wanted]
    return ratio_text(found[0] if found else None)


# -- caveats ------------------------------------------------------------------------------------------------------------


def _caveats(runs: Sequence[LoadedRun]) -> list[str]:
    rehearsed = [run.label for run in runs if run.result.rehearsal]
    out = []
    if rehearsed:
        who = "All runs are rehearsals" if len(rehearsed) == len(runs) else f"Rehearsals: {', '.join(rehearsed)}"
        out.append(f"{who}: their servers were simulated, their figures were not measured.")
    out += [f"{run.label} did not get through all its legs." for run in runs if not is_whole(run.result)]
    out += _kinds(runs)
    first = runs[0]
    for run in runs[1:]:
        out += _workloads(first, run)
        for role in ("production", "candidate"):
            out += _environment(first, run, role) + _arguments(first, run, role)
    return list(dict.fromkeys(out))


def _kinds(runs: Sequence[LoadedRun]) -> list[str]:
    out = []
    told = {
        "spikes": [run.result.spike for run in runs],
        "candidates": [run.result.candidate for run in runs],
        "productions": [run.result.production for run in runs],
        "versions of audition": [run.result.audition_version for run in runs],
    }
    for what, names in told.items():
        if len(set(names)) > 1:
            out.append(f"Different {what}: {', '.join(dict.fromkeys(names))}.")
    voids = {run.label: sorted({c.code for c in run.result.caveats if c.effect == "void"}) for run in runs}
    return out + [f"{label} has void parts ({', '.join(codes)})." for label, codes in voids.items() if codes]


def _arm(run: LoadedRun, role: str) -> str:
    return run.result.production if role == "production" else run.result.candidate


_PARTS = {
    "image_digest": "images",
    "engine_version": "vLLM versions",
    "gpus": "GPUs",
    "driver": "drivers",
    "torch": "torch versions",
    "cpus": "numbers of CPUs",
}
_MACHINE = ("gpus", "driver", "cpus")


def _environment(first: LoadedRun, run: LoadedRun, role: str) -> list[str]:
    """Recorded differences, and what cannot be told because one of the runs did not record it."""
    ours, theirs = (_seen(r, role) for r in (first, run))
    out, unknown = [], []
    for name, what in _PARTS.items():
        if name in _MACHINE and role == "candidate":
            continue
        one, other = getattr(ours, name), getattr(theirs, name)
        of = "" if name in _MACHINE else f" of {role}"
        if isinstance(one, NoData) or isinstance(other, NoData):
            unknown.append(what)
        elif one != other:
            out.append(f"Different {what}{of}: {one} ({first.label}), {other} ({run.label}).")
    if unknown:
        who = "production" if role == "production" else "candidate"
        out.append(f"Not recorded in both {first.label} and {run.label}, so perhaps different ({who}): {', '.join(unknown)}.")
    return out


def _seen(run: LoadedRun, role: str) -> Environment:
    return shared_environment(run.result, _arm(run, role), run.spike.gpus)


def _arguments(first: LoadedRun, run: LoadedRun, role: str) -> list[str]:
    ours, theirs = (arguments_for(r.result, r.spike, _arm(r, role)) for r in (first, run))
    if isinstance(ours, NoData) or isinstance(theirs, NoData):
        return [f"The arguments of {role} were not recorded in both {first.label} and {run.label}."]
    rows = differences(parse_arguments(theirs), parse_arguments(ours))
    told = ", ".join(f"{row.flag} ({row.reference} -> {row.arm})" for row in rows)
    return [f"Different arguments of {role}, {first.label} -> {run.label}: {told}."] if rows else []


def _workloads(first: LoadedRun, run: LoadedRun) -> list[str]:
    ours = {w.name: w.model_dump(mode="json") for w in first.spike.workloads}
    theirs = {w.name: w.model_dump(mode="json") for w in run.spike.workloads}
    out = []
    for name in ours.keys() & theirs.keys():
        keys = [key for key in ours[name] if ours[name][key] != theirs[name].get(key)]
        if keys:
            told = ", ".join(f"{key} {_value(ours[name][key])} -> {_value(theirs[name].get(key))}" for key in sorted(keys))
            out.append(f"Workload {name} is not the same, {first.label} -> {run.label}: {told}.")
    alone = sorted(ours.keys() ^ theirs.keys())
    return sorted(out) + ([f"Workloads of only one of {first.label} and {run.label}: {', '.join(alone)}."] if alone else [])


def _value(value: object) -> str:
    return "not set" if value is None else value if isinstance(value, str) else json.dumps(value)


# -- words --------------------------------------------------------------------------------------------------------------


def comparison_document(compared: RunsCompared) -> Document:
    """The comparison for people."""
    heads = [
        [f"{h['run']}", h["date"], h["spike"], f"{'REHEARSAL ' if h['rehearsal'] else ''}{h['verdict']}"] for h in compared.runs
    ]
    doc: Document = [
        Heading(1, f"{len(compared.runs)} runs side by side"),
        Table(["run", "date", "spike", "verdict"], heads),
        Heading(2, "Before comparing"),
        Bullets(compared.caveats),
    ]
    for workload in dict.fromkeys(line.workload for line in compared.lines):
        rows = [row for line in compared.lines if line.workload == workload for row in _rows(line)]
        title = f"Figures of {workload}" if workload else "Figures of the legs"
        doc += [Heading(2, title), Table(["figure", "run", "arm", "leg by leg", "mean", "to the first run", "paired [95 %]"], rows)]
    return doc


def _rows(line: Line) -> list[list[str]]:
    label = f"{line.metric} {line.stat}".strip() + (f" ({line.unit})" if line.unit else "")
    rows = []
    for cell in line.cells:
        ratio = "-" if cell.ratio is None else f"{number(cell.ratio)} (no interval)"
        paired = line.paired[cell.run] if cell.role == "candidate" else "-"
        mean = "-" if cell.mean is None else number(cell.mean)
        rows.append([label, cell.run, cell.arm, " / ".join(number(v) for v in cell.values), mean, ratio, paired])
    return rows
