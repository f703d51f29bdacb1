"""``audition history``: the runs of a records folder."""

from __future__ import annotations

import json
from pathlib import Path

import click

EPILOG = """\b
Exit codes:
  0 the runs are listed, damaged ones included
  2 the folder cannot be read
"""


@click.command("history", epilog=EPILOG)
@click.argument("folder", metavar="[FOLDER]", default="_iteration_log")
@click.option("--spike", metavar="NAME", help="Only runs of this spike.")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the N newest.")
@click.option("--real", is_flag=True, help="Without rehearsals.")
@click.option("--json", "as_json", is_flag=True, help="Print the rows as JSON.")
def command(folder: str, spike: str | None, last: int | None, real: bool, as_json: bool) -> int:
    """List the runs of a records folder (default: _iteration_log), the newest first: when, which spike, verdict, production, why.

    Damaged run folders are listed as damaged, runs without a verdict as not judged. Needs no server; judges nothing. What was read
    is kept in .audition-history.json there; that file may be deleted at any time.
    """
    from audition.report.history import history, history_text  # noqa: PLC0415 - lazily: only when the verb runs

    rows = [row for row in history(Path(folder)) if (spike is None or row.spike == spike) and not (real and row.rehearsal)]
    rows = rows[:last]
    if as_json:
        lines = ",\n".join(json.dumps(vars(row)) for row in rows)  # one a line: indenting takes four times as long
        click.echo(f'{{"folder": {json.dumps(folder)}, "runs": [\n{lines}\n]}}')
    else:
        click.echo(history_text(rows), nl=False)
    return 0
