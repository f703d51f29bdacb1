"""``audition run``: the spike on production's own GPUs."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("run")
@click.argument("spike", metavar="SPIKE")
@click.option("--json", "as_json", is_flag=True, help="Print the result, and nothing else, as JSON on standard output; no screen.")
@click.option("--quiet", is_flag=True, help="Say warnings only; no screen.")
@click.option("--plain", is_flag=True, help="Plain lines also on a terminal, no screen.")
@click.option(
    "--events", metavar="FILE|-", help="Write what happens as JSON lines to a file, or (-) to standard error instead of lines."
)
@click.option(
    "--at", metavar="TIME", help="Wait until 22:00 or 2026-12-05T22:00:00+01:00, say; refused when the slot is lost meanwhile."
)
def command(spike: str, *, as_json: bool, quiet: bool, plain: bool, events: str | None, at: str | None) -> int:
    """Run a spike: stop production, try the candidate, bring production back, say GO, NO-GO or INCONCLUSIVE.

    SPIKE is a spike file, or a folder that holds spike.yaml.
    """
    from audition.cli.ending import show_end  # noqa: PLC0415 - lazily: only when the verb runs
    from audition.cli.showing import events_to  # noqa: PLC0415
    from audition.errors import BadInput  # noqa: PLC0415
    from audition.run.starting import Options, check_files, run_spike  # noqa: PLC0415
    from audition.spike.examples import find_spike  # noqa: PLC0415
    from audition.spike.parse import load_spike  # noqa: PLC0415

    if not Path(spike).exists():
        hint = "give the path of a spike file; the shipped examples are for `audition rehearse NAME`"
        raise BadInput(f"there is no such file or folder: {spike}", next_step=hint)
    loaded = load_spike(Path(find_spike(spike)))
    sink = events_to(events, loaded.path)
    if at is not None:
        from audition.run.checking import check_before_waiting  # noqa: PLC0415
        from audition.run.slot import wait_at  # noqa: PLC0415
        from audition.wayback.lock import state_root  # noqa: PLC0415

        check_files(loaded)
        check_before_waiting(loaded, state_root())
        wait_at(loaded, at, quiet=quiet)
    screen = not (plain or as_json or events == "-")
    finished = run_spike(loaded, Options(quiet=quiet, screen=screen, events=sink.descriptor, on_begin=sink.begin))
    return show_end(finished, as_json=as_json)
