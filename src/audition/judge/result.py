"""The result of a run: everything that a record needs, computed from the run folder's data and the spike file alone.

Judging twice gives identical results. Wording, layout and files belong to ``audition.report``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from audition.judge.compare import Comparison, Noise, compare, noise_floor
from audition.judge.confounds import Contrast, contrasts, controls
from audition.judge.gates import GateResult, evaluate
from audition.judge.hypotheses import HypothesisResult, settle
from audition.judge.load import LegData, RunData, no_collecting
from audition.judge.metrics import (
    DEFAULT_STAT,
    Key,
    LegSheet,
    Measure,
    acceptance_per_position,
    gate_key,
    measure_run,
)
from audition.judge.records import BootRecord, ProbeRecord, whole_characters
from audition.judge.sequential import certain_failures
from audition.judge.validity import all_caveats
from audition.judge.verdict import Verdict, decide, early_end_reason, implicit_gates
from audition.spike.metrics import METRICS
from audition.spike.model import Gate, Spike
from audition.units import NoData

RESULT_SCHEMA = 1

__all__ = ["RESULT_SCHEMA", "Figure", "LegResult", "Result", "early_end_reason", "judge_run", "result_json"]


@dataclass(frozen=True)
class Figure:
    """One figure of one leg. Either ``value`` with ``samples``, or ``missing`` with the reason."""

    workload: str
    metric: str
    stat: str
    unit: str
    value: float | None
    samples: int
    missing: str = ""


@dataclass(frozen=True)
class LegResult:
    """One leg, planned or run. ``acceptance``: acceptance rate by draft position for each workload that has counters."""

    index: int
    arm: str
    role: str
    outcome: str
    detail: str
    started_at: float | None
    ended_at: float | None
    boot: BootRecord | None
    facts: dict[str, Any]
    probes: list[ProbeRecord]
    figures: list[Figure]
    acceptance: dict[str, list[float]]

    def figure(self, workload: str, metric: str, stat: str = "") -> Figure | None:
        """The figure of that name, or None when this leg has no such figure."""
        for f in self.figures:
            if (f.workload, f.metric, f.stat) == (workload, metric, stat):
                return f
        return None


@dataclass(frozen=True)
class PlacedCaveat:
    """A caveat with where it was seen."""

    where: str
    code: str
    effect: Literal["void", "note"]
    text: str


@dataclass(frozen=True)
class Result:
    """The whole result. ``result_json`` gives its JSON form, whose format is ``schema``."""

    schema: int
    run_id: str
    spike: str
    question: str
    rehearsal: bool
    fault: str | None
    audition_version: str
    started_at: float
    ended_at: float | None
    ended: str
    end_reason: str
    production_back: bool | None
    production: str
    candidate: str
    verdict: Verdict
    reasons: list[str]
    settle: list[str]
    gates: list[GateResult]
    hypotheses: list[HypothesisResult]
    comparisons: list[Comparison]
    noise: list[Noise]
    contrasts: list[Contrast]
    caveats: list[PlacedCaveat]
    legs: list[LegResult]


def judge_run(run: RunData, spike: Spike) -> Result:
    """Judge a run. Total: every run that could be loaded gets a verdict with reasons."""
    with no_collecting():
        sheets = measure_run(run, spike)
    certain = certain_failures(run, spike) if run.record.ended == "early-end" else {}
    results = [evaluate(g, run, sheets, spike) for g in spike.gates]
    results = [replace(g, outcome="failed", why=certain[i]) if i in certain else g for i, g in enumerate(results)]
    gates = [*implicit_gates(run, spike), *results]
    decision = decide(run, spike, gates)
    record = run.record
    pairs, keys = _what_to_compare(run, spike, sheets)
    comparisons = [compare(sheets, arm, reference, key) for arm, reference in pairs for key in keys]
    noise = [n for arm in spike.arms for key in keys if isinstance(n := noise_floor(sheets, arm.name, key), Noise)]
    return Result(
        schema=RESULT_SCHEMA,
        run_id=record.run_id,
        spike=record.spike,
        question=record.question,
        rehearsal=record.rehearsal,
        fault=record.fault,
        audition_version=record.audition_version,
        started_at=record.started_at,
        ended_at=record.ended_at,
        ended=record.ended,
        end_reason=record.end_reason,
        production_back=record.production_back,
        production=spike.production.name,
        candidate=spike.candidate.name,
        verdict=decision.verdict,
        reasons=decision.reasons,
        settle=decision.settle,
        gates=gates,
        hypotheses=[settle(h, run, spike) for h in spike.hypotheses],
        comparisons=[c for c in comparisons if c.pairs or c.dropped],
        noise=noise,
        contrasts=contrasts(run, spike),
        caveats=[PlacedCaveat(where, c.code, c.effect, c.text) for where, c in all_caveats(run)],
        legs=[_leg(leg, sheet, spike) for leg, sheet in zip(run.legs, sheets, strict=True)],
    )


def _what_to_compare(run: RunData, spike: Spike, sheets: Sequence[LegSheet]) -> tuple[list[tuple[str, str]], list[Key]]:
    """Every arm against production, the candidate against every control, and what the gates ask for; figures that at least one leg
    has, in catalogue order."""
    pairs = [(arm.name, spike.production.name) for arm in spike.arms if arm.role != "production"]
    pairs += [(spike.candidate.name, control) for control in controls(run, spike)]
    asked = list(_metric_gates(spike.gates))
    pairs += [(g.arm or spike.candidate.name, g.ratio_to) for g in asked if g.ratio_to is not None]
    wanted: list[Key] = [
        ("" if m.scope == "leg" else w.name, m.name, DEFAULT_STAT if m.scope == "requests" else "")
        for m in METRICS.values()
        for w in spike.workloads
    ]
    wanted += [gate_key(g) for g in asked if g.metric in METRICS]
    have = {key for s in sheets for key, value in s.values.items() if isinstance(value, Measure)}
    keys = [key for key in dict.fromkeys(wanted) if key in have and METRICS[key[1]].unit != "share"]
    return list(dict.fromkeys(pairs)), keys


def _metric_gates(gates: Sequence[Gate]) -> list[Gate]:
    out: list[Gate] = []
    for gate in gates:
        out += [gate] if gate.metric is not None else _metric_gates([*(gate.all or []), *(gate.any or [])])
    return out


def _leg(leg: LegData, sheet: LegSheet, spike: Spike) -> LegResult:
    record = leg.record
    role = next((a.role for a in spike.arms if a.name == leg.arm), "unknown")
    figures = [_figure(key, value) for key, value in sheet.values.items()]
    acceptance: dict[str, list[float]] = {}
    for name, data in leg.workloads.items():
        if not isinstance(data.record, NoData):
            rates = acceptance_per_position(data.record)
            if not isinstance(rates, NoData):
                acceptance[name] = rates
    probes = [] if isinstance(leg.probes, NoData) else list(leg.probes)
    if isinstance(record, NoData):
        return LegResult(leg.index, leg.arm, role, "missing", record.reason, None, None, None, {}, probes, figures, acceptance)
    return LegResult(
        leg.index, leg.arm, role, record.outcome, record.detail, record.started_at, record.ended_at,
        record.boot, record.facts, probes, figures, acceptance,
    )  # fmt: skip


def _figure(key: Key, value: Measure | NoData) -> Figure:
    workload, metric, stat = key
    unit = METRICS[metric].unit
    if isinstance(value, NoData):
        return Figure(workload, metric, stat, unit, None, 0, value.reason)
    return Figure(workload, metric, stat, unit, value.value, value.samples)


def result_json(result: Result) -> str:
    """The result as JSON text with a final newline; the same result gives the same bytes. NaN and Infinity cannot occur. Half
    characters (lone surrogates), which no file can hold, become replacement characters."""
    text = json.dumps(asdict(result), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return whole_characters(text)
