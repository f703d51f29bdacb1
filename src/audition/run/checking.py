"""The checks of `audition check` once more, just before a run touches anything: what blocks refuses it, the rest is said.

In a rehearsal, which touches nothing real, only what the arguments themselves tell is shown, and nothing refuses.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from audition.check.checking import Scope, check
from audition.check.finding import Finding
from audition.engines.base import Engine
from audition.errors import Refused
from audition.report.mask import mask
from audition.run import preparing
from audition.run.reporter import Reporter
from audition.spike.parse import LoadedSpike

_NOT_AGAIN = {"window-missing", "restart", "calendar-not-fetched"}
"""Warnings that are for the time before: nothing can be done about them when the run has begun."""
_OF_THE_MOMENT = {"arms", "machine", "time"}
"""Groups whose warnings may be others than when the spike was checked; the rest is the same as then."""
_OF_THE_HOUR = {"machine", "time"}
"""Groups that may be put right by waiting: other users of the GPUs, the slot."""


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
    _refuse(report.blocking)
    said = [found for found in report.warnings if found.group in _OF_THE_MOMENT and found.code not in _NOT_AGAIN]
    for found in said:
        reporter.warn(_words(found) + (f" ({found.hint})" if found.hint and "\n" not in found.hint else ""))
    if others := [found for found in report.warnings if found.group not in _OF_THE_MOMENT]:
        reporter.say(f"{_count(others)} about arguments, checkpoints and speculation: audition check {loaded.path}")
    return [_words(found) for found in said]


def check_before_waiting(loaded: LoadedSpike, root: Path) -> None:
    """What blocks a run whatever the hour, the engines' own findings among it, before ``--at`` waits. Writes nothing.

    Raises Refused; BadInput when an arm's files cannot be read. All is checked again when the run begins.
    """
    identity = preparing.new_identity(loaded.spike, root, "check")
    engines = preparing.make_engines(loaded.spike, loaded.folder, identity)
    report = check(loaded, engines, Scope(state=root))
    secrets = preparing.secret_values_if_known(loaded.spike, engines, dict(os.environ))
    _refuse([
        replace(found, text=mask(found.text, secrets), hint=mask(found.hint, secrets))
        for found in report.blocking
        if found.group not in _OF_THE_HOUR
    ])  # fmt: skip


def _refuse(blocking: Sequence[Finding]) -> None:
    if blocking:
        raise Refused(
            _words(blocking[0]) if len(blocking) == 1 else f"{len(blocking)} things stand in the way",
            seen="" if len(blocking) == 1 else "\n".join(_words(found) for found in blocking),
            production="untouched",
            next_step="\n".join(dict.fromkeys(found.hint for found in blocking if found.hint)),
        )


def _count(found: list[Finding]) -> str:
    return "one warning" if len(found) == 1 else f"{len(found)} warnings"


def _words(found: Finding) -> str:
    see = f" ({found.reference})" if found.reference else ""
    return f"{found.arm}: {found.text}{see}" if found.arm else f"{found.text}{see}"
