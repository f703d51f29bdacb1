"""Evaluates the criteria of a spike file. Each gives: the rule, the value with its interval, and passed, failed or unknown.

How a gate decides
    ratio           the 95 % interval of ``compare`` must lie on the right side. One pair has no interval: unknown, unless the
                    gate says ``one_pair_suffices``; then the bare ratio decides and the record says so.
    absolute        mean over the arm's legs. Its 95 % interval is Student's t with the spread of legs around their own arm's
                    mean, pooled over all arms that have the figure (log scale for rates and times, plain scale for shares), so
                    that two candidate legs beside three production legs have 3 degrees of freedom, not 1. Legs of one machine
                    within one window share their noise: boots, drift, neighbours. One leg: unknown, unless the gate says
                    ``one_pair_suffices``; then the interval is the noise inside that leg.
    counted         ``failure_share`` counts what happened, it estimates nothing: all requests of the arm's legs, no interval.
    stated          KV capacity and concurrency are stated by the engine at boot: every leg must be on the right side.
    probe           must pass in every leg of the arm; one failure fails, one missing answer is unknown.
    all, any        three-valued logic (Kleene 1952). Shadow gates are evaluated and never decide.

A gate whose interval holds the threshold is unknown. Missing data are unknown, never failed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from audition.judge.compare import compare, legs_needed, pairs_needed
from audition.judge.estimate import Z_975, Mean, mean, pooled_mean
from audition.judge.load import LegData, RunData
from audition.judge.metrics import Key, LegSheet, Measure, describe, gate_key
from audition.judge.validity import leg_problem
from audition.spike.metrics import METRICS
from audition.spike.model import Gate, Spike
from audition.units import NoData

Outcome = Literal["passed", "failed", "unknown"]
_PLAIN = {"share"}
_COUNTED = {"failure_share"}
_STATED = {"kv_capacity_tokens", "max_concurrency"}
_TOLERANCE = 1e-12


@dataclass(frozen=True)
class GateResult:
    """One criterion and what became of it. ``value`` None with ``missing`` as the reason; ``settle``: what would decide it."""

    name: str
    rule: str
    kind: Literal["ratio", "absolute", "probe", "all", "any"]
    outcome: Outcome
    why: str
    shadow: bool = False
    arm: str = ""
    unit: str = ""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    missing: str = ""
    at_least: float | None = None
    at_most: float | None = None
    legs: list[int] = field(default_factory=list)
    samples: int = 0
    basis: str = ""
    settle: str = ""
    parts: list[GateResult] = field(default_factory=list)


def evaluate(gate: Gate, run: RunData, sheets: Sequence[LegSheet], spike: Spike) -> GateResult:
    """The result of one gate. Total: every gate of a valid spike file gives a result on every run."""
    if gate.all is not None or gate.any is not None:
        return _group(gate, run, sheets, spike)
    if gate.probe is not None:
        return _probe(gate, run, spike)
    if gate.ratio_to is not None:
        return _ratio(gate, sheets, spike)
    return _absolute(gate, sheets, spike)


def combine_all(outcomes: Sequence[Outcome]) -> Outcome:
    """Three-valued and: one failed fails, else one unknown is unknown, else passed (also when there is nothing)."""
    return "failed" if "failed" in outcomes else "unknown" if "unknown" in outcomes else "passed"


def combine_any(outcomes: Sequence[Outcome]) -> Outcome:
    """Three-valued or: one passed passes, else one unknown is unknown, else failed (also when there is nothing)."""
    return "passed" if "passed" in outcomes else "unknown" if "unknown" in outcomes else "failed"


def _group(gate: Gate, run: RunData, sheets: Sequence[LegSheet], spike: Spike) -> GateResult:
    kind: Literal["all", "any"] = "all" if gate.all is not None else "any"
    members = gate.all if gate.all is not None else gate.any or []
    parts = [evaluate(member, run, sheets, spike) for member in members]
    deciding = [p.outcome for p in parts if not p.shadow]
    outcome = combine_all(deciding) if kind == "all" else combine_any(deciding)
    counts = ", ".join(f"{deciding.count(o)} {o}" for o in ("passed", "failed", "unknown") if o in deciding)
    rule = f"{'all' if kind == 'all' else 'any'} of: " + "; ".join(p.rule for p in parts)
    settle = " ".join(p.settle for p in parts if p.outcome == "unknown" and not p.shadow) if outcome == "unknown" else ""
    return GateResult(gate.name or rule, rule, kind, outcome, counts or "no part decides", gate.shadow, parts=parts, settle=settle)


def _probe(gate: Gate, run: RunData, spike: Spike) -> GateResult:
    arm = gate.arm or spike.candidate.name
    return probe_result(gate.probe or "", arm, run, name=gate.name, shadow=gate.shadow)


def probe_result(probe: str, arm: str, run: RunData, *, name: str | None = None, shadow: bool = False) -> GateResult:
    """Whether a probe passed in every leg of an arm. A leg that never ran makes a pass unknown, but not a failure."""
    rule = f"probe {probe} passes on {arm}"
    passed: list[tuple[int, str]] = []
    failed: list[tuple[int, str]] = []
    gaps: list[str] = []
    for leg in (leg for leg in run.legs if leg.arm == arm):
        verdict = probe_of(leg, probe)
        if isinstance(verdict, NoData):
            gaps.append(verdict.reason)
        else:
            (passed if verdict[0] else failed).append((leg.index, verdict[1]))
    legs = sorted(i for i, _ in [*passed, *failed])
    if failed and not _is_production(arm, run) and fails_on_production(probe, run):
        why = f"{failed[0][1] or 'failed'}; production fails the same probe in every leg, so it does not tell the arms apart"
        settle = f"Take probe {probe} out of the spike file, or find out why production fails it."
        return GateResult(
            name or rule, rule, "probe", "unknown", why, shadow, arm, missing=why, legs=legs, samples=len(legs), settle=settle
        )
    if failed:
        why = "; ".join(f"leg {i}: {text or 'failed'}" for i, text in failed)
        return GateResult(name or rule, rule, "probe", "failed", why, shadow, arm, legs=legs, samples=len(legs))
    if gaps or not passed:
        why = gaps[0] if gaps else f"no leg of {arm} ran"
        settle = f"Run again so that probe {probe} answers in every leg of {arm}."
        return GateResult(
            name or rule, rule, "probe", "unknown", why, shadow, arm, missing=why, legs=legs, samples=len(legs), settle=settle
        )
    why = f"passed in {len(passed)} of {len(passed)} legs"
    return GateResult(name or rule, rule, "probe", "passed", why, shadow, arm, legs=legs, samples=len(legs))


def _is_production(arm: str, run: RunData) -> bool:
    roles = (leg.record.role for leg in run.legs if leg.arm == arm and not isinstance(leg.record, NoData))
    return next(roles, "") == "production"


def fails_on_production(probe: str, run: RunData) -> bool:
    """Whether production itself fails a probe in every leg that made it: then a failure says nothing about another arm."""
    seen = [
        verdict
        for leg in run.legs
        if not isinstance(leg.record, NoData) and leg.record.role == "production"
        if not isinstance(verdict := probe_of(leg, probe), NoData)
    ]
    return bool(seen) and not any(passed for passed, _ in seen)


def probe_of(leg: LegData, probe: str) -> tuple[bool, str] | NoData:
    """(passed, detail) of one probe in one leg, or why it is not known."""
    where = f"leg {leg.index} ({leg.arm})"
    if isinstance(leg.probes, NoData):
        problem = leg_problem(leg)
        return problem if problem is not None else NoData(f"{where}: {leg.probes.reason}")
    rows = [p for p in leg.probes if p.probe == probe]
    bad = next((p for p in rows if p.passed is False), None)
    if bad is not None:
        return False, bad.detail
    open_row = next((p for p in rows if p.passed is None), None)
    if open_row is not None or not rows:
        return NoData(f"{where}: probe {probe} {'could not be judged: ' + open_row.detail if open_row else 'was not made'}")
    problem = leg_problem(leg)
    return problem if problem is not None else (True, rows[0].detail)


def _limits(gate: Gate, unit: str) -> str:
    parts = [
        f"at least {gate.at_least:g}" if gate.at_least is not None else "",
        f"at most {gate.at_most:g}" if gate.at_most is not None else "",
    ]
    return " and ".join(p for p in parts if p) + (f" {unit}" if unit else "")


def decide(low: float, high: float, at_least: float | None, at_most: float | None) -> Outcome:
    """Where an interval lies: wholly inside the limits, wholly outside one of them, or across. A value on the limit is inside."""
    slack = _TOLERANCE * max(abs(low), abs(high), 1.0)
    if (at_least is not None and high < at_least - slack) or (at_most is not None and low > at_most + slack):
        return "failed"
    inside = (at_least is None or low >= at_least - slack) and (at_most is None or high <= at_most + slack)
    return "passed" if inside else "unknown"


def _nearest(value: float, gate: Gate) -> float:
    limits = [x for x in (gate.at_least, gate.at_most) if x is not None]
    return min(limits, key=lambda x: abs(x - value))


def _ratio(gate: Gate, sheets: Sequence[LegSheet], spike: Spike) -> GateResult:
    arm, reference, key = gate.arm or spike.candidate.name, gate.ratio_to or "", gate_key(gate)
    rule = f"{describe(key)} on {arm} / {reference}: {_limits(gate, '')}"
    c = compare(sheets, arm, reference, key)
    legs = sorted({i for p in c.pairs for i in (p.leg, *p.reference_legs)})

    def result(outcome: Outcome, why: str, basis: str = "", settle: str = "") -> GateResult:
        return GateResult(
            gate.name or rule, rule, "ratio", outcome, why, gate.shadow, arm, "x", c.ratio, c.low, c.high, c.missing,
            gate.at_least, gate.at_most, legs, c.samples, basis or c.basis, settle,
        )  # fmt: skip

    if c.ratio is None or c.dropped:
        why = c.missing or f"a planned pair is missing: {c.dropped[0]}"
        return result("unknown", why, settle=f"Run again until every leg has a valid {describe(key)}.")
    if c.low is None or c.high is None:
        if not gate.one_pair_suffices:
            settle = f"Plan at least two {arm} legs between {reference} legs, or let the gate say that one pair suffices."
            return result("unknown", c.interval_missing, settle=settle)
        outcome = decide(c.ratio, c.ratio, gate.at_least, gate.at_most)
        return result(
            outcome, f"ratio {c.ratio:.3g} from one pair, which the spike file accepts", "one pair, accepted by the spike file"
        )
    outcome = decide(c.low, c.high, gate.at_least, gate.at_most)
    span = f"{c.ratio:.3g} [{c.low:.3g}, {c.high:.3g}]"
    if outcome != "unknown":
        return result(outcome, f"ratio {span} is {'inside' if outcome == 'passed' else 'outside'} the limit")
    need = pairs_needed(c, _nearest(c.ratio, gate))
    return result("unknown", f"the limit lies inside the interval {span}", settle=_settle(need, len(c.pairs), "pairs", arm))


def _settle(need: int | None, have: int, what: str, arm: str) -> str:
    if need is None:
        return (
            f"The figure of {arm} is too near to the limit for this noise: lower the noise or accept that it makes no difference."
        )
    return f"About {need} {what} instead of {have} would decide, if the noise of {arm} stays as it is."


def _absolute(gate: Gate, sheets: Sequence[LegSheet], spike: Spike) -> GateResult:
    arm, key = gate.arm or spike.candidate.name, gate_key(gate)
    unit = METRICS[key[1]].unit
    rule = f"{describe(key)} on {arm}: {_limits(gate, unit)}"
    rows = [(s.index, s.get(key)) for s in sheets if s.arm == arm]
    good = [(i, v) for i, v in rows if isinstance(v, Measure)]
    gaps = [v.reason for _, v in rows if isinstance(v, NoData)]
    legs, samples = [i for i, _ in good], sum(v.samples for _, v in good)
    values = [v for _, v in good]
    figure = _figure(gate, key, arm, values, sheets) if values else NoData(gaps[0] if gaps else f"no leg of {arm} ran")

    def result(outcome: Outcome, why: str, settle: str = "") -> GateResult:
        f = figure
        value, low, high, basis = (None, None, None, "") if isinstance(f, NoData) else (f.value, f.low, f.high, f.basis)
        missing = f.reason if isinstance(f, NoData) else ""
        return GateResult(
            gate.name or rule, rule, "absolute", outcome, why, gate.shadow, arm, unit, value, low, high, missing,
            gate.at_least, gate.at_most, legs, samples, basis, settle,
        )  # fmt: skip

    if isinstance(figure, NoData) or gaps:
        return result(
            "unknown",
            gaps[0] if gaps else f"no leg of {arm} ran",
            f"Run again until every leg of {arm} has a valid {describe(key)}.",
        )
    if figure.low is None or figure.high is None:
        why = "one leg: no interval, the spread between boots is unknown"
        return result("unknown", why, f"Plan at least two {arm} legs, or let the gate say that one suffices.")
    outcome = decide(figure.low, figure.high, gate.at_least, gate.at_most)
    span = f"{figure.value:.4g}" if figure.low == figure.high else f"{figure.value:.4g} [{figure.low:.4g}, {figure.high:.4g}]"
    if outcome != "unknown":
        return result(outcome, f"{span} {unit} is {'inside' if outcome == 'passed' else 'outside'} the limit")
    limit = _nearest(figure.value, gate)
    need = legs_needed(figure.mean, len(good), figure.scale(limit)) if figure.mean and limit > 0 else None
    return result("unknown", f"the limit lies inside the interval {span} {unit}", _settle(need, len(good), "legs", arm))


@dataclass(frozen=True)
class _Figure:
    value: float
    low: float | None
    high: float | None
    basis: str
    mean: Mean | None = None
    logs: bool = False

    def scale(self, x: float) -> float:
        return math.log(x) if self.logs else x


def is_counted(gate: Gate) -> bool:
    """Whether the gate's figure is counted, not estimated."""
    return gate.metric in _COUNTED


