"""The docker command line as a value: run it with a time limit, keep what it said on stderr, look things up.

Everything goes through the CLI, so every endpoint that it knows works (DOCKER_HOST, contexts, ssh://). Only looking and plain
calls here; what a server is, and when it is started or stopped, lives in ``docker``.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from dataclasses import dataclass
from typing import Any

from audition.wayback.server import WaybackError

RUN_LABEL = "audition.run"
ARM_LABEL = "audition.arm"
FENCE_LABEL = "audition.fence"

LOOK_S = 30.0
"""Time limit of a call that only looks. A healthy engine answers within a tenth of a second, a restarting one within seconds."""
START_S = 300.0
"""Time limit of a start or a recreate. Docker answers within seconds; a loaded host with many layers takes longer."""
STOP_SLACK_S = 60.0
"""What ``docker stop`` may need beyond the grace period: kill, unmount, network teardown."""

_DOWN = (
    "cannot connect to the docker daemon",
    "failed to connect to the docker api",
    "error during connect",
    "is the docker daemon running",
    "error response from daemon: dial unix",
    "unexpected eof",
)
_FALLBACK_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class EngineDown(WaybackError):
    """The Docker engine does not answer. Trying again later may work."""


@dataclass(frozen=True)
class Ran:
    """A finished command: exit code, stdout and stderr."""

    rc: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """What it said about a failure, in one line."""
        text = self.err.strip() or self.out.strip() or "no message"
        return " / ".join(line.strip() for line in text.splitlines() if line.strip())[-800:]


class Docker:
    """One Docker engine behind the CLI. ``docker``: the command with its global options; ``env``: the environment of its calls."""

    def __init__(self, docker: list[str], env: dict[str, str]) -> None:
        self.docker = docker
        self.env = {"PATH": os.environ.get("PATH", _FALLBACK_PATH), **env}
        self._endpoint: str | None = None

    def run(self, *arguments: str, timeout_s: float = LOOK_S) -> Ran:
        """Run ``docker ARGUMENTS``. Any exit code is a value.

        Raises EngineDown when the engine does not answer (within ``timeout_s`` seconds), WaybackError without a docker command.
        """
        return self.call([*self.docker, *arguments], timeout_s=timeout_s)

    def call(self, argv: list[str], *, timeout_s: float, merge: bool = False) -> Ran:
        """The same for a whole argument list. ``merge``: stderr goes into ``out``, in the order in which it came."""
        try:
            child = subprocess.Popen(
                argv,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if merge else subprocess.PIPE,
                start_new_session=True,  # a Ctrl-C in the terminal must not end a half-done docker call
            )
        except OSError as fault:
            raise WaybackError(f"cannot run {argv[0]}: {fault.strerror}") from fault
        try:
            out, err = child.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as fault:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # its own session: the compose plugin below it dies too
            child.communicate()
            raise EngineDown(f"Docker engine does not answer: `{_short(argv)}` took more than {timeout_s:.0f} s") from fault
        ran = Ran(child.returncode, out.decode(errors="replace"), (err or b"").decode(errors="replace"))
        if ran.rc != 0 and any(sign in (ran.err or ran.out).lower() for sign in _DOWN):
            raise EngineDown(f"Docker engine does not answer: {ran.said}")
        return ran

    def text(self, *arguments: str, timeout_s: float = LOOK_S) -> str:
        """Stdout of ``docker ARGUMENTS``. Raises WaybackError with its stderr when it fails."""
        ran = self.run(*arguments, timeout_s=timeout_s)
        if ran.rc != 0:
            raise WaybackError(f"`{_short([*self.docker, *arguments])}` failed with exit code {ran.rc}: {ran.said}")
        return ran.out

    def inspect_all(self, references: list[str]) -> list[dict[str, Any]]:
        """What ``docker container inspect`` says of those that exist (ids or names), in order."""
        if not references:
            return []
        ran = self.run("container", "inspect", *references)
        if ran.rc != 0 and "no such container" not in ran.err.lower():
            raise WaybackError(f"docker container inspect failed: {ran.said}")
        return list(json.loads(ran.out or "[]"))

    def by_id(self, container_id: str) -> dict[str, Any] | None:
        """The container with exactly this full id; None when it is gone."""
        return next((c for c in self.inspect_all([container_id]) if c["Id"] == container_id), None)

    def by_name(self, name: str) -> dict[str, Any] | None:
        """The container that holds exactly this name; None when the name is free."""
        return next((c for c in self.inspect_all([name]) if name_of(c) == name), None)

    def by_labels(self, labels: dict[str, str]) -> list[dict[str, Any]]:
        """All containers, running or not, that carry all these labels."""
        if not labels:
            return []
        filters = [word for key, value in labels.items() for word in ("--filter", f"label={key}={value}")]
        found = self.inspect_all(self.text("ps", "--all", "--quiet", "--no-trunc", *filters).split())
        return [c for c in found if carries(c, labels)]

    def image(self, reference: str) -> dict[str, Any] | None:
        """What ``docker image inspect`` says of an image; None when it is not on the engine."""
        ran = self.run("image", "inspect", reference)
        if ran.rc == 0:
            return dict(json.loads(ran.out)[0])
        if "no such image" in ran.err.lower() or "no such object" in ran.err.lower():
            return None
        raise WaybackError(f"docker image inspect {reference} failed: {ran.said}")

    def endpoint(self) -> str:
        """Where the engine is, e.g. ``unix:///var/run/docker.sock``; an empty text when the CLI does not tell."""
        if self._endpoint is None:
            name = next((b for a, b in zip(self.docker, self.docker[1:], strict=False) if a in ("--context", "-c")), "")
            host = next((b for a, b in zip(self.docker, self.docker[1:], strict=False) if a in ("--host", "-H")), "")
            ran = self.run("context", "inspect", *([name] if name else []), "--format", "{{.Endpoints.docker.Host}}")
            self._endpoint = host or (ran.out.strip() if ran.rc == 0 else "")
        return self._endpoint

    def local(self) -> bool:
        """Whether the engine runs on this machine, so that its ports and log files can be looked at directly."""
        return self.endpoint().startswith(("unix://", "npipe://"))


def name_of(container: dict[str, Any]) -> str:
    """The name of an inspected container, without Docker's leading slash."""
    return str(container["Name"]).removeprefix("/")


def labels_of(container: dict[str, Any]) -> dict[str, str]:
    """The labels of an inspected container."""
    return dict(container["Config"].get("Labels") or {})


def carries(container: dict[str, Any], labels: dict[str, str]) -> bool:
    """Whether an inspected container carries all these labels. No labels at all identify nothing: False."""
    present = labels_of(container)
    return bool(labels) and all(present.get(key) == value for key, value in labels.items())


def is_running(container: dict[str, Any]) -> bool:
    """Whether an inspected container runs now. One that waits for its next restart does not, although Docker calls it running."""
    state = container["State"]
    return bool(state["Running"]) and not state["Restarting"]


def _short(argv: list[str]) -> str:
    """An argument list for a message: paths and options kept, cut when it is long."""
    text = " ".join(argv)
    return text if len(text) <= 160 else text[:157] + "..."
