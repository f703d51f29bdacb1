"""``audition setup``: the units that bring production back at boot and watch the deadline."""

from __future__ import annotations

import json

import click

EPILOG = """\b
Exit codes:
  0 installed, shown, or not wanted; also where there is no systemd
  5 refused: a run is unfinished, or systemd refused
  130 no answer to the question; nothing was installed
"""


@click.command("setup", epilog=EPILOG)
@click.option("--yes", is_flag=True, help="Install without asking; the units are shown all the same.")
@click.option("--json", "as_json", is_flag=True, help="Print the units as JSON and install nothing.")
def command(yes: bool, as_json: bool) -> int:
    """Show the systemd units that run `audition recover` at boot and at the deadline; install them only on yes.

    Run it once, outside any window, from an installation that stays: it warns when the interpreter, the package or the state lies
    in a temporary folder, a home folder or a working tree. PATH is taken over with every folder once.

    Without systemd it says so, and what is lost.
    """
    from audition.run.setup import plan_setup, setup, systemd_runs  # noqa: PLC0415 - lazily: only when the verb runs

    if as_json:
        planned = plan_setup()
        body = {
            "systemd": systemd_runs(), "folder": str(planned.folder), "units": planned.units, "command": planned.command,
            "warnings": planned.warnings,
        }  # fmt: skip
        click.echo(json.dumps(body, indent=1))
        return 0
    return setup(say=click.echo, confirm=lambda text: yes or click.confirm(text, default=False))
