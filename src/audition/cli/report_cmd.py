"""``audition report``: the records of a run made anew from what it left, the HTML report among them."""

from __future__ import annotations

import json
from pathlib import Path

import click

EPILOG = """\b
Exit codes:
  0 the records were written, whatever the verdict
  2 no run folder, records that cannot be read, or --out names what is no file
  5 --out names a file that is no report
"""


@click.command("report", epilog=EPILOG)
@click.argument("run", metavar="RUN")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write report.html alone, to FILE; RUN stays as it is.",
)
@click.option("--force", is_flag=True, help="With --out: replace FILE even when it is no report.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON.")
def command(run: str, out: Path | None, force: bool, as_json: bool) -> int:
    """Write the records of a run folder anew, report.html among them, and say which. Needs no server and no GPU.

    A run that was cut gives a report, too: it says how far the run got and what is missing. Notes files are not touched.
    """
    folder = Path(run)
    if out is not None:
        _may_replace(out, folder, force=force)
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


def _may_replace(path: Path, folder: Path, *, force: bool) -> None:
    """Raises BadInput for what is no file, Refused for a file that is no report unless ``force``."""
    from audition.errors import BadInput, Refused  # noqa: PLC0415
    from audition.judge.files import MOST_RECORD  # noqa: PLC0415
    from audition.plain_file import NotPlain, TooLong, read_bytes  # noqa: PLC0415
    from audition.report.html import is_report  # noqa: PLC0415

    tried, step = f"to write the report of {folder} to {path}", f"give another file: audition report {folder} --out FILE"
    try:
        report = is_report(read_bytes(path, MOST_RECORD))
    except FileNotFoundError:
        return
    except NotPlain as error:
        raise BadInput(
            f"{path} is no regular file", tried=tried, seen="a pipe, a device or a folder", production="untouched", next_step=step
        ) from error
    except TooLong:
        report = False
    except OSError as error:
        raise BadInput(
            f"{path} cannot be read: {error.strerror or error}", tried=tried, production="untouched", next_step=step
        ) from error
    if not report and not force:
        raise Refused(
            f"{path} exists and is no report of audition",
            tried=tried,
            seen="a file with other content",
            production="untouched",
            next_step=f"{step}, or add --force to replace it",
        )


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
