"""``audition judge``: the verdict again, from the records alone."""

from __future__ import annotations

from pathlib import Path

import click

EPILOG = """\b
Exit codes:
  0 GO    3 NO-GO    4 INCONCLUSIVE
  2 no run folder, or records that cannot be read
"""


@click.command("judge", epilog=EPILOG)
@click.argument("run", metavar="RUN")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(run: str, as_json: bool) -> int:
    """Compute the verdict of a run folder again and write its records anew; the same records give the same bytes.

    Needs no server and no GPU. Notes files are not touched. The exit code is the verdict's.
    """
    from audition.judge.folder import EXIT_OF_VERDICT, judge_folder  # noqa: PLC0415 - lazily: only when the verb runs
    from audition.judge.result import result_json  # noqa: PLC0415
    from audition.report.terminal import summary_text  # noqa: PLC0415
    from audition.report.writer import write_records  # noqa: PLC0415

    folder = Path(run)
    spike, result = judge_folder(folder)
    write_records(folder, result, spike, folder, False)
    click.echo(result_json(result) if as_json else summary_text(result), nl=False)
    return EXIT_OF_VERDICT[result.verdict]
