"""``audition run``: the spike on production's own GPUs."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("run")
@click.argument("spike", metavar="SPIKE")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON on standard output.")
@click.option("--quiet", is_flag=True, help="Say warnings only.")
def command(spike: str, as_json: bool, quiet: bool) -> int:
    """Run a spike: stop production, try the candidate, bring production back, say GO, NO-GO or INCONCLUSIVE.

    SPIKE is a spike file, or a folder that holds spike.yaml.
    """
    from audition.cli.ending import show_end  # noqa: PLC0415 - lazily: only when the verb runs
    from audition.errors import BadInput  # noqa: PLC0415
    from audition.run.starting import Options, run_spike  # noqa: PLC0415
    from audition.spike.examples import find_spike  # noqa: PLC0415
    from audition.spike.parse import load_spike  # noqa: PLC0415

    if not Path(spike).exists():
        hint = "give the path of a spike file; the shipped examples are for `audition rehearse NAME`"
        raise BadInput(f"there is no such file or folder: {spike}", next_step=hint)
    finished = run_spike(load_spike(Path(find_spike(spike))), Options(quiet=quiet))
    return show_end(finished, as_json=as_json)
