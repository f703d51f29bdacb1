"""A report as text for a terminal and as JSON for scripts. Pure; masking and printing are the caller's business."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from dataclasses import asdict

from audition.check.finding import GROUPS, Contrast, Entry, Finding, Report
from audition.units import format_duration

WIDTH = 110
_VALUE = 34
_LEVEL = 9


def as_json(report: Report) -> str:
    """The report as one JSON object, for scripts; codes are stable, texts are not."""
    body = {
        "spike": report.spike,
        "exit_code": report.exit_code,
        "elsewhere": report.elsewhere,
        "blocking": len(report.blocking),
        "warnings": len(report.warnings),
        "findings": [asdict(finding) for finding in report.findings],
        "difference": asdict(report.contrast) if report.contrast is not None else None,
        "timeline": [asdict(entry) for entry in report.timeline],
        "control": [asdict(paste) for paste in report.control],
    }
    return json.dumps(body, ensure_ascii=False, indent=1) + "\n"


def as_text(report: Report) -> str:
    """The report for people: findings by group, then the difference of the arms, the control arm, the timeline, the end."""
    lines: list[str] = []
    for group in GROUPS:
        found = [finding for finding in report.findings if finding.group == group]
        if found:
            lines += [group, *(line for finding in found for line in _finding(finding)), ""]
    if report.contrast is not None:
        lines += _contrast(report.contrast)
    lines += _timeline(report.timeline)
    for paste in report.control:
        lines += [f"To paste: {paste.name}", *(f"    {line}" for line in paste.text.splitlines()), ""]
    return "\n".join([*lines, _end(report)]) + "\n"


def _finding(finding: Finding) -> Iterator[str]:
    head = f"  {finding.level:<{_LEVEL}}"
    indent = " " * len(head)
    arm = f"{finding.arm}: " if finding.arm else ""
    code = "" if finding.level == "ok" else f" [{finding.code}]"
    see = f" ({finding.reference})" if finding.reference else ""
    yield from _wrapped(f"{arm}{finding.text}{see}{code}", head, indent)
    if finding.hint and finding.level != "ok":
        first, *more = finding.hint.split("\n")
        yield from _wrapped(f"-> {first}", indent, f"{indent}   ")
        for line in more:
            yield from _wrapped(line, f"{indent}   ", f"{indent}     ")


def _wrapped(text: str, first: str, then: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=then, break_on_hyphens=False, break_long_words=False
    )  # fmt: skip


def _contrast(contrast: Contrast) -> list[str]:
    if contrast.unknown or not contrast.rows:
        return []
    name = max(len("difference"), *(len(row.what) for row in contrast.rows))
    lines = [f"{'difference':<{name}}  {contrast.arm:<{_VALUE}}  {contrast.reference_arm}"]
    for row in contrast.rows:
        mark = "  <- on trial" if row.what == contrast.trial else ""
        lines.append(f"{row.what:<{name}}  {_short(row.arm):<{_VALUE}}  {_short(row.reference_arm)}{mark}")
    return [*lines, ""]


def _short(text: str) -> str:
    return text if len(text) <= _VALUE else f"{text[: _VALUE - 3]}..."


def _timeline(entries: tuple[Entry, ...]) -> list[str]:
    if not entries:
        return []
    lines = ["timeline (estimate)"]
    lines += [f"  {_offset(entry.at_s)}  {format_duration(entry.seconds):>12}  {entry.what}  ({entry.source})" for entry in entries]
    last = entries[-1]
    return [*lines, f"  {_offset(last.at_s + last.seconds)}  {'':>12}  end", ""]


def _offset(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"+{minutes // 60}:{minutes % 60:02d}"


def _end(report: Report) -> str:
    blocking, warnings = len(report.blocking), len(report.warnings)
    where = " Machine and Docker engine were left out (--elsewhere)." if report.elsewhere else ""
    warned = f"{warnings} warning{'' if warnings == 1 else 's'}"
    if blocking:
        return f"{blocking} blocking, {warned}: a run would be refused, and nothing touched.{where}"
    return f"Nothing blocks, {warned}.{where}"
