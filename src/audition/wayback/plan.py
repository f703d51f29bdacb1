"""The restore plan: all that is needed to bring production back, as plain data with a JSON form.

Written before anything is stopped, with mode 0600, because it holds production's real environment. It must be enough on its
own: no journal, no spike file, no virtual environment. No effects here.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

PLAN_VERSION = 1


@dataclass(frozen=True)
class ProcessRef:
    """Identity of a process: pid, start time in clock ticks since boot (field 22 of /proc/PID/stat), and the kernel's boot id.

    A pid alone is never an identity.
    """

    pid: int
    start_ticks: int
    boot_id: str


@dataclass(frozen=True)
class ProcessTarget:
    """A server that is a process. ``identity_file``: where launched identities are written before the exec (see ``launch``).

    ``argv``, ``env``, ``cwd`` are exactly what a start uses. ``log_file`` is appended to; where ``output_file`` and ``error_file``
    are given, standard output and errors are appended to those instead, and ``log_file`` is one of them. ``token`` is the run's
    random mark, put into the environment as AUDITION_TOKEN. ``running`` is the identity seen when the plan was made (production
    only), ``members`` all processes of it seen then. ``executable``: the file to execute, "" to look ``argv[0]`` up in the PATH of
    ``env``. ``uid``, ``gid``, ``groups``, ``umask`` and ``limits`` (name of the resource limit → soft, hard) are set before the
    start; None or empty leaves them as they are.
    """

    argv: list[str]
    env: dict[str, str]
    cwd: str
    log_file: str
    identity_file: str
    token: str
    running: ProcessRef | None = None
    executable: str = ""
    members: list[ProcessRef] = field(default_factory=list)
    uid: int | None = None
    gid: int | None = None
    groups: list[int] = field(default_factory=list)
    umask: int | None = None
    limits: dict[str, list[int]] = field(default_factory=dict)
    output_file: str = ""
    error_file: str = ""


@dataclass(frozen=True)
class ContainerTarget:
    """A server that is a container. ``docker``: the CLI with its global options, ``docker_env``: DOCKER_HOST and the like.

    Production: ``container_id`` and ``name`` as observed; ``recreate``: full argument lists tried in order when the container is
    gone. Candidates: found by ``labels`` only (audition's own labels with the run id), never by name.
    """

    docker: list[str]
    docker_env: dict[str, str]
    container_id: str
    name: str
    labels: dict[str, str]
    recreate: list[list[str]] = field(default_factory=list)
    start: list[list[str]] = field(default_factory=list)
    snapshot: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EndpointPlan:
    """Where a server answers. ``api_key`` is the key itself: plans are secret files."""

    url: str
    model: str
    api_key: str | None = None


@dataclass(frozen=True)
class Verification:
    """What counts as back. Times in seconds. ``greedy_answers``: answers recorded before the window to ``greedy_body``; a later
    answer must be one of them. Empty: none could be recorded, ``greedy_missing`` says why."""

    endpoint: EndpointPlan
    boot_limit_s: float
    silence_s: float
    hold_s: float
    greedy: Literal["require", "report"]
    greedy_body: dict[str, Any]
    greedy_answers: list[str]
    greedy_missing: str = ""


@dataclass(frozen=True)
class GpuPlan:
    """How GPU memory is read. ``source`` none: no GPU is watched. Memory in MiB."""

    source: Literal["none", "nvidia-smi", "ledger"]
    gpus: list[int] = field(default_factory=list)
    ledger_dir: str = ""
    baseline_mib: dict[str, int] = field(default_factory=dict)
    tolerance_mib: int = 256
    settle_s: float = 60.0


@dataclass(frozen=True)
class ParkTarget:
    """How a server is parked, should it be parked: see ``park``. ``processes``: those to park; empty: looked for among its members.

    ``lock_s``, ``move_s``: limits in seconds of one lock and of one checkpoint or restore (60 GB take about 40 s).
    """

    parker: Literal["cuda", "stop"]
    processes: list[ProcessRef] = field(default_factory=list)
    lock_s: float = 60.0
    move_s: float = 600.0


@dataclass(frozen=True)
class ArmTarget:
    """One arm that can be started and stopped: exactly one of ``process`` and ``container`` is set. ``park``: it may be parked."""

    arm: str
    stop_grace_s: float
    port: int
    process: ProcessTarget | None = None
    container: ContainerTarget | None = None
    park: ParkTarget | None = None


@dataclass(frozen=True)
class SidecarPlan:
    """A sidecar container stopped for the window; ``why``: what makes it dangerous."""

    docker: list[str]
    docker_env: dict[str, str]
    container_id: str
    name: str
    why: str


@dataclass(frozen=True)
class EntryPlan:
    """Commands that close and open the entry. ``opened`` is safe to run twice."""

    close: list[str]
    open: list[str]
    cwd: str


@dataclass(frozen=True)
class RestorePlan:
    """The whole plan. ``deadline``: Unix seconds at which restoring begins even if the runner lives, None without a window.

    ``state_dir``: this run's folder of working state; ``lock_files``: taken (flock) by whoever restores; ``manual``: what a person
    types when all else fails. ``secrets``: values that are left out of everything that restoring says or leaves behind.
    """

    run_id: str
    spike: str
    state_dir: str
    run_dir: str
    lock_files: list[str]
    fence: int
    runner: ProcessRef
    production: ArmTarget
    others: list[ArmTarget]
    sidecars: list[SidecarPlan]
    entry: EntryPlan | None
    gpu: GpuPlan
    verify: Verification
    deadline: float | None
    manual: list[str]
    secrets: list[str] = field(default_factory=list)
    version: int = PLAN_VERSION

    def to_json(self) -> str:
        """The plan as JSON text. An arm that is never parked is written as before there was parking: older versions read it."""
        data = asdict(self)
        for arm in (data["production"], *data["others"]):
            if arm["park"] is None:
                del arm["park"]
        return json.dumps(data, indent=1)

    @staticmethod
    def from_json(text: str) -> RestorePlan:
        """The plan from its JSON text. Raises ValueError, KeyError or TypeError when the text is no plan of this version."""
        data = json.loads(text)
        if data.get("version") != PLAN_VERSION:
            raise ValueError(f"restore plan of version {data.get('version')!r}, expected {PLAN_VERSION}")
        verify = data["verify"]
        return RestorePlan(
            **{
                **data,
                "runner": ProcessRef(**data["runner"]),
                "production": _arm(data["production"]),
                "others": [_arm(arm) for arm in data["others"]],
                "sidecars": [SidecarPlan(**sidecar) for sidecar in data["sidecars"]],
                "entry": EntryPlan(**data["entry"]) if data["entry"] else None,
                "gpu": GpuPlan(**data["gpu"]),
                "verify": Verification(**{**verify, "endpoint": EndpointPlan(**verify["endpoint"])}),
            }
        )


SHORTEST_SECRET = 4  # characters; shorter values would blot out ordinary words


def redact(text: str, secrets: list[str]) -> str:
    """The text without the secret values, longest first, also as JSON, ``repr`` and a lenient reading of odd bytes spell them."""
    forms: set[str] = set()
    for secret in secrets:
        if len(secret) >= SHORTEST_SECRET:
            lenient = secret.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
            with contextlib.suppress(UnicodeEncodeError):
                lenient = secret.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            forms |= {secret, json.dumps(secret)[1:-1], repr(secret)[1:-1], lenient}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, "***")
    return text


def _arm(data: dict[str, Any]) -> ArmTarget:
    process, container = data["process"], data["container"]
    if process is not None:
        running = process["running"]
        process = ProcessTarget(
            **{
                **process,
                "running": ProcessRef(**running) if running else None,
                "members": [ProcessRef(**member) for member in process["members"]],
            }
        )
    park = data.get("park")
    if park is not None:
        park = ParkTarget(**{**park, "processes": [ProcessRef(**ref) for ref in park["processes"]]})
    container = ContainerTarget(**container) if container is not None else None
    return ArmTarget(**{**data, "process": process, "container": container, "park": park})
