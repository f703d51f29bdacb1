"""Which container is production's, and what is seen of it. Looks only; identity never rests on a name or a port."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from audition.engines.base import Observation
from audition.engines.compose_profile import Profile
from audition.wayback.docker_cli import RUN_LABEL, Docker, is_running, labels_of, name_of
from audition.wayback.docker_snapshot import COMPOSE

_IDENTITY = tuple(f"{COMPOSE}{key}" for key in ("project", "service", "project.working_dir", "oneoff"))


def find_production(cli: Docker, profile: Profile) -> tuple[dict[str, Any] | None, str]:
    """(production's container or None, why what is there is somebody else's or an empty text).

    Found by compose's labels, project and service, and confirmed by the project's folder. Where nothing is found, the holder of the
    profile's container name is looked at, to say whose it is. Raises WaybackError when the engine does not answer.
    """
    wanted = {f"{COMPOSE}project": profile.project, f"{COMPOSE}service": profile.service_name, f"{COMPOSE}oneoff": "False"}
    found = [c for c in cli.by_labels(wanted) if RUN_LABEL not in labels_of(c)]
    mine = [c for c in found if _folder(c) == profile.folder]
    running = [name_of(c) for c in mine if c["State"]["Running"]]
    if len(running) > 1:
        return None, f"{len(running)} containers of service {profile.service_name} run ({', '.join(running)}); one is expected"
    if mine:
        return max(mine, key=lambda c: (bool(c["State"]["Running"]), c["Created"])), ""
    if found:
        other = f"container {name_of(found[0])} of project {profile.project} was started from {_folder(found[0]) or 'elsewhere'}"
        return None, f"{other}, not from {profile.folder}: it is not taken for production"
    name = profile.service.get("container_name")
    holder = cli.by_name(str(name)) if name else None
    return None, "" if holder is None else _whose(holder, profile)


def _whose(holder: dict[str, Any], profile: Profile) -> str:
    """Why the holder of production's name is not production."""
    labels, name = labels_of(holder), name_of(holder)
    project, service = labels.get(f"{COMPOSE}project", ""), labels.get(f"{COMPOSE}service", "")
    if RUN_LABEL in labels:
        return f"the name {name} is held by a candidate of run {labels[RUN_LABEL]}; type: audition recover"
    if _folder(holder) == profile.folder and service == profile.service_name:
        return f"container {name} was started as project {project}, not {profile.project}; say `project: {project}`"
    whose = f"project {project}, service {service}" if project else "no compose project"
    return f"the name {name} belongs to another container ({holder['Id'][:12]}, {whose}), which is left alone"


def observation_of_production(arm: str, container: dict[str, Any] | None, foreign: str) -> Observation:
    """What ``find_production`` returned, as an observation. A restart loop does not count as running."""
    if foreign:
        return Observation("foreign", foreign)
    if container is None:
        return Observation("absent", f"no container of {arm} exists")
    facts = {
        "container_id": container["Id"],
        "name": name_of(container),
        "image": container["Config"]["Image"],
        "image_id": container["Image"],
        "project": labels_of(container).get(f"{COMPOSE}project", ""),
        "config_hash": labels_of(container).get(f"{COMPOSE}config-hash", ""),
        "restart_policy": (container["HostConfig"].get("RestartPolicy") or {}).get("Name", ""),
        "restarts": container["RestartCount"],
        "started_at": container["State"]["StartedAt"],
    }
    if is_running(container):
        detail = f"container {name_of(container)} ({container['Id'][:12]}) runs {container['Config']['Image']}"
        return Observation("running", detail, f"{container['Id']} {container['State']['StartedAt']}", facts)
    return Observation("absent", f"container {name_of(container)} is {container['State']['Status']}", facts=facts)


def identity_labels(container: dict[str, Any]) -> dict[str, str]:
    """The labels by which production is found again when its container was recreated."""
    return {key: value for key, value in labels_of(container).items() if key in _IDENTITY}


def _folder(container: dict[str, Any]) -> str:
    """The project folder that compose recorded, links resolved; an empty text when there is none."""
    recorded = labels_of(container).get(f"{COMPOSE}project.working_dir", "")
    return str(Path(recorded).resolve()) if recorded else ""
