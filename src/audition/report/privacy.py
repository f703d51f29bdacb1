"""Takes out of a text what belongs to one machine or one team: paths, addresses, hosts, names. Pure. Keys are ``mask``'s.

What is public stays: repository ids of models, module paths inside Python packages, system paths, versions, figures.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from audition.judge.result import Result
from audition.spike.model import ComposeEngine, ProcessEngine, Spike

ADDRESS, PRIVATE = "<address>", "<private>"
_PATH = re.compile(
    r"(?<!<path>)(?<![\w/.])(?:~|\.{1,2})?/(?!(?:metrics|health|version|v1/\S+)\b)(?P<head>(?:[\w.@+-]++/)*+)(?P<last>[\w.@+-]++)/?"
)
_SYSTEM = ("usr/bin", "usr/lib/python3", "usr/lib/x86_64-linux-gnu", "bin", "dev/shm", "dev/nvidia", "proc", "sys", "lib64")
_URL = re.compile(r"\b(?P<scheme>[a-z][a-z0-9+.-]{1,10}+)://(?P<rest>[^\s\"'<>`)\]]++)")
_PUBLIC_HOSTS = ("github.com", "huggingface.co", "docs.vllm.ai", "pytorch.org", "docs.pytorch.org", "pypi.org", "docs.python.org")
_PUBLIC_REGISTRIES = ("docker.io", "ghcr.io", "nvcr.io", "public.ecr.aws", "quay.io", "registry.hub.docker.com")
_IPV4 = re.compile(r"(?<![\w.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?::\d{1,5})?(?![\w.]*\w)")
_H = "[0-9a-fA-F]{1,4}"
_IPV6 = re.compile(rf"(?<![\w:.])(?:(?:{_H}:){{7}}{_H}|(?:{_H}:){{1,6}}(?::{_H}){{1,6}}|::{_H})(?![\w:])")
_MAC = re.compile(r"(?<![\w:])(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}(?![\w:])")
_EMAIL = re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b")
_HOME = re.compile(r"/(?:home|Users|export/home|u|scratch)/(?P<user>[\w.@+-]+)")
_PACKAGES = re.compile(r"(?:^|/)(?:site|dist)-packages/")
_LOOPBACK = {"127.0.0.1", "localhost", "::1", "0.0.0.0", ""}
_COMMON = {
    "vllm", "openai", "api", "server", "serve", "model", "models", "engine", "llm", "gpu", "production", "candidate", "control",
    "root", "user", "data", "cache", "python", "python3", "app", "web", "main", "test", "shared", "public", "docker", "compose.yml",
    "compose.yaml", "docker-compose.yml", "docker-compose.yaml", ".env", "notes.md",
}  # fmt: skip
"""Words that tell nothing about anybody, and without which a text could not be read."""


def public_image(reference: str, digest: str) -> str:
    """The reference of an image as others may know it: of a private registry the name alone, of an image that was never pushed
    nothing (its digest is then an image id, see ``run.profiles``)."""
    if digest.startswith("image-id"):
        return "one of our own, never pushed"
    first, slash, rest = reference.partition("/")
    named = slash and (first == "localhost" or "." in first or ":" in first)
    return f"{ADDRESS}/{rest}" if named and first not in _PUBLIC_REGISTRIES else reference


def private_free(text: str, names: Iterable[str] = ()) -> str:
    """The text with paths cut to their last part, and addresses and the given names taken out. Doing it twice changes nothing."""
    text = _URL.sub(_url, text)
    text = _EMAIL.sub(ADDRESS, text)
    text = _PATH.sub(_path, text)
    for pattern in (_MAC, _IPV6, _IPV4):
        text = pattern.sub(ADDRESS, text)
    for name in sorted({n for n in names if n}, key=lambda n: (-len(n), n)):
        text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", PRIVATE, text)
    return text


def private_names(result: Result, spike: Spike) -> list[str]:
    """Names in the records that belong to the people who ran this: users, hosts, containers, services, files, variables, and the
    model's served names. Names of arms, workloads and models are the datapoint's own words and stay."""
    found: set[str] = set()
    for arm in spike.arms:
        host = urlsplit(arm.endpoint.url).hostname or ""
        found |= {host} if host not in _LOOPBACK else set()
        found |= {arm.endpoint.api_key_env or ""}
        if isinstance(arm.engine, ComposeEngine):
            found |= {str(arm.engine.service), str(arm.engine.project or ""), *map(_base, arm.engine.files)}
            found |= {_base(file) for file in arm.engine.env_files}
        elif isinstance(arm.engine, ProcessEngine):
            found |= _users(arm.engine.command)
    found |= {_base(note.file) for note in spike.records.notes} | set(spike.secrets)
    for leg in result.legs:
        found |= _users([*_texts(leg.facts), leg.detail, leg.boot.excerpt if leg.boot is not None else ""])
    arms = {arm.name for arm in spike.arms} | {w.name for w in spike.workloads}
    return sorted(name for name in found if len(name) >= 3 and name.lower() not in _COMMON and name not in arms)


def _base(path: object) -> str:
    return str(path).rstrip("/").rpartition("/")[2]


def _users(texts: Iterable[str]) -> set[str]:
    return {match["user"] for text in texts for match in _HOME.finditer(text)}


def _texts(value: object) -> list[str]:
    """All texts inside facts."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for inner in value.values() for text in _texts(inner)]
    return [text for inner in value for text in _texts(inner)] if isinstance(value, list) else []


def _path(match: re.Match[str]) -> str:
    whole, head = match[0], match["head"]
    if whole.startswith("/") and whole[1:].startswith(_SYSTEM):
        return whole
    packages = _PACKAGES.search(head)
    inside = head[packages.end() :] if packages else ""
    return f"<path>/{inside}{match['last']}"


def _url(match: re.Match[str]) -> str:
    host = urlsplit(f"//{match['rest']}").netloc.rpartition("@")[2].partition(":")[0]
    return match[0] if match["scheme"] in ("http", "https") and host in _PUBLIC_HOSTS else f"{match['scheme']}://{ADDRESS}"
