"""``audition rehearse``: the whole spike on simulated servers."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command("rehearse")
@click.argument("spike", metavar="SPIKE|EXAMPLE")
@click.option("--fault", metavar="KIND", help="Let the simulated candidate commit this fault; `--fault list` names them all.")
@click.option("--json", "as_json", is_flag=True, help="Print the result, and nothing else, as JSON on standard output; no screen.")
@click.option("--quiet", is_flag=True, help="Say warnings only; no screen.")
@click.option("--plain", is_flag=True, help="Plain lines also on a terminal, no screen.")
@click.option(
    "--events", metavar="FILE|-", help="Write what happens as JSON lines to a file, or (-) to standard error instead of lines."
)
def command(spike: str, *, fault: str | None, as_json: bool, quiet: bool, plain: bool, events: str | None) -> int:
    """Run the whole spike on simulated servers, whatever engine its arms name. No GPU, no docker, nothing of yours is touched.

    SPIKE is a spike file, a folder that holds spike.yaml, or the name of a shipped example.
    """
    from audition.cli.ending import show_end  # noqa: PLC0415 - lazily: only when the verb runs
    from audition.cli.showing import events_to  # noqa: PLC0415
    from audition.run.rehearsal import known_faults  # noqa: PLC0415
    from audition.run.rehearsing import rehearse  # noqa: PLC0415
    from audition.spike.examples import find_spike, is_example  # noqa: PLC0415
    from audition.spike.parse import load_spike  # noqa: PLC0415

    if fault == "list":
        if as_json:
            click.echo(json.dumps(dict(sorted(known_faults().items()))))
            return 0
        for name, text in sorted(known_faults().items()):
            click.echo(f"{name:20} {text}")
        return 0
    path = Path(find_spike(spike))
    base = Path.cwd() if is_example(path) else None
    loaded = load_spike(path)
    screen = not (plain or as_json or events == "-")
    sink = events_to(events, loaded.path)
    finished = rehearse(
        loaded, fault=fault, quiet=quiet, records_base=base, screen=screen, events=sink.descriptor, on_begin=sink.begin
    )
    return show_end(finished, as_json=as_json)
