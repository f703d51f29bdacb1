"""Figures on the screen: numbers as short text, little curves, and the table of the running leg beside production's latest. Pure.

Figures on the way are what the client has seen so far; the verdict is made of the records, by ``judge``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rich.text import Text

from audition.run.events import Figure, LegProgressed
from audition.run.screen_marks import Marks
from audition.run.screen_state import Figures, LegState, ScreenState
from audition.units import NoData

NONE = "–"


def clock(passed: float) -> str:
    """Seconds as 01:05 or 1:02:03."""
    whole = max(0, int(passed))
    minutes, left = divmod(whole, 60)
    return f"{minutes:02d}:{left:02d}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d}:{left:02d}"


def rate(value: Figure) -> str:
    """Tokens a second."""
    if isinstance(value, NoData):
        return NONE
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}"


def seconds(value: Figure) -> str:
    """A short time."""
    if isinstance(value, NoData):
        return NONE
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"


def acceptance(share: Figure, length: Figure) -> str:
    """Share of accepted draft tokens, and tokens a step."""
    if isinstance(share, NoData):
        return NONE
    return f"{share:.0%}" if isinstance(length, NoData) else f"{share:.0%} {length:.2f}"


def spark(values: Iterable[float], width: int, marks: Marks) -> str:
    """The last values as a little curve from 0 to their largest."""
    shown = list(values)[-width:] if width > 0 else []
    top = max(shown, default=0.0)
    if top <= 0:
        return ""
    last = len(marks.levels) - 1
    return "".join(marks.levels[round(last * value / top)] for value in shown)


@dataclass(frozen=True)
class _Layout:
    """Columns of the table: the workload's name, each of two cells of a figure, and the gap after them."""

    name: int
    cell: int
    gap: int

    @staticmethod
    def for_width(width: int) -> _Layout:
        if width >= 99:
            return _Layout(18, 12, 3)
        return _Layout(18, 11, 2) if width >= 90 else _Layout(16, 9, 2)


def figure_table(state: ScreenState, leg: LegState, before: LegState | None, marks: Marks, width: int) -> list[Text]:
    """One row a workload: what this leg shows beside production's latest leg before it. Needs 76 columns."""
    form = _Layout.for_width(width)
    groups, heads = Text(" " * form.name), Text(" " * form.name)
    for name in ("output tok/s", "first token p50", "acceptance, length"):
        groups.append(f"{name:>{2 * form.cell}}{'':{form.gap}}", "dim")
    here = leg.arm[: form.cell - 1]
    there = "" if before is None else before.arm[: form.cell - 1] if before.arm != leg.arm else "before"
    for _ in range(3):
        heads.append(f"{here:>{form.cell}}", "green" if leg.role == "production" else "cyan")
        heads.append(f"{there:>{form.cell}}{'':{form.gap}}", "green")
    return [groups, heads, *(_row(state, leg, before, workload, marks=marks, form=form) for workload in leg.workloads)]


def _row(state: ScreenState, leg: LegState, before: LegState | None, workload: str, *, marks: Marks, form: _Layout) -> Text:
    now = state.progress
    running = now is not None and now.leg == leg.number and now.workload == workload and workload not in leg.measured
    mine: Figures | None = leg.measured.get(workload)
    if running and now is not None:
        mine = Figures(now.output_tok_s, now.ttft_p50_s, now.acceptance_rate, now.acceptance_length)
    then = before.measured.get(workload) if before is not None else None
    mark = marks.done if workload in leg.measured else marks.running if running else marks.to_come
    style = "bold" if running else "" if mine is not None else "dim"
    row = Text.assemble((f"{mark} ", "green" if mark == marks.done else "cyan"))
    row.append(f"{workload[: form.name - 2]:{form.name - 2}}", style)
    for one, other in zip(_cells(mine, marks), _cells(then, marks), strict=True):
        row.append(f"{one:>{form.cell}}", style).append(f"{other:>{form.cell}}{'':{form.gap}}", "dim")
    return row


def _cells(figures: Figures | None, marks: Marks) -> tuple[str, str, str]:
    if figures is None:
        return "", "", ""
    shown = (
        rate(figures.output_tok_s),
        seconds(figures.ttft_p50_s),
        acceptance(figures.acceptance_rate, figures.acceptance_length),
    )
    return shown[0].replace(NONE, marks.none), shown[1].replace(NONE, marks.none), shown[2].replace(NONE, marks.none)


def running_rows(state: ScreenState, now: LegProgressed, width: int, marks: Marks) -> list[Text]:
    """The running workload's requests as a bar, and its tokens a second as a curve."""
    length = max(5, width - 45)
    row = Text.assemble((f"{'requests':12}", "dim"))
    if now.planned:
        full = round(length * min(1.0, now.done / now.planned))
        row.append(marks.bar * full, "cyan").append(marks.rest * (length - full), "grey37")
        row.append(f"  {now.done} of {now.planned}")
    else:
        row.append(f"{now.done}")
    if now.failed:
        row.append(f"  {now.failed} failed", "bold red")
    curve = spark(state.rates, length, marks)
    if not curve:
        return [row]
    return [row, Text.assemble((f"{'tok/s':12}", "dim"), (curve, "cyan"), f"  {rate(state.rates[-1])} now")]
