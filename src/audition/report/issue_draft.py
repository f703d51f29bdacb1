"""A draft of an upstream issue for a suspicion that a run refuted: what a maintainer needs, and nothing else. Pure.

Arguments that are about the machine alone are left out; what was not recorded is said to be so; nothing private (see ``privacy``).
"""

from __future__ import annotations

import re

from audition.judge.confounds import Contrast, differences, parse_arguments
from audition.judge.hypotheses import HypothesisResult
from audition.judge.result import Result
from audition.report.documents import Bullets, Code, Document, Heading, Paragraph, to_markdown
from audition.report.environment import arguments_for, environment_of, said, shared_environment
from audition.report.privacy import private_free, private_names
from audition.report.upstream import arguments_blocks, artificial, image_of
from audition.report.words import REHEARSAL, day, differences_text
from audition.spike.model import Spike
from audition.units import NoData

_ERROR = re.compile(r"\b[A-Za-z_][\w.]*(?:Error|Exception)\b:? .*")
_MOST_LINES = 60
"""Log lines of an excerpt in the draft; more belongs into an attachment."""


def issue_markdown(result: Result, spike: Spike) -> str | None:
    """An issue draft for the refuted hypotheses, or None when none was refuted."""
    refuted = [h for h in result.hypotheses if h.outcome == "refuted"]
    if not refuted:
        return None
    mark = "REHEARSAL, do not post: " if result.rehearsal else ""
    doc: Document = [Heading(1, f"{mark}[Bug] {_title(refuted[0])}")]
    if result.rehearsal:
        doc.append(Paragraph(f"**{REHEARSAL} The crash was on demand.**"))
    for h in refuted:
        doc += _issue(h, result, spike)
    return private_free(to_markdown(doc), private_names(result, spike))


def _title(h: HypothesisResult) -> str:
    """The last line of the log that names an error, else the signature."""
    errors = [match[0] for line in h.excerpt.splitlines() if (match := _ERROR.search(line))]
    return f"{errors[-1][:150].strip()} at boot" if errors else f"{h.signature} at boot"


def _issue(h: HypothesisResult, result: Result, spike: Spike) -> Document:
    seen = shared_environment(result, h.arm, spike.gpus)
    boots = h.clean_boots + h.failed_boots
    simulated = "none, the servers were simulated"
    return [
        Heading(2, "What happens"),
        Paragraph(f"{_failure(h, result)} {h.why}."),
        Heading(2, "Environment"),
        Bullets(
            [
                f"vLLM: {said(seen.engine_version)}",
                f"image: {image_of(seen)}",
                f"GPU: {simulated if result.rehearsal else said(seen.gpus)}",
                f"driver: {simulated if result.rehearsal else said(seen.driver)}",
                f"torch: {said(seen.torch)}",
                f"boots on {day(result.started_at)}: {boots}, of which {h.clean_boots} clean and {h.failed_boots} failed",
            ]
        ),
        Heading(2, "How to reproduce"),
        *arguments_blocks(result, spike, h.arm),
        *_smallest(h, result, spike),
        Heading(2, "Log excerpt"),
        Code(_excerpt(h.excerpt), "text"),
        Heading(2, "What this rules out"),
        Paragraph(f"The suspicion was: {h.claim} It is refuted by the boots above. {h.text}".strip()),
    ]


def _failure(h: HypothesisResult, result: Result) -> str:
    """The first failed boot that shows the signature, in words."""
    boots = [leg.boot for leg in result.legs if leg.arm == h.arm and leg.boot is not None and leg.boot.signature == h.signature]
    told = next((boot.failure for boot in boots if boot.failure), "")
    return f"A boot of the server fails: {told.rstrip('.')}." if told else "A boot of the server fails."


def _smallest(h: HypothesisResult, result: Result, spike: Spike) -> Document:
    """How far the arguments are known to be needed: against every other arm that booted clean in this run."""
    lines = [line for name in dict.fromkeys(leg.arm for leg in result.legs) if (line := _beside(name, h, result, spike))]
    lines += artificial(result, spike) if h.arm == result.candidate else []
    return [Bullets([*lines, "The arguments were not reduced any further in this run."])]


def _beside(name: str, h: HypothesisResult, result: Result, spike: Spike) -> str:
    boots = [leg.boot for leg in result.legs if leg.arm == name and leg.boot is not None]
    clean = [boot for boot in boots if boot.clean]
    if name == h.arm or not clean or len(clean) < len(boots):
        return ""
    kind = "booted clean in this run" if any(b.source == "booted" for b in clean) else "was running already"
    ours, theirs = arguments_for(result, spike, h.arm), arguments_for(result, spike, name)
    if isinstance(ours, NoData) or isinstance(theirs, NoData):
        return f"{name} {kind}; in what its arguments differ was not recorded."
    rows = differences(parse_arguments(ours), parse_arguments(theirs))
    images = {said(environment_of(result, arm).image_digest) for arm in (h.arm, name)}
    image = " Its image is another one." if len(images) > 1 else ""
    told = differences_text(Contrast(h.arm, name, rows, [])) if rows else "nothing"
    return f"{name} {kind}; the failing server differs from it in: {told}.{image}"


def _excerpt(text: str) -> str:
    """The excerpt, its middle left out when it is long; lines count from neither end more than half of the limit."""
    lines = text.strip("\n").splitlines()
    if len(lines) <= _MOST_LINES:
        return "\n".join(lines) or "not recorded"
    half = _MOST_LINES // 2
    return "\n".join([*lines[:half], "[...]", *lines[-half:]])
