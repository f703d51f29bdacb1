"""Writes a judged run into an MLflow tracking store: an extra, ``pip install 'audition[mlflow]'``. The run folder stays the truth.

``mlflow`` is imported here only, and only when it is asked for. One MLflow run a run folder; exporting again replaces nothing: the
run that is there already is named.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from audition.errors import BadInput, Refused
from audition.judge.result import Result
from audition.report.comparing import LoadedRun
from audition.report.environment import said, shared_environment
from audition.report.manifest import DERIVED, MANIFEST
from audition.report.mask import mask

RUN_TAG = "audition.run_id"
MOST_TEXT = 5000
"""MLflow's limit for the value of a tag, in characters; a parameter may hold 6,000."""

_PER_BATCH = 500  # MLflow takes at most 1,000 metrics at once


@dataclass(frozen=True)
class Exported:
    """Where a run lies in MLflow. ``new`` False: it was there already, and nothing was written."""

    run: str
    mlflow_run_id: str
    experiment: str
    new: bool


def export_runs(runs: Sequence[LoadedRun], folders: Sequence[Path], uri: str, experiment: str | None) -> list[Exported]:
    """Export runs; ``experiment`` defaults to the spike's name.

    Raises Refused when MLflow is not installed or the store does not answer, BadInput when MLflow does not understand the URI.
    """
    mlflow, client = _client(uri)
    shown = mask(uri)  # it may hold a password
    try:
        return [_export(client, run, folder, experiment or run.result.spike) for run, folder in zip(runs, folders, strict=True)]
    except mlflow.exceptions.MlflowException as error:
        raise Refused("MLflow did not take the run", tried=f"to export to {shown}", seen=mask(str(error))[:500]) from error
    except OSError as error:
        raise Refused("the store cannot be written", tried=f"to export to {shown}", seen=str(error)) from error


def _client(uri: str) -> tuple[Any, Any]:
    if uri.startswith("file:"):
        # MLflow keeps its file store for reading old ones and asks whether one means it; who gives such a URI means it.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    try:
        import mlflow  # noqa: PLC0415 - lazily: an extra, and slow to import
        from mlflow.tracking import MlflowClient  # noqa: PLC0415
    except ImportError as error:
        raise Refused(
            "MLflow is not installed",
            tried="to import mlflow",
            seen=str(error),
            next_step="pip install 'audition[mlflow]' (or mlflow-skinny), then type the same again",
        ) from error
    try:
        return mlflow, MlflowClient(tracking_uri=uri)
    except (mlflow.exceptions.MlflowException, ImportError, ValueError, OSError) as error:
        raise BadInput(
            f"MLflow cannot use {mask(uri)}",
            seen=mask(str(error))[:500],
            next_step="give e.g. http://mlflow.example:5000 or file:///path/mlruns",
        ) from error


def _export(client: Any, run: LoadedRun, folder: Path, experiment: str) -> Exported:
    result = run.result
    found = client.get_experiment_by_name(experiment)
    number = found.experiment_id if found is not None else client.create_experiment(experiment)
    there = client.search_runs([number], f"tags.`{RUN_TAG}` = '{result.run_id}'", max_results=1)
    if there:
        return Exported(run.label, there[0].info.run_id, experiment, False)
    started = int(result.started_at * 1000)
    made = client.create_run(number, start_time=started, tags=_tags(result), run_name=run.label).info.run_id
    for name, value in _parameters(run).items():
        client.log_param(made, name, value[:MOST_TEXT])
    from mlflow.entities import Metric  # noqa: PLC0415 - lazily, as above

    metrics = [Metric(name, value, started, step) for name, value, step in _metrics(result)]
    for at in range(0, len(metrics), _PER_BATCH):
        client.log_batch(made, metrics=metrics[at : at + _PER_BATCH])
    for name in sorted(DERIVED | {MANIFEST}):
        if (folder / name).is_file():
            client.log_artifact(made, str(folder / name))
    ended = result.ended_at if result.ended_at is not None else result.started_at
    client.set_terminated(made, "FINISHED" if result.ended in ("complete", "early-end") else "FAILED", int(ended * 1000))
    return Exported(run.label, made, experiment, True)


def _tags(result: Result) -> dict[str, str]:
    tags = {
        RUN_TAG: result.run_id,
        "audition.verdict": result.verdict,
        "audition.rehearsal": str(result.rehearsal).lower(),
        "audition.version": result.audition_version,
        "audition.ended": result.ended,
        "mlflow.note.content": f"{'REHEARSAL. ' if result.rehearsal else ''}{result.verdict}. {' '.join(result.reasons)}"[
            :MOST_TEXT
        ],
    }
    return tags | {f"audition.hypothesis.{h.name}": h.outcome for h in result.hypotheses}


def _parameters(run: LoadedRun) -> dict[str, str]:
    result = run.result
    seen = shared_environment(result, result.candidate, run.spike.gpus)
    return {
        "question": result.question,
        "production": result.production,
        "candidate": result.candidate,
        "legs": ", ".join(leg.arm for leg in result.legs),
        "gpus": said(seen.gpus),
        "driver": said(seen.driver),
        "engine_version": said(seen.engine_version),
        "image_digest": said(seen.image_digest),
    }


def _metrics(result: Result) -> list[tuple[str, float, int]]:
    """(name, value, step): each leg's figures with the leg's number as step, and the paired ratios with their intervals."""
    rows = [
        (_name(leg.arm, f.workload, f.metric, f.stat), f.value, leg.index)
        for leg in result.legs
        for f in leg.figures
        if f.value is not None
    ]
    for c in result.comparisons:
        name = _name("ratio", c.arm, "to", c.reference_arm, c.workload, c.metric, c.stat)
        rows += [(f"{name}{end}", v, 0) for end, v in (("", c.ratio), (".low", c.low), (".high", c.high)) if v is not None]
    return rows


def _name(*parts: str) -> str:
    """A metric's name of the characters that MLflow allows."""
    return "/".join("".join(c if c.isascii() and (c.isalnum() or c in "_-. ") else "_" for c in part) for part in parts if part)
