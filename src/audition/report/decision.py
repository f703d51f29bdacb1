"""The decision record after MADR (Markdown Any Decision Records): context, options, outcome, evidence, consequences. Pure."""

from __future__ import annotations

from audition.judge.result import Result
from audition.report.documents import Bullets, Document, Heading, Paragraph, to_markdown
from audition.report.terminal import caveat_blocks, contrast_blocks, figure_blocks, hypothesis_blocks
from audition.report.words import (
    REHEARSAL,
    day,
    gates_table,
    instant,
    legs_table,
    noise_lines,
    outcome_sentence,
    production_sentence,
)

_STATUS = {"GO": "accepted", "NO-GO": "rejected", "INCONCLUSIVE": "open"}


def decision_markdown(result: Result) -> str:
    """The decision record as Markdown."""
    return to_markdown(decision_document(result))


def decision_document(result: Result) -> Document:
    """The decision record."""
    mark = "REHEARSAL: " if result.rehearsal else ""
    status = "rehearsal, decides nothing" if result.rehearsal else _STATUS[result.verdict]
    doc: Document = [
        Heading(1, f"{mark}{result.spike}: {result.verdict}"),
        Bullets([f"Status: {status}", f"Date: {day(result.started_at)}", f"Run: `{result.run_id}`"]),
    ]
    if result.rehearsal:
        doc.append(Paragraph(f"**{REHEARSAL}**" + (f" Fault on demand: {result.fault}." if result.fault else "")))
    doc += [
        Heading(2, "Context and question"),
        Paragraph(result.question),
        Paragraph(
            f"The criteria were written before the run. It lasted from {instant(result.started_at)} to {instant(result.ended_at)}."
        ),
        Heading(2, "Options considered"),
        Bullets([f"Stay on `{result.production}`", f"Replace it by `{result.candidate}`"]),
        Heading(2, "Decision outcome"),
        Paragraph(f"**{result.verdict}.** {outcome_sentence(result)}"),
        Bullets(result.reasons),
    ]
    if result.settle:
        doc += [Paragraph("What would settle it:"), Bullets(result.settle)]
    doc += [Heading(2, "Evidence"), Heading(3, "Criteria"), gates_table(result), Heading(3, "Legs"), legs_table(result)]
    doc += figure_blocks(result, 3)
    doc += contrast_blocks(result, 3)
    noise = noise_lines(result)
    if noise:
        doc += [Heading(3, "Noise"), Bullets(noise)]
    doc += hypothesis_blocks(result, 3)
    doc += caveat_blocks(result, 3)
    doc += [Heading(2, "Consequences"), Bullets(_consequences(result))]
    return doc


def _consequences(result: Result) -> list[str]:
    items = [production_sentence(result)]
    if result.rehearsal:
        return [*items, "None: this was a rehearsal."]
    if result.verdict == "GO":
        items.append(f"Adopting `{result.candidate}` is a step of its own; this run changed nothing in production's profile.")
    else:
        items.append(f"`{result.production}` stays as it is.")
    if result.verdict == "INCONCLUSIVE":
        items.append("The question stays open.")
    items += [f"{h.name}: {h.text}" for h in result.hypotheses if h.text]
    return items
