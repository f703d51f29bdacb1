"""Compose profiles, read as they are through ``docker compose config --format json``, and what follows from them. Writes nothing.

Starting, stopping and observing containers live in ``compose``; comparing a profile with a running container lives in
``compose_compare``.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from audition.errors import BadInput, Refused
from audition.spike.model import ComposeEngine as ComposeSpec
from audition.wayback.docker_cli import ARM_LABEL, FENCE_LABEL, RUN_LABEL, Docker

CONFIG_S = 60.0
"""Time limit for resolving a profile, in seconds; it asks neither a registry nor the engine."""

_KEPT_VARIABLES = ("PATH", "HOME", "SSH_AUTH_SOCK", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME")
_UNSET = re.compile(r'The \\?"(\w+)\\?" variable is not set')
_NAMESPACES = ("network_mode", "ipc", "pid")


@dataclass(frozen=True)
class Profile:
    """A resolved profile. ``argv``: the compose command with project, folder, files and env files, to which a verb is added.

    ``config``: the whole resolved model (``$`` written as ``$$``); ``unset``: variables that compose replaced by an empty text;
    ``variables``: what it interpolated with; ``config_hash``: compose's own hash of the service.
    """

    argv: list[str]
    project: str
    folder: str
    files: list[str]
    env_files: list[str]
    service_name: str
    config: dict[str, Any]
    config_hash: str
    unset: list[str]
    variables: dict[str, str]

    @property
    def service(self) -> dict[str, Any]:
        """The resolved service."""
        return dict(self.config["services"][self.service_name])

    @property
    def image(self) -> str:
        """The image reference; a service that is only built gets the name that compose gives it."""
        return str(self.service.get("image") or f"{self.project}-{self.service_name}")

    @property
    def up(self) -> list[str]:
        """The command that makes the container from these files, pulling, building and replacing nothing."""
        return [*self.argv, *up_verb(self.service_name)]


def up_verb(service: str) -> list[str]:
    """``up`` for one service alone: nothing is pulled, built or replaced, and nothing it depends on is touched."""
    return ["up", "--detach", "--no-deps", "--no-build", "--no-recreate", "--pull", "never", service]


def docker_command(spec: ComposeSpec) -> list[str]:
    """The docker CLI with the global options of the spike file."""
    return ["docker", *(["--context", spec.context] if spec.context else [])]


def docker_environment(environ: Mapping[str, str], config: dict[str, Any] | None = None) -> dict[str, str]:
    """The variables that the docker CLI needs to reach the same engine later, from elsewhere.

    With those that ``config`` reads at every start: secrets and configs given as ``environment:``.
    """
    kept = {name: value for name, value in environ.items() if name in _KEPT_VARIABLES or name.startswith("DOCKER_")}
    for section in ("secrets", "configs"):
        for entry in ((config or {}).get(section) or {}).values():
            name = (entry or {}).get("environment")
            if name and name in environ:
                kept[name] = environ[name]
    return kept


def resolve(spec: ComposeSpec, base: Path, environ: Mapping[str, str]) -> Profile:
    """Resolve the files of a spike's engine, relative to ``base``, as compose itself would in the shell of ``environ``.

    Raises BadInput when a file is missing, when compose refuses the files or knows no such service; WaybackError without a CLI.
    """
    files = [str((base / name).expanduser().resolve()) for name in spec.files]
    env_files = [str((base / name).expanduser().resolve()) for name in spec.env_files]
    for path in [*files, *env_files]:
        if not Path(path).is_file():
            raise BadInput(f"there is no file {path}", next_step="correct `files` or `env_files` of the arm in the spike file")
    folder = str(Path(files[0]).parent)
    cli = Docker(docker_command(spec), dict(environ))
    argv = [*cli.docker, "compose", *(["--project-name", spec.project] if spec.project else [])]
    argv += ["--project-directory", folder]
    argv += [word for path in files for word in ("--file", path)] + [word for path in env_files for word in ("--env-file", path)]
    ran = cli.call([*argv, "config", "--format", "json"], timeout_s=CONFIG_S)
    if ran.rc != 0 and ("unknown flag" in ran.err or "not a docker command" in ran.err):
        raise Refused(
            "the docker CLI of this machine has no compose plugin (version 2)",
            tried=" ".join([*cli.docker, "compose", "version"]),
            seen=ran.said,
            production="untouched",
            next_step="install the compose plugin, then try: docker compose version",
        )
    if ran.rc != 0:
        raise BadInput(
            f"docker compose does not accept the profile of service {spec.service}: {ran.said}",
            tried=" ".join([*argv, "config"]),
            next_step="correct the profile; this command shows what compose reads: " + " ".join([*argv, "config"]),
        )
    config = json.loads(ran.out)
    if spec.service not in config.get("services", {}):
        known = ", ".join(sorted(config.get("services", {}))) or "none"
        raise BadInput(f"there is no service {spec.service} in {files[0]}; services: {known}")
    if not spec.project:  # pinned, so that a later call does not derive another name from its own environment
        at = argv.index("--project-directory")
        argv[at:at] = ["--project-name", config["name"]]
    return Profile(
        argv=argv,
        project=config["name"],
        folder=folder,
        files=files,
        env_files=env_files,
        service_name=spec.service,
        config=config,
        config_hash=config_hash(cli, argv, spec.service),
        unset=sorted(set(_UNSET.findall(ran.err))),
        variables=_variables(cli, argv),
    )


def config_hash(cli: Docker, argv: list[str], service: str) -> str:
    """Compose's hash of one service, as in the label ``com.docker.compose.config-hash``; an empty text when compose tells none."""
    ran = cli.call([*argv, "config", "--hash", service], timeout_s=CONFIG_S)
    words = ran.out.split()
    return words[-1] if ran.rc == 0 and len(words) == 2 else ""


