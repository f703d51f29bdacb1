"""The command group: verbs by name, errors to text, exit codes. Verbs are imported when called, so that ``--help`` stays fast."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Sequence

import click

from audition import __version__
from audition.errors import EXIT_INTERNAL, AuditionError

VERBS: dict[str, tuple[str, str]] = {
    "init": ("audition.cli.init_cmd", "Write a commented spike file from two compose profiles, or from what runs now."),
    "check": ("audition.cli.check_cmd", "Say what can be known of a spike before its window; nothing is touched."),
    "rehearse": ("audition.cli.rehearse_cmd", "Run the whole spike on simulated servers: no GPU, no docker, nothing touched."),
    "run": ("audition.cli.run_cmd", "Run the spike on production's own GPUs and bring production back."),
    "judge": ("audition.cli.judge_cmd", "Compute the verdict again from the records of a run."),
    "bench": ("audition.cli.bench_cmd", "Measure any OpenAI-compatible server; nothing is started or stopped."),
    "diagnose": ("audition.cli.diagnose_cmd", "Say what went wrong according to a server's log."),
    "recover": ("audition.cli.recover_cmd", "Bring production back after anything that went wrong. Safe at any time."),
    "status": ("audition.cli.status_cmd", "Say what runs, who holds the slot, until when, and what to type."),
    "setup": ("audition.cli.setup_cmd", "Install the boot-time recovery unit, after showing it."),
    "schema": ("audition.cli.schema_cmd", "Print the JSON schema of the spike file, for editors."),
}

EPILOG = """\b
Exit codes:
  0 GO (or: done)    3 NO-GO      4 INCONCLUSIVE
  2 bad input, nothing touched    5 refused beforehand, nothing touched
  1 internal error, production restored
  7 production could NOT be restored (the commands to type are shown)
"""


class LazyGroup(click.Group):
    """A group that knows its verbs by name and imports one only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Verbs in the order of the table."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb's command, imported now; None for an unknown verb."""
        if cmd_name not in VERBS:
            return None
        command = importlib.import_module(VERBS[cmd_name][0]).command
        if not isinstance(command, click.Command):
            raise TypeError(f"{VERBS[cmd_name][0]}.command is no click command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of verbs, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in VERBS.items()])


@click.group(
    cls=LazyGroup,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    help="Try a change to a large-language-model server on production's own GPUs, and always bring production back.",
)
@click.version_option(__version__, message="audition %(version)s")
def group() -> None:
    """The group itself does nothing."""


def render(error: AuditionError, *, as_json: bool) -> str:
    """An error as text for people, or as one JSON object."""
    if as_json:
        body = {"error": error.kind, "what": error.what, "exit_code": error.exit_code, **dict(error.parts())}
        return json.dumps(body, ensure_ascii=False)
    lines = [f"{error.kind}: {error.what}"]
    for name, text in error.parts():
        lines += [f"  {name}: {text}" if i == 0 else f"  {'':{len(name)}}  {text}" for i, text in enumerate(text.splitlines())]
    return "\n".join(lines)


def run_command(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code. Errors are written to standard error (as JSON on standard output under --json)."""
    as_json = "--json" in arguments
    try:
        outcome = group.main(args=list(arguments), prog_name="audition", standalone_mode=False)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.Abort:
        print("aborted", file=sys.stderr)
        return 130
    except click.ClickException as wrong:
        wrong.show()
        return wrong.exit_code
    except AuditionError as error:
        print(render(error, as_json=as_json), file=sys.stdout if as_json else sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_INTERNAL
    return outcome if isinstance(outcome, int) else 0
