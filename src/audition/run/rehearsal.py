"""A rehearsal: the same spike, with every arm replaced by a simulated server and every wait shortened. Pure.

What is shortened is stated here in one place and repeated in the records, so that nobody takes a rehearsal for a measurement.
"""

from __future__ import annotations

from typing import Any

from audition.errors import BadInput
from audition.simulated.faults import FAULT_KINDS
from audition.spike.model import Arm, Boot, Drain, Endpoint, Restore, SimulatedEngine, Spike, Stop, Window, Workload

SHORTENED = (
    "requests a workload: two a user at most (and 3 for one user); longest answer: 40 tokens; no warm-up; "
    "boots: about a second; holds and graces: about a second; drain without commands; no window"
)
_MAX_TOKENS = 40
_BOOT_S = 0.8
_BOOT_LIMIT_S = 25.0
_SILENCE_S = 5.0

FAULT_SETTINGS: dict[str, dict[str, Any]] = {
    "die-mid-leg": {"after_requests": 12},
    "slow-boot": {"seconds": 3.0},
    "stall-stream": {"request": 6},
    "http-5xx": {"share": 0.25},
    "error-in-200": {"share": 0.25},
    "orphan-worker": {"max_s": 120.0},
}
"""Parameters of faults that suit a short run; the others keep the simulation's defaults."""


def known_faults() -> dict[str, str]:
    """Kind of fault -> one sentence. Faults are committed by the candidate."""
    return dict(FAULT_KINDS)


def rehearsed(spike: Spike, *, port: int, ledger: str, truth: str, fault: str | None) -> Spike:
    """The spike as it is rehearsed: both arms simulated on one loopback ``port``, GPU memory kept in the ``ledger`` folder.

    Raises BadInput for an unknown ``fault``.
    """
    if fault is not None and fault not in FAULT_KINDS:
        raise BadInput(f"unknown fault `{fault}`", next_step="known faults: " + ", ".join(sorted(FAULT_KINDS)))
    arms = [_arm(arm, port, ledger, truth, fault if arm.role == "candidate" else None) for arm in spike.arms]
    return spike.model_copy(
        update={
            "arms": arms,
            "workloads": [_workload(workload) for workload in spike.workloads],
            "drain": Drain(budget=min(spike.drain.budget, 5.0)),
            "sidecars": "ignore",
            "restore": Restore(hold=min(spike.restore.hold, 1.0), gpu_settle=5.0, slowest_cold_start=10.0, greedy="require"),
            "window": Window(),
        }
    )


def _arm(arm: Arm, port: int, ledger: str, truth: str, fault: str | None) -> Arm:
    settings: dict[str, Any] = {
        "boot_s": _BOOT_S,
        **arm.simulated.settings,
        "gpu_ledger": ledger,
        "truth_log": f"{truth}/{arm.name}.jsonl",
    }
    settings["boot_s"] = min(float(settings["boot_s"]), _BOOT_S)
    if fault is not None:
        settings["faults"] = [{"kind": fault, **FAULT_SETTINGS.get(fault, {})}]
    return arm.model_copy(
        update={
            "engine": SimulatedEngine(kind="simulated", args=arm.simulated.args, settings=settings),
            "endpoint": Endpoint(url=f"http://127.0.0.1:{port}", model=arm.endpoint.model),
            "boot": Boot(limit=_BOOT_LIMIT_S, silence=_SILENCE_S),
            "stop": Stop(grace=min(arm.stop.grace, 5.0)),
        }
    )


def _workload(workload: Workload) -> Workload:
    most = 3 if workload.users == 1 else 2 * workload.users
    requests = min(workload.requests or most, most)
    return workload.model_copy(
        update={
            "requests": max(requests, min(workload.users, most)),
            "duration": None,
            "max_tokens": min(workload.max_tokens, _MAX_TOKENS),
            "warmup": 0,
            "deadline": 20.0,
            "silence": 5.0,
        }
    )
