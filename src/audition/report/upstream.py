"""Texts for the upstream project: a datapoint, and an issue draft when a hypothesis was refuted. Pure.

Nothing private: no path, host, address or key of this machine. What is not known is said to be not recorded, never filled in.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from audition.judge.confounds import arguments_of
from audition.judge.hypotheses import HypothesisResult
from audition.judge.result import LegResult, Result
from audition.report.documents import Bullets, Code, Document, Heading, Paragraph, to_markdown
from audition.report.terminal import caveat_blocks, contrast_blocks, figure_blocks
from audition.report.words import REHEARSAL, day, noise_lines, number
from audition.spike.model import Arm, Spike
from audition.units import NoData

_PATH = re.compile(r"(?<![\w:/.])(?:~|\.{1,2})?/(?!(?:metrics|health|version|v1/\S+)\b)(?:[\w.@+-]+/)*([\w.@+-]+)/?")
_ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b")
_SHOWN_FACTS = (
    ("engine_version", "vLLM"),
    ("gpu", "GPU"),
    ("driver", "driver"),
    ("torch", "torch"),
    ("kv_capacity_tokens", "KV capacity (tokens)"),
    ("max_concurrency", "maximum concurrency"),
)


def private_free(text: str) -> str:
    """The text with paths cut to their last part and addresses taken out."""
    return _ADDRESS.sub("<address>", _PATH.sub(lambda m: f"<path>/{m[1]}", text))


def upstream_markdown(result: Result, spike: Spike) -> str | None:
    """A datapoint ready to post, or None when no leg of the candidate ran to its end: then there is nothing to report."""
    legs = [leg for leg in result.legs if leg.arm == result.candidate and leg.outcome == "complete"]
    if not legs:
        return None
    mark = "REHEARSAL, not a measurement: " if result.rehearsal else ""
    doc: Document = [Heading(1, f"{mark}datapoint for {result.spike}")]
    if result.rehearsal:
        doc.append(Paragraph(f"**{REHEARSAL} Do not post this.**"))
    doc += [Paragraph(private_free(result.question)), Heading(2, "Setup"), Bullets(_setup(result, spike, legs))]
    doc += figure_blocks(result, 2)
    doc += contrast_blocks(result, 2)
    acceptance = _acceptance(legs)
    if acceptance:
        doc += [Heading(2, "Acceptance by draft position"), Bullets(acceptance)]
    doc += [Heading(2, "Method"), Paragraph(_method(result))]
    noise = noise_lines(result)
    if noise:
        doc.append(Bullets(noise))
    doc += caveat_blocks(result, 2)
    return private_free_document(doc)


def private_free_document(doc: Document) -> str:
    """Markdown of a document without anything private."""
    return private_free(to_markdown(doc))


def _method(result: Result) -> str:
    done = [leg for leg in result.legs if leg.outcome == "complete"]
    order = ", ".join(leg.arm for leg in done)
    cut = "" if len(done) == len(result.legs) else f"The run was planned with {len(result.legs)} legs and ended before that. "
    return (
        f"Measured on {day(result.started_at)} in interleaved legs ({order}) with `audition` {result.audition_version}. {cut}"
        "Ratios pair each candidate leg with the production legs around it; intervals are 95 %, over legs. Tokens are counted from "
        "`usage`, not from chunks; acceptance comes from differences of the engine's counters within each leg."
    )


def _setup(result: Result, spike: Spike, legs: Sequence[LegResult]) -> list[str]:
    facts, boot = legs[0].facts, legs[0].boot
    items = [f"{label}: {_fact(facts.get(key))}" for key, label in _SHOWN_FACTS]
    digest = boot.image_digest if boot is not None else None
    items.append(f"image digest: {digest or 'not recorded'}")
    items.append(f"arguments of the candidate: `{_arguments(spike.candidate, facts, rehearsal=result.rehearsal)}`")
    items.append(f"candidate boots: {sum(1 for leg in legs if leg.boot is not None and leg.boot.source == 'booted')}, all clean")
    return items


def _fact(value: Any) -> str:
    if value is None or (isinstance(value, dict | list) and not value):
        return "not recorded"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number(float(value))
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _arguments(arm: Arm, facts: dict[str, Any], *, rehearsal: bool) -> str:
    known = facts.get("arguments")
    if isinstance(known, list):
        return " ".join(map(str, known))
    if rehearsal and arm.simulated.args:
        return " ".join(arm.simulated.args)
    words = arguments_of(arm, [])
    return "not recorded" if isinstance(words, NoData) else " ".join(words) or "not recorded"


def _acceptance(legs: Sequence[LegResult]) -> list[str]:
    return [
        f"leg {leg.index}, {workload}: {', '.join(number(r) for r in rates)}"
        for leg in legs
        for workload, rates in leg.acceptance.items()
    ]


def issue_markdown(result: Result, spike: Spike) -> str | None:
    """An issue draft for the refuted hypotheses, or None when none was refuted."""
    refuted = [h for h in result.hypotheses if h.outcome == "refuted"]
    if not refuted:
        return None
    mark = "REHEARSAL, do not post: " if result.rehearsal else ""
    doc: Document = [Heading(1, f"{mark}{refuted[0].signature} at boot of {result.candidate}")]
    if result.rehearsal:
        doc.append(Paragraph(f"**{REHEARSAL}**"))
    for h in refuted:
        doc += _issue(h, result, spike)
    return private_free_document(doc)


def _issue(h: HypothesisResult, result: Result, spike: Spike) -> Document:
    leg = next((x for x in result.legs if x.arm == h.arm), None)
    facts = leg.facts if leg is not None else {}
    return [
        Heading(2, "What happens"),
        Paragraph(f"{h.why}. {h.text}".strip()),
        Heading(2, "How to reproduce"),
        Bullets(
            [
                f"arguments: `{_arguments(spike.arm(h.arm), facts, rehearsal=result.rehearsal)}`",
                f"vLLM: {_fact(facts.get('engine_version'))}",
                f"image digest: {', '.join(h.digests) or 'not recorded'}",
                f"boots: {h.clean_boots + h.failed_boots}, of which {h.failed_boots} failed",
            ]
        ),
        Heading(2, "Log excerpt"),
        Code(h.excerpt or "not recorded", "text"),
        Heading(2, "What this rules out"),
        Paragraph(f"The suspicion was: {h.claim} It is refuted by these boots."),
    ]
