"""What a container is, point by point, and how two of them differ. Pure except for ``snapshot``, which asks the engine.

A snapshot is plain data that may be shown and kept: secrets appear in it only as salted hashes. Starting and stopping live in
``docker``.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Any

from audition.wayback.docker_cli import Docker, labels_of, name_of
from audition.wayback.server import WaybackError

SNAPSHOT_VERSION = 1
COMPOSE = "com.docker.compose."
HASH_ROUNDS = 10_000
"""Rounds of PBKDF2: dear enough that a short secret is not guessed in passing, about 5 ms each here."""

_PROVENANCE = {
    f"{COMPOSE}{key}"
    for key in ("project.config_files", "project.environment_file", "version", "replace", "image", "depends_on", "config-hash")
}
"""Labels that tell how compose was called, not what the server is; the config hash is compared as a point of its own."""

_SECRET_NAME = re.compile(
    r"(^|_)(KEYS?|TOKEN|AUTH|PASS|PWD|PAT|CREDENTIALS?)(_|$)|SECRET|PASSW|APIKEY|CREDENTIAL|PRIVATE_?KEY", re.IGNORECASE
)
_SECRET_FLAG = re.compile(r"^--?([a-z-]*[-_])?(api[-_]key|token|password|secret|auth)s?$", re.IGNORECASE)
_FLAG_IN_TEXT = re.compile(
    r"--(?:[a-z-]*[-_])?(?:api[-_]key|token|password|secret)[=\s]+(\"[^\"]+\"|'[^']+'|[^\s\"'\\;&|-][^\s\"'\\;&|]*)",
    re.IGNORECASE,
)
_SHAPES = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|eyJ[A-Za-z0-9_-]{20,}\.[A-Za-z0-9._-]+)"
)
_USERINFO = re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)")
_SHORTEST = 6
"""Secrets shorter than this are masked only where they are a whole value, so that "1" does not mask half of a command line."""

_HOST_POINTS = {
    "network mode": "NetworkMode",
    "ipc mode": "IpcMode",
    "pid mode": "PidMode",
    "runtime": "Runtime",
    "privileged": "Privileged",
    "read-only root": "ReadonlyRootfs",
    "memory limit": "Memory",
    "memory and swap limit": "MemorySwap",
    "CPU limit": "NanoCpus",
    "CPU set": "CpusetCpus",
    "devices": "Devices",
    "device requests": "DeviceRequests",
    "ulimits": "Ulimits",
    "capabilities added": "CapAdd",
    "capabilities dropped": "CapDrop",
    "security options": "SecurityOpt",
    "extra hosts": "ExtraHosts",
    "groups": "GroupAdd",
    "tmpfs": "Tmpfs",
    "sysctls": "Sysctls",
    "cgroup parent": "CgroupParent",
    "log driver": "LogConfig",
    "init": "Init",
}
_CONFIG_POINTS = {
    "user": "User",
    "working directory": "WorkingDir",
    "healthcheck": "Healthcheck",
    "stop signal": "StopSignal",
    "stop timeout": "StopTimeout",
    "terminal": "Tty",
}


def salted_hash(salt: str, value: str) -> str:
    """A hash of a secret that compares but does not tell: PBKDF2-HMAC-SHA256 (RFC 8018), 64 bits as hex."""
    return hashlib.pbkdf2_hmac("sha256", value.encode(), salt.encode(), HASH_ROUNDS, dklen=8).hex()


def snapshot(docker: list[str], env: dict[str, str], container_id: str, *, secret_names: list[str] | None = None) -> dict[str, Any]:
    """What the container is now, with a fresh salt. ``secret_names``: further variables to hash.

    Raises WaybackError when there is no such container or the engine does not answer.
    """
    cli = Docker(docker, env)
    container = cli.by_id(container_id)
    if container is None:
        raise WaybackError(f"cannot take a snapshot: there is no container {container_id[:12]}")
    return describe(container, cli.image(container["Image"]), salt=secrets.token_hex(16), secret_names=secret_names)


def describe(
    container: dict[str, Any], image: dict[str, Any] | None, *, salt: str, secret_names: list[str] | None = None
) -> dict[str, Any]:
    """The snapshot of an inspected container. ``image``: its inspected image, None when the engine has it no more."""
    config, host, labels = container["Config"], container["HostConfig"], labels_of(container)
    environment = dict(_pair(entry) for entry in config.get("Env") or [])
    names = set(secret_names or [])
    hidden = _Mask(salt, environment, [*(config.get("Entrypoint") or []), *(config.get("Cmd") or [])], names)
    points = {what: host.get(key) for what, key in _HOST_POINTS.items()}
    points |= {what: config.get(key) for what, key in _CONFIG_POINTS.items()}
    points["shared memory bytes"] = host.get("ShmSize")
    points["restart policy"] = _restart(host.get("RestartPolicy") or {})
    points["ports"] = host.get("PortBindings")
    points["networks"] = sorted(container.get("NetworkSettings", {}).get("Networks") or {})
    return {
        "version": SNAPSHOT_VERSION,
        "salt": salt,
        "secret_names": sorted(names),
        "container_id": container["Id"],
        "name": name_of(container),
        "image_id": container["Image"],
        "image_ref": config.get("Image", ""),
        "image_digests": sorted((image or {}).get("RepoDigests") or []),
        "entrypoint": [hidden.argument(word) for word in config.get("Entrypoint") or []],
        "arguments": [hidden.argument(word) for word in config.get("Cmd") or []],
        "environment": {name: hidden.variable(name, value) for name, value in sorted(environment.items())},
        "mounts": {mount["Destination"]: hidden.text(_mount(mount)) for mount in container.get("Mounts") or []},
        "labels": {key: hidden.variable(key, value) for key, value in sorted(labels.items()) if key not in _PROVENANCE},
        "points": {what: hidden.tree(value) for what, value in points.items() if value not in (None, "", [], {}, 0, False)},
        "compose": {
            "project": labels.get(f"{COMPOSE}project", ""),
            "service": labels.get(f"{COMPOSE}service", ""),
            "working_dir": labels.get(f"{COMPOSE}project.working_dir", ""),
            "config_files": _paths(labels.get(f"{COMPOSE}project.config_files", "")),
            "environment_files": _paths(labels.get(f"{COMPOSE}project.environment_file", "")),
            "config_hash": labels.get(f"{COMPOSE}config-hash", ""),
        },
    }


def compare(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """How ``now`` differs from ``before``, one sentence each. Both must have been made with the same salt.

    Not compared: the container id (a recreated container has another one) and how compose was called. A container recreated from an
    image pinned by its id is the same server, although its image reference and config hash differ; ``also_hashes`` are those of the
    saved copies of its profile.
    """
    if before["salt"] != now["salt"]:
        raise ValueError("two snapshots with different salts cannot be compared")
    found = []
    if before["name"] != now["name"]:
        found.append(f"container name: was {before['name']}, is {now['name']}")
    if before["image_id"] != now["image_id"]:
        found.append(f"image: was {before['image_ref']} ({before['image_id']}), is {now['image_ref']} ({now['image_id']})")
    pinned = now["image_ref"] == before["image_id"]
    if before["image_ref"] != now["image_ref"] and not pinned:
        found.append(f"image reference: was {before['image_ref']}, is {now['image_ref']}")
    for key in ("entrypoint", "arguments"):
        if before[key] != now[key]:
            found.append(f"{key}: {_words(before[key], now[key])}")
    found += _mappings("environment variable", before["environment"], now["environment"])
    found += _mappings("mount", before["mounts"], now["mounts"])
    found += _mappings("label", before["labels"], now["labels"])
    found += _mappings("", before["points"], now["points"])
    was, is_ = before["compose"]["config_hash"], now["compose"]["config_hash"]
    if was != is_ and not pinned and is_ not in before["compose"].get("also_hashes", []):
        found.append(f"compose config hash: was {was or 'absent'}, is {is_ or 'absent'}")
    return found


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name is taken for a secret: it contains KEY, TOKEN, SECRET, PASSWORD and the like as a word."""
    return _SECRET_NAME.search(name) is not None


