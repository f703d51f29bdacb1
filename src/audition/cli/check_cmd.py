"""``audition check``: everything that can be known of a spike before anything is touched."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("check")
@click.argument("spike", metavar="SPIKE|EXAMPLE")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON on standard output.")
@click.option("--elsewhere", is_flag=True, help="This is not the machine of the run: look at files alone.")
@click.option(
    "--checkpoint", "checkpoints", multiple=True, metavar="ARM=FOLDER", help="Where an arm's model lies; may be repeated."
)
@click.option("--vllm", "versions", multiple=True, metavar="ARM=RELEASE", help="Which vLLM an arm runs, e.g. prod=0.19.1.")
def command(spike: str, as_json: bool, elsewhere: bool, checkpoints: tuple[str, ...], versions: tuple[str, ...]) -> int:
    """Check a spike before its window. Touches nothing, uses no network, takes seconds.

    Prints what is ok, what deserves a warning and what blocks a run, with the reason and what to type. Exit code 0: nothing blocks;
    5: something does; 2: the spike file cannot be used. SPIKE is a spike file, a folder that holds spike.yaml, or an example.
    """
    from audition.check.words import as_json as json_of  # noqa: PLC0415 - lazily: only when the verb runs
    from audition.check.words import as_text  # noqa: PLC0415
    from audition.cli.checking import check_file  # noqa: PLC0415
    from audition.spike.examples import find_spike  # noqa: PLC0415
    from audition.spike.parse import load_spike  # noqa: PLC0415

    loaded = load_spike(Path(find_spike(spike)))
    report = check_file(loaded, checkpoints=checkpoints, versions=versions, elsewhere=elsewhere)
    click.echo(json_of(report) if as_json else as_text(report), nl=False)
    return report.exit_code
