"""Where the verbs that run a spike show what happens: the file of ``--events``, opened before anything is touched."""

from __future__ import annotations

import os
import sys

from audition.errors import BadInput


def events_to(name: str | None) -> int | None:
    """An open descriptor for JSON lines; None when none are wanted. ``-`` is standard error. Raises BadInput.

    The file is opened without blocking, so that a named pipe that nobody reads is refused here and not waited for. It stays open
    until the process ends: a writer that is stuck in it must never meet another file under the same number.
    """
    if name is None:
        return None
    if name == "-":
        return sys.stderr.fileno() if sys.stderr is not None else None
    try:
        return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    except OSError as error:
        hint = "name a file in a folder that exists, a pipe that is being read, or - for standard error"
        raise BadInput(f"--events {name}: it cannot be written", seen=str(error), next_step=hint) from error
