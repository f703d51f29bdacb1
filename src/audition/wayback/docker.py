"""A server that is a container: look, start, stop with proof, compare, read the log.

Production is known by its container id and, when that container is gone, by its compose labels; everything else by audition's
labels. A name or a port never identifies anything. What a container is, point by point, lives in ``docker_snapshot``, what
happens to other containers in ``docker_beside``; ordering lives in ``restore``.
"""

from __future__ import annotations

import hashlib
import shlex
import time
from pathlib import Path
from typing import Any

from audition.wayback.docker_beside import (
    is_displaced,
    sidecar_runs,
    start_sidecar,
    step_aside,
    step_back,
    stop_sidecar,
)
from audition.wayback.docker_cli import (
    RUN_LABEL,
    START_S,
    STOP_SLACK_S,
    Docker,
    EngineDown,
    carries,
    is_running,
    labels_of,
    name_of,
)
from audition.wayback.docker_log import ContainerLog
from audition.wayback.docker_snapshot import compare, describe
from audition.wayback.plan import ArmTarget, ContainerTarget
from audition.wayback.proctable import describe as describe_process
from audition.wayback.proctable import listeners, listening_inodes, port_answers
from audition.wayback.server import ServerView, StopReport, WaybackError

PORT_CLOSES_S = 10.0
"""How long a port may stay open after its container has stopped."""


