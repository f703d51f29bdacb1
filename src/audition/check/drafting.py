"""From compose files or a running container to a drafted spike: reads profiles through docker compose, asks what is not in them.

An edge of the room. What is written follows from ``draft``; writing the file is the command line's business.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from audition.check import services, versions
from audition.check.asked import asked_of
from audition.check.draft import ArmDraft, Draft, default_question
from audition.check.look_machine import look_at_gpus
from audition.check.numbers import whole
from audition.engines.compose_look import Origin, origin_of, services_of
from audition.engines.compose_profile import Profile, published_ports, resolve
from audition.errors import BadInput, Refused
from audition.spike.model import ComposeEngine
from audition.units import NoData, parse_duration

VLLM_PORT = 8000
"""Where vLLM listens unless told otherwise."""
SLOWEST_S = 1500.0
"""Production's slowest cold start where nobody says: cold boots of 4 to 25 minutes are known from the field."""
_SECRET = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
_LOOKS_LIKE = re.compile(r"vllm serve|vllm\.entrypoints|--served-model-name|--max-model-len")

Ask = Callable[[str, str], str]
"""Asks a person: (question, default) -> answer. Where nobody can be asked, it returns the default."""


@dataclass(frozen=True)
class Wanted:
    """What the command line was given. Paths as typed; ``base``: the folder of the spike file to be."""

    base: Path
    production: tuple[str, ...] = ()
    candidate: tuple[str, ...] = ()
    env_files: tuple[str, ...] = ()
    candidate_env_files: tuple[str, ...] = ()
    container: str = ""
    service: str = ""
    candidate_service: str = ""
    project: str = ""
    name: str = ""
    question: str = ""
    closes: str = ""
    slowest: str = ""
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True)
class Source:
    """One arm's files, absolute, with the service that is its server."""

    files: list[Path]
    env_files: list[Path]
    project: str
    service: str
    profile: Profile = field(repr=False)


def drafted(wanted: Wanted, ask: Ask, environ: Mapping[str, str] | None = None) -> Draft:
    """A draft of the spike. Raises BadInput (a missing or refused file, several services) and Refused (no docker compose here)."""
    environ = dict(os.environ if environ is None else environ)
    production, candidate = _sources(wanted, ask, environ)
    if wanted.closes:
        _refuse_no_instant(wanted.closes)
    if candidate.profile.service == production.profile.service:
        raise Refused("nothing to try: the candidate's service is production's", next_step="name another profile: --candidate FILE")
    ours, theirs = _arm(candidate, "candidate", wanted), _arm(production, "production", wanted)
    own = [str(source.profile.service.get("container_name") or "") for source in (production, candidate)]
    slowest = _slowest(wanted, theirs, ask)
    question = wanted.question or ask("What is the question?", default_question(ours.read, theirs.read, theirs.model))
    closes = wanted.closes or ask("When must production be back? (an instant with its time zone; empty: not agreed yet)", "")
    return Draft(
        name=wanted.name or _slug(wanted.base, candidate.files[0]),
        question=question,
        production=theirs,
        candidate=ours,
        same_name=bool(own[0]) and own[0] == own[1],
        gpus=wanted.gpus or _gpus(production, candidate),
        slowest_s=slowest,
        slowest_known=bool(wanted.slowest),
        closes=closes,
    )


def _refuse_no_instant(text: str) -> None:
    """Raises BadInput when --closes is no instant with its time zone."""
    try:
        known = datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        known = False
    if not known:
        said = f"--closes {text[:60]}: no instant with its time zone"
        raise BadInput(said, next_step="for example --closes 2026-12-06T04:00:00+01:00")


def _sources(wanted: Wanted, ask: Ask, environ: Mapping[str, str]) -> tuple[Source, Source]:
    if not wanted.candidate:
        raise BadInput("no candidate is named", next_step="audition init --production a.yml --candidate b.yml")
    project, service = wanted.project, wanted.service
    if wanted.container:
        origin: Origin = origin_of(wanted.container, environ)
        files, env_files = [Path(name) for name in origin.files], [Path(name) for name in origin.env_files]
        derived = re.sub(r"[^a-z0-9_-]", "", Path(origin.folder or files[0].parent).name.lower())
        project, service = project or (origin.project if origin.project != derived else ""), service or origin.service
    elif wanted.production:
        files, env_files = _paths(wanted.production), _paths(wanted.env_files)
    else:
        raise BadInput(
            "no production is named", next_step="give --production FILE, or --from-container NAME for what runs now (docker ps)"
        )
    env_files = [*env_files, *(path for path in _paths(wanted.env_files) if path not in env_files)]
    production = _source(files, env_files, project, service, ask=ask, environ=environ)
    given = _paths(wanted.candidate_env_files) or production.env_files
    wanted_service = wanted.candidate_service or wanted.service
    return production, _source(
        _paths(wanted.candidate), given, "", wanted_service, ask=ask, environ=environ, like=production.service
    )


def _paths(names: tuple[str, ...]) -> list[Path]:
    try:
        return [Path(name).expanduser().absolute() for name in names]
    except RuntimeError as error:  # ``~nobody``
        raise BadInput(f"the home folder of a path cannot be found: {error}", next_step="give the full path") from error


