"""How the screen looks: rows of styled text made from what it knows. Pure but for ``rich``; every row is one line of the terminal.

What must not live here: control codes of terminals (``screen_terminal``), what is known (``screen_state``).
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from rich.text import Text

from audition.run.screen_figures import acceptance, clock, figure_table, rate, running_rows, seconds
from audition.run.screen_marks import ASCII, UNICODE, Marks
from audition.run.screen_state import LegState, ScreenState
from audition.units import NoData, format_duration

__all__ = ["ASCII", "UNICODE", "View", "rows", "summary_rows"]

WIDE = 76  # columns from which on there is room for tables
_PRODUCTION_STYLE = {
    "running": "bold bright_white on dark_green",
    "draining": "black on yellow",
    "stopped": "bold bright_white on red",
    "parked": "black on yellow",
    "starting": "black on yellow",
    "being restored": "bold black on yellow",
    "back and verified": "bold bright_white on dark_green",
    "not back": "bold bright_white on red",
}
_LOG_HEAD = re.compile(r"^(?:\([^()]*pid=\d+\) )?(?:(?:DEBUG|INFO|WARNING|ERROR) [\d-]+ [\d:]+ )?(?:\[[\w./]+:\d+\] )?")
ROLE_STYLE = {"production": "green", "candidate": "cyan", "control": "magenta"}
_VERDICT_STYLE = {"GO": "bold green", "NO-GO": "bold red", "INCONCLUSIVE": "bold yellow"}


@dataclass(frozen=True)
class View:
    """What the rows are made for. ``now``: seconds since the start; ``unix``: the same instant in Unix seconds."""

    width: int
    height: int
    now: float
    unix: float
    marks: Marks = UNICODE


def rows(state: ScreenState, view: View) -> list[Text]:
    """The screen as it is now, at most ``view.height`` rows, none wider than ``view.width``. The most telling rows stay when there
    is little room."""
    blocks = [
        (0, [_head(state, view)]),
        (5, _spaced(_strip(state, view))),
        (1, _spaced([_production(state, view)])),
        (4, [_time_left(state, view)] if state.guarded and state.production != "being restored" and state.restored is None else []),
        (2, _spaced(_middle(state, view))),
        (6, _boot(state, view)),
        (3, _warnings(state, view)),
        (7, _spaced([_hint(state, view)])),
    ]
    return [_fitted(row, view.width) for row in _chosen(blocks, view.height)]


def _spaced(block: list[Text]) -> list[Text]:
    return [Text(""), *block] if block else []


def _chosen(blocks: list[tuple[int, list[Text]]], height: int) -> list[Text]:
    """The blocks in order, without blank rows when they do not fit, then without those that matter least."""
    kept = [(rank, block) for rank, block in blocks if block]
    if sum(len(block) for _, block in kept) > height:
        kept = [(rank, [row for row in block if row.plain]) for rank, block in kept]
    while (excess := sum(len(block) for _, block in kept) - height) > 0 and len(kept) > 1:
        worst = max(range(len(kept)), key=lambda place: kept[place][0])
        rank, block = kept[worst]
        kept[worst : worst + 1] = [(rank, block[:-excess])] if len(block) > excess else []
    return [row for _, block in kept for row in block][: max(1, height)]


def _fitted(row: Text, width: int) -> Text:
    row.no_wrap, row.end = True, ""
    row.truncate(max(1, width), overflow="crop" if width < 8 else "ellipsis")
    return row


def badge(state: ScreenState) -> Text:
    """The mark of a rehearsal and the spike's name."""
    text = Text()
    if state.rehearsal:
        text.append(" REHEARSAL ", "bold black on yellow")
        text.append(" ")
    return text.append(state.plan.spike if state.plan is not None else "audition", "bold")


def _ends(left: Text, right: Text, width: int) -> Text:
    """Two texts at both ends of a row; the right one goes when there is no room."""
    gap = width - left.cell_len - right.cell_len
    return Text.assemble(left, " " * gap, right) if gap >= 2 else left