def is_stated(gate: Gate) -> bool:
    """Whether the gate's figure is stated by the engine at boot."""
    return gate.metric in _STATED


def absolute_estimate(gate: Gate, arm: str, sheets: Sequence[LegSheet]) -> tuple[Mean, bool] | None:
    """The mean over the legs of an arm with its error, and whether it is of logarithms. None with fewer than two valid legs."""
    key = gate_key(gate)
    found = [s.get(key) for s in sheets if s.arm == arm]
    values = [v for v in found if isinstance(v, Measure)]
    if len(values) < 2 or len(values) < len(found):
        return None
    figure = _figure(gate, key, arm, values, sheets)
    return None if figure.mean is None else (figure.mean, figure.logs)


def _figure(gate: Gate, key: Key, arm: str, values: list[Measure], sheets: Sequence[LegSheet]) -> _Figure:
    metric = METRICS[key[1]]
    plain = [v.value for v in values]
    if metric.name in _COUNTED:
        share = math.fsum(v.value * v.samples for v in values) / sum(v.samples for v in values)
        return _Figure(share, share, share, "counted over all requests of the arm's legs")
    if metric.name in _STATED:
        return _Figure(mean(plain), min(plain), max(plain), "as stated by the engine at each boot; the range over the legs")
    groups: dict[str, list[float]] = {}
    for sheet in sheets:
        other = sheet.get(key)
        if isinstance(other, Measure):
            groups.setdefault(sheet.arm, []).append(other.value)
    logs = metric.unit not in _PLAIN and all(x > 0 for group in groups.values() for x in group)
    to = math.log if logs else float
    back = math.exp if logs else float
    errors = [v.se / (v.value if logs else 1.0) for v in values if v.se is not None]
    within = math.sqrt(math.fsum(e * e for e in errors)) / len(values) if len(errors) == len(values) else 0.0
    estimate = pooled_mean([to(x) for x in plain], [[to(x) for x in g] for g in groups.values()], within)
    value = back(estimate.value)
    if len(values) < 2:
        if not gate.one_pair_suffices:
            return _Figure(value, None, None, "one leg")
        half = Z_975 * within
        basis = "one leg, accepted by the spike file; " + ("noise within the leg" if within else "no interval")
        return _Figure(value, back(estimate.value - half), back(estimate.value + half), basis)
    interval = estimate.interval()
    if interval is None:
        return _Figure(value, None, None, "no spread between legs is known")
    arms = sum(1 for g in groups.values() if len(g) > 1)
    pooled = f"leg spread pooled over {arms} arm{'s' if arms != 1 else ''}, {estimate.degrees} degrees of freedom"
    basis = f"mean of {len(values)} legs, t interval, {pooled}"
    return _Figure(value, back(interval[0]), back(interval[1]), basis, estimate, logs)