def _variables(cli: Docker, argv: list[str]) -> dict[str, str]:
    """The variables with which compose interpolates: the shell's, then those of the env files."""
    ran = cli.call([*argv, "config", "--environment"], timeout_s=CONFIG_S)
    if ran.rc != 0:
        return dict(os.environ)
    return dict(line.split("=", 1) for line in ran.out.split("\n") if "=" in line)


def project_name(run_id: str, arm: str) -> str:
    """A compose project of audition's own for one arm of one run: lower case, digits, ``-`` and ``_``, at most 63 characters."""
    slug = re.sub(r"[^a-z0-9_-]+", "-", f"{run_id}-{arm}".lower())
    if len(slug) > 48:
        slug = f"{slug[:39]}-{hashlib.sha256(f'{run_id}/{arm}'.encode()).hexdigest()[:8]}"
    return f"audition-{slug}"


def run_labels(run_id: str, arm: str) -> dict[str, str]:
    """The labels by which a candidate's container is found; nothing else ever identifies it."""
    return {RUN_LABEL: run_id, ARM_LABEL: arm}


def candidate_config(
    profile: Profile, *, project: str, container_name: str, labels: dict[str, str], fence: int | None, existing: set[str]
) -> dict[str, Any]:
    """The model of a candidate: its one service, under audition's own project, with restart "no" and audition's labels.

    The command, image, devices, mounts and ports stay as in the profile. Volumes keep the names that the operator's own call
    would use. Networks that compose would make for the profile are made anew for this project, so that production's neighbours
    do not find the candidate there by name. ``existing``: volumes and networks already on the engine; they are used, not made.
    """
    service = deepcopy(profile.service)
    for key in ("depends_on", "build", "pull_policy", "profiles", "scale", "links", "develop"):
        service.pop(key, None)
    service["image"] = profile.image
    service["container_name"] = container_name
    service["restart"] = "no"
    marks = dict(labels) if fence is None else {**labels, FENCE_LABEL: str(fence)}
    service["labels"] = {**(service.get("labels") or {}), **marks}
    deploy = service.get("deploy") or {}
    for key in ("restart_policy", "replicas", "mode", "update_config", "rollback_config", "placement"):
        deploy.pop(key, None)
    model: dict[str, Any] = {"name": project, "services": {profile.service_name: service}}
    networks = _networks(profile, service, marks, existing)
    volumes = _volumes(profile, service, existing)
    for section, entries in (("networks", networks), ("volumes", volumes)):
        if entries:
            model[section] = entries
    for section in ("secrets", "configs"):
        used = {_source(entry) for entry in service.get(section) or []}
        entries = {key: entry for key, entry in (profile.config.get(section) or {}).items() if key in used}
        if entries:
            model[section] = entries
    return model


