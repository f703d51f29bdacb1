"""Containers that could restart or replace a server in the middle of a run: holders of the Docker socket, autoheal, watchtower.

Looks only; stopping and starting them lives in ``wayback.docker_beside``. Only containers of the same engine are seen: a cron
job or a service of the host that restarts containers is not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from audition.wayback.docker_cli import RUN_LABEL, Docker, is_running, labels_of, name_of
from audition.wayback.plan import SidecarPlan

SOCKETS = ("/var/run/docker.sock", "/run/docker.sock")

_READERS = re.compile(
    r"(^|/)(traefik|nginx-proxy|docker-gen|caddy-docker-proxy|cadvisor|dozzle|promtail|alloy|vector|fluent-bit|telegraf|filebeat|metricbeat"
    r"|agent|datadog-agent|prometheus|node-exporter|netdata|diun|homepage|portainer(-ce|-ee)?)(:|@|$)"
)
"""Images that read the socket to find or watch containers and restart none by themselves. Stopping them would cut other people's
traffic or monitoring, so they are named and left alone."""

_ACTORS = {
    "autoheal": re.compile(r"(^|/)(docker-)?autoheal(:|@|$)"),
    "watchtower": re.compile(r"(^|/)watchtower(:|@|$)"),
    "ouroboros": re.compile(r"(^|/)ouroboros(:|@|$)"),
}


@dataclass(frozen=True)
class Survey:
    """``dangerous``: to be stopped for the window. ``left_alone``: holders of the socket that only read, in words."""

    dangerous: list[SidecarPlan] = field(default_factory=list)
    left_alone: list[str] = field(default_factory=list)


def find_sidecars(docker: list[str], docker_env: dict[str, str], container_id: str) -> list[SidecarPlan]:
    """Running containers that could interfere with this one, each with the reason. Raises WaybackError when the engine is down."""
    return survey(docker, docker_env, container_id).dangerous


def survey(docker: list[str], docker_env: dict[str, str], container_id: str) -> Survey:
    """All running holders of the engine's socket and known restarters, sorted into dangerous and harmless."""
    cli = Docker(docker, docker_env)
    running = cli.inspect_all(cli.text("ps", "--quiet", "--no-trunc").split())
    guarded = next((c for c in running if c["Id"] == container_id), None)
    sockets = {*SOCKETS, *_own_socket(cli)}
    dangerous, left_alone = [], []
    for container in running:
        if container["Id"] == container_id or RUN_LABEL in labels_of(container) or not is_running(container):
            continue
        why = reason(container, guarded, sockets)
        if not why:
            continue
        if _READERS.search(container["Config"]["Image"]):
            left_alone.append(f"{name_of(container)}: {why}; its image ({container['Config']['Image']}) only watches")
        else:
            dangerous.append(SidecarPlan(docker, docker_env, container["Id"], name_of(container), why))
    return Survey(sorted(dangerous, key=lambda plan: plan.name), sorted(left_alone))


def reason(container: dict[str, Any], guarded: dict[str, Any] | None, sockets: set[str]) -> str:
    """Why an inspected container could interfere with ``guarded``; an empty text when it could not. Pure.

    A mount counts when it is the socket or the folder that it lies in; read-only makes no difference, a socket can still be spoken
    to.
    """
    image = container["Config"]["Image"]
    held = [
        mount["Source"]
        for mount in container.get("Mounts") or []
        if mount.get("Type") == "bind" and any(_holds(mount["Source"], socket) for socket in sockets)
    ]
    held += [mount["Destination"] for mount in container.get("Mounts") or [] if mount["Destination"] in SOCKETS and not held]
    kinds = [kind for kind, pattern in _ACTORS.items() if pattern.search(image)]
    if "autoheal" in kinds:
        return f"autoheal ({image}) {_autoheal(container, guarded)}"
    if kinds:
        return f"{kinds[0]} ({image}) replaces containers when their image changes"
    return f"holds the Docker socket ({held[0]}) and can restart containers" if held else ""


def _autoheal(container: dict[str, Any], guarded: dict[str, Any] | None) -> str:
    """Which containers this autoheal restarts: its AUTOHEAL_CONTAINER_LABEL is ``autoheal`` by default, or ``all``."""
    environment = dict(entry.partition("=")[::2] for entry in container["Config"].get("Env") or [])
    label = environment.get("AUTOHEAL_CONTAINER_LABEL") or "autoheal"
    if label == "all":
        return "restarts every unhealthy container"
    matches = guarded is not None and labels_of(guarded).get(label, "").lower() == "true"
    return f"restarts unhealthy containers labelled {label}=true" + (", and the server is one of them" if matches else "")


def _holds(source: str, socket: str) -> bool:
    mount, path = PurePosixPath(source), PurePosixPath(socket)
    return mount in (path, path.parent)


def _own_socket(cli: Docker) -> list[str]:
    endpoint = cli.endpoint()
    return [endpoint.removeprefix("unix://")] if endpoint.startswith("unix://") else []
