"""``audition announce``: the request for the slot, the all-clear, or the result, as Markdown, sent when asked to."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("announce")
@click.argument("spike", metavar="SPIKE")
@click.option("--all-clear", is_flag=True, help="Say that production is back, by the records of the newest run.")
@click.option(
    "--result", "run", metavar="RUN", help="Say how a run ended; RUN is its folder. With --all-clear: the run whose records count."
)
@click.option("--at", metavar="TIME", help="When the run is to begin, e.g. 22:00; default: the next free slot.")
@click.option("--send", is_flag=True, help="Send it to the addresses of `agreement.announce_env`, with apprise.")
@click.option("--json", "as_json", is_flag=True, help="Print title, body and what was sent as JSON.")
def command(spike: str, *, all_clear: bool, run: str | None, at: str | None, send: bool, as_json: bool) -> int:
    """Write what those who share the GPUs should know: the request, or with an option the all-clear or the result.

    The request says what goes down, from when until when at the latest, and whom to call. An all-clear rests on the
    records: without a real run whose restore was verified it is refused. Printed as Markdown; nothing is touched.
    """
    from audition.cli.announcing import announce  # noqa: PLC0415 - lazily: only when the verb runs
    from audition.errors import BadInput  # noqa: PLC0415

    if at is not None and (all_clear or run is not None):
        raise BadInput("--at belongs to the request", next_step="leave it out")
    return announce(Path(spike), all_clear=all_clear, run=None if run is None else Path(run), at=at, sending=send, as_json=as_json)
