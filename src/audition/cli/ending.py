"""How a finished run is shown: the summary, or JSON; and loudly, on standard error, when production is not back."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict

import click

from audition.errors import EXIT_NOT_RESTORED
from audition.report.terminal import summary_text
from audition.run.starting import Finished, shout_not_restored


def show_end(finished: Finished, *, as_json: bool) -> int:
    """Print the end of a run and return its exit code, also when nobody reads what is printed."""
    try:
        _print_end(finished, as_json)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if finished.problem:
        click.echo(f"internal error: {finished.problem}", err=True)
    if finished.exit_code == EXIT_NOT_RESTORED:
        click.echo(shout_not_restored(finished), err=True)
    return finished.exit_code


def _print_end(finished: Finished, as_json: bool) -> None:
    result = finished.result
    if as_json:
        body = {
            "exit_code": finished.exit_code,
            "verdict": result.verdict if result is not None else None,
            "run_dir": str(finished.run_dir),
            "problem": finished.problem or None,
            "restored": finished.end.restored.to_data() if finished.end.restored is not None else None,
            "result": asdict(result) if result is not None else None,
        }
        click.echo(json.dumps(body, ensure_ascii=False, indent=1))
    elif result is not None:
        back = {True: "production is back and verified", False: "PRODUCTION IS NOT BACK", None: "nothing was touched"}
        click.echo(summary_text(result), nl=False)
        click.echo(f"\nRecords: {finished.run_dir}")
        click.echo(f"{'REHEARSAL ' if result.rehearsal else ''}{result.verdict}; {back[result.production_back]}")
    sys.stdout.flush()
