"""What the way back needs of a server, whatever runs it: look, start, stop with proof, compare with the snapshot, read the log.

Implemented by ``procs.ProcessServer`` and ``docker.ContainerServer``. The engines of the runner are made of the same objects, so
that there is one way to start and one way to stop. No ordering and no retries here; those belong to ``restore``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol


class WaybackError(Exception):
    """Something could not be done: one sentence with what was tried and what was seen (stderr kept)."""


@dataclass(frozen=True)
class ServerView:
    """What is there now.

    running: this target runs. parked: it is suspended, wholly or half, and may be resumed (only with a plan to park). stopped: it
    exists and does not run. absent: nothing of it is left. foreign: something else holds its name or port. ``boot_id`` identifies
    the present boot ("" when it does not run) and changes with every start, whoever made it.
    ``parkable``: this boot is the one that the plan may have parked, so what is wrong with it may come from that.
    """

    state: Literal["running", "parked", "stopped", "absent", "foreign"]
    detail: str
    boot_id: str = ""
    exit_code: int | None = None
    restarts: int | None = None
    parkable: bool = False


@dataclass(frozen=True)
class StopReport:
    """``proved``: nothing of the server is left running and its port is closed. ``killed``: the grace period was not enough."""

    proved: bool
    killed: bool
    seconds: float
    detail: str = ""


class Server(Protocol):
    """One server. Every method is safe to call in every state and at any time again."""

    def view(self) -> ServerView:
        """Look, touching nothing. Raises WaybackError when looking itself is impossible (e.g. the Docker engine is down)."""

    def start(self) -> None:
        """Launch it; a no-op when it runs already. Raises WaybackError."""

    def stop(self, grace_s: float) -> StopReport:
        """SIGTERM, ``grace_s`` seconds, SIGKILL, then proof. Only ever touches what is provably this target."""

    def differences(self) -> list[str]:
        """How the running server differs from its snapshot, one sentence each; empty means equal point by point."""

    def log_size(self) -> int:
        """A number that grows with each byte that the server prints; used to tell silence from progress."""

    def log_tail(self, lines: int) -> str:
        """The last lines of its log."""
