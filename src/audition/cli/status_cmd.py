"""``audition status``: what runs, who holds the slot, until when, what to type."""

from __future__ import annotations

import json

import click

EPILOG = """\b
Exit codes:
  0 the status is shown, whatever it says
"""


@click.command("status", epilog=EPILOG)
@click.option("--json", "as_json", is_flag=True, help="Print the status as JSON.")
def command(as_json: bool) -> int:
    """Say what runs, who holds the slot, since when, until when, and what to type. Touches nothing."""
    from audition.run.status import status, status_text  # noqa: PLC0415 - lazily: only when the verb runs

    answer = status()
    click.echo(json.dumps(answer.to_data(), indent=1, ensure_ascii=False) if as_json else status_text(answer))
    return 0
