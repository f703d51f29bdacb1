"""The summary that is printed at the end of a run and kept as ``summary.txt``. Plain text; colours are the caller's. Pure."""

from __future__ import annotations

from audition.judge.result import Result
from audition.report.documents import Bullets, Document, Heading, Paragraph, to_text
from audition.report.progress import progress_blocks
from audition.report.words import (
    REHEARSAL,
    contrast_lines,
    figures_table,
    gates_table,
    instant,
    legs_table,
    noise_lines,
    outcome_sentence,
    production_sentence,
    separation_table,
    workloads_of,
)


def summary_document(result: Result) -> Document:
    """Verdict first, then criteria, figures, noise, hypotheses, caveats."""
    doc: Document = [Heading(1, f"{'REHEARSAL ' if result.rehearsal else ''}{result.spike}: {result.verdict}")]
    if result.rehearsal:
        doc.append(Paragraph(REHEARSAL + (f" Fault on demand: {result.fault}." if result.fault else "")))
    doc += [Paragraph(result.question), Paragraph(f"{outcome_sentence(result)} {production_sentence(result)}")]
    doc += [Heading(2, "Why"), Bullets(result.reasons)]
    if result.settle:
        doc += [Heading(2, "What would settle it"), Bullets(result.settle)]
    doc += progress_blocks(result, 2)
    doc += [Heading(2, "Criteria"), gates_table(result), Heading(2, "Legs"), legs_table(result)]
    doc += figure_blocks(result, 2)
    doc += contrast_blocks(result, 2)
    noise = noise_lines(result)
    if noise:
        doc += [Heading(2, "Noise"), Bullets(noise)]
    doc += hypothesis_blocks(result, 2)
    doc += caveat_blocks(result, 2)
    doc.append(Paragraph(f"Run {result.run_id}, {instant(result.started_at)} to {instant(result.ended_at)}."))
    return doc


def figure_blocks(result: Result, level: int) -> Document:
    """One table a workload and one for whole legs."""
    doc: Document = []
    for workload in [*workloads_of(result), ""]:
        table = figures_table(result, workload)
        if table is not None:
            doc += [Heading(level, f"Figures of {workload}" if workload else "Figures of the legs"), table]
    return doc


def contrast_blocks(result: Result, level: int) -> Document:
    """What the arms differ in, and the effects that a control arm separates; nothing when they differ in nothing."""
    lines, table = contrast_lines(result), separation_table(result)
    doc: Document = [Heading(level, "What the arms differ in"), Bullets(lines)] if lines else []
    return [*doc, table] if table is not None else doc


def hypothesis_blocks(result: Result, level: int) -> Document:
    """What became of the suspicions, if there were any."""
    if not result.hypotheses:
        return []
    items = []
    for h in result.hypotheses:
        items.append(f"{h.name}: {h.outcome}. {h.claim} Evidence: {h.why}." + (f" {h.text}" if h.text else ""))
    return [Heading(level, "Hypotheses"), Bullets(items)]


def caveat_blocks(result: Result, level: int) -> Document:
    """The caveats, if there are any."""
    if not result.caveats:
        return []
    return [Heading(level, "Caveats"), Bullets([f"{c.effect}, {c.where}: {c.text} ({c.code})" for c in result.caveats])]


def summary_text(result: Result) -> str:
    """The summary as plain text."""
    return to_text(summary_document(result))
