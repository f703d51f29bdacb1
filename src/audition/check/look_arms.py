"""Looking at the arms: profiles, images, running production, versions, checkpoints. An edge of the room: it judges nothing."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from audition.check import services, versions
from audition.check.asked import asked_of
from audition.check.facts import ArmFacts, Container, Neighbour, Unreadable
from audition.checkpoint.facts import Facts as Checkpoint
from audition.checkpoint.locate import CacheRoots, locate
from audition.checkpoint.problem import CheckpointError
from audition.checkpoint.reader import read_folder
from audition.engines.base import Engine
from audition.engines.base import Finding as EngineFinding
from audition.engines.compose import ComposeEngine
from audition.engines.compose_look import ComposeLook, look
from audition.engines.compose_profile import published_ports
from audition.engines.sidecars import Survey
from audition.errors import AuditionError
from audition.spike.model import Arm, ProcessEngine, SimulatedEngine
from audition.spike.model import ComposeEngine as ComposeSpec
from audition.units import NoData

ANSWER_S = 1.0
"""Longest wait for the running server's /version, in seconds; it answers from memory, on loopback."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Given:
    """What the caller knows better: folders of checkpoints and releases of vLLM by arm, memory of each GPU in MiB."""

    checkpoints: Mapping[str, Path] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    gpu_memory_mib: int | None = None


@dataclass(frozen=True)
class Looked:
    """One arm as it was looked at, with the folder of its Docker engine and the container or process that is production."""

    arm: ArmFacts
    docker_root: str | NoData
    container_id: str


def look_at_arm(
    arm: Arm, engine: Engine, folder: Path, environ: Mapping[str, str], given: Given, *, here: bool, preflight: bool
) -> Looked:
    """One arm. ``here`` False: its files alone, whatever runs here. ``preflight`` False: the engine was asked already."""
    compose: ComposeLook | None = None
    if isinstance(engine, ComposeEngine) and isinstance(arm.engine, ComposeSpec):
        compose = look(engine, arm.engine, environ, production=arm.role == "production", ask_engine=here)
    found = engine_findings(engine, compose, here=here, preflight=preflight)
    container = _container(compose) if compose is not None else NoData("this arm is no container")
    arguments, assumed = _arguments(arm, engine, compose)
    variables = _variables(arm, engine, compose)
    running: bool | NoData = NoData("this is not the machine of the run")
    if here:
        running = _runs(arm, engine, compose)
    version, origin = _version(arm, engine, compose, given, ask=here and arm.role == "production")
    place = _place(arm, arguments, container, variables, folder=folder, given=given)
    facts = ArmFacts(
        arm.name, arm.role, arm.engine.kind, arguments, assumed, version, origin, variables, container, _read(place),
        engine=tuple(found), running=running,
    )  # fmt: skip
    root = compose.docker_root if compose is not None else NoData("no Docker engine is used")
    return Looked(facts, root, (compose.container or {}).get("Id", "") if compose is not None else "")


def engine_findings(engine: Engine, compose: ComposeLook | None, *, here: bool, preflight: bool) -> list[EngineFinding]:
    """What the engine finds itself. Of a machine that is not this one, the profile alone, and that only where docker compose is."""
    if compose is not None and isinstance(compose.profile, NoData) and compose.no_compose and not here:
        text = f"its profile was not judged here: {compose.profile.reason}"
        return [EngineFinding("warning", text, "check again where docker compose is, for instance on the machine of the run")]
    if compose is not None and isinstance(compose.profile, NoData):
        return [EngineFinding("blocking", f"the profile cannot be read: {compose.profile.reason}", compose.next_step)]
    if not here or not preflight:
        return []
    return list(engine.preflight())


def _runs(arm: Arm, engine: Engine, compose: ComposeLook | None) -> bool | NoData:
    if arm.role != "production":
        return NoData("only production is looked for")
    if compose is not None and (compose.engine_down or isinstance(compose.profile, NoData)):
        return NoData(compose.engine_down or "its profile cannot be read")
    try:
        return engine.observe().state == "running"
    except AuditionError as error:
        return NoData(str(error))