class _Mask:
    """Replaces secrets in texts by their salted hashes."""

    def __init__(self, salt: str, environment: dict[str, str], words: list[str], names: set[str]) -> None:
        self.salt, self.names = salt, names
        self.values = {value for name, value in environment.items() if value and self.secret(name)}
        self.values |= _flag_values(words)

    def secret(self, name: str) -> bool:
        return name in self.names or is_secret_name(name)

    def hashed(self, value: str) -> str:
        return f"<secret {salted_hash(self.salt, value)}>"

    def variable(self, name: str, value: str) -> str:
        if not value or name.startswith(COMPOSE):
            return value
        return self.hashed(value) if self.secret(name) else self.text(value)

    def argument(self, word: str) -> str:
        return self.hashed(word) if word in self.values else self.text(word)

    def text(self, text: str) -> str:
        for value in sorted((v for v in self.values if len(v) >= _SHORTEST), key=len, reverse=True):
            if value in text:
                text = text.replace(value, self.hashed(value))
        text = _SHAPES.sub(lambda match: self.hashed(match.group()), text)
        text = _USERINFO.sub(lambda match: self.hashed(match.group()), text)
        return _FLAG_IN_TEXT.sub(self._flag, text)

    def _flag(self, match: re.Match[str]) -> str:
        value = match.group(1)
        if value.startswith("<secret"):
            return match.group()
        start = match.start(1) - match.start()
        return match.group()[:start] + self.hashed(value.strip("\"'")) + match.group()[start + len(value) :]

    def tree(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.tree(item) for item in value]
        if isinstance(value, dict):
            return {key: self.variable(key, item) if isinstance(item, str) else self.tree(item) for key, item in value.items()}
        return value


