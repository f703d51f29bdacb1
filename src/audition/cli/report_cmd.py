"""``audition report``: the records of a run made anew from what it left, the HTML report among them."""

from __future__ import annotations

import json
from pathlib import Path

import click

EPILOG = """\b
Exit codes:
  0 the records were written, whatever the verdict
  2 no run folder, or records that cannot be read
"""


@click.command("report", epilog=EPILOG)
@click.argument("run", metavar="RUN")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write report.html alone, to FILE; RUN stays as it is.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON.")
def command(run: str, out: Path | None, as_json: bool) -> int:
    """Write the records of a run folder anew, report.html among them, and say which. Needs no server and no GPU.

    A run that was cut gives a report, too: it says how far the run got and what is missing. Notes files are not touched.
    """
    folder = Path(run)
    verdict, rehearsal, written = _write(folder, out)
    if as_json:
        body = {"run": str(folder), "verdict": verdict, "rehearsal": rehearsal, "written": [str(path) for path in written]}
        click.echo(json.dumps(body, ensure_ascii=False, indent=1))
    else:
        click.echo("\n".join(str(path) for path in written))
        click.echo(f"{'REHEARSAL ' if rehearsal else ''}{verdict or 'NO VERDICT: the run was cut before it began'}")
    return 0


def _write(folder: Path, out: Path | None) -> tuple[str | None, bool, list[Path]]:
    """(verdict or None, whether it was a rehearsal, the files written). Raises BadInput, InternalError."""
    from audition.errors import BadInput  # noqa: PLC0415 - lazily: only when the verb runs
    from audition.judge.folder import judge_folder  # noqa: PLC0415
    from audition.judge.load import RESOLVED, load_run  # noqa: PLC0415
    from audition.report.html import bare_html, report_html  # noqa: PLC0415
    from audition.report.writer import REPORT, write_records  # noqa: PLC0415

    try:
        spike, result = judge_folder(folder)
    except BadInput:
        if (folder / RESOLVED).exists():
            raise
        record = load_run(folder).record
        text = bare_html(record, f"{RESOLVED} is missing: there are no criteria to judge by.")
        return None, record.rehearsal, [_replace(out or folder / REPORT, text, folder)]
    if out is not None:
        return result.verdict, result.rehearsal, [_replace(out, report_html(folder, result, spike), folder)]
    return result.verdict, result.rehearsal, write_records(folder, result, spike, folder, False)


def _replace(path: Path, text: str, folder: Path) -> Path:
    from audition.errors import InternalError  # noqa: PLC0415
    from audition.report.writer import replace_file  # noqa: PLC0415

    try:
        replace_file(path, text)
    except OSError as error:
        raise InternalError(
            f"the report could not be written: {error.strerror or error}",
            tried=f"to write {path}",
            seen=str(error),
            production="untouched",
            next_step=f"give a file that can be written: audition report {folder} --out FILE",
        ) from error
    return path
