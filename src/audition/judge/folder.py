"""Judges a run folder: its records and the spike file that was kept beside them. Reading them is ``load``'s."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from audition.errors import EXIT_GO, EXIT_INCONCLUSIVE, EXIT_NO_GO
from audition.judge.load import load_run, load_spike, restored_later
from audition.judge.result import Result, judge_run
from audition.spike.model import Spike

EXIT_OF_VERDICT = {"GO": EXIT_GO, "NO-GO": EXIT_NO_GO, "INCONCLUSIVE": EXIT_INCONCLUSIVE}


def judge_folder(folder: Path) -> tuple[Spike, Result]:
    """The spike as it was run and its result, from the records alone. Raises BadInput when the folder is no run."""
    run = load_run(folder)
    spike = load_spike(folder)
    if run.record.production_back is not True and restored_later(folder):
        run = replace(run, record=replace(run.record, production_back=True))
    return spike, judge_run(run, spike)
