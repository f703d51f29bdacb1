"""Whether a gate is certainly failed although legs are still planned: looking after every leg without deciding wrongly more often.

A gate may be looked at after each leg. Looking often at the full level would fail good candidates too often, so the level is spent
over the looks: Lan and DeMets 1983, Discrete sequential boundaries for clinical trials, with their spending function of O'Brien and
Fleming's kind, 2 - 2 Phi(z / sqrt(t)), where t is the share of planned legs that have run. Each look gets what is spent since the
look before; by Bonferroni's inequality all looks together fail a good candidate with at most ``ALPHA``. That is stricter than
the exact boundary and needs no integration. Levels are turned into Student's t by their probability (Jennison and Turnbull 2000,
Group Sequential Methods, 3.8). Only failing ends a run early: passing never does, because production is the safe side.

Certain besides: a probe that failed, and a share of failed requests that even flawless remaining legs cannot repair.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist

from audition.judge.compare import compare
from audition.judge.estimate import Mean
from audition.judge.gates import absolute_estimate, is_counted, is_stated, probe_result
from audition.judge.load import RunData
from audition.judge.metrics import LegSheet, Measure, describe, gate_key, measure_run
from audition.judge.validity import broken_legs
from audition.spike.model import Gate, Spike
from audition.units import NoData

ALPHA = 0.025
"""One-sided: half of what a 95 % interval leaves outside, as for the same gate at the end of a complete run."""

_NORMAL = NormalDist()


def spent(share: float) -> float:
    """Error spent when this share (0 to 1) of the planned legs has run; ``ALPHA`` at the end."""
    if share <= 0:
        return 0.0
    z = _NORMAL.inv_cdf(1 - ALPHA / 2)
    return 2 - 2 * _NORMAL.cdf(z / math.sqrt(min(share, 1.0)))


def level_at(leg: int, planned: int) -> float:
    """Level of the look after leg number ``leg`` of ``planned``."""
    return spent(leg / planned) - spent((leg - 1) / planned)


def t_above(x: float, degrees: int) -> float:
    """Probability that Student's t exceeds ``x``: 26.7.1 and 26.5.8 of Abramowitz and Stegun 1964. ``degrees`` at least 1."""
    half = 0.5 * _beta_share(degrees / 2, 0.5, degrees / (degrees + x * x))
    return half if x >= 0 else 1 - half