def _head(state: ScreenState, view: View) -> Text:
    right = Text(clock(view.now), "bold")
    to_go = state.seconds_to_go(view.now) if state.legs and state.restored is None and state.ended_early is None else NoData("over")
    if not isinstance(to_go, NoData) and to_go > 0 and view.width >= WIDE:
        right = Text.assemble((f"legs: about {format_duration(to_go)} to go   ", "dim"), right)
    left = badge(state)
    if view.width < 40 and state.rehearsal and state.plan is not None:
        left = Text.assemble((" REHEARSAL ", "bold black on yellow"), " ", (state.plan.spike, "bold"))
    return _ends(left, right, view.width)


# -- the plan ------------------------------------------------------------------------------------------------------------


def _strip(state: ScreenState, view: View) -> list[Text]:
    """The legs in time order: bars, names, times. One row of marks where it is narrow."""
    if not state.legs:
        return []
    each = (view.width - (len(state.legs) - 1)) // len(state.legs)
    if each < 9:
        row = Text()
        for leg in state.legs:
            row.append(leg_mark(state, leg, view.marks), leg_style(state, leg))
        where = f" leg {state.leg.number} of {len(state.legs)} {state.leg.arm}" if state.leg is not None else ""
        return [row.append(where)]
    bars, names, times = Text(), Text(), Text()
    for leg in state.legs:
        style = leg_style(state, leg)
        full = round(each * state.share_of(leg))
        bars.append(view.marks.bar * full, style).append(view.marks.rest * (each - full), "grey37").append(" ")
        label = f"{leg_mark(state, leg, view.marks)} {leg.arm}"
        names.append(label[:each].ljust(each), style).append(" ")
        took = state.leg_seconds(leg, view.now)
        times.append(("" if took is None else f"  {clock(took)}")[:each].ljust(each), "dim").append(" ")
    for row in (bars, names, times):
        row.rstrip()
    return [bars, names, times]


def leg_mark(state: ScreenState, leg: LegState, marks: Marks) -> str:
    """Done, running, cut or to come."""
    if leg.ended is not None:
        return marks.done if len(leg.measured) >= len(leg.workloads) else marks.cut
    return marks.running if leg is state.leg else marks.to_come


def leg_style(state: ScreenState, leg: LegState) -> str:
    """The colour of its role; dim before it begins."""
    style = ROLE_STYLE.get(leg.role, "white")
    if leg.began is None:
        return f"dim {style}"
    return f"bold {style}" if leg is state.leg and leg.ended is None else style


# -- production and the time ---------------------------------------------------------------------------------------------


def _production(state: ScreenState, view: View) -> Text:
    row = Text.assemble(("production ", "dim"))
    if state.plan is None or state.production is None:
        return row.append("untouched", "green")
    word = state.production.upper()
    if state.production in ("stopped", "parked", "draining", "starting", "being restored"):
        word += f" {clock(view.now - state.production_since)}"
    row.append(f"{state.plan.production}  ", "bold").append(f" {word} ", _PRODUCTION_STYLE[state.production])
    if state.production == "stopped" and state.leg is not None and state.leg.role != "production" and view.width >= WIDE:
        row.append(f"  {state.leg.arm} has its place", "dim")
    return row


def _time_left(state: ScreenState, view: View) -> Text:
    """How long until restoring must begin."""
    row = Text.assemble(("restoring  ", "dim"))
    if isinstance(state.restore_by, NoData):
        return row.append(f"no fixed time: {state.restore_by.reason}" if view.width >= 50 else "no fixed time", "dim")
    left = state.restore_by - view.unix
    style = "bold red" if left < 300 else "yellow" if left < 900 else "white"
    when = time.strftime("%H:%M:%S", time.localtime(state.restore_by))
    if left <= 0:
        return row.append(f"must begin now (since {when})", style)
    return row.append(f"must begin in {format_duration(left)}", style).append(f", at {when}", "dim")


# -- what happens now ----------------------------------------------------------------------------------------------------