class ContainerServer:
    """The server of ``target.container``; see ``server.Server``."""

    def __init__(self, target: ArmTarget) -> None:
        if target.container is None:
            raise ValueError(f"arm {target.arm} is not a container")
        self.target = target
        self.container: ContainerTarget = target.container
        self.cli = Docker(self.container.docker, self.container.docker_env)
        self.production = RUN_LABEL not in self.container.labels
        if not self.production and self.container.container_id:
            raise ValueError(f"arm {target.arm} has both a run's label and production's container id")
        self._log = ContainerLog(self.cli)
        self._restarts_before: dict[str, int] = {}

    def find(self) -> dict[str, Any] | None:
        """The container of this target as ``docker inspect`` gives it, a running one first; None when there is none."""
        if self.container.container_id and (known := self.cli.by_id(self.container.container_id)):
            return known
        found = self.cli.by_labels(self.container.labels)
        if self.production:
            found = [c for c in found if RUN_LABEL not in labels_of(c)]
        return max(found, key=lambda c: (is_running(c), c["Created"]), default=None)

    def view(self) -> ServerView:
        """Look, touching nothing. A restart loop counts as stopped, with its last exit code. ``restarts``: since this object's own
        start, or since it first looked; what happened last week says nothing about this boot.

        A container that exists is running or stopped, whatever else holds the port (``detail`` says so); foreign means that nothing
        of this target is left and something else holds its name or port. Raises WaybackError when the engine does not answer.
        """
        found = self.find()
        if found is None:
            obstacle = self._obstacle(None)
            if obstacle:
                return ServerView("foreign", obstacle)
            return ServerView("absent", f"there is no container of {self.target.arm}")
        state, restarts = found["State"], self._restarts(found)
        who = f"container {name_of(found)} ({found['Id'][:12]})"
        if is_running(found):
            paused = " but is paused" if state["Paused"] else ""
            return ServerView("running", f"{who} runs{paused}", boot_id=_boot_id(found), restarts=restarts)
        code = int(state["ExitCode"])
        if state["Restarting"]:
            detail = f"{who} is in a restart loop: {found['RestartCount']} restarts, last exit code {code}"
        elif state["Status"] == "created":
            detail = f"{who} was created and never started: {state.get('Error') or 'no error is recorded'}"
            return ServerView("stopped", detail, restarts=restarts)
        else:
            detail = f"{who} is {state['Status']} with exit code {code}{', out of memory' if state['OOMKilled'] else ''}"
            obstacle = self._obstacle(found)
            detail += f"; {obstacle}" if obstacle else ""
        return ServerView("stopped", detail, exit_code=code, restarts=restarts)

    def _restarts(self, found: dict[str, Any]) -> int:
        """Restarts by Docker's policy since the first look. Docker counts from 0 again after each ``docker start``."""
        count = int(found["RestartCount"])
        before = min(count, self._restarts_before.get(found["Id"], count))
        self._restarts_before[found["Id"]] = before
        return count - before

    def start(self) -> None:
        """Launch it; a no-op when it runs. Production's name is given back first. Raises WaybackError with what to type."""
        found = self.find()
        if found is not None and is_running(found):
            if found["State"]["Paused"]:
                self.cli.text("unpause", found["Id"])
            return
        if found is not None and found["State"]["Restarting"] and self.production:
            return  # Docker starts it again by itself
        if self.production:
            self._start_production(found)
        else:
            self._start_other(found)

    def stop(self, grace_s: float) -> StopReport:
        """SIGTERM, ``grace_s`` seconds, SIGKILL, then proof by inspect and by the port.

        Anything but production is removed as well, with the networks made for it (volumes never). Raises WaybackError.
        """
        began = time.monotonic()
        killed, details = False, []
        for container in self._to_stop():
            was_running = bool(container["State"]["Running"])
            if was_running:
                grace = str(max(0, round(grace_s)))
                done = self.cli.run("stop", "-t", grace, container["Id"], timeout_s=grace_s + STOP_SLACK_S)
                if done.rc != 0 and "no such container" not in done.err.lower():
                    details.append(f"docker stop failed: {done.said}")
            after = self.cli.by_id(container["Id"])
            if after is None:
                continue
            killed = killed or (was_running and int(after["State"]["ExitCode"]) == 137)
            if after["State"]["Running"] or after["State"]["Pid"]:
                details.append(f"container {name_of(after)} still runs as process {after['State']['Pid']}")
            elif not self.production:
                details += self._remove(after)
        if not self.production:
            self._remove_networks()
        seconds = time.monotonic() - began
        if details:
            return StopReport(False, killed, seconds, "; ".join(details))
        if not self._port_closes():
            return StopReport(
                True, killed, seconds, f"port {self.target.port} is held by something that is not of {self.target.arm}"
            )
        return StopReport(True, killed, seconds)

    def strangers(self) -> list[str]:
        """Who else listens on the port of a running container with the host's network, described.

        With a published port there can be nobody else: Docker itself holds it. Nothing is said of a remote engine.
        """
        found = self.find()
        if found is None or not self.target.port or found["HostConfig"]["NetworkMode"] != "host" or not self.cli.local():
            return []
        pids, _ = listeners(self.target.port)
        return [describe_process(pid) for pid in pids if not in_container(pid, found["Id"])]

    def differences(self) -> list[str]:
        """How the running container differs from the snapshot, one sentence each; no snapshot is a difference, too."""
        before = self.container.snapshot
        if "salt" not in before:
            return [f"there is no snapshot of {self.target.arm} to compare with"]
        found = self.find()
        if found is None or not is_running(found):
            return [f"{self.target.arm} does not run, so nothing can be compared"]
        image = self.cli.image(found["Image"])
        return compare(before, describe(found, image, salt=before["salt"], secret_names=before["secret_names"]))

    def log_size(self) -> int:
        """Bytes printed so far, cheap to poll; grows also across rotations and new containers."""
        return self._log.size(self.find())

    def log_tail(self, lines: int) -> str:
        """The last lines of its log; a sentence in brackets when there is none."""
        return self._log.tail(self.find(), lines)

    def _to_stop(self) -> list[dict[str, Any]]:
        if self.production:
            found = self.find()
            return [found] if found else []
        return self.cli.by_labels(self.container.labels)

    def _start_production(self, found: dict[str, Any] | None) -> None:
        obstacle = self._obstacle(found)
        if obstacle:
            raise WaybackError(f"{self.target.arm} cannot be started: {obstacle}")
        if found is None:
            self._recreate()
            return
        self._own_name(found)
        started = self.cli.run("start", found["Id"], timeout_s=START_S)
        if started.rc == 0:
            self._restarts_before[found["Id"]] = 0
            return
        if "no such container" in started.err.lower():
            self._recreate()
            return
        raise WaybackError(f"docker start {self.container.name} failed: {started.said}")

    def _own_name(self, found: dict[str, Any]) -> None:
        """Rename production's container back when its name was moved aside. The name is known to be free or its own."""
        if name_of(found) != self.container.name:
            self.cli.text("rename", found["Id"], self.container.name)

    def _recreate(self) -> None:
        """The plan's commands in order, skipping those whose files or image have changed since."""
        guards = self.container.snapshot.get("recreate_if", [])
        tried = []
        for index, argv in enumerate(self.container.recreate):
            why_not = self._changed(guards[index]) if index < len(guards) else ""
            if why_not:
                tried.append(f"`{shlex.join(argv)}` not run: {why_not}")
                continue
            ran = self.cli.call(argv, timeout_s=START_S)
            made = self.find()
            if made is not None and (ran.rc == 0 or is_running(made)):  # running although it failed: another restorer was faster
                self._restarts_before[made["Id"]] = 0
                return
            tried.append(f"`{shlex.join(argv)}`: exit code {ran.rc}: {ran.said}")
        what = f"the container of {self.target.arm} ({self.container.name}) is gone and could not be made again: "
        raise WaybackError(what + "; ".join(tried or ["the plan has no command for it"]) + self._image_advice())

    def _changed(self, guard: dict[str, Any]) -> str:
        """Why a recreate command would not make the same server again; an empty text when it would."""
        for path, digest in guard.get("files", {}).items():
            try:
                now = file_digest(path)
            except OSError as fault:
                return f"{path} cannot be read any more ({fault.strerror})"
            if now != digest:
                return f"{path} has changed since production was started"
        reference, image_id = guard.get("image_ref", ""), guard.get("image_id", "")
        if reference:
            image = self.cli.image(reference)
            if image is None:
                return f"image {reference} is not on the engine"
            if image["Id"] != image_id:
                return f"image {reference} is another one now ({image['Id'][:19]}, was {image_id[:19]})"
        return ""

    def _image_advice(self) -> str:
        """What to type when production's image has vanished from the engine."""
        before = self.container.snapshot
        if not before.get("image_id") or self.cli.image(before["image_id"]) is not None:
            return ""
        docker = shlex.join(self.container.docker)
        if before["image_digests"]:
            get = f"{docker} pull {before['image_digests'][0]} && {docker} tag {before['image_digests'][0]} {before['image_ref']}"
        else:
            get = f"{docker} load -i ARCHIVE (or build {before['image_ref']} again; it was never pulled from a registry)"
        return f". The image {before['image_ref']} ({before['image_id'][:19]}) is gone. Type: {get}, then `audition recover`"

    def _start_other(self, found: dict[str, Any] | None) -> None:
        if found is not None:
            self._remove(found)  # a left-over of this run that does not run: each boot is a fresh container
        displaced = self.container.snapshot.get("displaces")
        if displaced:
            step_aside(self.cli, displaced)
        obstacle = self._obstacle(None)
        if obstacle:
            raise WaybackError(f"{self.target.arm} cannot be started: {obstacle}")
        for argv in self.container.start:
            ran = self.cli.call(argv, timeout_s=START_S)
            if ran.rc != 0:
                raise WaybackError(f"`{shlex.join(argv)}` failed with exit code {ran.rc}: {ran.said}")

    def _remove(self, container: dict[str, Any]) -> list[str]:
        """Remove one container of this run; what went wrong, if anything."""
        if self.production or not carries(container, self.container.labels) or RUN_LABEL not in self.container.labels:
            raise WaybackError(f"container {name_of(container)} does not carry this run's labels; it is left alone")
        gone = self.cli.run("rm", "--force", container["Id"], timeout_s=STOP_SLACK_S)
        if gone.rc != 0 and self.cli.by_id(container["Id"]) is not None:
            return [f"docker rm {name_of(container)} failed: {gone.said}"]
        return []

    def _remove_networks(self) -> None:
        """Remove the networks made for this arm. One that is still in use stays; it holds neither a GPU nor a port."""
        filters = [word for key, value in self.container.labels.items() for word in ("--filter", f"label={key}={value}")]
        if RUN_LABEL in self.container.labels:
            for network in self.cli.text("network", "ls", "--quiet", "--no-trunc", *filters).split():
                self.cli.run("network", "rm", network)

    def _obstacle(self, found: dict[str, Any] | None) -> str:
        """What stands in the way of a start: a stranger with our name or port. Empty when nothing does."""
        holder = self.cli.by_name(self.container.name) if self.container.name else None
        if holder is not None and not self._may_hold_name(holder, found):
            short = holder["Id"][:12]
            return (
                f"the name {self.container.name} is held by another container ({short}, image {holder['Config']['Image']}), "
                f"which is left alone; look: {shlex.join(self.container.docker)} inspect {short}"
            )
        if self.target.port and self.cli.local() and _port_taken(self.target.port):
            who = ", ".join(describe_process(pid) for pid in listeners(self.target.port)[0])
            look = f"look: ss -ltnp 'sport = :{self.target.port}'"
            return f"port {self.target.port} is taken by something else; {look}" + (f"; it is held by {who}" if who else "")
        return ""

    def _may_hold_name(self, holder: dict[str, Any], found: dict[str, Any] | None) -> bool:
        """Whether the holder of our name is ours, or production's container, which steps aside."""
        if found is not None and holder["Id"] == found["Id"]:
            return True
        displaced = self.container.snapshot.get("displaces")
        return displaced is not None and is_displaced(holder, displaced)

    def _port_closes(self) -> bool:
        """Whether the port closes soon. On a remote engine it cannot be looked at from here; inspect is the proof there."""
        if not self.target.port or not self.cli.local():
            return True
        until = time.monotonic() + PORT_CLOSES_S
        while _port_taken(self.target.port):
            if time.monotonic() > until:
                return False
            time.sleep(0.1)
        return True


