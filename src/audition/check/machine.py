"""Rules about the machine: GPUs, who else is on them, number formats that they compute, load, memory, disks, clock. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from audition.check.asked import asked_of
from audition.check.facts import ArmFacts, Container, Facts, GpuFacts, MachineFacts
from audition.check.finding import Finding, Level
from audition.units import NoData

DISK_BLOCKING_MIB = 512
"""Below it the records of a run may not fit: each leg keeps at most 8 MiB of the engine's log and some MiB of requests, and the
engine itself logs on the same disk. Own choice."""
DISK_WARNING_MIB = 5 * 1024
MEMORY_WARNING_MIB = 8 * 1024
"""A boot reads the checkpoint through the page cache; with less than this it is read from the disk more than once. Own choice."""
BUSY_SHARE = 0.5
"""Load average over the number of CPUs. The same stack gave 462 and 844 tok/s within an hour beside other people's work."""
TENANT_MIB = 32
"""A display server or a monitor holds a few MiB; compute work holds hundreds."""
SHM_MIB = 1024
"""vLLM's ranks talk through /dev/shm; Docker's default of 64 MiB is too small for tensor parallelism (vLLM's docs ask for
``--ipc=host`` or ``--shm-size``)."""

_SM80, _SM89, _SM100 = (8, 0), (8, 9), (10, 0)


def about_machine(facts: Facts) -> Iterator[Finding]:
    """Everything about the machine; nothing where it is not this one."""
    machine = facts.machine
    if machine is None:
        return
    yield from _gpus(facts, machine)
    for arm in facts.arms:
        yield from _formats(arm, machine)
        yield from _shm(arm, machine)
    yield from _host(machine)
    yield from _disks(machine)
    yield from _clock(machine)


def _say(level: Level, code: str, text: str, hint: str = "", *, arm: str = "") -> Finding:
    return Finding("machine", level, code, arm, text, hint)


def _used(facts: Facts, machine: MachineFacts) -> list[GpuFacts]:
    assert not isinstance(machine.gpus, NoData)
    return [gpu for gpu in machine.gpus if gpu.index in facts.spike.gpus] or list(machine.gpus)


def _gpus(facts: Facts, machine: MachineFacts) -> Iterator[Finding]:
    wanted = facts.spike.gpus
    if isinstance(machine.gpus, NoData):
        if wanted:
            text = f"the spike names GPUs {_list(wanted)}, and no GPU can be looked at here ({machine.gpus.reason})"
            hint = "check on the machine of the GPUs, where nvidia-smi is needed, or say --elsewhere"
            yield _say("blocking", "gpus-unknown", text, hint)
        return
    there = {gpu.index for gpu in machine.gpus}
    if missing := [gpu for gpu in wanted if gpu not in there]:
        text = f"there is no GPU {_list(missing)}; there are {_list(sorted(there))}"
        yield _say("blocking", "gpu-missing", text, "correct `gpus` in the spike file")
    for gpu in machine.gpus:
        if gpu.index in wanted:
            yield from _tenants(facts, gpu)
        elif wanted:
            yield from _beside(gpu)
    if not isinstance(machine.driver, NoData):
        names = ", ".join(dict.fromkeys(gpu.name for gpu in _used(facts, machine)))
        yield _say("ok", "driver", f"{names}; driver {machine.driver}")


def _tenants(facts: Facts, gpu: GpuFacts) -> Iterator[Finding]:
    if isinstance(gpu.tenants, NoData):
        yield _say("warning", "tenants-unknown", f"GPU {gpu.index}: who computes on it cannot be seen ({gpu.tenants.reason})")
        return
    grave = [tenant for tenant in gpu.tenants if tenant.memory_mib is None or tenant.memory_mib >= TENANT_MIB]
    strangers = [tenant for tenant in grave if tenant.ours is False]
    unknown = [tenant for tenant in grave if isinstance(tenant.ours, NoData)]
    for tenant in strangers:
        whose = f" of {tenant.user}" if tenant.user else ""
        size = f" ({tenant.memory_mib} MiB)" if tenant.memory_mib is not None else ""
        text = f"GPU {gpu.index} is shared: process {tenant.pid} {tenant.name}{whose} computes on it{size}"
        yield _say("blocking", "foreign-tenant", text, "agree the slot with its owner, and have it ended before the window")
    if unknown:
        names = ", ".join(f"{tenant.pid} {tenant.name} ({tenant.user or 'user unknown'})" for tenant in unknown)
        yield _say("warning", "tenants-unknown", f"GPU {gpu.index}: production's or another's? {names}", "ps -o user,cmd -p PID")
    if not strangers and not unknown:
        who = "production alone" if grave else "nobody"
        yield _say(
            "ok", "gpu", f"GPU {gpu.index}: {who} computes on it, {gpu.memory_used_mib} of {gpu.memory_total_mib} MiB in use"
        )


def _beside(gpu: GpuFacts) -> Iterator[Finding]:
    """Work on the other GPUs of the machine takes its CPUs, its memory bandwidth and its power."""
    if isinstance(gpu.tenants, NoData):
        return
    busy = [tenant for tenant in gpu.tenants if (tenant.memory_mib or 0) >= TENANT_MIB and tenant.ours is not True]
    if busy:
        names = ", ".join(f"{tenant.name} of {tenant.user or 'an unknown user'}" for tenant in busy)
        text = f"GPU {gpu.index}, which the spike does not use, is at work ({names}): it takes CPU and power from both arms"
        yield _say("warning", "neighbour-gpu", text, "agree a quiet slot, or keep the legs interleaved")


