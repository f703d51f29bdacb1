"""Probes with what the server answered, and failed boots with their log lines. Pure."""

from __future__ import annotations

import json
from typing import Any

from audition.judge.load import Garbled, parse_json
from audition.judge.records import ProbeRecord
from audition.judge.result import LegResult, Result
from audition.report.documents import Code, Paragraph, Table
from audition.report.html.blocks import Details, Grid, Missing, PageBlock
from audition.report.html.speed import leg_name
from audition.spike.metrics import PROBES
from audition.spike.model import Spike

_LONGEST = 6000
"""Characters of one answer that are shown; ``probes.json`` holds the whole."""


def log_excerpt(text: str) -> Code:
    """Lines of a log, at most as long as the report shows."""
    return Code(_cut(text), "log")


def probes(result: Result, spike: Spike) -> list[PageBlock]:
    """A table of all probes and legs; the answers of those that did not pass, in full; the others behind a line."""
    if not spike.probes:
        return [Missing("Probes", "The spike file asks for none, so nothing says whether the answers were sane.")]
    names = list(dict.fromkeys([*spike.probes, *(p.probe for leg in result.legs for p in leg.probes)]))
    rows = [[name, PROBES.get(name, "-"), *(_state(leg, name) for leg in result.legs)] for name in names]
    header = ["probe", "passes when", *(leg_name(leg) for leg in result.legs)]
    outcomes = frozenset(range(2, len(header)))
    blocks: list[PageBlock] = [Grid("Probes", Table(header, rows), badges=outcomes, wide=frozenset({1}), show_caption=False)]
    found = [(leg, probe) for leg in result.legs for probe in leg.probes]
    for leg, probe in found:
        if probe.passed is not True:
            what = "failed" if probe.passed is False else "could not be judged"
            title = f"{probe.probe} {what} in {leg_name(leg)}: {probe.detail}"
            blocks.append(Details(title, _evidence(probe), opened=True))
    passed = [Details(f"{leg_name(leg)}, {p.probe}: {p.detail}", _evidence(p)) for leg, p in found if p.passed is True]
    if passed:
        blocks.append(Details(f"Answers of the {len(passed)} probes that passed", passed))
    return blocks


def _state(leg: LegResult, name: str) -> str:
    probe = next((p for p in leg.probes if p.probe == name), None)
    if probe is None:
        return "not made"
    return {True: "passed", False: "failed", None: "could not be judged"}[probe.passed]


def _evidence(probe: ProbeRecord) -> list[PageBlock]:
    """What the server answered, one entry a question where the record has that form."""
    if not probe.evidence:
        return [Paragraph("No answer was recorded.")]
    try:
        entries = parse_json(probe.evidence)
    except Garbled:
        return [Code(_cut(probe.evidence), "answer")]
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        return [Code(_cut(probe.evidence), "answer")]
    return [Code(_cut("\n\n".join(_entry(entry) for entry in entries)), "answers")]


def _entry(entry: dict[str, Any]) -> str:
    return "\n".join(
        f"{key}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}" for key, value in entry.items()
    )


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}\n[cut here by the report; {len(text):,} characters in the record]"


def failed_boots(result: Result) -> list[PageBlock]:
    """Each boot that failed: why, and the lines of the log that say so."""
    blocks: list[PageBlock] = []
    for leg in result.legs:
        boot = leg.boot
        if boot is None or boot.clean:
            continue
        known = f" It matches the known fault {boot.signature} (cause: {boot.origin})." if boot.signature else ""
        blocks.append(Paragraph(f"The boot of {leg_name(leg)} failed: {boot.failure or 'no detail'}.{known}"))
        blocks.append(log_excerpt(boot.excerpt) if boot.excerpt else Paragraph("No lines of its log were kept."))
    return blocks
