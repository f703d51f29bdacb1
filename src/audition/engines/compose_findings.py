"""What can be known of a compose arm before anything is touched: engine, image, GPU runtime, ports, mounts. Looks only.

Each function returns findings; none raises for what it finds. Comparing production with its profile lives in ``compose_compare``.
"""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

from audition.engines.base import Finding
from audition.engines.compose_compare import Running, file_differences, profile_differences
from audition.engines.compose_profile import Profile, bound_to_others, published_ports, volume_names, wants_gpu
from audition.wayback.docker_cli import Docker


def about_profile(profile: Profile, port: int) -> list[Finding]:
    """Variables that were empty, ties to other services, and whether the endpoint's port is the service's."""
    found = [
        Finding(
            "warning",
            f"the variable {name} is set nowhere; compose puts an empty text in its place",
            "name the env file that sets it in `env_files` of the arm, or set it in the shell",
        )
        for name in profile.unset
    ]
    ports = published_ports(profile.service)
    if ports is not None and port not in ports:
        listed = ", ".join(map(str, ports)) or "none"
        found.append(
            Finding(
                "blocking",
                f"the endpoint's port {port} is not published by service {profile.service_name} (published: {listed})",
                "correct `endpoint.url` of the arm, or `ports` of the service; the server itself is asked, not a proxy before it",
            )
        )
    return found


def about_image(cli: Docker, profile: Profile) -> Finding:
    """Whether the profile's image is on the engine: nothing is ever pulled during a run."""
    if cli.image(profile.image) is not None:
        return Finding("ok", f"image {profile.image} is present")
    get = f"{shlex.join(cli.docker)} pull {profile.image}"
    if profile.service.get("build"):
        get = shlex.join([*profile.argv, "build", profile.service_name])
    return Finding("blocking", f"image {profile.image} is not on the engine", get)


def about_gpu_runtime(cli: Docker, profile: Profile) -> list[Finding]:
    """Whether the engine can hand out the GPUs that the profile asks for.

    Evidence that counts: the runtime is registered (needed for ``runtime: nvidia``), CDI devices are known, a container with GPUs
    runs already, or NVIDIA's hook is installed beside a local engine (dockerd registers its device driver when it finds the hook).
    """
    how = wants_gpu(profile.service)
    if not how:
        return []
    info = json.loads(cli.text("info", "--format", "{{json .}}"))
    runtimes = info.get("Runtimes") or {}
    missing = (
        f"service {profile.service_name} asks for GPUs ({how}), but the engine has no runtime for them; registered runtimes: "
        f"{', '.join(sorted(runtimes))}"
    )
    advice = (
        "install the NVIDIA container toolkit, then: nvidia-ctk runtime configure --runtime=docker, and restart the Docker engine"
    )
    if "nvidia" in runtimes:
        return [Finding("ok", "the engine has the runtime nvidia")]
    if how == "runtime":
        return [Finding("blocking", missing, advice)]
    if info.get("DiscoveredDevices") or any(Path(folder).is_dir() and any(Path(folder).iterdir()) for folder in _cdi(cli, info)):
        return [Finding("ok", "the engine knows GPU devices through CDI")]
    running = cli.inspect_all(cli.text("ps", "--quiet", "--no-trunc").split())
    if any(c["HostConfig"].get("DeviceRequests") for c in running):
        return [Finding("ok", "a container with GPUs runs on this engine")]
    if cli.local() and shutil.which("nvidia-container-runtime-hook", path=cli.env.get("PATH")):
        return [Finding("ok", "NVIDIA's container hook is installed")]
    return [Finding("blocking", missing, advice)]


def _cdi(cli: Docker, info: dict[str, object]) -> list[str]:
    folders = info.get("CDISpecDirs")
    return [str(folder) for folder in folders] if isinstance(folders, list) and cli.local() else []


def about_mounts(cli: Docker, profile: Profile) -> list[Finding]:
    """Host folders that do not exist: Docker would make them, empty, and the server would load its model anew or not at all."""
    if not cli.local():
        return []
    sources = [mount["source"] for mount in profile.service.get("volumes") or [] if mount.get("type") == "bind"]
    return [
        Finding("warning", f"{source} does not exist on this machine; Docker would make it as an empty folder", f"ls -ld {source}")
        for source in sources
        if not Path(source).exists()
    ]


def about_candidate(cli: Docker, profile: Profile, production: Profile | None) -> list[Finding]:
    """What only matters for a server that runs beside or instead of production."""
    found = [
        Finding(
            "blocking", f"service {profile.service_name} cannot run alone: it uses {tie}", "give the candidate a profile of its own"
        )
        for tie in bound_to_others(profile.service)
    ]
    if production is not None:
        shared = volume_names(profile) & volume_names(production)
        found += [
            Finding(
                "warning",
                f"the candidate writes into the volume {name}, which production mounts, too",
                "give the candidate a volume of its own, e.g. for the compile cache",
            )
            for name in sorted(shared)
        ]
    if profile.service.get("labels", {}).get("autoheal", "").lower() == "true":
        found.append(
            Finding(
                "warning",
                "the candidate carries the label autoheal=true; an autoheal container may end a long boot",
                "sidecars: stop",
            )
        )
    return found


def about_production(cli: Docker, profile: Profile, running: Running) -> list[Finding]:
    """Whether running production is what the spike says, and whether it could be made again from what is here."""
    container = running.container
    found = [Finding("blocking", seen, advice) for seen, advice in file_differences(profile, running)]
    differences = profile_differences(profile, running)
    same_hash = bool(profile.config_hash) and profile.config_hash == running.config_hash
    if differences or not same_hash:
        what = "; ".join(differences) or "compose's hash of the service is another one"
        found.append(
            Finding(
                "warning",
                f"running production is not what its profile would make now: {what}. It is brought back as it runs now",
                "check `env_files`, `files` and `project` of the production arm, or restart production from its profile first",
            )
        )
    if running.image is None:
        found.append(
            Finding(
                "blocking",
                f"production's image {container['Config']['Image']} ({container['Image'][:19]}) is no longer on the engine: "
                "its container could not be made again",
                f"{shlex.join(cli.docker)} pull or load that very image, then try again",
            )
        )
    elif (tag := cli.image(container["Config"]["Image"])) is None or tag["Id"] != container["Image"]:
        found.append(
            Finding(
                "warning",
                f"the name {container['Config']['Image']} means another image by now than the one that runs; "
                f"if production's container is lost, it is made again from {container['Image'][:19]}",
            )
        )
    if container["State"]["Restarting"]:
        times = container["RestartCount"]
        found.append(Finding("blocking", f"production is in a restart loop ({times} restarts)", "repair production before a spike"))
    if (container["HostConfig"].get("LogConfig") or {}).get("Type") == "none":
        found.append(Finding("warning", "production's log driver is none: silence cannot be told from progress when it boots"))
    return found
