"""How far a run got, and what of it is missing: for runs that were cut, died or left spoilt records. Pure; judges nothing."""

from __future__ import annotations

from audition.judge.result import LegResult, Result
from audition.report.documents import Bullets, Document, Heading
from audition.report.words import instant, production_sentence

_ENDED = {
    "interrupted": "it was interrupted",
    "failed": "it failed",
    "early-end": "it ended early",
    "running": "it has no recorded end: audition or the machine died, or the run still goes on",
}


def is_whole(result: Result) -> bool:
    """Whether the run ended as planned, every leg ran to its end, and production is known to be back."""
    return result.ended == "complete" and all(leg.outcome == "complete" for leg in result.legs) and result.production_back is True


def progress_lines(result: Result) -> list[str]:
    """What was reached, leg by leg, and what is missing; empty for a whole run."""
    if is_whole(result):
        return []
    done = [leg for leg in result.legs if leg.outcome == "complete"]
    how = _ENDED.get(result.ended, f"it ended as `{result.ended}`")
    reason = f": {result.end_reason}" if result.end_reason else ""
    first = f"The run got through {len(done)} of {len(result.legs)} planned legs"
    lines = [f"{first}." if result.ended == "complete" else f"{first}; {how}{reason}."]
    lines += [f"Leg {leg.index} ({leg.arm}): {_leg(leg)}." for leg in result.legs if leg.outcome != "complete"]
    if result.ended_at is None:
        lines.append(f"Last sign of it: {instant(_last_sign(result))}.")
    if result.production_back is not True:
        lines.append(production_sentence(result))
    return lines


def progress_blocks(result: Result, level: int) -> Document:
    """The same as a section; nothing for a whole run."""
    lines = progress_lines(result)
    return [Heading(level, "How far the run got"), Bullets(lines)] if lines else []


def _leg(leg: LegResult) -> str:
    if leg.outcome == "missing":
        reached = "was not reached" in leg.detail
        return "not reached, nothing was measured" if reached else f"no record of it can be read ({leg.detail})"
    had = list(dict.fromkeys(figure.workload for figure in leg.figures if figure.workload and figure.value is not None))
    kept = f"figures of {', '.join(had)}" if had else "no figure of it counts"
    words = {
        "boot-failed": "the server did not start",
        "engine-died": "the server died",
        "cut": "cut short",
        "failed": "failed",
    }
    why = leg.detail.rstrip(".")
    return f"{words.get(leg.outcome, leg.outcome)}{f': {why}' if why else ''}; {kept}"


def _last_sign(result: Result) -> float:
    """The latest instant that any record names, Unix seconds."""
    return max([result.started_at, *(leg.ended_at for leg in result.legs if leg.ended_at is not None)])
