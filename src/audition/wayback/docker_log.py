"""A container's log: how much it has printed, cheaply, and its last lines. No judgement of what the lines mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from audition.wayback.docker_cli import Docker

LOG_S = 30.0


class ContainerLog:
    """Counts the bytes of whatever container is given, across rotations and new containers."""

    def __init__(self, cli: Docker) -> None:
        self.cli = cli
        self._total = 0
        self._file = ("", 0)
        self._since = ("", "")

    def size(self, container: dict[str, Any] | None) -> int:
        """A number that grows with each byte printed: the log file's size where that can be read, else what the engine has new."""
        if container is None:
            return self._total
        if self.cli.local() and (path := container.get("LogPath")):
            try:
                now = Path(path).stat().st_size
            except OSError:
                return self._asked(container)
            known = self._file[1] if self._file[0] == path else 0
            self._total += now - known if now >= known else now  # smaller: the file was rotated away
            self._file = (path, now)
            return self._total
        return self._asked(container)

    def tail(self, container: dict[str, Any] | None, lines: int) -> str:
        """The last lines, stdout and stderr as they came."""
        if container is None:
            return "(no log: the container is gone)"
        argv = [*self.cli.docker, "logs", "--tail", str(lines), container["Id"]]
        ran = self.cli.call(argv, timeout_s=LOG_S, merge=True)
        return ran.out if ran.rc == 0 else f"(no log: {ran.said})"

    def _asked(self, container: dict[str, Any]) -> int:
        """Count what came after the last time stamp seen. Stamps are the engine's own, so clocks need not agree."""
        last = self._since[1] if self._since[0] == container["Id"] else ""
        argv = [*self.cli.docker, "logs", "--timestamps", *(["--since", last] if last else []), container["Id"]]
        ran = self.cli.call(argv, timeout_s=LOG_S, merge=True)
        if ran.rc == 0:
            newest = last
            for line in ran.out.splitlines():
                stamp, _, text = line.partition(" ")
                if stamp > last:
                    self._total += len(text) + 1
                    newest = max(newest, stamp)
            self._since = (container["Id"], newest)
        return self._total