def _formats(arm: ArmFacts, machine: MachineFacts) -> Iterator[Finding]:
    """Number formats against compute capability. FP8 tensor cores begin with SM89, bfloat16 with SM80, FP4 with SM100 (CUDA
    programming guide, table of arithmetic instructions)."""
    if isinstance(machine.gpus, NoData) or isinstance(arm.arguments, NoData):
        return
    least = min((gpu.capability for gpu in machine.gpus if not isinstance(gpu.capability, NoData)), default=None)
    if least is None:
        return
    read = asked_of(arm.arguments)
    kv, weights, dtype = read.get("--kv-cache-dtype", ""), read.get("--quantization", ""), read.get("--dtype", "")
    card = f"SM{least[0]}{least[1]}"
    blocking: Level = "warning" if arm.role == "production" else "blocking"
    if dtype == "bfloat16" and least < _SM80:
        yield _say(
            blocking, "dtype", f"--dtype bfloat16 needs compute capability 8.0, the GPU has {card}", "--dtype half", arm=arm.name
        )
    if kv.startswith("fp8") and least < _SM89:
        text = f"--kv-cache-dtype {kv} on {card}: no FP8 tensor cores before SM89; it is refused, or converted at each step"
        yield _say("warning", "fp8-kv", text, "--kv-cache-dtype auto", arm=arm.name)
    if weights.startswith("fp8") and least < _SM89:
        text = f"--quantization {weights} on {card}: without FP8 tensor cores vLLM computes in 16 bit from 8-bit weights, slower"
        yield _say("warning", "fp8-weights", text, "choose a 4-bit or 8-bit integer checkpoint", arm=arm.name)
    if "nvfp4" in weights and least < _SM100:
        text = f"--quantization {weights} on {card}: FP4 tensor cores begin with SM100"
        yield _say("warning", "fp4-weights", text, "choose a checkpoint for this GPU", arm=arm.name)


def _shm(arm: ArmFacts, machine: MachineFacts) -> Iterator[Finding]:
    if isinstance(arm.arguments, NoData):
        return
    parallel = asked_of(arm.arguments).get("--tensor-parallel-size", "1")
    if parallel == "1":
        return
    size: int | NoData = machine.shm_mib
    where = "/dev/shm of this machine"
    if isinstance(arm.container, Container) and not isinstance(arm.container.shm_bytes, NoData):
        size, where = arm.container.shm_bytes // 2**20, "/dev/shm of the container"
    if not isinstance(size, NoData) and size < SHM_MIB:
        text = f"{where} has {size} MiB; {parallel} tensor-parallel ranks talk through it"
        yield _say("warning", "shm", text, "`ipc: host` or `shm_size: 16gb` in the profile", arm=arm.name)


def _host(machine: MachineFacts) -> Iterator[Finding]:
    if isinstance(machine.load1, NoData):
        yield _say("warning", "load-unknown", f"host load is not known: {machine.load1.reason}")
    elif machine.load1 > BUSY_SHARE * machine.cpus:
        text = f"the host is busy: load {machine.load1:.1f} on {machine.cpus} CPUs, production's own share included"
        yield _say("warning", "load", text, "uptime; agree a quiet slot, and keep the legs interleaved")
    else:
        yield _say("ok", "load", f"host load {machine.load1:.1f} on {machine.cpus} CPUs")
    if not isinstance(machine.available_mib, NoData) and machine.available_mib < MEMORY_WARNING_MIB:
        text = f"{machine.available_mib} MiB of memory are available; a boot reads the checkpoint through the page cache"
        yield _say("warning", "memory", text, "free -m")


def _disks(machine: MachineFacts) -> Iterator[Finding]:
    for what, code, free, hint in (
        ("records", "disk-records", machine.records_free_mib, "free space, or set `records.folder` to another disk"),
        ("state", "disk-state", machine.state_free_mib, "free space, or set AUDITION_STATE to a folder on another disk"),
        ("containers' logs (Docker's folder)", "disk-docker", machine.docker_free_mib, "docker system df"),
    ):
        if isinstance(free, NoData):
            continue
        if free < DISK_BLOCKING_MIB:
            yield _say("blocking", code, f"{free} MiB free on the disk of {what}, {DISK_BLOCKING_MIB} MiB are needed", hint)
        elif free < DISK_WARNING_MIB:
            yield _say("warning", code, f"only {free} MiB free on the disk of {what}", hint)
        else:
            yield _say("ok", code, f"{free // 1024} GiB free on the disk of {what}")


def _clock(machine: MachineFacts) -> Iterator[Finding]:
    if isinstance(machine.clock, NoData):
        yield _say("warning", "clock-unknown", f"whether the clock is synchronised is not known: {machine.clock.reason}")
    elif not machine.clock:
        text = "the clock is not synchronised: the window is a matter of the clock, and so are instants in the records"
        yield _say("warning", "clock", text, "timedatectl set-ntp true   (or start chrony)")
    else:
        yield _say("ok", "clock", "the clock is synchronised")


def _list(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
