"""The protocol that every engine honours, and the values that it speaks in.

An engine is one arm's server. Calls block; each returns a value for every expected course of events and raises only
``AuditionError``. Journalling, ordering and the verdict are not the business of engines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from audition.wayback.plan import ArmTarget, EndpointPlan, ProcessTarget

Should = Callable[[], bool]
"""Polled inside long waits; True means: give up now (interrupted)."""


@dataclass(frozen=True)
class Finding:
    """Something seen before anything was touched. ``blocking`` findings refuse the run (exit 5)."""

    level: Literal["ok", "warning", "blocking"]
    text: str
    next_step: str = ""


@dataclass(frozen=True)
class Observation:
    """What is there now. ``state`` foreign: something answers on the port or under the name, but it is not this arm."""

    state: Literal["running", "absent", "foreign"]
    detail: str
    identity: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class BootOutcome:
    """How a boot went. ``ready``: a real completion worked. Seconds since start. ``excerpt``: a failed boot's last log lines."""

    kind: Literal["ready", "exited", "silent", "overrun", "wrong-model", "broken", "interrupted"]
    seconds: float
    detail: str = ""
    exit_code: int | None = None
    excerpt: str = ""


@dataclass(frozen=True)
class StopOutcome:
    """How a stop went. ``proved``: no process of the server is left and its port is closed."""

    proved: bool
    seconds: float
    killed: bool
    detail: str = ""


@dataclass(frozen=True)
class Invocation:
    """What an arm's server is started with, as its profile or its first observation says. May hold secrets.

    ``argv``: the command line, of a container, without its entrypoint; empty when the image knows it. ``image``: of a container,
    else empty. ``process``: of an arm that is a process of this machine.
    """

    argv: list[str]
    variables: Mapping[str, str]
    image: str = ""
    process: ProcessTarget | None = None


class Engine(Protocol):
    """One arm's server."""

    @property
    def arm(self) -> str:
        """Name of the arm."""

    @property
    def endpoint(self) -> EndpointPlan:
        """Where the server answers."""

    def preflight(self) -> list[Finding]:
        """What can be known before anything is touched: files, commands, images, ports. Touches nothing."""

    def observe(self) -> Observation:
        """What runs now under this arm's name and port. Touches nothing."""

    def target(self) -> ArmTarget:
        """This arm as part of a restore plan. For production: made from what is observed, never from the spike file alone."""

    def invocation(self) -> Invocation:
        """What the server is started with. Unlike ``target`` it asks no container engine and writes nothing."""

    def start(self) -> None:
        """Start the server; returns as soon as it is launched. Raises AuditionError when it cannot be launched."""

    def wait_ready(self, give_up: Should, on_line: Callable[[str], None]) -> BootOutcome:
        """Wait until a real completion works, or tell how the boot failed. ``on_line`` gets each new log line."""

    def alive(self) -> bool:
        """Whether the server started here still runs (not restarted, not replaced)."""

    def owns(self, pid: int) -> bool | None:
        """Whether a process of this machine belongs to the server; None when that cannot be told (a server elsewhere)."""

    def boot_id(self) -> str:
        """Identity of the present boot: changes with each start, also with one that somebody else made."""

    def stop(self) -> StopOutcome:
        """Stop the server and prove it. Safe to call when it does not run."""

    def log_since_start(self) -> Path:
        """A file with what the server printed since its last start (or, for one that already ran, since it was first observed)."""