def _container(seen: ComposeLook) -> Container | NoData:
    profile = seen.profile
    if isinstance(profile, NoData):
        return profile
    service = profile.service
    ports = published_ports(service)
    beside = services.neighbours(profile.config, profile.service_name)
    left_alone: list[str] = []
    if isinstance(seen.sidecars, Survey):
        running = [Neighbour(plan.name, plan.why, True) for plan in seen.sidecars.dangerous]
        names = {each.name for each in running}
        beside = [*running, *(replace(each, running=False) for each in beside if each.name not in names)]
        left_alone = seen.sidecars.left_alone
    return Container(
        service_name=profile.service_name,
        project=profile.project,
        files=tuple(profile.files),
        env_files=tuple(profile.env_files),
        image=profile.image,
        own_name=str(service.get("container_name") or ""),
        ports=tuple(ports) if ports is not None else None,
        restart=str(service.get("restart") or "no"),
        start_period_s=services.start_period(service),
        gpus=services.gpu_ids(service),
        shm_bytes=services.shm_bytes(service),
        host_ipc=service.get("ipc") == "host",
        image_id=seen.image_id,
        lost=seen.lost,
        unset=tuple(profile.unset),
        neighbours=tuple(beside),
        left_alone=tuple(left_alone),
        service=service,
        variables=dict(profile.variables),
    )


def _arguments(arm: Arm, engine: Engine, compose: ComposeLook | None) -> tuple[tuple[str, ...] | NoData, bool]:
    """The command line, and whether it is only what the rehearsal imagines."""
    if isinstance(arm.engine, SimulatedEngine):
        return tuple(arm.engine.args), False
    words: list[str] = []
    why = "the image alone knows its command"
    if compose is not None:
        if isinstance(compose.profile, NoData):
            why = "its profile cannot be read"
        else:
            service = compose.profile.service
            words = [*services.words(service.get("entrypoint")), *services.words(service.get("command"))]
    else:
        try:
            words = list(engine.invocation().argv)
        except AuditionError as error:
            why = str(error)
    if words:
        return tuple(words), False
    if arm.simulated.args:
        return tuple(arm.simulated.args), True
    return NoData(why), False


def _variables(arm: Arm, engine: Engine, compose: ComposeLook | None) -> dict[str, str]:
    """Variables that the arm itself is given; of a process those of the spike file, not the whole shell's."""
    if compose is not None and not isinstance(compose.profile, NoData):
        given = compose.profile.service.get("environment") or {}
        return {name: str(value).replace("$$", "$") for name, value in given.items() if value is not None}
    if isinstance(arm.engine, ProcessEngine):
        try:
            seen = dict(engine.invocation().variables)
        except AuditionError:
            seen = {}
        return {**{name: value for name, value in seen.items() if name.startswith(_OF_INTEREST)}, **arm.engine.env}
    return {}


_OF_INTEREST = ("VLLM_", "PYTORCH_", "CUDA_", "NCCL_", "HF_", "TRANSFORMERS_")


def _version(arm: Arm, engine: Engine, compose: ComposeLook | None, given: Given, *, ask: bool) -> tuple[str | NoData, str]:
    if arm.name in given.versions:
        return given.versions[arm.name], "as told"
    if ask and (told := running_version(arm.endpoint.url)):
        return told, f"the running server says so ({arm.endpoint.url}/version)"
    if compose is not None and not isinstance(compose.profile, NoData):
        if found := versions.of_image(compose.profile.image):
            return found, f"from the tag of {compose.profile.image}"
        if found := versions.of_text(compose.image_version):
            return found, f"from a label of {compose.profile.image}"
    if isinstance(arm.engine, ProcessEngine) and (found := _installed(engine)):
        return found, "from the package beside its program"
    settings = arm.engine.settings if isinstance(arm.engine, SimulatedEngine) else arm.simulated.settings
    if found := versions.of_text(str(settings.get("version", ""))):
        return found, "from `simulated.settings.version` of the spike file"
    return NoData(f"neither image, package nor server tells; say --vllm {arm.name}=RELEASE"), ""


