"""``audition rehearse``: the whole spike on simulated servers."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("rehearse")
@click.argument("spike", metavar="SPIKE|EXAMPLE")
@click.option("--fault", metavar="KIND", help="Let the simulated candidate commit this fault; `--fault list` names them all.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON on standard output.")
@click.option("--quiet", is_flag=True, help="Say warnings only.")
def command(spike: str, fault: str | None, as_json: bool, quiet: bool) -> int:
    """Run the whole spike on simulated servers, whatever engine its arms name. No GPU, no docker, nothing of yours is touched.

    SPIKE is a spike file, a folder that holds spike.yaml, or the name of a shipped example.
    """
    from audition.cli.ending import show_end  # noqa: PLC0415 - lazily: only when the verb runs
    from audition.run.rehearsal import known_faults  # noqa: PLC0415
    from audition.run.rehearsing import rehearse  # noqa: PLC0415
    from audition.spike.examples import find_spike, is_example  # noqa: PLC0415
    from audition.spike.parse import load_spike  # noqa: PLC0415

    if fault == "list":
        for name, text in sorted(known_faults().items()):
            click.echo(f"{name:20} {text}")
        return 0
    path = Path(find_spike(spike))
    base = Path.cwd() if is_example(path) else None
    finished = rehearse(load_spike(path), fault=fault, quiet=quiet, records_base=base)
    return show_end(finished, as_json=as_json)
