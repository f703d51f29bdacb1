"""``audition recover``: production back after anything that went wrong."""

from __future__ import annotations

import json

import click

EPILOG = """\b
Exit codes:
  0 nothing was wrong, or production is back and verified
  5 a live run holds the slot; it was left alone
  7 production is NOT back (the commands to type are shown)
"""


@click.command("recover", epilog=EPILOG)
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
@click.option("--force-deadline", is_flag=True, help="End a live run whose restore deadline has passed (the timer does this).")
@click.option("--quiet", is_flag=True, help="Say nothing but trouble.")
def command(as_json: bool, force_deadline: bool, quiet: bool) -> int:
    """Bring production back for every run that has not ended with production verified.

    Safe at any time: when nothing is wrong it says so; two at once converge; a live run is left alone (exit 5). Exit 7: production
    is not back, and the commands to type are shown.
    """
    from audition.run.recovering import recover  # noqa: PLC0415 - lazily: only when the verb runs

    say = (lambda _text: None) if quiet else (lambda text: click.echo(text, err=True))
    report = recover(force_deadline=force_deadline, say=say)
    if as_json:
        click.echo(json.dumps(report.to_data(), indent=1, ensure_ascii=False))
    for run in report.runs:
        if run.code == 7:
            click.echo(f"PRODUCTION IS NOT BACK (run {run.run_id}): {run.why}", err=True)
            click.echo("Type, in this order:", err=True)
            for line in run.manual:
                click.echo(f"  {line}", err=True)
    return report.exit_code
