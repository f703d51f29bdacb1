"""The decision record after MADR (Markdown Any Decision Records): context, options, outcome, evidence, consequences. Pure."""

from __future__ import annotations

from audition.judge.gates import GateResult
from audition.judge.result import Result
from audition.report.documents import Bullets, Document, Heading, Paragraph, to_markdown
from audition.report.progress import progress_blocks
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

_STATUS = {"GO": "proposed", "NO-GO": "accepted", "INCONCLUSIVE": "proposed"}
"""MADR's words. NO-GO settles that production stays; GO and INCONCLUSIVE leave something to people."""


def decision_markdown(result: Result) -> str:
    """The decision record as Markdown, with MADR's front matter."""
    status = "rehearsal, decides nothing" if result.rehearsal else _STATUS[result.verdict]
    return f'---\nstatus: "{status}"\ndate: {day(result.started_at)}\n---\n\n' + to_markdown(decision_document(result))


def decision_document(result: Result) -> Document:
    """The decision record."""
    mark = "REHEARSAL: " if result.rehearsal else ""
    doc: Document = [Heading(1, f"{mark}{result.spike}: {result.verdict}")]
    if result.rehearsal:
        doc.append(Paragraph(f"**{REHEARSAL}**" + (f" Fault on demand: {result.fault}." if result.fault else "")))
    doc += [
        Heading(2, "Context and Problem Statement"),
        Paragraph(result.question),
        Paragraph(
            f"The criteria were written before the run. Run `{result.run_id}` lasted from {instant(result.started_at)} to "
            f"{instant(result.ended_at)}."
        ),
        Heading(2, "Decision Drivers"),
        Bullets([_driver(gate) for gate in result.gates]),
        Heading(2, "Considered Options"),
        Bullets([f"Stay on `{result.production}`", f"Replace it by `{result.candidate}`"]),
        Heading(2, "Decision Outcome"),
        Paragraph(f"**{result.verdict}.** {outcome_sentence(result)} {_chosen(result)}, because:"),
        Bullets(result.reasons),
    ]
    if result.settle:
        doc += [Paragraph("What would settle it:"), Bullets(result.settle)]
    doc += [Heading(3, "Consequences"), Bullets(_consequences(result)), Heading(3, "Confirmation"), Paragraph(_CONFIRMATION)]
    doc += progress_blocks(result, 2)
    doc += [Heading(2, "Evidence"), Heading(3, "Criteria"), gates_table(result), Heading(3, "Legs"), legs_table(result)]
    doc += figure_blocks(result, 3)
    doc += contrast_blocks(result, 3)
    noise = noise_lines(result)
    if noise:
        doc += [Heading(3, "Noise"), Bullets(noise)]
    doc += hypothesis_blocks(result, 3)
    return [*doc, *caveat_blocks(result, 3)]


_CONFIRMATION = (
    "`audition judge` on this folder computes the verdict again from the raw records, byte for byte, without a server; "
    "`sha256sum -c MANIFEST` says whether they are still those that the run left."
)


def _driver(gate: GateResult) -> str:
    """A criterion as the spike file has it."""
    rule = gate.rule if gate.name in gate.rule else f"{gate.name}: {gate.rule}"
    return f"{rule} (shadow, never decides)" if gate.shadow else rule


def _chosen(result: Result) -> str:
    if result.rehearsal:
        return "No option is chosen by a rehearsal; a real run with these figures would say so"
    stay = f"Chosen option: stay on `{result.production}`"
    if result.verdict == "GO":
        return f"Open to people: replace `{result.production}` by `{result.candidate}`"
    return stay if result.verdict == "NO-GO" else f"{stay} for now"


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