def _source(
    files: list[Path], env_files: list[Path], project: str, service: str, *, ask: Ask, environ: Mapping[str, str], like: str = ""
) -> Source:
    found = services_of(files, env_files, project or None, environ)
    chosen = _choose(found, service, files, ask, like)
    spec = ComposeEngine(
        kind="compose",
        files=[str(path) for path in files],
        env_files=[str(path) for path in env_files],
        project=project or None,
        service=chosen,
    )
    return Source(files, env_files, project, chosen, resolve(spec, files[0].parent, environ))


def _choose(found: Mapping[str, Any], service: str, files: list[Path], ask: Ask, like: str) -> str:
    """The service that is the server: as told, the one that looks like vLLM, or the only one. Raises BadInput when unclear."""
    named = ", ".join(sorted(found))
    if service:
        if service not in found:
            raise BadInput(f"there is no service {service} in {files[0].name}; services: {named}", next_step="correct --service")
        return service
    like_vllm = [name for name, each in found.items() if _is_vllm(each)]
    for names in (like_vllm, list(found)):
        if len(names) == 1:
            return names[0]
    if like in found:
        return like
    answer = ask(f"Which service of {files[0].name} is the server? ({named})", "")
    if answer not in found:
        raise BadInput(f"{files[0].name} has several services: {named}", next_step="name the server: --service NAME")
    return answer


def _is_vllm(service: Mapping[str, Any]) -> bool:
    words = [*services.words(service.get("entrypoint")), *services.words(service.get("command"))]
    return "vllm" in str(service.get("image") or "").lower() or bool(_LOOKS_LIKE.search(" ".join(words)))


def _arm(source: Source, role: str, wanted: Wanted) -> ArmDraft:
    service = source.profile.service
    words = [*services.words(service.get("entrypoint")), *services.words(service.get("command"))]
    read = asked_of(words) if words else {}
    start = services.start_period(service)
    key, comment = _key(source, read)
    model = read.get("--served-model-name", read.get("--model", "")).partition(" ")[0]
    if not model:
        raise BadInput(
            f"the arguments of service {source.service} in {source.files[0].name} name no model",
            seen="the image alone knows its command" if not words else "",
            next_step="add --served-model-name to `command` of the service: audition measures only the model that it is told of",
        )
    return ArmDraft(
        name=role,
        files=tuple(_relative(path, wanted.base) for path in source.files),
        env_files=tuple(_relative(path, wanted.base) for path in source.env_files),
        project=source.project,
        service=source.service,
        url=f"http://127.0.0.1:{_port(service, read)}",
        model=model,
        key=key,
        key_comment=comment,
        read={name: value for name, value in read.items() if not _SECRET.search(name)},
        version=versions.of_image(source.profile.image),
        start_period_s=None if isinstance(start, NoData) else start,
        secrets=tuple(sorted(name for name in service.get("environment") or {} if _SECRET.search(name) and name != key)),
        unset=tuple(source.profile.unset),
    )


def _port(service: Mapping[str, Any], read: Mapping[str, str]) -> int:
    """The host port where the server answers: the one published for the port that vLLM listens on."""
    said = whole(read.get("--port", ""))
    inside = VLLM_PORT if said is None else said
    ports = published_ports(dict(service))
    if ports is None or not ports:
        return inside
    for port in service.get("ports") or []:
        published = whole(str(port.get("published", "")))
        if str(port.get("target")) == str(inside) and published is not None:
            return published
    return ports[0]


def _key(source: Source, read: Mapping[str, str]) -> tuple[str, str]:
    """(name of the variable with the API key, what is to be said of it). The key itself never leaves this function."""
    value = read.get("--api-key", "").partition(" ")[0]
    environment = source.profile.service.get("environment") or {}
    if not value:
        return ("VLLM_API_KEY", "") if environment.get("VLLM_API_KEY") else ("", "")
    names = sorted(name for name, given in source.profile.variables.items() if given == value)
    named = [name for name in names if _SECRET.search(name)] or names
    if named:
        return named[0], ""
    return "VLLM_API_KEY", "the profile holds the API key itself: set VLLM_API_KEY to it in the shell that runs audition"


def _gpus(*sources: Source) -> tuple[int, ...]:
    """GPUs that the profiles use; where they take all, those of this machine."""
    found = {gpu for source in sources for gpu in services.visible_gpus(source.profile.service)}
    if "all" in found:
        cards = look_at_gpus(lambda _process: NoData("not asked")).gpus
        return () if isinstance(cards, NoData) else tuple(gpu.index for gpu in cards)
    return tuple(sorted(number for gpu in found if (number := whole(gpu)) is not None))


def _slowest(wanted: Wanted, production: ArmDraft, ask: Ask) -> float:
    default = max(SLOWEST_S, production.start_period_s or 0.0)
    text = wanted.slowest or ask("Production's slowest cold start, as far as anybody remembers?", f"{round(default / 60)}m")
    try:
        return parse_duration(text)
    except ValueError as error:
        raise BadInput(f"{text!r} is no duration: {error}", next_step="for example --slowest-cold-start 25m") from error


def _relative(path: Path, base: Path) -> str:
    return os.path.relpath(path, base)


def _slug(base: Path, candidate: Path) -> str:
    text = re.sub(r"[^A-Za-z0-9._-]+", "-", candidate.stem).strip("-._")
    return (text or "spike")[:50]
