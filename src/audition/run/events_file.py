"""The file of ``--events``: what may be written there is asked early, and nothing is written before the run has begun.

A file that is no record of events is never emptied. What happens before the run has begun is held in memory, so that a run that is
refused leaves the file as it was. Pipes, terminals and devices are written at once. What an event looks like: ``events``.
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from audition.errors import BadInput

_LONGEST_LINE = 1024 * 1024  # bytes of a first line that is looked at
_HINT = "name a file in a folder that exists, a pipe that is being read, or - for standard error"


@dataclass(frozen=True)
class EventsSink:
    """Where JSON lines go. ``descriptor``: open until the process ends, a writer that is stuck in it must never meet another file
    under the same number; None: nowhere. ``path``: the regular file that they move to when the run begins, "" when there is none.
    """

    descriptor: int | None = None
    path: str = ""
    spike: Path | None = None

    def begin(self) -> None:
        """The run begins: the file is emptied, what was held is written to it, and ``descriptor`` is this file from now on.

        Raises BadInput when the file cannot be written, or has become another one meanwhile.
        """
        if not self.path or self.descriptor is None:
            return
        try:
            target = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise _unwritable(self.path, error) from error
        try:
            _refuse_what_is_precious(self.path, target, self.spike)
            os.ftruncate(target, 0)
            os.lseek(target, 0, os.SEEK_SET)
            held = os.pread(self.descriptor, os.fstat(self.descriptor).st_size, 0)
            while held:
                held = held[os.write(target, held) :]
            os.dup2(target, self.descriptor, inheritable=False)
        except OSError as error:
            raise _unwritable(self.path, error) from error
        finally:
            os.close(target)


def open_events(name: str, spike: Path) -> EventsSink:
    """Look whether JSON lines can be written to what ``name`` names, and prepare it; no regular file is changed or made.

    ``spike``: the spike file, which is never written. Without blocking, so that a named pipe that nobody reads is refused and not
    waited for. Raises BadInput.
    """
    try:
        there = os.stat(name)
    except FileNotFoundError as error:
        folder = os.path.dirname(os.path.abspath(name))
        if not os.path.isdir(folder) or not os.access(folder, os.W_OK | os.X_OK) or os.path.basename(name) in ("", ".", ".."):
            raise _unwritable(name, error) from error
        return _held(name, spike)
    except (OSError, ValueError) as error:
        raise _unwritable(name, error) from error
    regular = stat.S_ISREG(there.st_mode)
    try:
        descriptor = os.open(name, (os.O_RDWR if regular else os.O_WRONLY) | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise _unwritable(name, error) from error
    if not regular:
        return EventsSink(descriptor)
    try:
        _refuse_what_is_precious(name, descriptor, spike)
    finally:
        os.close(descriptor)
    return _held(name, spike)


def _held(name: str, spike: Path) -> EventsSink:
    return EventsSink(os.memfd_create("audition-events", os.MFD_CLOEXEC), os.path.abspath(name), spike)


def _refuse_what_is_precious(name: str, descriptor: int, spike: Path | None) -> None:
    """Raises BadInput for the spike file, and for a file that holds something that is no record of events."""
    seen = os.fstat(descriptor)
    if spike is not None and spike.exists() and os.path.samestat(seen, spike.stat()):
        raise BadInput(f"--events {name}: this is the spike file", next_step="name a new file")
    if not stat.S_ISREG(seen.st_mode):
        raise BadInput(f"--events {name}: it is no regular file any more", next_step=_HINT)
    if seen.st_size and not _is_event(os.pread(descriptor, _LONGEST_LINE, 0).partition(b"\n")[0]):
        raise BadInput(f"--events {name}: it is not empty and holds no events; it would be lost", next_step="name a new file")


def _is_event(line: bytes) -> bool:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(data, dict) and isinstance(data.get("event"), str)


def _unwritable(name: str, error: Exception) -> BadInput:
    return BadInput(f"--events {name}: it cannot be written", seen=str(error), next_step=_HINT)
