"""The command line: one file a verb, loaded when that verb is called; one place turns errors into text and exit codes."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the ``audition`` command. Ends the process with the documented exit code."""
    from audition.cli.app import run_command  # noqa: PLC0415 - keep the import of this package free

    sys.exit(run_command(sys.argv[1:]))
