"""What a container printed since a given start, kept in a file that outlives the container. No judgement of the lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from audition.wayback.docker_cli import Docker

PULL_S = 60.0
"""Time limit of one pull, in seconds; a week of a chatty server's log is read within a few."""


class LogFile:
    """Copies a container's log piece by piece. ``pull`` is cheap when there is little that is new."""

    def __init__(self, path: Path, cli: Docker) -> None:
        self.path, self._cli = path, cli
        self._boot = ""
        self._newest = ""

    def pull(self, container: dict[str, Any] | None) -> list[str]:
        """New lines since the last pull; a new boot of the container, or another container, begins the file anew.

        Nothing is new when the container is gone; the file stays. Raises WaybackError when the engine does not answer.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if container is None:
            self.path.touch(mode=0o600)
            return []
        started = str(container["State"]["StartedAt"])
        boot = f"{container['Id']} {started}"
        if boot != self._boot:
            self.path.write_text("")
            self.path.chmod(0o600)  # a server may print its own key
            self._boot, self._newest = boot, ""
        since = self._newest or started
        argv = [*self._cli.docker, "logs", "--timestamps", "--since", since, container["Id"]]
        ran = self._cli.call(argv, timeout_s=PULL_S, merge=True)
        if ran.rc != 0:
            return []
        lines = []
        before = self._newest
        for line in ran.out.splitlines():
            stamp, _, text = line.partition(" ")
            if stamp > before:
                lines.append(text)
                self._newest = max(self._newest, stamp)
        if lines:
            with self.path.open("a", encoding="utf-8") as file:
                file.write("".join(f"{text}\n" for text in lines))
        return lines
