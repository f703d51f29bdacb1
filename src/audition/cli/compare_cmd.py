"""``audition compare``: several runs side by side."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

EPILOG = """\b
Exit codes:
  0 the runs are shown side by side
  2 fewer than two runs, or a folder that is no run
"""


@click.command("compare", epilog=EPILOG)
@click.argument("runs", metavar="RUN RUN...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON.")
def command(runs: tuple[str, ...], as_json: bool) -> int:
    """Put the figures of several run folders side by side; the first one is the reference.

    Ratios between runs have no interval and decide nothing: hours lie between them. Before the figures stands what else differs,
    as far as it was recorded: images, versions, hardware, arguments, workloads. Each run's own paired ratio is shown beside.
    """
    from audition.report.comparing import compare_runs, comparison_document, load_runs  # noqa: PLC0415 - lazily: heavy
    from audition.report.documents import to_text  # noqa: PLC0415

    compared = compare_runs(load_runs([Path(run) for run in runs]))
    if as_json:
        click.echo(json.dumps(asdict(compared), indent=1, ensure_ascii=False, allow_nan=False))
    else:
        click.echo(to_text(comparison_document(compared)), nl=False)
    return 0
