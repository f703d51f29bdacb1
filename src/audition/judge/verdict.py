"""The verdict: GO, NO-GO or INCONCLUSIVE. Total and deterministic; of these rules the first that speaks decides.

1. Certain NO-GO, whatever was measured: the candidate did not boot (unless the cause lies outside it), its server died while it
   served, or its quality canary failed (unless production fails the same canary in every leg: then it tells nothing apart).
2. The run ended early, all legs so far are valid, and a gate is certainly failed (see ``sequential``) -> NO-GO.
3. The evidence is not what was planned: the run was interrupted, failed or ended early, or a leg of production or of the
   candidate is missing, cut short, garbled or void -> INCONCLUSIVE.
4. The gates: one failed -> NO-GO, else one unknown -> INCONCLUSIVE, else GO. Shadow gates never decide.

The canary counts as a gate of its own whenever the spike makes it. A NO-GO keeps production, which is the safe side: that is why
rule 1 needs one observation only.

Rule 3 comes before rule 4 even when an absolute gate failed on valid legs of the candidate and only a leg of production is void:
what made that leg void (somebody else's traffic, a warm cache, a busy client) belongs to the hour and the machine, and may have
slowed the candidate's legs unseen. Production stays either way; the record says that the gate failed, and that it did not decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from audition.judge.gates import GateResult, combine_all, fails_on_production, probe_of, probe_result
from audition.judge.load import RunData
from audition.judge.sequential import certain_failures
from audition.judge.validity import broken_evidence
from audition.spike.model import Gate, Spike
from audition.units import NoData

Verdict = Literal["GO", "NO-GO", "INCONCLUSIVE"]
CANARY = "canary"


@dataclass(frozen=True)
class Decision:
    """A verdict with its reasons, one sentence each, and what would settle it when it is INCONCLUSIVE."""

    verdict: Verdict
    reasons: list[str]
    settle: list[str]


def certain_no_go(run: RunData, spike: Spike) -> list[str]:
    """Observations that rule the candidate out whatever was measured; empty when there are none."""
    reasons: list[str] = []
    for leg in (leg for leg in run.legs if leg.arm == spike.candidate.name):
        record = leg.record
        if not isinstance(record, NoData):
            boot = record.boot
            cause = f" ({boot.signature})" if boot.signature else ""
            if record.outcome == "boot-failed" and boot.origin != "environment":
                reasons.append(f"The candidate cannot boot: leg {leg.index} {boot.failure or record.detail or 'failed'}{cause}.")
            if record.outcome == "engine-died":
                reasons.append(
                    f"The candidate's server died while it served: leg {leg.index}, {record.detail or 'no detail'}{cause}."
                )
        canary = probe_of(leg, CANARY)
        if not isinstance(canary, NoData) and not canary[0] and not fails_on_production(CANARY, run):
            reasons.append(f"The candidate's quality canary failed in leg {leg.index}: {canary[1] or 'no detail'}.")
    return reasons


def early_end_reason(run: RunData, spike: Spike) -> str | None:
    """Why nothing can change the verdict any more, or None. Asked between legs; needs only the records so far."""
    if not spike.early_end:
        return None
    reasons = certain_no_go(run, spike) or list(certain_failures(run, spike).values())
    return reasons[0] if reasons else None


def implicit_gates(run: RunData, spike: Spike) -> list[GateResult]:
    """The canary as a gate of the candidate, when the spike makes it and no gate of the spike file names it."""
    if CANARY not in spike.probes or any(_names_canary(g, spike) for g in spike.gates):
        return []
    return [probe_result(CANARY, spike.candidate.name, run, name="canary (always)")]


def _names_canary(gate: Gate, spike: Spike) -> bool:
    return gate.probe == CANARY and not gate.shadow and (gate.arm or spike.candidate.name) == spike.candidate.name


def decide(run: RunData, spike: Spike, gates: Sequence[GateResult]) -> Decision:
    """Apply the rules. ``gates``: results of all gates, implicit ones included."""
    certain = certain_no_go(run, spike)
    if certain:
        return Decision("NO-GO", certain, [])
    if run.record.ended == "early-end":
        failed = certain_failures(run, spike)
        if failed:
            return Decision("NO-GO", list(failed.values()), [])
    broken = [*_how_it_ended(run), *_outside_causes(run, spike), *broken_evidence(run, spike)]
    if broken:
        seen = [g for g in gates if not g.shadow and g.outcome == "failed"]
        broken += [f"Seen, but not deciding: {_sentence(g)}" for g in seen]
        return Decision("INCONCLUSIVE", broken, ["Run the spike again to its end; the reasons above say what must not be missing."])
    deciding = [g for g in gates if not g.shadow]
    outcome = combine_all([g.outcome for g in deciding])
    if outcome == "failed":
        return Decision("NO-GO", [_sentence(g) for g in deciding if g.outcome == "failed"], [])
    if outcome == "unknown" or not deciding:
        open_gates = [g for g in deciding if g.outcome == "unknown"]
        settle = list(dict.fromkeys(g.settle for g in open_gates if g.settle))
        reasons = [_sentence(g) for g in open_gates] or ["No gate decides: all are shadow gates."]
        return Decision("INCONCLUSIVE", reasons, settle or ["Give the spike file a gate that decides."])
    return Decision("GO", [_sentence(g) for g in deciding], [])


def _sentence(gate: GateResult) -> str:
    return f"{_clause(gate)}."


def _clause(gate: GateResult) -> str:
    """A gate in words. Of a group that does not hold, the parts that keep it from holding say why: a count of them says nothing."""
    parts = [part for part in gate.parts if not part.shadow and part.outcome == gate.outcome]
    if gate.outcome == "passed" or not parts:
        return f"{gate.name}: {gate.outcome}, {gate.why}"
    return f"{gate.name}: {gate.outcome} ({'; '.join(_clause(part) for part in parts)})"


def _how_it_ended(run: RunData) -> list[str]:
    record = run.record
    words = {
        "complete": "",
        "interrupted": "The run was interrupted",
        "failed": "The run failed",
        "early-end": "The run ended early",
    }
    word = words.get(record.ended, "The run has no recorded end: audition or the machine died, or it is still running")
    return [f"{word}{': ' + record.end_reason if record.end_reason else ''}."] if word else []


def _outside_causes(run: RunData, spike: Spike) -> list[str]:
    out = []
    for leg in (leg for leg in run.legs if leg.arm == spike.candidate.name):
        if not isinstance(leg.record, NoData) and leg.record.outcome == "boot-failed" and leg.record.boot.origin == "environment":
            boot = leg.record.boot
            out.append(f"Leg {leg.index}: the boot failed for a cause outside the candidate ({boot.signature or boot.failure}).")
    return out