def _beta_share(a: float, b: float, x: float) -> float:
    """Regularised incomplete beta function by its continued fraction, evaluated with Lentz's method."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta_share(b, a, 1 - x)
    tiny, c, d = 1e-300, 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > tiny else tiny)
    value = d
    for m in range(1, 500):
        for top in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 + top * d
            c = 1 + top / c
            d, c = 1 / (d if abs(d) > tiny else tiny), c if abs(c) > tiny else tiny
            value *= c * d
        if abs(c * d - 1) < 1e-13:
            break
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(1 - x))
    return front * value / a


def certain_failures(run: RunData, spike: Spike) -> dict[int, str]:
    """Deciding gates that are certainly failed by the legs so far: place in the spike file, one sentence. Empty when none is, when
    all legs have run, or when any leg of production or of the candidate so far is void, cut or garbled: then nothing is certain."""
    planned = spike.planned_legs()
    legs = [leg for leg in run.legs if leg.reached]
    k = len(legs)
    if not 0 < k < len(planned) or [leg.index for leg in legs] != list(range(1, k + 1)):
        return {}
    if broken_legs(legs, spike):
        return {}
    so_far = replace(run, legs=tuple(legs))
    look = _Look(so_far, spike, measure_run(so_far, spike), k, len(planned))
    where = f"certainly failed after leg {k} of {len(planned)}"
    found: dict[int, str] = {}
    for place, gate in enumerate(spike.gates):
        why = None if gate.shadow else look.why_failed(gate)
        if why is not None:
            found[place] = f"{gate.name + ', ' if gate.name else ''}{why[0]}, is {where}: {why[1]}."
    return found


class _Look:
    """One look at the gates after some of the legs."""

    def __init__(self, run: RunData, spike: Spike, sheets: Sequence[LegSheet], leg: int, planned: int) -> None:
        self._run, self._spike, self._sheets, self._leg = run, spike, sheets, leg
        self._level = level_at(leg, planned)

    def why_failed(self, gate: Gate) -> tuple[str, str] | None:
        """(rule, reason) when the gate is certainly failed."""
        if gate.all is not None or gate.any is not None:
            parts = [self.why_failed(part) for part in gate.all or gate.any or [] if not part.shadow]
            failed = [part for part in parts if part is not None]
            if not failed or (gate.any is not None and len(failed) < len(parts)):
                return None
            return ("all of a group" if gate.all is not None else "any of a group"), "; ".join(f"{r}: {w}" for r, w in failed)
        arm = gate.arm or self._spike.candidate.name
        if gate.probe is not None:
            result = probe_result(gate.probe, arm, self._run)
            return (f"probe {gate.probe} on {arm}", result.why) if result.outcome == "failed" else None
        rule = f"{describe(gate_key(gate))} on {arm}" + (f" / {gate.ratio_to}" if gate.ratio_to else "")
        if gate.ratio_to is None and is_counted(gate):
            why = self._beyond_repair(gate, arm)
        elif gate.ratio_to is None and is_stated(gate):
            why = ""
        else:
            found = self._ratio(gate, arm) if gate.ratio_to is not None else absolute_estimate(gate, arm, self._sheets)
            why = "" if found is None else self._outside(gate, *found)
        return (rule, why) if why else None

    def _ratio(self, gate: Gate, arm: str) -> tuple[Mean, bool] | None:
        """The log ratio from pairs that are whole: a leg whose later neighbour is still to come does not count yet."""
        reference = gate.ratio_to or ""
        last = max((s.index for s in self._sheets if s.arm == reference), default=0)
        to_come = any(leg.arm == reference for leg in self._spike.planned_legs()[self._leg :])
        sheets = [s for s in self._sheets if not (to_come and s.arm == arm and s.index > last)]
        c = compare(sheets, arm, reference, gate_key(gate))
        if c.ratio is None or c.log_se is None or c.dropped or len(c.pairs) < 2:
            return None
        return Mean(math.log(c.ratio), c.log_se, c.degrees, c.log_floor), True

    def _outside(self, gate: Gate, estimate: Mean, logs: bool) -> str:
        if estimate.se is None or estimate.degrees < 1:
            return ""
        for limit, sign, word in ((gate.at_least, 1.0, "at least"), (gate.at_most, -1.0, "at most")):
            if limit is None or (logs and limit <= 0):
                continue
            distance = sign * ((math.log(limit) if logs else limit) - estimate.value)
            if distance <= 0:
                continue
            chance = t_above(distance / estimate.se, estimate.degrees) if estimate.se > 0 else 0.0
            if estimate.floor > 0:
                chance = max(chance, 1 - _NORMAL.cdf(distance / estimate.floor))
            if chance <= self._level:
                value = math.exp(estimate.value) if logs else estimate.value
                return f"{value:.4g} where {word} {limit:g} is asked (p {chance:.1g}, at this look {self._level:.2g} is enough)"
        return ""

    def _beyond_repair(self, gate: Gate, arm: str) -> str:
        """A share of failures that stays above its limit even when no further request fails."""
        workload = next((w for w in self._spike.workloads if w.name == gate.workload), None)
        if gate.at_most is None or workload is None or workload.requests is None:
            return ""
        legs = [leg for leg in self._spike.planned_legs() if leg.arm == arm and workload in self._spike.leg_workloads(leg)]
        seen = [s.get(gate_key(gate)) for s in self._sheets if s.arm == arm]
        failed = sum(round(v.value * v.samples) for v in seen if isinstance(v, Measure))
        planned = workload.requests * len(legs)
        if any(isinstance(v, NoData) for v in seen) or failed <= gate.at_most * planned * (1 + 1e-9):
            return ""
        return f"{failed} requests failed, and of all {planned} planned ones at most {gate.at_most:g} may"
