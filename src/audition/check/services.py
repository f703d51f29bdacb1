"""What a resolved compose service says: GPUs, times, sizes, neighbours that could restart it, where a path lies. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from audition.check.facts import Neighbour
from audition.check.numbers import whole
from audition.engines.sidecars import SOCKETS
from audition.units import NoData

_PART = re.compile(r"(\d+(?:\.\d+)?)(h|ms|us|ns|m|s)")
_UNIT = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_RESTARTERS = re.compile(r"(^|/)(docker-)?(autoheal|watchtower|ouroboros)(:|@|$)")


def go_seconds(text: str) -> float | NoData:
    """Seconds of a duration as Go writes it, e.g. ``15m0s``."""
    found = _PART.findall(text)
    if not found or _PART.sub("", text).strip():
        return NoData(f"{text!r} is no duration")
    return sum(float(number) * _UNIT[unit] for number, unit in found)


def start_period(service: Mapping[str, Any]) -> float | NoData:
    """The time that the healthcheck of a service allows for a start, in seconds."""
    text = (service.get("healthcheck") or {}).get("start_period")
    return go_seconds(str(text)) if text else NoData("its healthcheck states no start_period")


def gpu_ids(service: Mapping[str, Any]) -> tuple[str, ...]:
    """Ids of the GPUs that a service asks for; ``all`` where it takes them all (or so many that are not named), empty for none."""
    reserved = ((service.get("deploy") or {}).get("resources") or {}).get("reservations") or {}
    found: list[str] = []
    for device in [*(reserved.get("devices") or []), *(service.get("gpus") or [])]:
        if "gpu" in (device.get("capabilities") or ["gpu"]) or device.get("driver") == "nvidia":
            found += [str(each) for each in device.get("device_ids") or ["all"]]
    if not found and service.get("runtime") == "nvidia":
        named = str((service.get("environment") or {}).get("NVIDIA_VISIBLE_DEVICES") or "all")
        found = named.split(",")
    return tuple(dict.fromkeys(found))


def visible_gpus(service: Mapping[str, Any]) -> tuple[str, ...]:
    """The same after ``CUDA_VISIBLE_DEVICES``, which counts within what the container is given."""
    given = gpu_ids(service)
    text = (service.get("environment") or {}).get("CUDA_VISIBLE_DEVICES")
    wanted = [part.strip() for part in str(text).split(",") if part.strip()] if text not in (None, "") else []
    if not wanted or not all(whole(part) is not None for part in wanted):
        return given
    if "all" in given:
        return tuple(wanted)
    places = [place for part in wanted if (place := whole(part)) is not None]
    return tuple(given[place] for place in places if place < len(given))


def shm_bytes(service: Mapping[str, Any]) -> int | NoData:
    """Size of /dev/shm in the container; Docker gives 64 MiB unless told otherwise (docker run --shm-size)."""
    if service.get("ipc") == "host":
        return NoData("the host's /dev/shm is used (ipc: host)")
    text = str(service.get("shm_size") or 64 * 2**20)
    size = whole(text)
    return NoData(f"shm_size {text[:60]!r} is no number of bytes") if size is None else size


def neighbours(config: Mapping[str, Any], server: str) -> list[Neighbour]:
    """Services of the same profile that could restart the server: holders of the Docker socket, autoheal and the like."""
    found, unseen = [], NoData("not seen")
    for name, service in (config.get("services") or {}).items():
        if name == server:
            continue
        shown = str(service.get("container_name") or name)
        sources = [str(mount.get("source", "")) for mount in service.get("volumes") or []]
        socket = next((source for source in sources if any(_holds(source, each) for each in SOCKETS)), "")
        if _RESTARTERS.search(str(service.get("image") or "")):
            found.append(Neighbour(shown, f"its image {service['image']} restarts or replaces containers", unseen))
        elif socket:
            found.append(Neighbour(shown, f"holds the Docker socket ({socket}) and can restart containers", unseen))
    return found


def on_host(service: Mapping[str, Any], path: str) -> str | NoData:
    """Where a path of the container lies on the host: through a bind mount; NoData inside an image or a named volume."""
    best: tuple[int, str, str] | None = None
    for mount in service.get("volumes") or []:
        target = str(mount.get("target", ""))
        if target and PurePosixPath(path).is_relative_to(target) and (best is None or len(target) > best[0]):
            best = (len(target), str(mount.get("type", "")), f"{mount.get('source', '')}|{target}")
    if best is None:
        return NoData(f"{path} lies inside the image")
    source, _, target = best[2].partition("|")
    if best[1] != "bind":
        return NoData(f"{path} lies in the volume {source}")
    return str(PurePosixPath(source) / PurePosixPath(path).relative_to(target))


def words(value: Any) -> list[str]:
    """A command or entrypoint of the resolved model as the container gets it (``$$`` is ``$``), lines of scripts joined where they
    end in a backslash."""
    return [str(word).replace("$$", "$").replace("\\\n", " ") for word in value] if isinstance(value, list) else []


def _holds(source: str, socket: str) -> bool:
    mount, path = PurePosixPath(source), PurePosixPath(socket)
    return mount in (path, path.parent)
