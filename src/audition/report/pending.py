"""``notes-entry.md``: what a run adds to the notes files, kept in the run folder. Pure.

A rehearsal shows here what a real run would add; where a notes file cannot be written, the entry is found here.
"""

from __future__ import annotations

from audition.judge.result import Result
from audition.report.documents import Document, Heading, Paragraph, to_markdown
from audition.report.notes import entry_text
from audition.spike.model import Spike


def entries_markdown(result: Result, spike: Spike) -> str | None:
    """The entry with the files and headings that it belongs to, or None when this verdict adds none."""
    notes = [note for note in spike.records.notes if result.verdict in note.on]
    if not notes:
        return None
    would = "A real run would add" if result.rehearsal else "This run adds"
    places = "; ".join(f'`{note.file}`, under "{note.heading.lstrip("#").strip()}"' for note in notes)
    doc: Document = [Heading(1, "Entry for the notes"), Paragraph(f"{would} the text below to: {places}."), Paragraph("---")]
    return to_markdown(doc) + "\n" + entry_text(result) + "\n"
