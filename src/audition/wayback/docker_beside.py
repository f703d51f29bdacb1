"""What happens to containers beside the one on trial: production's name moved aside, sidecars stopped for the window.

Every function is idempotent and identifies by container id or labels, never by a name. Servers live in ``docker``.
"""

from __future__ import annotations

from typing import Any

from audition.wayback.docker_cli import RUN_LABEL, START_S, STOP_SLACK_S, Docker, carries, labels_of, name_of
from audition.wayback.plan import ContainerTarget, SidecarPlan
from audition.wayback.server import WaybackError


def step_aside(cli: Docker, displaced: dict[str, Any]) -> None:
    """Free production's name for a candidate: rename production's stopped container. A no-op when the name is free already.

    ``displaced`` (in the candidate's ``snapshot["displaces"]``): ``container_id``, ``labels`` (compose's, in case it is a new one),
    ``name`` and ``aside``. Raises WaybackError when production runs, or when somebody else holds the name.
    """
    holder = cli.by_name(displaced["name"])
    if holder is None:
        return
    if not is_displaced(holder, displaced):
        raise WaybackError(f"the name {displaced['name']} is held by container {holder['Id'][:12]}, which is not production's")
    if holder["State"]["Running"]:
        raise WaybackError(f"production's container {displaced['name']} still runs, so its name stays")
    cli.text("rename", holder["Id"], displaced["aside"])


def is_displaced(holder: dict[str, Any], displaced: dict[str, Any]) -> bool:
    """Whether an inspected container is the production container that ``displaced`` describes."""
    same = holder["Id"] == displaced["container_id"] or carries(holder, displaced["labels"])
    return same and RUN_LABEL not in labels_of(holder)


def step_back(production: ContainerTarget) -> None:
    """Give production's container its name back without starting it, as ``ContainerServer.start`` does. A no-op when it has it.

    Raises WaybackError when somebody else holds the name.
    """
    cli = Docker(production.docker, production.docker_env)
    found = cli.by_id(production.container_id)
    if found is None or name_of(found) == production.name:
        return
    cli.text("rename", found["Id"], production.name)


def stop_sidecar(sidecar: SidecarPlan, grace_s: float = 10.0) -> None:
    """Stop a sidecar for the window. A no-op when it does not run or is gone. Raises WaybackError."""
    cli = Docker(sidecar.docker, sidecar.docker_env)
    found = cli.by_id(sidecar.container_id)
    if found is None or not found["State"]["Running"]:
        return
    cli.text("stop", "-t", str(round(grace_s)), found["Id"], timeout_s=grace_s + STOP_SLACK_S)
    after = cli.by_id(sidecar.container_id)
    if after is not None and after["State"]["Running"]:
        raise WaybackError(f"sidecar {sidecar.name} still runs after docker stop")


def start_sidecar(sidecar: SidecarPlan) -> None:
    """Start a sidecar again after the window. A no-op when it runs. Raises WaybackError with what to type when it is gone."""
    cli = Docker(sidecar.docker, sidecar.docker_env)
    found = cli.by_id(sidecar.container_id)
    if found is None:
        raise WaybackError(
            f"sidecar {sidecar.name} ({sidecar.container_id[:12]}) was removed meanwhile; make it again as it was made"
        )
    if not found["State"]["Running"]:
        cli.text("start", found["Id"], timeout_s=START_S)


def sidecar_runs(sidecar: SidecarPlan) -> bool:
    """Whether the sidecar runs now. Raises WaybackError when the engine does not answer."""
    found = Docker(sidecar.docker, sidecar.docker_env).by_id(sidecar.container_id)
    return found is not None and bool(found["State"]["Running"])
