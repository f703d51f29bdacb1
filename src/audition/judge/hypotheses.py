"""Settles the suspicions of a spike file from the boots that the run saw. Counting and quoting only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from audition.judge.load import RunData
from audition.spike.model import Hypothesis, Spike
from audition.units import NoData


@dataclass(frozen=True)
class HypothesisResult:
    """What became of one suspicion. ``boots``: boots of the arm made in this run; ``digests``: image digests that were seen.

    ``excerpt``: the log lines of the boot that refutes. ``text``: what the spike file says to write for this outcome.
    """

    name: str
    claim: str
    outcome: Literal["supported", "refuted", "open"]
    why: str
    arm: str
    signature: str
    clean_boots: int
    failed_boots: int
    legs: list[int]
    digests: list[str]
    excerpt: str
    text: str


def settle(hypothesis: Hypothesis, run: RunData, spike: Spike) -> HypothesisResult:
    """One boot with the named signature refutes; enough clean boots support; all else stays open."""
    arm = hypothesis.arm or spike.candidate.name
    records = [leg.record for leg in run.legs if leg.arm == arm and not isinstance(leg.record, NoData)]
    boots = [r for r in records if r.boot.source == "booted"]
    clean = [r for r in boots if r.boot.clean]
    failed = [r for r in boots if not r.boot.clean]
    shown = [r for r in boots if r.boot.signature == hypothesis.refuted_by]
    digests = list(dict.fromkeys(r.boot.image_digest for r in boots if r.boot.image_digest))
    outcome: Literal["supported", "refuted", "open"] = "open"
    excerpt, text = "", ""
    if shown:
        outcome, text, excerpt = "refuted", hypothesis.when_refuted, shown[0].boot.excerpt
        why = f"{len(shown)} of {len(boots)} boots of {arm} showed {hypothesis.refuted_by}"
    elif not failed and len(clean) >= hypothesis.supported_by_clean_boots:
        outcome, text = "supported", hypothesis.when_supported
        count = f"{len(clean)} clean boot{'s' if len(clean) != 1 else ''} of {arm}, {hypothesis.supported_by_clean_boots} needed"
        why = f"{count}, none showed {hypothesis.refuted_by}"
    elif failed:
        names = ", ".join(dict.fromkeys(r.boot.signature or "unknown" for r in failed))
        why = f"{arm} failed to boot for another reason ({names}): that neither supports nor refutes"
        excerpt = failed[0].boot.excerpt
    else:
        why = f"{len(clean)} clean boots of {arm}, {hypothesis.supported_by_clean_boots} needed"
    if run.record.rehearsal:
        why = f"rehearsed with simulated servers, which settles nothing; a real run would say: {why}"
    return HypothesisResult(
        hypothesis.name, hypothesis.claim, outcome, why, arm, hypothesis.refuted_by, len(clean), len(failed),
        [r.index for r in boots], digests, excerpt, text,
    )  # fmt: skip
