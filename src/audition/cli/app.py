"""The command group: verbs by name, errors to text, exit codes. Verbs are imported when called, so that ``--help`` stays fast."""

from __future__ import annotations

import importlib
import io
import json
import os
import sys
import traceback
from collections.abc import Sequence

import click

from audition.errors import EXIT_BAD_INPUT, EXIT_INTERNAL, EXIT_REFUSED, AuditionError, InternalError

VERBS: dict[str, tuple[str, str]] = {
    "init": ("audition.cli.init_cmd", "Write a commented spike file from two compose profiles, or from what runs now."),
    "check": ("audition.cli.check_cmd", "Say what can be known of a spike before its window; nothing is touched."),
    "rehearse": ("audition.cli.rehearse_cmd", "Run the whole spike on simulated servers: no GPU, no docker, nothing touched."),
    "announce": ("audition.cli.announce_cmd", "Write the request for the slot, the all-clear or the result, and send it."),
    "run": ("audition.cli.run_cmd", "Run the spike on production's own GPUs and bring production back."),
    "judge": ("audition.cli.judge_cmd", "Compute the verdict again from the records of a run."),
    "report": ("audition.cli.report_cmd", "Write the records of a run anew, the HTML report among them."),
    "history": ("audition.cli.history_cmd", "List the runs of a records folder with their verdicts."),
    "compare": ("audition.cli.compare_cmd", "Put the figures of several runs side by side, with what makes them incomparable."),
    "export": ("audition.cli.export_cmd", "Write runs into an MLflow tracking store."),
    "bench": ("audition.cli.bench_cmd", "Measure any OpenAI-compatible server; nothing is started or stopped."),
    "diagnose": ("audition.cli.diagnose_cmd", "Say what went wrong according to a server's log."),
    "recover": ("audition.cli.recover_cmd", "Bring production back after anything that went wrong. Safe at any time."),
    "status": ("audition.cli.status_cmd", "Say what runs, who holds the slot, until when, and what to type."),
    "setup": ("audition.cli.setup_cmd", "Install the boot-time recovery unit, after showing it."),
    "schema": ("audition.cli.schema_cmd", "Print the JSON schema of the spike file, for editors."),
    "completion": ("audition.cli.completion_cmd", "Print the script that completes verbs, options and files in a shell."),
}

EPILOG = """\b
Exit codes:
  0 GO (or: done)    3 NO-GO      4 INCONCLUSIVE
  2 bad input, nothing touched    5 refused beforehand, nothing touched
  1 internal error, production restored
  7 production could NOT be restored (the commands to type are shown)
  130 given up by you, before anything was touched
"""
ABORTED = 130
_TOUCHING = ("run", "recover")
_COMPLETING = "_AUDITION_COMPLETE"
_AFTER_FAULT = "audition status, and `audition recover` unless it says that nothing is unfinished; report the text above"


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
        if _COMPLETING in os.environ:
            from audition.cli.completing import with_suggestions  # noqa: PLC0415 - lazily: only when a shell asks

            return with_suggestions(command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[click.shell_completion.CompletionItem[str]]:
        """Verbs from the table, without importing them, and the options of the group itself."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - lazily: only when a shell asks

        verbs = [CompletionItem(name, help=text) for name, (_, text) in VERBS.items() if name.startswith(incomplete)]
        return [*verbs, *click.Command.shell_complete(self, ctx, incomplete)]

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
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=lambda ctx, _param, given: _say_version(ctx, given),
    help="Show the version, the git revision of a checkout and the version of Python.",
)  # fmt: skip
def group() -> None:
    """The group itself does nothing."""


def _say_version(ctx: click.Context, given: bool) -> None:
    if given and not ctx.resilient_parsing:
        from audition.cli.version import version_text  # noqa: PLC0415 - lazily: only when asked

        click.echo(version_text())
        ctx.exit()


def parts_of(error: AuditionError, verb: str) -> list[tuple[str, str]]:
    """What an error says, heading by heading; what its class promises and how to go on are added where it leaves them out.

    Bad input and refusals are raised before anything is touched (``errors``), and most verbs touch nothing; else ``status`` knows.
    """
    said = dict(error.parts())
    early = error.exit_code in (EXIT_BAD_INPUT, EXIT_REFUSED)
    said.setdefault("production", "untouched" if early or verb not in _TOUCHING else "see `audition status`")
    said.setdefault("next", f"audition {verb} --help" if early and verb in VERBS else "audition status")
    return [(name, said[name]) for name in ("tried", "seen", "production", "next") if name in said]


def render(error: AuditionError, *, as_json: bool, verb: str = "") -> str:
    """An error as text for people, or as one JSON object. ``verb``: which verb failed."""
    parts = parts_of(error, verb)
    if as_json:
        body = {"error": error.kind, "what": error.what, "exit_code": error.exit_code, **dict(parts)}
        return json.dumps(body, ensure_ascii=False)
    lines = [f"{error.kind}: {error.what}"]
    for name, text in parts:
        lines += [f"  {name}: {text}" if i == 0 else f"  {'':{len(name)}}  {text}" for i, text in enumerate(text.splitlines())]
    return "\n".join(lines)


def _usage(wrong: click.ClickException) -> str:
    """A command line that click does not understand, as one JSON object."""
    context = wrong.ctx if isinstance(wrong, click.UsageError) else None
    body = {"error": "bad input", "what": wrong.format_message(), "exit_code": wrong.exit_code, "production": "untouched"}
    return json.dumps({**body, "next": f"{context.command_path if context else 'audition'} --help"}, ensure_ascii=False)


def _prepare_output(*, as_json: bool) -> None:
    """JSON is UTF-8 whatever the locale says; a letter that the terminal does not know is spelled out and breaks nothing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace", encoding="utf-8" if as_json and stream is sys.stdout else None)


def run_command(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code. Errors are written to standard error (as JSON on standard output under --json)."""
    options = list(arguments[: list(arguments).index("--")]) if "--" in arguments else list(arguments)
    as_json, verb = "--json" in options, next((word for word in options if word in VERBS), "")
    _prepare_output(as_json=as_json)
    try:
        outcome = group.main(args=list(arguments), prog_name="audition", standalone_mode=False)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.Abort:
        if as_json:
            now = "see `audition status`" if verb in _TOUCHING else "untouched"
            body = {"error": "aborted", "what": "given up", "exit_code": ABORTED, "production": now, "next": "audition status"}
            print(json.dumps(body))
        print("aborted", file=sys.stderr)
        return ABORTED
    except click.ClickException as wrong:
        if as_json:
            print(_usage(wrong))
        else:
            wrong.show()
        return wrong.exit_code
    except AuditionError as error:
        print(render(error, as_json=as_json, verb=verb), file=sys.stdout if as_json else sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_INTERNAL
    except Exception as error:  # noqa: BLE001 - the outermost edge: a fault of audition itself, with its traceback
        traceback.print_exc()
        fault = InternalError(f"a fault of audition itself: {type(error).__name__}: {error}", next_step=_AFTER_FAULT)
        print(render(fault, as_json=as_json, verb=verb), file=sys.stdout if as_json else sys.stderr)
        return EXIT_INTERNAL
    return outcome if isinstance(outcome, int) else 0