def running_version(url: str) -> str:
    """The release that a server on loopback states; empty when it does not answer, or is on another machine, which is not asked."""
    if urlsplit(url).hostname not in _LOOPBACK:
        return ""
    try:
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(f"{url}/version", timeout=ANSWER_S) as answer:
            said = json.loads(answer.read(65536))
    except (OSError, ValueError, urllib.error.URLError):
        return ""
    return versions.of_text(str(said.get("version", ""))) if isinstance(said, dict) else ""


def _installed(engine: Engine) -> str:
    try:
        process = engine.invocation().process
    except AuditionError:
        return ""
    if process is None or not process.argv:
        return ""
    program = Path(process.cwd, process.argv[0]) if "/" in process.argv[0] else None
    if program is None:
        return ""
    return versions.of_packages([str(path) for path in program.parent.parent.glob("lib/python3*/site-packages/vllm-*.dist-info")])


def _place(
    arm: Arm,
    arguments: tuple[str, ...] | NoData,
    container: Container | NoData,
    variables: Mapping[str, str],
    *,
    folder: Path,
    given: Given,
) -> Path | NoData:
    """The folder of the arm's model on this machine: as told, a path, or the snapshot in the Hugging Face cache."""
    if arm.name in given.checkpoints:
        return given.checkpoints[arm.name]
    if isinstance(arguments, NoData):
        return arguments
    read = asked_of(arguments)
    model = read.get("--model", "")
    if not model:
        return NoData("its arguments name no model")
    say = f"say --checkpoint {arm.name}=FOLDER"
    if isinstance(container, Container):
        return _in_container(container.service, model, read, variables, say)
    if isinstance(arm.engine, SimulatedEngine):
        return NoData(f"a simulated server has none; {say}")
    base = (folder / arm.engine.cwd).resolve() if isinstance(arm.engine, ProcessEngine) else folder
    direct = read.get("--download-dir", "")
    roots = CacheRoots(Path.home(), hf_hub_cache=direct) if direct else _roots(variables, Path.home())
    return located(str(base / model) if (base / model).is_dir() else model, roots, read, say)


def _read(place: Path | NoData) -> Checkpoint | Unreadable | NoData:
    """What the checkpoint in a folder is: headers and index only."""
    if isinstance(place, NoData):
        return place
    try:
        return read_folder(place)
    except CheckpointError as error:
        return Unreadable(f"{error.what}{f' ({error.tried})' if error.tried else ''}", error.next_step)


def _in_container(
    service: Mapping[str, Any], model: str, read: Mapping[str, str], variables: Mapping[str, str], say: str
) -> Path | NoData:
    roots = _roots(variables, Path("/root"))  # vLLM's images run as root
    inside = model if model.startswith("/") else read.get("--download-dir") or str(roots.hub())
    there = services.on_host(service, inside)
    if isinstance(there, NoData):
        return NoData(f"{there.reason}; {say}")
    if model.startswith("/"):
        return located(there, CacheRoots(Path.home()), read, say)
    return located(model, CacheRoots(Path.home(), hf_hub_cache=there), read, say)


def _roots(variables: Mapping[str, str], home: Path) -> CacheRoots:
    return CacheRoots(
        home,
        variables.get("HF_HUB_CACHE", ""),
        variables.get("HUGGINGFACE_HUB_CACHE", ""),
        variables.get("HF_HOME", ""),
        variables.get("XDG_CACHE_HOME", ""),
    )


def located(model: str, roots: CacheRoots, read: Mapping[str, str], say: str) -> Path | NoData:
    """The folder of a model on this machine, or why it cannot be named and what to type."""
    try:
        return locate(model, roots, read.get("--revision", "main"))
    except CheckpointError as error:
        return NoData(f"{error.what}; {say}")