def _middle(state: ScreenState, view: View) -> list[Text]:
    step = state.step
    if step is None:
        return []
    if step.kind == "measure" and state.leg is not None and state.ended_early is None:
        return _measuring(state, state.leg, view)
    if step.kind in ("restore", "stand-down", "release-lock"):
        return _restoring(state, view)
    return _stepping(state, view)


def _measuring(state: ScreenState, leg: LegState, view: View) -> list[Text]:
    now = state.progress if state.progress is not None and state.progress.leg == leg.number else None
    title = Text.assemble((f"leg {leg.number} of {len(state.legs)}", "bold"), "  ", (leg.arm, leg_style(state, leg)))
    if now is None:
        title.append(f"  probes {clock(view.now - state.step_since)}", "dim")
    elif now.workload in leg.measured:
        title.append("  between workloads", "dim")
    else:
        elapsed = now.elapsed_s + max(0.0, view.now - state.progress_at)
        what = now.workload if now.phase == "measuring" else f"{now.workload}, {now.phase}"
        title.append(f"  {what} {clock(elapsed)}", "dim")
    before = state.production_before(leg)
    if before is not None and view.width >= WIDE:
        title = _ends(title, Text(f"beside {before.arm} in leg {before.number}", "dim"), view.width)
    if view.width >= WIDE and view.height >= 16:
        table = figure_table(state, leg, before, view.marks, view.width)
        running = now is not None and now.phase == "measuring" and now.workload not in leg.measured
        return [title, *table, *(_spaced(running_rows(state, now, view.width, view.marks)) if running and now else [])]
    return [title, *_few_figures(state, leg, before, view)]


def _few_figures(state: ScreenState, leg: LegState, before: LegState | None, view: View) -> list[Text]:
    """The running workload alone, where there is no room for a table."""
    now = state.progress
    if now is None or now.leg != leg.number:
        return []
    then = before.measured.get(now.workload) if before is not None else None
    beside = f" {before.arm}" if before is not None else ""

    def line(name: str, value: str, other: str | None) -> Text:
        row = Text.assemble((f"{name:12}", "dim"), (f"{value:>9}", "bold"))
        return row.append(f"  {other} {beside.strip()}", "dim") if other is not None else row

    return [
        line("tok/s", rate(now.output_tok_s), rate(then.output_tok_s) if then is not None else None),
        line("first token", seconds(now.ttft_p50_s), seconds(then.ttft_p50_s) if then is not None else None),
        line(
            "accepted",
            acceptance(now.acceptance_rate, now.acceptance_length),
            acceptance(then.acceptance_rate, then.acceptance_length) if then is not None else None,
        ),
        *running_rows(state, now, view.width, view.marks),
    ]


def _stepping(state: ScreenState, view: View) -> list[Text]:
    """The steps around the present one: before touching anything, or between two legs."""
    step = state.step
    assert step is not None
    assert state.plan is not None
    near = [one for one in state.plan.steps if one.leg == step.leg and one.kind != "measure"]
    if step.leg is None:
        near = [one for one in near if one.kind not in ("restore", "stand-down", "release-lock")]
    out = []
    for one in near:
        if one.key in state.steps_done:
            took = state.steps_done[one.key]
            text = Text.assemble((f"{view.marks.done} ", "green"), one.text, (f"  {format_duration(took)}", "dim"))
        elif one.key == step.key:
            waits = f"  {clock(view.now - state.step_since)}"
            text = Text.assemble((f"{view.marks.turn(view.now)} ", "bold cyan"), (one.text, "bold"), (waits, "dim"))
        else:
            text = Text(f"{view.marks.to_come} {one.text}", "dim")
        out.append(text)
    return out


def _restoring(state: ScreenState, view: View) -> list[Text]:
    out = []
    if state.ended_early is not None:
        out.append(Text.assemble(("ending early: ", "yellow"), state.ended_early.reason))
    if state.restored is None:
        text = state.restoring.removeprefix("restore: ") or "looking"
        waits = f"  {clock(view.now - state.step_since)}"
        out.append(
            Text.assemble(
                (f"{view.marks.turn(view.now)} ", "bold cyan"), ("bringing production back: ", "bold"), text, (waits, "dim")
            )
        )
    elif state.restored.verified:
        out.append(Text.assemble((f"{view.marks.done} ", "green"), "production is back and verified", ("; judging", "dim")))
    else:
        out += [Text(f"{view.marks.cut} {problem}", "bold red") for problem in state.restored.problems]
    return out


