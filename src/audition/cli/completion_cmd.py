"""``audition completion``: the script that makes a shell complete verbs, options, spike files and run folders."""

from __future__ import annotations

import json

import click

_SHELLS = ("bash", "zsh", "fish")
EPILOG = """\b
Exit codes:
  0 the script is printed    2 no such shell
"""


@click.command("completion", epilog=EPILOG)
@click.argument("shell", metavar="SHELL", type=click.Choice(_SHELLS))
@click.option("--json", "as_json", is_flag=True, help="Print the script inside a JSON object.")
def command(shell: str, as_json: bool) -> int:
    """Print the completion script of SHELL: bash (4.4 or newer), zsh or fish.

    \b
    bash   eval "$(audition completion bash)"    in ~/.bashrc
    zsh    eval "$(audition completion zsh)"     in ~/.zshrc, after compinit
    fish   audition completion fish > ~/.config/fish/completions/audition.fish
    """
    from click.shell_completion import get_completion_class  # noqa: PLC0415 - lazily: only when the verb runs

    from audition.cli.app import group  # noqa: PLC0415 - the group loads this module

    kind = get_completion_class(shell)
    if kind is None:
        raise TypeError(f"click knows no shell {shell}")
    script = kind(group, {}, "audition", "_AUDITION_COMPLETE").source()
    click.echo(json.dumps({"shell": shell, "script": script}, indent=1) if as_json else script)
    return 0
