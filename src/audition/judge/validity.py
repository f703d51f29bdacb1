"""Can these data be trusted? Decides which values are void, before any statistics. All thresholds of trust live here.

A *void* caveat, a workload that was cut short and a leg that did not run to its end never decide. Nothing is repaired here.
"""

from __future__ import annotations

from collections.abc import Iterable

from audition.judge.load import LegData, RunData, WorkloadData
from audition.judge.records import Caveat, LegRecord, RequestRecord, WorkloadRecord
from audition.spike.model import Spike
from audition.units import NoData

MAX_FAILURE_SHARE = 0.05
"""More failed requests than this make the figures of the remaining ones void: whatever the slowest twentieth was may be just
what failed, so that even p95 describes the survivors only. Own choice, at the usual tail of p95; failures themselves are counted
by `failure_share` and stay valid."""

MIN_TAIL = 1.0
"""A percentile p needs at least ``MIN_TAIL / (1 - p)`` values, so that one observation lies beyond it: 100 for p99, 20 for p95."""

MIN_WINDOW_SHARE = 0.2
"""A steady window shorter than this share of the workload is noted: the figure then rests on a small part of it. Own choice."""


def void_reason(caveats: Iterable[Caveat]) -> str:
    """The reasons of all void caveats in one text; empty when there is none."""
    return "; ".join(f"void: {c.text}" for c in caveats if c.effect != "note")


def leg_problem(leg: LegData) -> NoData | None:
    """Why nothing of this leg may decide, or None."""
    if isinstance(leg.record, NoData):
        return leg.record
    if leg.record.outcome != "complete":
        detail = f": {leg.record.detail}" if leg.record.detail else ""
        return NoData(f"leg {leg.index} ({leg.arm}) is not complete ({leg.record.outcome}{detail})")
    void = void_reason(leg.record.caveats)
    return NoData(f"leg {leg.index} ({leg.arm}) {void}") if void else None


def workload_record(leg: LegData, name: str) -> WorkloadRecord | NoData:
    """The record of one workload if it may decide, or the reason why not."""
    problem = leg_problem(leg)
    if problem is not None:
        return problem
    data = leg.workloads.get(name)
    if data is None:
        return NoData(f"leg {leg.index} ({leg.arm}) holds no workload {name}")
    if isinstance(data.record, NoData):
        return NoData(f"leg {leg.index} ({leg.arm}): {data.record.reason}")
    if not data.record.complete:
        return NoData(f"leg {leg.index} ({leg.arm}): workload {name} was cut short")
    void = void_reason(data.record.caveats)
    return NoData(f"leg {leg.index} ({leg.arm}), {name}: {void}") if void else data.record


def workload_requests(leg: LegData, name: str, spike: Spike) -> tuple[RequestRecord, ...] | NoData:
    """The requests of one workload if they may decide, or the reason why not."""
    record = workload_record(leg, name)
    if isinstance(record, NoData):
        return record
    data: WorkloadData = leg.workloads[name]
    where = f"leg {leg.index} ({leg.arm})"
    if isinstance(data.requests, NoData):
        return NoData(f"{where}: {data.requests.reason}")
    planned = next((w.requests for w in spike.workloads if w.name == name), None)
    if planned is not None and len(data.requests) < planned:
        return NoData(f"{where}: {name} holds {len(data.requests)} of {planned} requests")
    return data.requests


def broken_evidence(run: RunData, spike: Spike) -> list[str]:
    """Why the evidence as a whole is not what was planned, one sentence each. Production and the candidate count; controls do not.

    While this list is not empty the verdict is at best INCONCLUSIVE.
    """
    problems = broken_legs(run.legs, spike)
    planned = spike.planned_legs()
    if len(run.legs) < len(planned):
        problems.append(f"the records hold {len(run.legs)} legs, the spike file plans {len(planned)}")
    return list(dict.fromkeys(problems))


def broken_legs(legs: Iterable[LegData], spike: Spike) -> list[str]:
    """The same for some legs."""
    watched = {spike.production.name, spike.candidate.name}
    planned = spike.planned_legs()
    problems: list[str] = []
    for leg in legs:
        arm = leg.arm if isinstance(leg.record, NoData) else leg.record.arm
        if arm not in watched:
            continue
        expected = planned[leg.index - 1] if 1 <= leg.index <= len(planned) else None
        if expected is not None and expected.arm != arm:
            problems.append(f"leg {leg.index} is of arm {arm}, the spike file plans {expected.arm}")
        problem = leg_problem(leg)
        if problem is not None:
            problems.append(problem.reason)
            continue
        names = [w.name for w in spike.leg_workloads(expected)] if expected is not None else sorted(leg.workloads)
        for name in names:
            requests = workload_requests(leg, name, spike)
            if isinstance(requests, NoData):
                problems.append(requests.reason)
    return problems


def _one_boot(run: RunData) -> list[tuple[str, Caveat]]:
    """Arms whose legs all come from one boot: how far boots differ cannot be seen then. Seen in the field: six identical runs 6.9 %
    apart, and starts that are bimodal."""
    boots: dict[str, list[str]] = {}
    for leg in run.legs:
        if not isinstance(leg.record, NoData) and leg.record.outcome == "complete":
            boots.setdefault(leg.record.arm, []).append(leg.record.boot.boot_id)
    text = "all {} legs come from one boot: speed can differ from boot to boot, and this run cannot see it"
    return [
        (arm, Caveat("one-boot", "note", text.format(len(ids))))
        for arm, ids in boots.items()
        if len(ids) > 1 and len(set(ids)) == 1
    ]


def all_caveats(run: RunData) -> list[tuple[str, Caveat]]:
    """Every caveat with where it was seen: those of whole arms first, then in the order of the legs."""
    rows = _one_boot(run)
    for leg in run.legs:
        record: LegRecord | NoData = leg.record
        where = f"leg {leg.index} ({leg.arm})"
        if not isinstance(record, NoData):
            rows += [(where, c) for c in record.caveats]
        for name, data in sorted(leg.workloads.items()):
            if isinstance(data.record, NoData):
                continue
            rows += [(f"{where}, {name}", c) for c in data.record.caveats]
            if data.record.ignore_eos:
                text = "answers were forced to their full length (ignore_eos): acceptance figures say little"
                rows.append((f"{where}, {name}", Caveat("ignore-eos", "note", text)))
    return rows
