"""Builds synthetic runs, in memory or as run folders, from a few figures a leg. Real record formats, no shortcuts past them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from audition.judge.records import (
    EVENT_CONTENT,
    BootRecord,
    Caveat,
    LegRecord,
    ProbeRecord,
    RequestRecord,
    RunRecord,
    StreamEvent,
    WorkloadRecord,
    pack_events,
    to_json,
)
from audition.spike.model import Spike

DAY = 1_764_547_200.0  # 2025-12-01 00:00:00 UTC


def make_spike(gates: Sequence[Mapping[str, Any]], **more: Any) -> Spike:
    """A small spike with arms v2g and mtp, one workload of two users, and the given gates."""
    data: dict[str, Any] = {
        "audition": 1,
        "name": "mtp-k3",
        "question": "Does MTP beat production?",
        "arms": [
            {
                "name": name,
                "role": role,
                "engine": {"kind": "simulated"},
                "endpoint": {"url": "http://127.0.0.1:5002", "model": "qwen3.6-35b-a3b"},
                "simulated": {"args": ["--model", "acme/Model-35B"]},
            }
            for name, role in (("v2g", "production"), ("mtp", "candidate"))
        ],
        "workloads": [{"name": "users", "users": 2, "requests": 8, "max_tokens": 64}],
        "gates": list(gates),
        **more,
    }
    return Spike.model_validate(data)


@dataclass
class LegPlan:
    """One leg to build. ``rate``: tokens per second and user stream; None leaves the leg out of the folder."""

    arm: str
    rate: float | None = 100.0
    failed: int = 0
    outcome: Literal["complete", "boot-failed", "engine-died", "cut", "failed"] = "complete"
    detail: str = ""
    boot: BootRecord | None = None
    canary: bool | None = True
    canary_detail: str = "sane"
    caveats: list[Caveat] = field(default_factory=list)
    workload_caveats: list[Caveat] = field(default_factory=list)
    counters: dict[str, float] | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    complete: bool = True
    wobble: float = 0.02
    tokens: int = 60


def requests(
    rate: float, users: int, count: int, *, failed: int = 0, tokens: int = 60, per_event: int = 3, wobble: float = 0.02
) -> list[RequestRecord]:
    """A closed loop in which each stream decodes ``rate`` tokens a second, in events of ``per_event`` tokens after one of 1."""
    out: list[RequestRecord] = []
    clock = [0.0] * users
    for index in range(count):
        user = index % users
        begin = clock[user]
        if index < failed:
            clock[user] = begin + 0.05
            out.append(RequestRecord(index, user, f"p{index}", begin, begin, None, begin + 0.05, "http-error", "HTTP 500", 500))
            continue
        speed = rate * (1 + wobble * (-1) ** (index // users))
        at, left = begin + 0.1, tokens - 1
        events = [StreamEvent(begin + 0.05, 0, 0), StreamEvent(at, 1, EVENT_CONTENT)]
        while left > 0:
            step = min(per_event, left)
            at += step / speed
            left -= step
            events.append(StreamEvent(at, step, EVENT_CONTENT))
        clock[user] = at
        out.append(
            RequestRecord(
                index,
                user,
                f"p{index}",
                begin,
                begin,
                begin + 0.05,
                at,
                "ok",
                "",
                200,
                32,
                tokens,
                False,
                "length",
                pack_events(events),
            )
        )
    return out


def build_run(folder: Path, spike: Spike, legs: Sequence[LegPlan], *, run: Mapping[str, Any] | None = None) -> Path:
    """Write a run folder. ``run``: fields of run.json that differ from a complete, real run."""
    folder.mkdir(parents=True, exist_ok=True)
    record = RunRecord("mtp-k3_2025-12-01", spike.name, spike.question, False, None, "0.1.0", DAY, [leg.arm for leg in legs],
                       DAY + 3600, "complete", "", True)  # fmt: skip
    (folder / "run.json").write_text(to_json(dataclasses.replace(record, **(run or {}))))
    (folder / "restore.json").write_text('{"verified": true}\n')
    for index, plan in enumerate(legs, start=1):
        if plan.rate is not None:
            _build_leg(folder / "legs" / f"{index:02d}-{plan.arm}", index, plan, spike)
    return folder


def _build_leg(folder: Path, index: int, plan: LegPlan, spike: Spike) -> None:
    folder.mkdir(parents=True)
    boot = plan.boot or BootRecord("booted", f"boot-{index}", 120.0, True, image_digest="sha256:" + "ab" * 32)
    at = DAY + 600.0 * index
    ran = plan.outcome != "boot-failed"
    names = [w.name for w in spike.workloads] if ran else []
    leg = LegRecord(
        index, plan.arm, spike.arm(plan.arm).role, plan.outcome, plan.detail, at, at + 500, boot, names, plan.facts, plan.caveats
    )
    (folder / "leg.json").write_text(to_json(leg))
    if not ran:
        return
    probes = [ProbeRecord("canary", plan.canary, plan.canary_detail, "Paris")]
    (folder / "probes.json").write_text(json.dumps([asdict(p) for p in probes]) + "\n")
    for workload in spike.workloads:
        assert plan.rate is not None
        rows = requests(
            plan.rate, workload.users, workload.requests or 8, failed=plan.failed, wobble=plan.wobble, tokens=plan.tokens
        )
        file = f"{workload.name}.requests.jsonl"
        (folder / file).write_text("".join(r.to_line() + "\n" for r in rows))
        wall = max(r.end for r in rows)
        data = WorkloadRecord(
            workload.name,
            workload.users,
            at,
            wall,
            plan.complete,
            file,
            plan.counters,
            caveats=plan.workload_caveats,
            requests_recorded=len(rows),
        )
        (folder / f"{workload.name}.json").write_text(to_json(data))


ORDER = ("v2g", "mtp", "v2g", "mtp", "v2g")


def legs_of(rates: Sequence[float | None], **changes: LegPlan) -> list[LegPlan]:
    """Five legs in the default order with these rates; ``leg2=LegPlan(...)`` replaces one."""
    plans = [LegPlan(arm, rate) for arm, rate in zip(ORDER, rates, strict=True)]
    for name, plan in changes.items():
        plans[int(name.removeprefix("leg")) - 1] = plan
    return plans
