"""What each arm is started from, as records: ``profiles/<arm>.json`` without secrets, and the digests of images. Touches nothing.

Reading profiles is ``engines``' business; what follows from them is decided elsewhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from audition.engines.base import Engine
from audition.errors import AuditionError
from audition.report.mask import MASK, mask
from audition.run.folder import write_atomically
from audition.run.preparing import SECRET_NAME
from audition.spike.model import Arm, ComposeEngine, ProcessEngine, Spike
from audition.wayback.server import WaybackError

FOLDER = "profiles"


def write_profiles(folder: Path, spike: Spike, engines: Mapping[str, Engine], secrets: Sequence[str]) -> None:
    """Write each arm's resolved profile into the run folder: compose's whole model, or command, folder and variables of a process.

    A profile that cannot be resolved is left out; the checks before a run tell about it. Raises OSError.
    """
    place = folder / FOLDER
    place.mkdir(exist_ok=True)
    for arm in spike.arms:
        try:
            data = resolved(arm, engines[arm.name], spike.secrets)
        except (AuditionError, WaybackError):
            continue
        name = re.sub(r"[^A-Za-z0-9._-]", "_", arm.name)
        write_atomically(place / f"{name}.json", mask(json.dumps(data, indent=1, ensure_ascii=False), secrets) + "\n")


def resolved(arm: Arm, engine: Engine, names: Sequence[str]) -> dict[str, Any]:
    """One arm's profile; values of variables whose names speak of keys, or that the spike names, become ``***``."""
    if isinstance(arm.engine, ComposeEngine):
        profile = engine.profile()  # type: ignore[attr-defined]  # of engines that are compose profiles
        model = without_secrets(profile.config, names)
        return {"kind": "compose", "files": profile.files, "env_files": profile.env_files, "service": profile.service_name, **model}
    given = engine.invocation()
    data: dict[str, Any] = {"kind": arm.engine.kind, "command": given.argv}
    if isinstance(arm.engine, ProcessEngine):
        data |= {"cwd": arm.engine.cwd, "env": without_secrets({"env": arm.engine.env}, names)["env"]}
    return data


def without_secrets(value: Any, names: Sequence[str]) -> Any:
    """A resolved model whose secret values are masked, wherever they stand: under a name that speaks of a key, as an item
    ``NAME=value``, or as the text of one of compose's own secrets."""
    if isinstance(value, dict):
        return {
            key: MASK
            if isinstance(inner, str | int | float) and _speaks(str(key), names)
            else _contents(inner)
            if key == "secrets" and isinstance(inner, dict)
            else without_secrets(inner, names)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [without_secrets(inner, names) for inner in value]
    if isinstance(value, str):
        name, mark, _ = value.partition("=")
        return f"{name}={MASK}" if mark and name.isidentifier() and _speaks(name, names) else value
    return value


def _speaks(name: str, names: Sequence[str]) -> bool:
    return name in names or bool(SECRET_NAME.search(name))


def _contents(section: dict[str, Any]) -> dict[str, Any]:
    """Compose's section ``secrets``: where each comes from stays, what it is does not."""
    return {
        name: {k: MASK if k == "content" else v for k, v in entry.items()} if isinstance(entry, dict) else entry
        for name, entry in section.items()
    }


def image_digests(spike: Spike, engines: Mapping[str, Engine], environ: Mapping[str, str]) -> dict[str, str]:
    """Arm -> digest of its image in the registry it came from, ``sha256:...``; of an image that was never pushed ``image-id
    sha256:...``. Production's is that of the container that runs. Arms that are no containers, or whose image cannot be asked
    for, are left out. ``environ``: with which the Docker CLI finds its engine."""
    found: dict[str, str] = {}
    for arm in spike.arms:
        if isinstance(arm.engine, ComposeEngine):
            try:
                digest = _digest(arm, engines[arm.name], environ)
            except (AuditionError, WaybackError, OSError):
                continue
            if digest:
                found[arm.name] = digest
    return found


def _digest(arm: Arm, engine: Engine, environ: Mapping[str, str]) -> str:
    from audition.engines.compose_profile import docker_command, docker_environment  # noqa: PLC0415 - only for containers
    from audition.wayback.docker_cli import Docker  # noqa: PLC0415

    assert isinstance(arm.engine, ComposeEngine)
    profile = engine.profile()  # type: ignore[attr-defined]  # as above
    reference = profile.image
    if arm.role == "production":
        reference = str((engine.observe().facts or {}).get("image_id") or reference)
    image = Docker(docker_command(arm.engine), docker_environment(environ)).image(reference)
    if image is None:
        return ""
    repository = profile.image.partition("@")[0].rpartition(":")[0] or profile.image
    pushed = [str(d) for d in image.get("RepoDigests") or []]
    digests = [d for d in pushed if d.partition("@")[0] == repository] or pushed
    return digests[0].rpartition("@")[2] if digests else f"image-id {image['Id']}"
