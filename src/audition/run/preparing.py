"""Everything that is found out before anything is touched: engines from the spike file, findings, GPU source, sidecars, secrets."""

from __future__ import annotations

import contextlib
import json
import re
import secrets as random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from audition.engines.base import Engine, Finding
from audition.engines.parking import ParkBeside
from audition.errors import AuditionError, InternalError, Refused
from audition.faults.signature import shipped_signatures
from audition.report.mask import MASK, mask
from audition.run.reporter import Reporter
from audition.run.surroundings import Identity
from audition.spike.document import read_document
from audition.spike.model import Arm, ComposeEngine, Spike
from audition.spike.model import ProcessEngine as ProcessSpec
from audition.spike.parse import LoadedSpike
from audition.spike.problems import BadSpike, nearest
from audition.spike.window import secret_names
from audition.wayback.gpu import read_usage
from audition.wayback.plan import ArmTarget, GpuPlan, SidecarPlan
from audition.wayback.server import WaybackError

SECRET_NAME = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
_SHORTEST_SECRET = 4


def new_identity(spike: Spike, root: Path, date: str) -> Identity:
    """Names and places of a new run. ``date``: YYYY-MM-DD."""
    run_id = f"{spike.name}-{date}-{random.token_hex(4)}"
    return Identity(run_id, date, root, root / "runs" / run_id, random.token_hex(16))


def make_engines(spike: Spike, folder: Path, identity: Identity) -> dict[str, Engine]:
    """One engine an arm. Touches nothing. Raises BadInput when an arm's files cannot be read."""
    return {arm.name: make_engine(spike, arm, folder, identity) for arm in spike.arms}


def make_engine(spike: Spike, arm: Arm, folder: Path, identity: Identity) -> Engine:
    """The engine of one arm. Each arm has a mark of its own, so that no arm's processes count as another's."""
    production = arm.role == "production"
    park_beside = ParkBeside(spike.production, spike.gpus) if spike.restore.strategy == "park" else None
    if isinstance(arm.engine, ComposeEngine):
        from audition.engines.compose import ComposeEngine as Compose  # noqa: PLC0415 - only the engines that are used

        return Compose(
            arm,
            folder,
            identity.state_dir,
            identity.run_id,
            production=production,
            production_arm=None if production else spike.production,
            secret_names=spike.secrets,
            park_beside=park_beside,
        )
    if isinstance(arm.engine, ProcessSpec):
        from audition.engines.process import ProcessEngine as Kind  # noqa: PLC0415
    else:
        from audition.engines.simulated import SimulatedEngine as Kind  # type: ignore[assignment]  # noqa: PLC0415
    return Kind(
        arm,
        folder,
        identity.state_dir,
        f"{identity.token}-{arm.name}",
        production=production,
        production_port=None if production else urlsplit(spike.production.endpoint.url).port,
        park_beside=park_beside,
    )


def other_targets(spike: Spike, engines: dict[str, Engine]) -> list[ArmTarget]:
    """Every arm but production, as the restore plan needs it."""
    return [engines[arm.name].target() for arm in spike.arms if arm.role != "production"]


def check_signatures(loaded: LoadedSpike) -> None:
    """Hypotheses name fault signatures, which the spike room cannot know. Raises BadInput with line, key path and nearest name."""
    known = sorted(signature.name for signature in shipped_signatures())
    document = read_document(loaded.source)
    problems = [
        document.problem(
            ("hypotheses", place, "refuted_by"),
            f"no fault signature is called {hypothesis.refuted_by!r}",
            nearest(hypothesis.refuted_by, known),
        )
        for place, hypothesis in enumerate(loaded.spike.hypotheses)
        if hypothesis.refuted_by not in known
    ]
    if problems:
        raise BadSpike(str(loaded.path), problems, next_step="known signatures: " + ", ".join(known))


def check(spike: Spike, engines: dict[str, Engine], reporter: Reporter) -> list[str]:
    """Say every finding and return the warnings; raise Refused when one is blocking. Touches nothing."""
    blocking: list[Finding] = []
    warnings: list[str] = []
    for arm in spike.arms:
        for finding in engines[arm.name].preflight():
            if finding.level == "blocking":
                blocking.append(finding)
            elif finding.level == "warning":
                reporter.warn(finding.text + (f" ({finding.next_step})" if finding.next_step else ""))
                warnings.append(finding.text)
    if blocking:
        raise Refused(
            blocking[0].text if len(blocking) == 1 else f"{len(blocking)} things stand in the way",
            seen="" if len(blocking) == 1 else "\n".join(finding.text for finding in blocking),
            production="untouched",
            next_step="\n".join(dict.fromkeys(finding.next_step for finding in blocking if finding.next_step)),
        )
    return warnings


