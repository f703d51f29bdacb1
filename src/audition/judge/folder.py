"""Judges a run folder: its records and the spike file that was kept beside them. The one reader besides ``load``."""

from __future__ import annotations

from pathlib import Path

from audition.errors import EXIT_GO, EXIT_INCONCLUSIVE, EXIT_NO_GO, BadInput
from audition.judge.load import load_run
from audition.judge.result import Result, judge_run
from audition.spike.model import Spike

RESOLVED = "spike.resolved.json"
EXIT_OF_VERDICT = {"GO": EXIT_GO, "NO-GO": EXIT_NO_GO, "INCONCLUSIVE": EXIT_INCONCLUSIVE}


def judge_folder(folder: Path) -> tuple[Spike, Result]:
    """The spike as it was run and its result, from the records alone. Raises BadInput when the folder is no run."""
    run = load_run(folder)
    try:
        spike = Spike.model_validate_json((folder / RESOLVED).read_text(encoding="utf-8"))
    except (OSError, ValueError) as cause:
        raise BadInput(f"{folder / RESOLVED} cannot be read, so there are no gates to judge by", seen=str(cause)[:500]) from cause
    return spike, judge_run(run, spike)
