"""What is announced to the people who share the GPUs: request, all-clear, result; a run's begin, trouble and end. Pure.

Texts only, as Markdown; sending is ``audition.run.announcing``'s, finding the slot ``audition.run.slot``'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from audition.judge.result import Result
from audition.report.documents import Bullets, Document, Heading, Paragraph, to_markdown
from audition.report.words import gates_table, outcome_sentence, production_sentence
from audition.spike.model import Spike
from audition.units import NoData
from audition.windows.slots import show_instant


@dataclass(frozen=True)
class Announcement:
    """A message. ``title`` without markup; ``body``: Markdown, its heading is the title. ``bad``: something went wrong."""

    title: str
    body: str
    bad: bool = False


@dataclass(frozen=True)
class Times:
    """From when until when at the latest, as instants; NoData with the reason for what is not agreed or not known."""

    start: datetime | NoData
    end: datetime | NoData


def request(spike: Spike, times: Times) -> Announcement:
    """Asks those who share the GPUs for the slot: what goes down, from when until when at the latest, whom to call."""
    doc: Document = [Paragraph(f"We would like to try a change to {_server(spike)}, and ask for your agreement.")]
    doc.append(Bullets([f"Why: {spike.question}", f"What goes down: {_down(spike)}", *_when(spike, times), *_people(spike)]))
    doc.append(Paragraph(f"{_meanwhile(spike)} Afterwards production runs again as it does now, and you get an all-clear."))
    return _made(f"Request: {spike.name}, {_span(spike, times)}", doc)


def all_clear(spike: Spike, at: datetime) -> Announcement:
    """Says that production is back and the GPUs are free for others as before. ``at``: when that was verified, by a record."""
    doc: Document = [
        Paragraph(
            f"The trial {spike.name} is over. {_server(spike)} runs as before, verified at {show_instant(at, spike.window)}."
        ),
        Bullets([f"GPUs {_gpus(spike)} are shared as before", *_call(spike)]),
    ]
    return _made(f"All clear: {spike.name}", doc)


def result(spike: Spike, found: Result) -> Announcement:
    """Says how a run ended, with its criteria."""
    mark = "REHEARSAL " if found.rehearsal else ""
    doc: Document = [Paragraph(found.question), Paragraph(f"{outcome_sentence(found)} {production_sentence(found)}")]
    doc += [Bullets(found.reasons), gates_table(found)]
    doc.append(Bullets([f"run {found.run_id}", *_call(spike)]))
    return _made(f"{mark}{found.spike}: {found.verdict}", doc, bad=found.production_back is False)


def begun(spike: Spike, times: Times) -> Announcement:
    """Says that production goes down now."""
    doc: Document = [
        Bullets([f"What goes down: {_down(spike)}", *_when(spike, times), *_call(spike)]),
        Paragraph(_meanwhile(spike)),
    ]
    return _made(f"Begins: {spike.name}, {_span(spike, times)}", doc)


def trouble(spike: Spike, what: str) -> Announcement:
    """Says that the run was cut short, and that production is being brought back."""
    doc: Document = [Paragraph(f"{what}. Production is being brought back now."), *_bullets(_call(spike))]
    return _made(f"Cut short: {spike.name}", doc, bad=True)


def not_back(spike: Spike, problems: Sequence[str]) -> Announcement:
    """Says that production could not be brought back."""
    doc: Document = [Paragraph(f"{_server(spike)} could not be verified as running."), *_bullets(list(problems))]
    doc += [Paragraph("On its machine, type `audition status`, then `audition recover`."), *_bullets(_call(spike))]
    return _made(f"PRODUCTION IS NOT BACK: {spike.name}", doc, bad=True)


def ended(spike: Spike, verdict: str, reasons: Sequence[str], *, back: bool | None, at: datetime) -> Announcement:
    """Says that a run is over: its verdict and the all-clear. ``back`` None: nothing was touched."""
    state = {
        True: f"{_server(spike)} runs as before since {show_instant(at, spike.window)}.",
        False: "PRODUCTION IS NOT BACK.",
        None: "Nothing was touched.",
    }[back]
    said = f"Verdict: {verdict}." if verdict != "none" else "There is no verdict."
    doc: Document = [Paragraph(f"{state} {said}"), *_bullets([*reasons, *_call(spike)])]
    head = {True: "All clear", False: "PRODUCTION IS NOT BACK", None: "Nothing was touched"}[back]
    return _made(f"{head}: {spike.name}, {verdict if verdict != 'none' else 'no verdict'}", doc, bad=back is False)


def _made(title: str, doc: Document, *, bad: bool = False) -> Announcement:
    line = " ".join(title.split())
    return Announcement(line, to_markdown([Heading(1, line), *doc]), bad)


def _bullets(items: Sequence[str]) -> Document:
    return [Bullets(items)] if items else []


def _server(spike: Spike) -> str:
    arm = spike.production
    return f"{arm.endpoint.model} at {arm.endpoint.url}"


def _gpus(spike: Spike) -> str:
    return ", ".join(map(str, spike.gpus)) if spike.gpus else "of that server"


def _down(spike: Spike) -> str:
    drain = spike.drain
    said = f"{_server(spike)}" + (f", on GPUs {_gpus(spike)}" if spike.gpus else "")
    if drain.close is not None:
        said += "; the entry is closed first, running requests may end"
    return said


def _meanwhile(spike: Spike) -> str:
    names = [arm.name for arm in spike.arms if arm.role != "production"]
    return (
        f"In that time requests to it fail, or are answered by another configuration ({', '.join(names)}); "
        "its answers are not to be relied on."
    )


def _when(spike: Spike, times: Times) -> list[str]:
    start = f"From: {_moment(spike, times.start)}"
    return [start, f"Until at the latest: {_moment(spike, times.end)}"]


def _moment(spike: Spike, at: datetime | NoData) -> str:
    return at.reason if isinstance(at, NoData) else show_instant(at, spike.window)


def _span(spike: Spike, times: Times) -> str:
    if isinstance(times.start, NoData) and isinstance(times.end, NoData):
        return "time to be agreed"
    if isinstance(times.start, NoData):
        return f"until {_moment(spike, times.end)}"
    if isinstance(times.end, NoData):
        return f"from {_moment(spike, times.start)}"
    return f"{_moment(spike, times.start)} to {_moment(spike, times.end)}"


def _people(spike: Spike) -> list[str]:
    shared = [f"{one.name} ({one.contact})" if one.contact else one.name for one in spike.agreement.shared_with]
    rows = [f"The GPUs are shared with: {'; '.join(shared)}"] if shared else []
    return [*rows, *(_call(spike) or ["Whom to call: not said; the spike file has a key for it (`agreement.call`)"])]


def _call(spike: Spike) -> list[str]:
    return [f"Whom to call: {spike.agreement.call}"] if spike.agreement.call else []
