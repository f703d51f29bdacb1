"""Rules about the arms as they are started: profiles, images, variables, names, ports, GPUs, sidecars, restarts. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from audition.check.asked import asked_of
from audition.check.facts import ArmFacts, Container, Facts
from audition.check.finding import Finding, Level
from audition.check.numbers import whole
from audition.check.services import visible_gpus
from audition.spike.model import ComposeEngine as ComposeSpec
from audition.units import NoData

EXPANDABLE = "expandable_segments:true"
_ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


def about_arms(facts: Facts) -> Iterator[Finding]:
    """Everything about the arms themselves."""
    for arm in facts.arms:
        yield from _engine_said(arm)
        yield from _container(facts, arm)
        yield from _gpu_count(arm)
        yield from _allocator(arm)
    yield from _lost_variables(facts)
    yield from _names_and_ports(facts)
    yield from _gpus(facts)
    yield from _neighbours(facts)
    yield from _restarts(facts)


def _say(level: Level, code: str, arm: str, text: str, hint: str = "", *, reference: str = "") -> Finding:
    return Finding("arms", level, code, arm, text, hint, reference)


def _engine_said(arm: ArmFacts) -> Iterator[Finding]:
    for found in arm.engine:
        text = found.text.removeprefix(f"{arm.name}: ").removeprefix(f"arm {arm.name}: ")
        yield _say(found.level, f"engine-{found.level}", arm.name, text, found.next_step)


def _container(facts: Facts, arm: ArmFacts) -> Iterator[Finding]:
    container = arm.container
    if isinstance(container, NoData):
        return
    env_files = f", --env-file {', '.join(_base(name) for name in container.env_files)}" if container.env_files else ""
    where = ", ".join(_base(name) for name in container.files)
    yield _say("ok", "profile", arm.name, f"service {container.service_name} of {where}{env_files}: image {container.image}")
    for name in container.unset:
        if any(re.search(rf"\b{re.escape(name)}\b", found.text) for found in arm.engine):
            continue  # the engine, where it was asked, said so itself
        hint = f"name the env file that sets it in `env_files` of arm {arm.name}, or set it in the shell"
        yield _say("warning", "variable-unset", arm.name, f"the variable {name} is set nowhere; compose leaves it empty", hint)
    if facts.machine is not None and isinstance(container.image_id, str):
        yield _say("ok", "image", arm.name, f"image {container.image} is here as {container.image_id[:19]}")


def _lost_variables(facts: Facts) -> Iterator[Finding]:
    container = facts.production.container
    if facts.machine is None or isinstance(container, NoData):
        return
    name = facts.production.name
    if any(found.level == "blocking" for found in facts.production.engine) and isinstance(container.lost, NoData):
        return  # said already
    if isinstance(container.lost, NoData):
        yield _say(
            "warning", "variables-unknown", name, f"its variables cannot be compared with its profile: {container.lost.reason}"
        )
    elif container.lost:
        text = f"the running container has a value for {', '.join(container.lost)}, and the profile as read now has none"
        hint = "was --env-file forgotten? name the files it was started with in `env_files` of every arm, in the same order"
        yield _say("blocking", "variable-lost", name, text, hint)
    else:
        yield _say("ok", "variables", name, "every variable that the running container got is still set")


def _names_and_ports(facts: Facts) -> Iterator[Finding]:
    production, spike = facts.production, facts.spike
    for arm in facts.arms:
        if arm.role == "production":
            continue
        spec = spike.arm(arm.name)
        same_port = _port(spec.endpoint.url) == _port(spike.production.endpoint.url)
        named = _shared_name(production.container, arm.container)
        if not named:
            if same_port:
                text = f"uses production's port {_port(spec.endpoint.url)}: the two never run at the same time"
                yield _say("ok", "same-port", arm.name, text)
            continue
        keeps = isinstance(spec.engine, ComposeSpec) and spec.engine.container_name == "production"
        how = (
            "production's container is renamed aside for the window, and this arm takes its name"
            if keeps
            else "this arm gets another name for the window, so whoever looks for the server by container name does not find it"
        )
        port = f" and port {_port(spec.endpoint.url)}" if same_port else ""
        text = f"its own container name {named}{port} equal production's: only one of them can run; {how}"
        hint = "" if keeps else "container_name: production"
        yield _say("ok" if keeps else "warning", "same-name", arm.name, text, hint)


def _shared_name(production: Container | NoData, other: Container | NoData) -> str:
    if isinstance(production, NoData) or isinstance(other, NoData):
        return ""
    return other.own_name if other.own_name and other.own_name == production.own_name else ""


def _gpus(facts: Facts) -> Iterator[Finding]:
    named = {str(gpu) for gpu in facts.spike.gpus}
    asked = {arm.name: _asked(arm) for arm in facts.arms}
    for arm in facts.arms:
        gpus = asked[arm.name]
        if not gpus or not named:
            continue
        if gpus == {"all"}:
            text = f"takes all GPUs of the machine, the spike names {_list(named)}: others would not be watched"
            yield _say("warning", "gpus-differ", arm.name, text, "name its `device_ids` in the profile, or all GPUs in `gpus`")
        elif all(whole(gpu) is not None for gpu in gpus) and not gpus <= named:
            text = f"uses GPUs {_list(gpus)}, the spike names {_list(named)}: GPU {_list(gpus - named)} would not be watched"
            yield _say("warning", "gpus-differ", arm.name, text, f"gpus: [{_list(gpus | named)}]")
    if not named and any(asked.values()):
        text = "the spike names no GPU, so neither their memory nor other tenants are watched"
        every = sorted({gpu for gpus in asked.values() for gpu in gpus if whole(gpu) is not None}, key=int)
        yield _say("warning", "gpus-unnamed", "", text, f"gpus: [{', '.join(every) or '0'}]")
    ours, theirs = asked[facts.candidate.name], asked[facts.production.name]
    if ours and theirs and ours != theirs:
        text = f"runs on {_cards(ours)}, production on {_cards(theirs)}: their speeds compare the cards, too"
        yield _say("warning", "gpus-confounded", facts.candidate.name, text, "give both arms the same GPUs")


def _asked(arm: ArmFacts) -> set[str]:
    if isinstance(arm.container, NoData):
        visible = arm.variables.get("CUDA_VISIBLE_DEVICES", "")
        return {part.strip() for part in visible.split(",") if whole(part.strip()) is not None}
    return set(visible_gpus(arm.container.service))


def _gpu_count(arm: ArmFacts) -> Iterator[Finding]:
    gpus = _asked(arm)
    if isinstance(arm.arguments, NoData) or not gpus or "all" in gpus:
        return
    read = asked_of(arm.arguments)
    needed = 1
    for flag in ("--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size"):
        size = whole(read.get(flag, "1"))
        if size is None:
            return
        needed *= size
    if needed > len(gpus):
        text = f"needs {needed} GPUs (tensor x pipeline x data parallel size), but is given {len(gpus)}: {_list(gpus)}"
        hint = "correct `device_ids` of the profile, CUDA_VISIBLE_DEVICES, or --tensor-parallel-size"
        yield _say("blocking", "gpus-too-few", arm.name, text, hint)


def _allocator(arm: ArmFacts) -> Iterator[Finding]:
    """Memory of expandable segments cannot be shared through CUDA IPC, which vLLM's own all-reduce uses: boots die of it."""
    name = next((name for name in _ALLOCATOR if EXPANDABLE in arm.variables.get(name, "").lower().replace(" ", "")), "")
    if not name or isinstance(arm.arguments, NoData):
        return
    read = asked_of(arm.arguments)
    set_so = f"{name} has expandable_segments:True"
    parallel = read.get("--tensor-parallel-size", "1")
    if parallel != "1" and read.get("--disable-custom-all-reduce", "false") != "true":
        text = (
            f"{set_so} with tensor parallel size {parallel}: memory of that kind cannot be exported through CUDA IPC, "
            "and where vLLM's own all-reduce is in use (GPUs with peer access) the server dies while it captures CUDA graphs"
        )
        hint = f"add --disable-custom-all-reduce (as where GPUs have no peer access), or remove expandable_segments from {name}"
        yield _say("warning", "expandable-segments", arm.name, text, hint, reference="vllm#42609, vllm#49101, vllm#56180")
    else:
        text = f"{set_so}: it changes how memory is laid out, and failed boots were reported with it"
        hint = f"give both arms the same {name}, or remove it from this one"
        yield _say("warning", "expandable-segments", arm.name, text, hint, reference="vllm#29544")


