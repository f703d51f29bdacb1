"""Adds a dated entry under a heading of a notes file: never twice for the same run, never touching the rest. Pure."""

from __future__ import annotations

import re

from audition.judge.result import Result
from audition.report.environment import shared_environment
from audition.report.words import REHEARSAL, day, figures_table, outcome_sentence, workloads_of
from audition.units import NoData

_HEADING = re.compile(r"^(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*$")
_FENCE = re.compile(r"^ {0,3}(```+|~~~+)")
_UNDERLINE = re.compile(r"^ {0,3}(=+|-{2,})[ \t]*$")
_NO_TEXT = ("-", "*", "+", ">", "|", "#", "<")
_ODD = re.compile("[\v\f\x1c-\x1e\x85\u2028\u2029]")
"""What Python takes for a line end and Markdown does not."""


def marker(run_id: str, heading: str = "") -> str:
    """The invisible mark by which an entry is found again: one a run and heading."""
    under = " ".join(heading.lstrip("#").replace("--", "-").split())
    return f"<!-- audition run {run_id}{f' under {under}' if under else ''} -->"


def insert_entry(text: str, heading: str, entry: str, run_id: str) -> str:
    """``text`` with ``entry`` at the end of the section called ``heading`` (made at the end of the file when there is none).

    ``heading`` may be given with or without its leading ``#``; without, a heading of that name of any level counts, and of several
    the first one. A text that already holds this run's entry for this heading, wherever it was moved, is returned as it is.
    Line ends are kept as the file has them (the more frequent kind for new lines); a last line without an end gets one only when
    something is put after it. A byte order mark at the beginning stays. A fence of code that is never closed hides all headings
    after it, as Markdown has it: it is closed at the end of the file before anything is added there.
    """
    mark = marker(run_id, heading)
    if mark in text or marker(run_id) in text:
        return text
    newline = "\r\n" if 2 * text.count("\r\n") > text.count("\n") else "\n"
    title = heading.lstrip("#").strip()
    level = len(heading) - len(heading.lstrip("#"))
    lines = text.splitlines(keepends=True) if not _ODD.search(text) else re.split(r"(?<=\n)", text)
    lines = [line for line in lines if line]
    block = [line + newline for line in (mark, *entry.strip("\n").splitlines())]
    at, fence = _section_end(lines, title, level)
    if at is None:
        if lines and not lines[-1].endswith(("\n", "\r")):
            lines[-1] += newline
        close = [fence + newline] if fence else []
        gap = [newline] if close or (lines and lines[-1].strip()) else []
        return "".join([*lines, *close, *gap, f"{'#' * (level or 2)} {title}{newline}", newline, *block])
    head, rest = lines[:at], lines[at:]
    if head and not head[-1].endswith(("\n", "\r")):
        head[-1] += newline
    if fence:
        head.append(fence + newline)
    before = [newline] if head[-1].strip() else []
    after = [newline] if rest and rest[0].strip() else []
    return "".join([*head, *before, *block, *after, *rest])


def _section_end(lines: list[str], title: str, level: int) -> tuple[int | None, str]:
    """(index of the line after the last filled line of the section, or None when there is no such heading; the fence of code that
    is still open at the end of the file, or an empty text)."""
    inside, fence, end = 0, "", None
    plain = [raw.rstrip("\r\n").removeprefix("\ufeff") for raw in lines]
    for index, line in enumerate(plain):
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        elif mark:
            fence = mark[1]
        elif found := _heading(plain, index):
            depth, name, last = found
            if inside and depth <= inside:
                return end, ""
            if not inside and name == title and level in (0, depth):
                inside, end = depth, last + 1
        if inside and line.strip():
            end = max(end or 0, index + 1)
    return end, fence


def _heading(lines: list[str], index: int) -> tuple[int, str, int] | None:
    """(level, text, index of its last line) of the heading that begins at a line: ``## Text``, or ``Text`` underlined with ``===``
    or ``---`` (CommonMark's ATX and setext headings; of the latter those of one line)."""
    line = lines[index]
    if found := _HEADING.match(line):
        return len(found[1]), found[2], index
    under = _UNDERLINE.match(lines[index + 1]) if index + 1 < len(lines) else None
    before = lines[index - 1].strip() if index else ""
    if under and line.strip() and not before and not line.startswith("    ") and not line.lstrip().startswith(_NO_TEXT):
        return (1 if under[1][0] == "=" else 2), line.strip(), index + 1
    return None


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
    lines += _stated(result)
    for h in result.hypotheses:
        said = h.why if result.rehearsal or not h.text else h.text
        lines.append(f"- {h.name}: {h.outcome}. {said.rstrip('.')}.")
    return "\n".join(lines)


def _stated(result: Result) -> list[str]:
    """KV capacity as the engine stated it, and the machine, as far as they were recorded."""
    table = figures_table(result, "")
    rows = [row for row in (table.rows if table is not None else []) if row[0].startswith("kv_capacity_tokens")]
    lines = [
        f"- {row[0]}: " + "; ".join(f"{n} {c}" for n, c in zip(table.header[1:-1], row[1:-1], strict=True) if c != "-")
        for row in rows
        if table is not None
    ]
    seen = shared_environment(result, result.candidate)
    parts = [("GPU", seen.gpus), ("driver", seen.driver), ("vLLM", seen.engine_version), ("image", seen.image_digest)]
    known = [f"{label} {value}" for label, value in parts if not isinstance(value, NoData)]
    if known and not result.rehearsal:
        lines.append(f"- {'; '.join(known)}")
    return lines