def _networks(profile: Profile, service: dict[str, Any], marks: dict[str, str], existing: set[str]) -> dict[str, Any]:
    declared = profile.config.get("networks") or {}
    made: dict[str, Any] = {}
    for key, attachment in (service.get("networks") or {}).items():
        network = deepcopy(declared.get(key) or {})
        derived = network.get("name") in (None, f"{profile.project}_{key}")
        if network.get("external"):
            made[key] = network
        elif not derived and network.get("name") in existing:
            made[key] = {"name": network["name"], "external": True}
        else:
            network.pop("ipam", None)  # the same subnet twice is refused by the engine
            if derived:
                network.pop("name", None)
            made[key] = {**network, "labels": {**(network.get("labels") or {}), **marks}}
            for fixed in ("ipv4_address", "ipv6_address", "mac_address"):
                (attachment or {}).pop(fixed, None)
    return made


def _volumes(profile: Profile, service: dict[str, Any], existing: set[str]) -> dict[str, Any]:
    declared = profile.config.get("volumes") or {}
    used = {mount.get("source") for mount in service.get("volumes") or [] if mount.get("type") == "volume" and mount.get("source")}
    made = {}
    for key in sorted(used & declared.keys()):
        name = (declared[key] or {}).get("name", key)
        made[key] = {"name": name, "external": True} if name in existing else deepcopy(declared[key] or {})
    return made


def _source(entry: Any) -> str:
    return str(entry.get("source", "")) if isinstance(entry, dict) else str(entry)


def wants_gpu(service: dict[str, Any]) -> str:
    """How a service asks for GPUs, in words: ``runtime``, ``devices``, ``cdi``; an empty text when it does not."""
    if service.get("runtime") == "nvidia":
        return "runtime"
    reserved = ((service.get("deploy") or {}).get("resources") or {}).get("reservations") or {}
    for device in [*(reserved.get("devices") or []), *_gpus(service)]:
        if device.get("driver") == "cdi":
            return "cdi"
        if device.get("driver") == "nvidia" or "gpu" in (device.get("capabilities") or []):
            return "devices"
    if any("nvidia.com/gpu" in str(device) for device in service.get("devices") or []):
        return "cdi"
    return ""


def _gpus(service: dict[str, Any]) -> list[dict[str, Any]]:
    """``gpus:`` is shorthand for device requests of the capability gpu."""
    return [{"capabilities": ["gpu"], **entry} for entry in service.get("gpus") or []]


def published_ports(service: dict[str, Any]) -> list[int] | None:
    """Host ports (TCP) that a service publishes; None when it has the host's network and any port may be its own."""
    if service.get("network_mode") == "host":
        return None
    found: list[int] = []
    for port in service.get("ports") or []:
        if port.get("protocol", "tcp") == "tcp" and port.get("published"):
            first, _, last = str(port["published"]).partition("-")
            found += range(int(first), int(last or first) + 1)
    return found


def bound_to_others(service: dict[str, Any]) -> list[str]:
    """Why a service cannot run without its neighbours: namespaces or volumes of another service or container."""
    shared = [f"{key}: {service[key]}" for key in _NAMESPACES if str(service.get(key, "")).startswith(("service:", "container:"))]
    return shared + (["volumes_from"] if service.get("volumes_from") else [])


def volume_names(profile: Profile) -> set[str]:
    """Engine-wide names of the named volumes that the service mounts."""
    declared = profile.config.get("volumes") or {}
    mounts = profile.service.get("volumes") or []
    keys = {str(mount["source"]) for mount in mounts if mount.get("type") == "volume" and mount.get("source")}
    return {str((declared.get(key) or {}).get("name", key)) for key in keys}