def _neighbours(facts: Facts) -> Iterator[Finding]:
    how = facts.spike.sidecars
    said: dict[str, tuple[str, bool | NoData]] = {}
    for arm in facts.arms:
        if isinstance(arm.container, Container) and arm.role == "production":
            for each in arm.container.neighbours:
                said.setdefault(each.name, (each.why, each.running))
            for text in arm.container.left_alone:
                yield _say("ok", "sidecar-harmless", arm.name, f"{text}: left alone")
    for name, (why, running) in said.items():
        text = f"sidecar {name}: {why}"
        if isinstance(running, NoData):
            text += " (named in production's profile; whether it runs was not seen)"
        elif not running:
            text += " (named in production's profile; not running now)"
        if how == "stop":
            yield _say("ok", "sidecar", facts.production.name, f"{text}; it is stopped for the window and started again after")
        elif how == "refuse" and running is True:
            yield _say("blocking", "sidecar", facts.production.name, text, "stop it, or write `sidecars: stop` in the spike file")
        else:
            hint = "write `sidecars: stop` in the spike file"
            yield _say("warning", "sidecar", facts.production.name, f"{text}, in the middle of a leg, too", hint)


def _restarts(facts: Facts) -> Iterator[Finding]:
    for arm in facts.arms:
        if isinstance(arm.container, NoData):
            continue
        policy = arm.container.restart.partition(":")[0]
        if arm.role == "production":
            yield _production_restart(arm.name, policy)
        elif policy != "no":
            text = f"its profile says restart: {policy}; audition starts it with restart: no, so that it never outlives the window"
            yield _say("ok", "restart", arm.name, text)


def _production_restart(name: str, policy: str) -> Finding:
    if policy == "no":
        text = "restart: no, so production does not come back by itself after a reboot of the machine in the window"
        return _say("warning", "restart", name, text, "audition setup   (installs a unit that brings it back at boot)")
    text = f"restart: {policy}, kept and put back; if the machine reboots in the window, only `audition recover` starts it"
    if policy == "always":
        text = "restart: always, kept and put back; after a reboot in the window Docker may start it before `audition recover` does"
    return _say("ok", "restart", name, text)


def _port(url: str) -> int:
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)


def _cards(gpus: set[str]) -> str:
    return "all GPUs" if gpus == {"all"} else f"GPU {_list(gpus)}"


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def _list(names: set[str]) -> str:
    return ", ".join(sorted(names, key=lambda name: (len(name), name)))