def _boot(state: ScreenState, view: View) -> list[Text]:
    booting = state.step is not None and state.step.kind in ("start", "await-ready", "snapshot")
    if state.boot is None or not booting:
        return []
    return [Text.assemble(("log  ", "dim"), (_without_head(" ".join(state.boot.line.split())), "italic"))]


def _without_head(line: str) -> str:
    """A log line without what stands before the message: the process, the level, the time and the place in the source."""
    return _LOG_HEAD.sub("", line, count=1) or line


def _warnings(state: ScreenState, view: View) -> list[Text]:
    out = []
    for at, text in state.warnings:
        first = (text.splitlines() or [""])[0]
        out.append(Text.assemble((f"{view.marks.warning} {clock(at)} ", "bold yellow"), (first, "yellow")))
    return out


def _hint(state: ScreenState, view: View) -> Text:
    """What Ctrl-C would do now, or what was asked for."""
    if state.signal is not None:
        return Text(state.signal.text, "bold yellow")
    if state.production == "being restored" or state.restored is not None:
        return Text("Ctrl-C is put off: production is being brought back", "dim")
    if state.production in (None, "running") and not any(leg.ended for leg in state.legs) and state.leg is None:
        return Text("Ctrl-C ends the run; nothing has been touched", "dim")
    return Text("Ctrl-C ends the leg and brings production back", "dim")


# -- the end -------------------------------------------------------------------------------------------------------------


def summary_rows(state: ScreenState, view: View) -> list[Text]:
    """What remains in the terminal when the run is over. Nothing of a run that was refused: its error says it all."""
    if state.plan is None or (state.closed and state.verdict is None and state.restored is None):
        return []
    out = [_verdict_row(state, view)]
    if state.restored is not None:
        back = f"back and verified after {format_duration(state.restored.seconds)}"
        style = "green" if state.restored.verified else "bold bright_white on red"
        text = f"production {state.plan.production} is {back}" if state.restored.verified else "PRODUCTION IS NOT BACK"
        out.append(Text.assemble("  ", (text, style)))
    if not state.closed:
        out.append(Text("  audition's process is gone without a word; its guard brings production back.", "bold red"))
        out.append(Text("  See: audition status   If in doubt: audition recover", "bold"))
    if any(leg.began is not None for leg in state.legs):
        out += _spaced([Text("  ").append_text(row) for row in _strip(state, _narrower(view))])
    candidate = next((leg for leg in reversed(state.legs) if leg.role != "production" and leg.measured), None)
    if candidate is not None and view.width >= WIDE:
        before = state.production_before(candidate)
        beside = f", beside {before.arm} in leg {before.number}" if before is not None else ""
        title = Text.assemble(f"{candidate.arm} in leg {candidate.number}{beside}", ("; as it ran, not judged", "dim"))
        table = [title, *figure_table(state, candidate, before, view.marks, view.width - 2)]
        out += _spaced([Text("  ").append_text(row) for row in table])
    if state.verdict is not None:
        out.append(Text(""))
        out += [Text(f"  {view.marks.dot} {reason.splitlines()[0]}") for reason in state.verdict.reasons[:4] if reason]
    if state.warned:
        out.append(Text(f"  {state.warned} warning{'s' if state.warned > 1 else ''}, see above", "yellow"))
    out.append(Text(f"  records: {state.plan.records}", "dim"))
    return [_fitted(row, view.width) for row in out]


def _narrower(view: View) -> View:
    return View(view.width - 2, view.height, view.now, view.unix, view.marks)


def _verdict_row(state: ScreenState, view: View) -> Text:
    left = badge(state)
    if state.verdict is not None:
        left.append("  ").append(state.verdict.verdict, _VERDICT_STYLE.get(state.verdict.verdict, "bold"))
    return _ends(left, Text(format_duration(view.now), "dim"), view.width)