def manual_commands(target: ArmTarget) -> list[str]:
    """What a person types to bring this production back by hand, one shell line each."""
    container = target.container
    if container is None or RUN_LABEL in container.labels:
        return []
    settings = [f"{key}={value}" for key, value in container.docker_env.items() if key.startswith("DOCKER_")]
    prefix = ["env", *settings] if settings else []
    lines = []
    if container.container_id:
        rename = [*prefix, *container.docker, "rename", container.container_id[:12], container.name]
        lines.append(f"{shlex.join(rename)}    # only if its name was moved aside")
        lines.append(shlex.join([*prefix, *container.docker, "start", container.container_id[:12]]))
    return lines + [f"{shlex.join([*prefix, *argv])}    # only if that container is gone" for argv in container.recreate]


def in_container(pid: int, container_id: str) -> bool:
    """Whether a process of this machine belongs to the container, by its control group; a pid alone says nothing."""
    try:
        return container_id in Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return False


def file_digest(path: str) -> str:
    """SHA-256 of a file, as hex. Raises OSError."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _port_taken(port: int) -> bool:
    """Whether anything listens on the port. A connection is tried, too: a port that the kernel forwards has no listener."""
    return bool(listening_inodes(port)) or port_answers(port)


def _boot_id(container: dict[str, Any]) -> str:
    return f"{container['Id']} {container['State']['StartedAt']}"


__all__ = [
    "ContainerServer",
    "EngineDown",
    "file_digest",
    "in_container",
    "is_displaced",
    "manual_commands",
    "sidecar_runs",
    "start_sidecar",
    "step_aside",
    "step_back",
    "stop_sidecar",
]
