"""How a running production container differs from the profile that the spike names, and the profile corrected to what runs. Pure.

The usual cause is an env file that was given when production was started and is missing in the spike, or the other way round.
Values are never shown: both sides may hold secrets.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from audition.engines.compose_profile import Profile
from audition.wayback.docker_cli import labels_of
from audition.wayback.docker_snapshot import COMPOSE


@dataclass(frozen=True)
class Running:
    """A container as ``docker inspect`` gives it, with its image (None when the engine has it no more)."""

    container: dict[str, Any]
    image: dict[str, Any] | None

    @property
    def environment(self) -> dict[str, str]:
        """The variables that were given to the container; those that come from the image as they are, are left out."""
        of_image = set(self._image_config().get("Env") or [])
        entries = [entry for entry in self.container["Config"].get("Env") or [] if entry not in of_image]
        return {name: value for name, _, value in (entry.partition("=") for entry in entries)}

    @property
    def image_environment(self) -> dict[str, str]:
        """The variables that the image sets."""
        return {name: value for name, _, value in (entry.partition("=") for entry in self._image_config().get("Env") or [])}

    @property
    def command(self) -> list[str]:
        """The arguments with which it was started."""
        return list(self.container["Config"].get("Cmd") or [])

    @property
    def entrypoint(self) -> list[str]:
        """The entrypoint with which it was started."""
        return list(self.container["Config"].get("Entrypoint") or [])

    @property
    def image_command(self) -> list[str]:
        """The image's own arguments."""
        return list(self._image_config().get("Cmd") or [])

    @property
    def image_entrypoint(self) -> list[str]:
        """The image's own entrypoint."""
        return list(self._image_config().get("Entrypoint") or [])

    @property
    def config_hash(self) -> str:
        """Compose's hash of the service as it was when the container was made."""
        return labels_of(self.container).get(f"{COMPOSE}config-hash", "")

    def files(self, key: str) -> list[str]:
        """Paths in the compose label ``project.KEY``."""
        return [path for path in labels_of(self.container).get(f"{COMPOSE}project.{key}", "").split(",") if path]

    def _image_config(self) -> dict[str, Any]:
        return dict((self.image or {}).get("Config") or {})


def file_differences(profile: Profile, running: Running) -> list[tuple[str, str]]:
    """Files that production was started with against those of the spike: (what is seen, what to type).

    Compose records both in labels; an env file only since compose 2.13, and never the ``.env`` that it finds by itself.
    """
    found = []
    used, named = running.files("config_files"), profile.files
    if used and [_real(path) for path in used] != [_real(path) for path in named]:
        found.append(
            (
                f"production was started from {', '.join(used)}, the spike names {', '.join(named)}",
                "set `files` of the production arm to the files that production was started from",
            )
        )
    used = running.files("environment_file")
    default = _real(str(Path(profile.folder) / ".env"))
    given = [path for path in used if _real(path) != default]
    if [_real(path) for path in given] != [_real(path) for path in profile.env_files if _real(path) != default]:
        was = f"with --env-file {' '.join(given)}" if given else "without --env-file"
        names = ", ".join(profile.env_files) or "none"
        advice = f"set `env_files` of the production arm to [{', '.join(given)}]"
        found.append((f"production was started {was}, the spike names {names}", advice))
    return found


def profile_differences(profile: Profile, running: Running) -> list[str]:
    """How the running container differs from what the profile would make now, one sentence each, without any value."""
    service = profile.service
    found = []
    want = {name: _plain(value) for name, value in (service.get("environment") or {}).items() if value is not None}
    have, of_image = running.environment, running.image_environment
    for name in sorted(want.keys() | have.keys()):
        if name not in want:
            found.append(f"the running container has the variable {name}, the profile has not")
        elif name not in have and of_image.get(name) != want[name]:
            found.append(f"the profile has the variable {name}, the running container has not")
        elif name in have and have[name] != want[name]:
            how = (
                "empty in the profile"
                if not want[name]
                else "empty in the running container"
                if not have[name]
                else "another value"
            )
            found.append(f"the variable {name} differs: {how}")
    for what, key, have_words, default in (
        ("arguments", "command", running.command, running.image_command),
        ("entrypoint", "entrypoint", running.entrypoint, running.image_entrypoint),
    ):
        given = service.get(key)
        if given is None and key == "command" and service.get("entrypoint") is not None:
            wanted = []  # an entrypoint of its own clears the image's arguments
        else:
            wanted = default if given is None else [_plain(word) for word in given]
        if wanted != have_words:
            found.append(f"the {what} differ: {len(have_words)} words run, the profile has {len(wanted)}{_at(wanted, have_words)}")
    reference = running.container["Config"].get("Image", "")
    if reference not in (profile.image, running.container["Image"]):
        found.append(f"image {reference} runs, the profile names {profile.image}")
    policy = (running.container["HostConfig"].get("RestartPolicy") or {}).get("Name") or "no"
    if policy != str(service.get("restart") or "no").partition(":")[0]:
        found.append(f"restart policy {policy} is in force, the profile says {service.get('restart') or 'no'}")
    return found


def corrected_config(profile: Profile, running: Running, *, image: str) -> dict[str, Any]:
    """The resolved profile, made to say what actually runs: environment, arguments, entrypoint and image.

    Equal to the profile where the two agree, so that compose's hash stays the same then.
    """
    config = deepcopy(profile.config)
    service = config["services"][profile.service_name]
    service["image"] = image
    service.pop("build", None)
    if profile.config_hash and profile.config_hash == running.config_hash:
        return config
    want = {name: value for name, value in (service.get("environment") or {}).items() if value is not None}
    have = {name: value.replace("$", "$$") for name, value in running.environment.items()}
    from_image = {name: v for name, v in want.items() if running.image_environment.get(name) == _plain(v)}
    service["environment"] = {**from_image, **have}
    command = [word.replace("$", "$$") for word in running.command]
    entrypoint = [word.replace("$", "$$") for word in running.entrypoint]
    if running.command != running.image_command or service.get("command") is not None:
        service["command"] = command
    if running.entrypoint != running.image_entrypoint or service.get("entrypoint") is not None:
        service["entrypoint"] = entrypoint
    service["restart"] = (running.container["HostConfig"].get("RestartPolicy") or {}).get("Name") or "no"
    return config


def _plain(value: Any) -> str:
    """A value of the resolved model as the container gets it: compose writes ``$`` as ``$$``."""
    return str(value).replace("$$", "$")


def _real(path: str) -> str:
    return str(Path(path).resolve())


def _at(wanted: list[str], have: list[str]) -> str:
    at = next((i for i, (a, b) in enumerate(zip(wanted, have, strict=False)) if a != b), min(len(wanted), len(have)))
    flag = next((word for word in reversed(have[: at + 1]) if word.startswith("-")), "")
    return f"; first at word {at + 1}" + (f" (after {flag.partition('=')[0]})" if flag else "")
