"""Figures on the screen: numbers as short text, little curves, and the table of the running leg beside production's latest. Pure.

Figures on the way are what the client has seen so far; the verdict is made of the records, by ``judge``.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text

from audition.run.events import Figure
from audition.run.screen_marks import Marks
from audition.run.screen_state import Figures, LegState, ScreenState
from audition.units import NoData

NONE = "–"
_NAME, _CELL, _CURVE = 18, 10, 8  # columns


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


def figure_table(state: ScreenState, leg: LegState, before: LegState | None, marks: Marks) -> list[Text]:
    """One row a workload: what this leg shows beside production's latest leg before it."""
    here, there = leg.arm[: _CELL - 1], (f"{before.arm}, leg {before.number}" if before is not None else "")[:_CELL]
    groups = Text(" " * _NAME, "dim")
    for name, width in (("output tok/s", 2 * _CELL + _CURVE + 1), ("first token, p50", 2 * _CELL + 1), ("acceptance", 2 * _CELL)):
        groups.append(f"{name:^{width}}  ", "dim")
    heads = Text(" " * _NAME)
    for curve in (_CURVE + 1, 0, 0):
        heads.append(f"{here:>{_CELL}}", "bold cyan" if leg.role != "production" else "bold green")
        heads.append(" " * curve).append(f"{there:>{_CELL}}", "green").append("   ")
    return [groups, heads, *(_row(state, leg, before, workload, marks) for workload in leg.workloads)]


def _row(state: ScreenState, leg: LegState, before: LegState | None, workload: str, marks: Marks) -> Text:
    now = state.progress
    running = now is not None and now.leg == leg.number and now.workload == workload and workload not in leg.measured
    shown: Figures | None = leg.measured.get(workload)
    curve = ""
    if running and now is not None:
        shown = Figures(now.output_tok_s, now.ttft_p50_s, now.acceptance_rate, now.acceptance_length)
        curve = spark(state.rates, _CURVE, marks)
    then = before.measured.get(workload) if before is not None else None
    mark = marks.done if workload in leg.measured else marks.running if running else marks.to_come
    style = "bold" if running else "" if shown is not None else "dim"
    row = Text.assemble((f"{mark} ", "green" if mark == marks.done else "cyan"), (f"{workload[: _NAME - 2]:{_NAME - 2}}", style))
    cells = (
        (rate(shown.output_tok_s), seconds(shown.ttft_p50_s), acceptance(shown.acceptance_rate, shown.acceptance_length))
        if shown is not None
        else ("", "", "")
    )
    other = (
        (rate(then.output_tok_s), seconds(then.ttft_p50_s), acceptance(then.acceptance_rate, then.acceptance_length))
        if then is not None
        else ("", "", "")
    )
    for place, (mine, theirs) in enumerate(zip(cells, other, strict=True)):
        row.append(f"{mine.replace(NONE, marks.none):>{_CELL}}", style)
        if place == 0:
            row.append(f" {curve:<{_CURVE}}", "cyan")
        row.append(f"{theirs.replace(NONE, marks.none):>{_CELL}}", "dim").append("   ")
    return row
