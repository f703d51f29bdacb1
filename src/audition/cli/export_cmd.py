"""``audition export``: runs into an MLflow tracking store."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

EPILOG = """\b
Exit codes:
  0 every run is in the store
  2 a folder that is no run, or a URI that MLflow does not understand
  5 MLflow is not installed, or the store does not take the runs
"""


@click.command("export", epilog=EPILOG)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option(
    "--mlflow", "uri", metavar="URI", required=True, help="The tracking store, e.g. http://host:5000 or file:///path/mlruns."
)
@click.option("--experiment", metavar="NAME", help="The experiment; default: the spike's name.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def command(runs: tuple[str, ...], uri: str, experiment: str | None, as_json: bool) -> int:
    """Write run folders into an MLflow tracking store: figures leg by leg, ratios with intervals, verdict, records as artifacts.

    A run that is there already is left as it is. Needs the extra: pip install 'audition[mlflow]'.
    """
    from audition.report.comparing import load_one  # noqa: PLC0415 - lazily: only when the verb runs
    from audition.report.mlflow import export_runs  # noqa: PLC0415

    folders = [Path(run) for run in runs]
    done = export_runs([load_one(folder) for folder in folders], folders, uri, experiment)
    if as_json:
        click.echo(json.dumps([asdict(one) for one in done], indent=1, ensure_ascii=False))
    else:
        for one in done:
            what = "exported to" if one.new else "is there already:"
            click.echo(f"{one.run} {what} experiment {one.experiment}, run {one.mlflow_run_id}")
    return 0