def gpu_plan(spike: Spike, ledger: Path | None) -> GpuPlan:
    """Where GPU memory is read: the simulated ledger, nvidia-smi, or nowhere when the spike names no GPU. Raises Refused."""
    if ledger is not None:
        plan = GpuPlan("ledger", spike.gpus or [0], str(ledger), {}, spike.restore.gpu_tolerance_mib, spike.restore.gpu_settle)
    elif spike.gpus:
        plan = GpuPlan("nvidia-smi", spike.gpus, "", {}, spike.restore.gpu_tolerance_mib, spike.restore.gpu_settle)
    else:
        return GpuPlan("none")
    try:
        read_usage(plan)
    except WaybackError as cause:
        raise Refused(
            f"the spike names GPUs {spike.gpus}, but their memory cannot be read",
            seen=str(cause),
            production="untouched",
            next_step="install nvidia-smi, or remove `gpus` from the spike file to run without watching GPU memory",
        ) from cause
    return plan


@dataclass(frozen=True)
class Sidecars:
    """Sidecars to stop for the window, and what is to be said about the others."""

    plans: list[SidecarPlan]
    said: list[str]


def find_interfering(spike: Spike, engines: dict[str, Engine]) -> Sidecars:
    """Containers that could restart production's server. Raises Refused when the spike says ``sidecars: refuse``."""
    production = spike.production
    if not isinstance(production.engine, ComposeEngine) or spike.sidecars == "ignore":
        return Sidecars([], [])
    from audition.engines.sidecars import find_sidecars  # noqa: PLC0415 - only for containers

    target = engines[production.name].target().container
    if target is None:
        raise InternalError(f"{production.name} is no container")
    try:
        plans = find_sidecars(target.docker, target.docker_env, target.container_id)
    except WaybackError as cause:
        raise Refused(f"sidecars cannot be looked for: {cause}", production="untouched") from cause
    if plans and spike.sidecars == "refuse":
        raise Refused(
            "sidecars could restart the server in the window",
            seen="\n".join(f"{plan.name}: {plan.why}" for plan in plans),
            production="untouched",
            next_step="stop them, or set `sidecars: stop` in the spike file",
        )
    return Sidecars(plans, [f"sidecar {plan.name} will be stopped for the window: {plan.why}" for plan in plans])


def secret_values(spike: Spike, engines: Iterable[Engine], environ: Mapping[str, str]) -> list[str]:
    """Values that must appear in no record: API keys, the spike's ``secrets``, variables whose names speak of keys."""
    found = {engine.endpoint.api_key for engine in engines}
    wanted = set(spike.secrets) | {arm.endpoint.api_key_env for arm in spike.arms if arm.endpoint.api_key_env}
    wanted |= secret_names(spike.window, spike.agreement)
    for engine in engines:
        found |= _in_arguments(engine.invocation().argv)
    for variables in (environ, *(engine.invocation().variables for engine in engines)):
        found |= {value for name, value in variables.items() if name in wanted or SECRET_NAME.search(name)}
    return sorted(value for value in found if value and len(value) >= _SHORTEST_SECRET)


def secret_values_if_known(spike: Spike, engines: Mapping[str, Engine], environ: Mapping[str, str]) -> list[str]:
    """The same before anything is checked: an arm that cannot be looked at yet adds nothing."""
    found: set[str] = set()
    for engine in engines.values():
        with contextlib.suppress(AuditionError, WaybackError, OSError):
            found |= set(secret_values(spike, [engine], environ))
    return sorted(found)


def _in_arguments(argv: list[str]) -> set[str | None]:
    """Values of options whose names speak of keys: ``--hf-token VALUE``, ``--api-key=VALUE``."""
    found: set[str | None] = set()
    for before, word in zip(["", *argv], argv, strict=False):
        flag, equals, value = word.partition("=")
        if equals and flag.startswith("-") and SECRET_NAME.search(flag):
            found.add(value)
        elif before.startswith("-") and "=" not in before and SECRET_NAME.search(before) and not word.startswith("-"):
            found.add(word)
    return {value for value in found if value and not value.isdigit()}


def public_spike(spike: Spike, secrets: list[str]) -> str:
    """The spike as it was run, as JSON without secrets: what ``judge`` reads again. Values of secret variables become ``***``."""
    data = spike.model_dump(mode="json")
    for arm in data["arms"]:
        variables = arm["engine"].get("env") or {}
        for name in variables:
            if name in spike.secrets or SECRET_NAME.search(name):
                variables[name] = MASK
    return mask(json.dumps(data, indent=1, ensure_ascii=False), secrets) + "\n"
