"""Adds a dated entry under a heading of a notes file: never twice for the same run, never touching the rest. Pure."""

from __future__ import annotations

import re

from audition.judge.result import Result
from audition.report.words import REHEARSAL, day, figures_table, outcome_sentence, workloads_of

_HEADING = re.compile(r"^(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*$")
_FENCE = re.compile(r"^ {0,3}(```+|~~~+)")


def marker(run_id: str) -> str:
    """The invisible mark by which an entry is found again."""
    return f"<!-- audition run {run_id} -->"


def insert_entry(text: str, heading: str, entry: str, run_id: str) -> str:
    """``text`` with ``entry`` at the end of the section called ``heading`` (made at the end of the file when there is none).

    ``heading`` may be given with or without its leading ``#``. A text that already holds this run's entry is returned as it is.
    Line ends are kept as the file has them.
    """
    if marker(run_id) in text:
        return text
    newline = "\r\n" if "\r\n" in text else "\n"
    title = heading.lstrip("#").strip()
    level = len(heading) - len(heading.lstrip("#"))
    lines = text.splitlines(keepends=True)
    block = [line + newline for line in (marker(run_id), *entry.strip("\n").splitlines())]
    at = _section_end(lines, title, level)
    if at is None:
        if lines and not lines[-1].endswith(("\n", "\r")):
            lines[-1] += newline
        gap = [newline] if lines and lines[-1].strip() else []
        return "".join([*lines, *gap, f"{'#' * (level or 2)} {title}{newline}", newline, *block])
    head, rest = lines[:at], lines[at:]
    if head and not head[-1].endswith(("\n", "\r")):
        head[-1] += newline
    before = [newline] if head[-1].strip() else []
    after = [newline] if rest and rest[0].strip() else []
    return "".join([*head, *before, *block, *after, *rest])


def _section_end(lines: list[str], title: str, level: int) -> int | None:
    """Index of the line after the last filled line of the section, or None when there is no such heading."""
    inside, fence, end = 0, "", None
    for index, raw in enumerate(lines):
        line = raw.rstrip("\r\n")
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        elif mark:
            fence = mark[1]
        elif found := _HEADING.match(line):
            depth = len(found[1])
            if inside and depth <= inside:
                return end
            if not inside and found[2] == title and level in (0, depth):
                inside, end = depth, index + 1
        if inside and line.strip():
            end = index + 1
    return end


def entry_text(result: Result) -> str:
    """The entry for a notes file: verdict, reasons, main throughput figures, what the hypotheses say to write."""
    mark = "REHEARSAL, " if result.rehearsal else ""
    lines = [f"**{day(result.started_at)}, {mark}{result.spike}: {result.verdict}** (run `{result.run_id}`)", ""]
    if result.rehearsal:
        lines += [REHEARSAL, ""]
    lines += [outcome_sentence(result), ""]
    lines += [f"- {reason}" for reason in result.reasons]
    for workload in workloads_of(result):
        table = figures_table(result, workload)
        for row in table.rows if table is not None else []:
            if row[0].startswith(("output_tok_s", "decode_tok_s", "acceptance_rate")):
                names = [*list(table.header)[1:-1], "ratio"] if table is not None else []
                cells = "; ".join(f"{name} {cell}" for name, cell in zip(names, row[1:], strict=True) if cell != "-")
                lines.append(f"- {workload}, {row[0]}: {cells}")
    lines += [f"- {h.name}: {h.outcome}. {h.text or h.why}" for h in result.hypotheses]
    return "\n".join(lines)