def _flag_values(words: list[str]) -> set[str]:
    """Values that follow a flag such as ``--api-key``: as ``--api-key=VALUE`` or as all words up to the next flag."""
    found, after = set(), False
    for word in words:
        flag, equals, value = word.partition("=")
        if word.startswith("-"):
            after = _SECRET_FLAG.match(flag) is not None and not equals
            if equals and value and _SECRET_FLAG.match(flag):
                found.add(value)
        elif after and word:
            found.add(word)
    return found


def _pair(entry: str) -> tuple[str, str]:
    name, _, value = entry.partition("=")
    return name, value


def _paths(text: str) -> list[str]:
    """Compose joins paths with commas in its labels."""
    return [path for path in text.split(",") if path]


def _restart(policy: dict[str, Any]) -> str:
    name, most = policy.get("Name") or "no", policy.get("MaximumRetryCount") or 0
    return f"{name}:{most}" if most else str(name)


def _mount(mount: dict[str, Any]) -> str:
    """A mount in one line. An anonymous volume has a random name of 64 hex digits, which says nothing."""
    source = mount.get("Name") or mount.get("Source") or ""
    if mount.get("Type") == "volume" and re.fullmatch(r"[0-9a-f]{64}", source):
        source = "(anonymous)"
    return f"{mount.get('Type')} {source} {'rw' if mount.get('RW') else 'ro'}"


def _words(was: list[str], is_: list[str]) -> str:
    """Where two word lists part, with what follows."""
    at = next((i for i, (a, b) in enumerate(zip(was, is_, strict=False)) if a != b), min(len(was), len(is_)))
    if len(was) == len(is_) and was[at + 1 :] == is_[at + 1 :]:
        return f"word {at + 1} was {was[at]!r}, is {is_[at]!r}"
    return f"from word {at + 1} on, was {was[at : at + 6]}, is {is_[at : at + 6]} ({len(was)} and {len(is_)} words)"


def _mappings(what: str, was: dict[str, Any], is_: dict[str, Any]) -> list[str]:
    found = []
    for key in sorted(was.keys() | is_.keys()):
        name = f"{what} {key}".strip()
        if key not in is_:
            found.append(f"{name}: was {_shown(was[key])}, is missing")
        elif key not in was:
            found.append(f"{name}: was not there, is {_shown(is_[key])}")
        elif was[key] != is_[key]:
            found.append(f"{name}: was {_shown(was[key])}, is {_shown(is_[key])}")
    return found


def _shown(value: Any) -> str:
    """A value for a message; hashes of secrets stay hashes, an empty text is called empty."""
    text = "empty" if value == "" else str(value)
    return text if len(text) <= 200 else text[:197] + "..."
