"""``summary.md``: the verdict, the criteria and the main figures, short enough for a pull request comment. Pure.

GitHub refuses comments of more than 65,536 characters; this text stays far below, whatever the run holds: long lists end with how
many more there are. Everything stands in ``decision.md`` in full.
"""

from __future__ import annotations

from collections.abc import Sequence

from audition.judge.gates import GateResult
from audition.judge.result import PlacedCaveat, Result
from audition.report.documents import Bullets, Document, Heading, Paragraph, Table, to_markdown
from audition.report.progress import progress_lines
from audition.report.words import (
    REHEARSAL,
    day,
    gate_value,
    leg_values,
    limit,
    number,
    outcome_sentence,
    production_sentence,
    ratio_text,
    workloads_of,
)
from audition.spike.metrics import METRICS

MOST_CHARACTERS = 65_536
"""The longest comment that GitHub takes, in characters."""

_MOST_ITEMS = 12
_MOST_TEXT = 300
_FIGURES = (("output_tok_s", ""), ("decode_tok_s", "p50"), ("ttft", "p50"))


def summary_markdown(result: Result) -> str:
    """The summary for a comment."""
    return to_markdown(summary_comment(result))


def summary_comment(result: Result) -> Document:
    """The same as a document."""
    doc: Document = [Heading(2, f"{'REHEARSAL, ' if result.rehearsal else ''}{result.spike}: {result.verdict}")]
    if result.rehearsal:
        doc.append(Paragraph(f"**{REHEARSAL}**" + (f" Fault on demand: {result.fault}." if result.fault else "")))
    doc += [
        Paragraph(_cut(result.question)),
        Paragraph(f"**{result.verdict}.** {outcome_sentence(result)} {production_sentence(result)}"),
        Bullets(_few(result.reasons)),
    ]
    if result.settle:
        doc += [Paragraph("What would settle it:"), Bullets(_few(result.settle))]
    if lines := progress_lines(result):
        doc += [Heading(3, "How far the run got"), Bullets(_few(lines))]
    doc += [Heading(3, "Criteria"), _gates(result)]
    figures = _figures(result)
    if figures is not None:
        doc += [Heading(3, "Figures"), figures]
    if result.hypotheses:
        doc += [Heading(3, "Hypotheses"), Bullets(_few([f"{h.name}: {h.outcome}. {h.why}." for h in result.hypotheses]))]
    if result.caveats:
        doc += [Heading(3, "Caveats"), Bullets(_few(_caveats(result.caveats)))]
    doc.append(Paragraph(f"Run `{result.run_id}`, {day(result.started_at)}, audition {result.audition_version}."))
    return doc


def _gates(result: Result) -> Table:
    rows: list[list[str]] = []

    def add(gate: GateResult, depth: int) -> None:
        name = "&nbsp;&nbsp;" * depth + _cut(gate.name) + (" (shadow)" if gate.shadow else "")
        rows.append([gate.outcome, name, limit(gate), _cut(gate_value(gate))])
        for part in gate.parts:
            add(part, depth + 1)

    for gate in result.gates:
        add(gate, 0)
    most = 3 * _MOST_ITEMS
    if len(rows) > most:
        rows = [*rows[:most], ["", f"and {len(rows) - most} more", "", ""]]
    return Table(["", "criterion", "limit", "value [95 %]"], rows)


def _figures(result: Result) -> Table | None:
    """Throughput, speed of one stream and time to the first token, with the paired ratio."""
    rows: list[list[str]] = []
    for workload in workloads_of(result):
        for metric, stat in _FIGURES:
            cells = [_legs(result, arm, workload, metric, stat) for arm in (result.production, result.candidate)]
            if any(cells):
                label = f"{metric} {stat}".strip() + f" ({METRICS[metric].unit})"
                wanted = (result.candidate, result.production, workload, metric, stat)
                found = next(
                    (c for c in result.comparisons if (c.arm, c.reference_arm, c.workload, c.metric, c.stat) == wanted), None
                )
                rows.append([workload, label, *(cell or "-" for cell in cells), ratio_text(found)])
    most = 2 * _MOST_ITEMS
    if len(rows) > most:
        rows = [*rows[:most], [f"and {len(rows) - most} more", "", "", "", ""]]
    header = ["workload", "figure, leg by leg", _cut(result.production), _cut(result.candidate), "ratio [95 %]"]
    return Table(header, rows) if rows else None


def _legs(result: Result, arm: str, workload: str, metric: str, stat: str) -> str:
    values = leg_values([leg for leg in result.legs if leg.arm == arm], workload, metric, stat)
    more = f" and {len(values) - _MOST_ITEMS} more" if len(values) > _MOST_ITEMS else ""
    return " / ".join(number(v) for v in values[:_MOST_ITEMS]) + more


def _caveats(caveats: Sequence[PlacedCaveat]) -> list[str]:
    """One line a kind, void ones first: the first text and how many more there are."""
    kinds: dict[tuple[str, str], list[PlacedCaveat]] = {}
    for caveat in sorted(caveats, key=lambda c: c.effect == "note"):
        kinds.setdefault((caveat.effect, caveat.code), []).append(caveat)
    lines = []
    for (effect, code), found in kinds.items():
        more = f" ({len(found) - 1} more of this kind)" if len(found) > 1 else ""
        lines.append(f"{effect}, {code}: {found[0].where}: {found[0].text}{more}")
    return lines


def _few(items: Sequence[str]) -> list[str]:
    kept = [_cut(item) for item in items[:_MOST_ITEMS]]
    return kept if len(items) <= _MOST_ITEMS else [*kept, f"and {len(items) - _MOST_ITEMS} more"]


def _cut(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _MOST_TEXT else flat[: _MOST_TEXT - 3] + "..."
