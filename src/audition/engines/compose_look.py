"""One look at a compose arm for `audition check`: its profile, and what the Docker engine says, each as far as it can be had.

Nothing is started, stopped or written, and nothing raises for what it finds: absence is a value. What the look means is judged in
``audition.check``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from audition.engines.compose import ComposeEngine
from audition.engines.compose_compare import Running
from audition.engines.compose_profile import CONFIG_S, Profile, docker_command, docker_environment
from audition.engines.sidecars import Survey, survey
from audition.errors import AuditionError, BadInput, Refused
from audition.spike.model import ComposeEngine as ComposeSpec
from audition.units import NoData
from audition.wayback.docker_cli import Docker, is_running, labels_of
from audition.wayback.docker_snapshot import COMPOSE
from audition.wayback.server import WaybackError

_VERSION_LABELS = ("org.opencontainers.image.version", "vllm.version")


@dataclass(frozen=True)
class ComposeLook:
    """``profile``: NoData when it cannot be resolved, ``next_step`` then says what to type. ``engine_down``: why the Docker engine
    cannot be asked, empty when it can. ``container``: production's own, None when there is none; ``lost``: variables for which it
    has a value and the profile has none. ``image_id``: of the profile's image on the engine. ``docker_root``: the engine's folder.
    """

    profile: Profile | NoData
    next_step: str = ""
    engine_down: str = ""
    container: dict[str, Any] | None = None
    lost: tuple[str, ...] | NoData = field(default_factory=lambda: NoData("the Docker engine was not asked"))
    image_id: str | NoData = field(default_factory=lambda: NoData("the Docker engine was not asked"))
    image_version: str = ""
    sidecars: Survey | NoData = field(default_factory=lambda: NoData("the Docker engine was not asked"))
    docker_root: str | NoData = field(default_factory=lambda: NoData("the Docker engine was not asked"))
    no_compose: bool = False
    """The profile cannot be read because docker compose cannot be used on this machine, not for what is in the profile."""


def look(
    engine: ComposeEngine, spec: ComposeSpec, environ: Mapping[str, str], *, production: bool, ask_engine: bool = True
) -> ComposeLook:
    """Look at one arm. ``ask_engine`` False: the files alone, as for a machine that is not this one."""
    try:
        profile = engine.profile()
    except (AuditionError, WaybackError) as fault:
        advice = fault.next_step if isinstance(fault, AuditionError) else "docker compose version"
        return ComposeLook(NoData(str(fault)), advice, no_compose=isinstance(fault, Refused | WaybackError))
    if not ask_engine:
        return ComposeLook(profile)
    cli = Docker(docker_command(spec), docker_environment(environ, profile.config))
    try:
        info = json.loads(cli.text("info", "--format", "{{json .}}"))
        image = cli.image(profile.image)
        container, foreign = engine.find_production() if production else (None, "")
        nobody = NoData(foreign or "no container of production runs")
        lost: tuple[str, ...] | NoData = nobody
        sidecars: Survey | NoData = nobody
        if container is not None and is_running(container):
            lost = lost_variables(profile, Running(container, cli.image(container["Image"])))
            sidecars = survey(cli.docker, cli.env, container["Id"])
    except (AuditionError, WaybackError) as fault:
        down = NoData("the Docker engine does not answer")
        return ComposeLook(profile, "", str(fault), lost=down, image_id=down, sidecars=down, docker_root=down)
    return ComposeLook(
        profile,
        container=container,
        lost=lost,
        image_id=image["Id"] if image is not None else NoData(f"image {profile.image} is not on the engine"),
        image_version=_labelled_version(image),
        sidecars=sidecars,
        docker_root=str(info["DockerRootDir"]) if cli.local() and info.get("DockerRootDir") else NoData("the engine is elsewhere"),
    )


def lost_variables(profile: Profile, running: Running) -> tuple[str, ...]:
    """Variables with a value in the running container that the profile as it resolves now leaves out or empty. Pure.

    Those that compose or the image give are left out by ``Running.environment``.
    """
    now = {name: str(value) for name, value in (profile.service.get("environment") or {}).items() if value is not None}
    return tuple(sorted(name for name, value in running.environment.items() if value and not now.get(name)))


def _labelled_version(image: dict[str, Any] | None) -> str:
    labels = labels_of({"Config": (image or {}).get("Config") or {}})
    return next((labels[name] for name in _VERSION_LABELS if labels.get(name)), "")


@dataclass(frozen=True)
class Origin:
    """How a running container was started with compose, from its labels. ``service``: resolved name; paths are absolute."""

    files: list[str]
    env_files: list[str]
    project: str
    service: str
    folder: str


def origin_of(name: str, environ: Mapping[str, str]) -> Origin:
    """How the container ``name`` was started. Raises Refused when it is not there, not compose's, or the engine does not answer."""
    cli = Docker(["docker"], docker_environment(environ))
    try:
        container = cli.by_name(name)
    except WaybackError as fault:
        raise Refused(f"container {name} cannot be looked at", seen=str(fault), next_step="docker info") from fault
    if container is None:
        raise Refused(f"there is no container {name}", next_step="docker ps --all")
    labels = labels_of(container)
    running = Running(container, None)
    service, files = labels.get(f"{COMPOSE}service", ""), running.files("config_files")
    if not service or not files:
        advice = "write a compose profile for it, start it from that, then: audition init --production FILE --candidate FILE"
        raise Refused(f"container {name} was not started with docker compose", next_step=advice)
    return Origin(
        files,
        running.files("environment_file"),
        labels.get(f"{COMPOSE}project", ""),
        service,
        labels.get(f"{COMPOSE}project.working_dir", ""),
    )


def services_of(files: list[Path], env_files: list[Path], project: str | None, environ: Mapping[str, str]) -> dict[str, Any]:
    """The services of compose files as compose resolves them, by name.

    Raises BadInput when a file is missing or compose refuses it, Refused when there is no docker command with compose here.
    """
    for path in [*files, *env_files]:
        if not path.is_file():
            raise BadInput(f"there is no file {path}", next_step="correct the path")
    cli = Docker(["docker"], dict(environ))
    argv = ["docker", "compose", *(["--project-name", project] if project else []), "--project-directory", str(files[0].parent)]
    argv += [word for path in files for word in ("--file", str(path))]
    argv += [word for path in env_files for word in ("--env-file", str(path))]
    advice = "install the docker CLI with its compose plugin (version 2); no engine needs to run for this"
    try:
        ran = cli.call([*argv, "config", "--format", "json"], timeout_s=CONFIG_S)
    except WaybackError as fault:
        raise Refused("compose files are read by docker compose, which is not here", seen=str(fault), next_step=advice) from fault
    if ran.rc != 0 and any(
        sign in ran.err for sign in ("unknown flag", "unknown shorthand", "not a docker command", "unknown command")
    ):
        raise Refused("compose files are read by docker compose, which is not here", seen=ran.said, next_step=advice)
    if ran.rc != 0:
        hint = "correct the profile; to see what compose reads: " + " ".join([*argv, "config"])
        if "required variable" in ran.err:
            hint = "name the env file that it is started with: --env-file FILE"
        raise BadInput(f"docker compose does not accept {', '.join(p.name for p in files)}: {ran.said}", next_step=hint)
    return dict(json.loads(ran.out).get("services") or {})
