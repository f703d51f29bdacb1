"""The checks of `audition check` once more, just before a run touches anything: what blocks refuses it, the rest is said.

In a rehearsal, which touches nothing real, only what the arguments themselves tell is shown, and nothing refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from audition.check.checking import Scope, check
from audition.check.finding import Finding
from audition.engines.base import Engine
from audition.errors import Refused
from audition.run.reporter import Reporter
from audition.spike.parse import LoadedSpike

_NOT_AGAIN = {"window-missing", "restart", "calendar-not-fetched"}
"""Warnings that are for the time before: nothing can be done about them when the run has begun."""
_OF_THE_MOMENT = {"arms", "machine", "time"}
"""Groups whose warnings may be others than when the spike was checked; the rest is the same as then."""


def check_again(
    loaded: LoadedSpike, engines: Mapping[str, Engine], root: Path, *, rehearsal: bool, reporter: Reporter
) -> list[str]:
    """Say the warnings and return them; raise Refused when something blocks. The engines' own findings were said before."""
    report = check(loaded, engines, Scope(here=not rehearsal, preflight=False, state=root))
    if rehearsal:
        noted = [found for found in [*report.blocking, *report.warnings] if not found.code.endswith("-unknown")]
        for found in noted:
            if found.group == "arguments":
                reporter.say(f"note: {_words(found)}")
        if on_record := [found for found in noted if found.group == "speculation"]:
            reporter.say(f"note: {_count(on_record)} about speculation: audition check {loaded.path}")
        return []
    if report.blocking:
        raise Refused(
            _words(report.blocking[0]) if len(report.blocking) == 1 else f"{len(report.blocking)} things stand in the way",
            seen="" if len(report.blocking) == 1 else "\n".join(_words(found) for found in report.blocking),
            production="untouched",
            next_step="\n".join(dict.fromkeys(found.hint for found in report.blocking if found.hint)),
        )
    said = [found for found in report.warnings if found.group in _OF_THE_MOMENT and found.code not in _NOT_AGAIN]
    for found in said:
        reporter.warn(_words(found) + (f" ({found.hint})" if found.hint and "\n" not in found.hint else ""))
    if others := [found for found in report.warnings if found.group not in _OF_THE_MOMENT]:
        reporter.say(f"{_count(others)} about arguments, checkpoints and speculation: audition check {loaded.path}")
    return [_words(found) for found in said]


def _count(found: list[Finding]) -> str:
    return "one warning" if len(found) == 1 else f"{len(found)} warnings"


def _words(found: Finding) -> str:
    see = f" ({found.reference})" if found.reference else ""
    return f"{found.arm}: {found.text}{see}" if found.arm else f"{found.text}{see}"
