"""The whole page: head, verdict, parts, data, scripts. Reads its own style, scripts and libraries from beside this module.

Nothing is fetched when the page is opened: the Content-Security-Policy forbids it, and allows by hash the scripts that stand in the
page and no other. Texts are masked and escaped by ``blocks.Ink``; the page as a whole must not go through ``mask`` again, which
would change the scripts.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from audition.judge.records import RunRecord
from audition.judge.result import Result
from audition.report.documents import Bullets, Paragraph
from audition.report.html.blocks import Ink, Section, render, section
from audition.report.html.data import read_folder
from audition.report.html.sections import sections
from audition.report.html.speed import arms_of
from audition.report.words import REHEARSAL, day, instant, outcome_sentence, production_sentence
from audition.spike.model import Spike
from audition.units import format_duration

_HERE = Path(__file__).parent
_LIBRARIES = ("vendor/d3.min.js", "vendor/plot.umd.min.js")
_SCRIPTS = ("js/marks.js", "js/report.js")
_KINDS = {"GO": "good", "NO-GO": "bad", "INCONCLUSIVE": "open"}
_MARK = '<p class="eyebrow">audition, report of a run</p>'
_SIGNS = {"good": "✓", "bad": "✕", "open": "?"}


def report_html(run_dir: Path, result: Result, spike: Spike, secrets: Sequence[str] = ()) -> str:
    """The report of a run as one HTML text. The same records give the same bytes. Total over what a run folder may hold."""
    ink = Ink(secrets, arms_of(result))
    parts = sections(result, spike, read_folder(run_dir, result))
    title = f"{'REHEARSAL ' if result.rehearsal else ''}{result.spike}: {result.verdict}"
    return _page(title, _header(result, ink), _why(result, ink), parts, ink, rehearsal=result.rehearsal)


def is_report(data: bytes) -> bool:
    """Whether these bytes are those of a report that ``report_html`` or ``bare_html`` made."""
    return data.startswith(b"<!doctype html>") and _MARK.encode() in data


def bare_html(record: RunRecord, why: str, secrets: Sequence[str] = ()) -> str:
    """The report of a run that was cut before its spike was on disk: there is nothing to judge by, and nothing was measured."""
    ink = Ink(secrets)
    text = ink.text
    mark = _rehearsal_banner(record.fault, ink) if record.rehearsal else ""
    header = (
        f'{mark}{_MARK}<h1><span class="spike">{text(record.spike)}</span> '
        f'<span class="verdict open"><span aria-hidden="true">?</span> NO VERDICT</span></h1><p class="lead">{text(why)}</p>'
    )
    lines = [
        f"The run {record.run_id} began on {instant(record.started_at)} and ended before its first step.",
        f"Planned legs: {', '.join(record.legs_planned)}. None was reached; nothing was measured.",
        "Production is touched only after the spike is on disk: `audition status` says what runs now.",
    ]
    part = Section("course", "How far the run got", [Bullets(lines)])
    title = f"{'REHEARSAL ' if record.rehearsal else ''}{record.spike}: no verdict"
    return _page(title, header, "", [part], ink, rehearsal=record.rehearsal)


def _header(result: Result, ink: Ink) -> str:
    text, kind = ink.text, _KINDS[result.verdict]
    mark = _rehearsal_banner(result.fault, ink) if result.rehearsal else ""
    back = {True: "good", False: "bad", None: "open"}[result.production_back]
    done = sum(leg.outcome == "complete" for leg in result.legs)
    lasted = format_duration(result.ended_at - result.started_at) if result.ended_at is not None else "no recorded end"
    facts = [("Date", day(result.started_at)), ("Legs complete", f"{done} of {len(result.legs)}"), ("Took", lasted),
             ("Production", result.production), ("Candidate", result.candidate)]  # fmt: skip
    items = "".join(f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in facts)
    return (
        f"{mark}{_MARK}"
        f'<h1><span class="spike">{text(result.spike)}</span> <span class="verdict {kind}">'
        f'<span aria-hidden="true">{_SIGNS[kind]}</span> {text(result.verdict)}</span></h1>'
        f'<p class="lead">{text(outcome_sentence(result))} <span class="back {back}">{text(production_sentence(result))}</span></p>'
        f'<p class="question">{text(result.question)}</p><dl class="facts">{items}</dl>'
    )


def _rehearsal_banner(fault: str | None, ink: Ink) -> str:
    more = f" Fault on demand: {fault}." if fault else ""
    words = REHEARSAL.partition(": ")[2]
    said = ink.text(words[0].upper() + words[1:] + more)
    return f'<div class="rehearsal" role="note"><strong>REHEARSAL, simulated figures.</strong> {said}</div>'


def _why(result: Result, ink: Ink) -> str:
    body = render([Bullets(result.reasons)] if result.reasons else [Paragraph("No reason was recorded.")], ink)
    if result.settle:
        body += "<h3>What would settle it</h3>" + render([Bullets(result.settle)], ink)
    return f'<section id="why" class="why" aria-labelledby="why-title"><h2 id="why-title">Why</h2>{body}</section>'


@cache
def _file(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8").strip()


@cache
def _hash(name: str) -> str:
    digest = hashlib.sha256(f"\n{_file(name)}\n".encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def _page(title: str, header: str, why: str, parts: Sequence[Section], ink: Ink, *, rehearsal: bool) -> str:
    body = "\n".join(section(part, ink) for part in parts)
    names = [*([("why", "Why")] if why else []), *((part.name, part.title) for part in parts)]
    links = "".join(f'<li><a href="#{ink.text(name)}">{ink.text(label)}</a></li>' for name, label in names)
    scripts = (*_LIBRARIES, *_SCRIPTS)
    allowed = " ".join(_hash(name) for name in scripts)
    policy = f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    run = "".join(f"<script>\n{_file(name)}\n</script>\n" for name in scripts)
    paper = _REHEARSAL_PAPER if rehearsal else ""
    stamp = '<p class="stamp" aria-hidden="true">REHEARSAL, simulated figures</p>' if rehearsal else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{ink.text(title)}</title>
<style>
{_file("css/report.css")}
{paper}</style>
</head>
<body{' class="is-rehearsal"' if rehearsal else ""}>
<a class="skip" href="#main">Skip to the report</a>
{stamp}
<header>{header}</header>
<nav aria-label="Parts of the report"><ol>{links}</ol></nav>
<main id="main" tabindex="-1">
{_NO_SCRIPT}
{why}
{body}
</main>
<footer>{_FOOTER}</footer>
<script type="application/json" id="charts">{ink.json()}</script>
{run}</body>
</html>
"""


_REHEARSAL_PAPER = """@page { @top-center {
  content: "REHEARSAL, simulated figures: no figure was measured on a real server"; font: 700 9pt sans-serif; color: #8a1c00;
} }
"""
_NO_SCRIPT = (
    '<p class="missing no-script">Charts are drawn by JavaScript, which is off. '
    "Below the name of each chart stands the same data as a table.</p>"
)
_FOOTER = "<p>Made by audition from the records beside this file. Charts: Observable Plot and D3, both under the ISC licence.</p>"
