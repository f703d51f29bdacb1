"""What a run recorded of its surroundings: GPUs, driver, versions, image, arguments. Absent is ``NoData`` with a reason. Pure.

What is not in the records is never guessed from the spike file's prose. Wording of whole records does not live here.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from audition.judge.confounds import arguments_of
from audition.judge.result import LegResult, Result
from audition.spike.model import Arm, Spike
from audition.units import NoData

NOT_RECORDED = NoData("not recorded")
NEUTRAL = frozenset({
    "--host", "--port", "--api-key", "--served-model-name", "--uvicorn-log-level", "--ssl-keyfile", "--ssl-certfile",
    "--ssl-ca-certs", "--root-path", "--allowed-origins", "--allowed-methods", "--allowed-headers",
})  # fmt: skip
"""Arguments with a value that say where and to whom the server answers, not how fast it computes (`judge.confounds` ignores them,
too). They are private to a machine and no part of a datapoint."""


@dataclass(frozen=True)
class Environment:
    """One arm's surroundings, as its legs recorded them. ``gpus``: name and memory of each GPU, in order."""

    gpus: str | NoData
    driver: str | NoData
    engine_version: str | NoData
    torch: str | NoData
    image: str | NoData
    image_digest: str | NoData
    cpus: str | NoData


def environment_of(result: Result, arm: str, used: Sequence[int] = ()) -> Environment:
    """What the legs of one arm recorded; the first leg that says something counts. ``used``: indices of the GPUs that the spike
    uses; empty: every GPU that was seen."""
    legs = [leg for leg in result.legs if leg.arm == arm]
    digests = [leg.boot.image_digest for leg in legs if leg.boot is not None and leg.boot.image_digest]
    return Environment(
        gpus=_gpus(legs, used),
        driver=_first(legs, "driver", "driver_version", "gpu_driver"),
        engine_version=_first(legs, "engine_version"),
        torch=_first(legs, "torch", "torch_version"),
        image=_first(legs, "image"),
        image_digest=digests[0] if digests else NOT_RECORDED,
        cpus=_first(legs, "cpus"),
    )


def shared_environment(result: Result, arm: str, used: Sequence[int] = ()) -> Environment:
    """The same, where the machine's parts may come from any leg: GPUs, driver and CPUs are those of the whole run."""
    own = environment_of(result, arm, used)
    others = [environment_of(result, name, used) for name in dict.fromkeys(leg.arm for leg in result.legs)]

    def any_of(value: str | NoData, rest: Sequence[str | NoData]) -> str | NoData:
        return next((v for v in [value, *rest] if not isinstance(v, NoData)), NOT_RECORDED)

    return Environment(
        any_of(own.gpus, [o.gpus for o in others]),
        any_of(own.driver, [o.driver for o in others]),
        own.engine_version,
        own.torch,
        own.image,
        own.image_digest,
        any_of(own.cpus, [o.cpus for o in others]),
    )


def said(value: str | NoData) -> str:
    """The value, or why there is none."""
    return value.reason if isinstance(value, NoData) else value


def _places(leg: LegResult) -> list[dict[str, Any]]:
    """Where a leg keeps such facts: at the top, or under one of these names."""
    inner = [leg.facts.get(name) for name in ("environment", "host", "software")]
    return [leg.facts, *(x for x in inner if isinstance(x, dict))]


def _first(legs: Sequence[LegResult], *names: str) -> str | NoData:
    for leg in legs:
        for place in _places(leg):
            for name in names:
                value = place.get(name)
                if isinstance(value, str | int | float) and not isinstance(value, bool) and value != "":
                    return str(value)
        for gpu in _gpu_rows(leg):
            for name in names:
                if isinstance(value := gpu.get(name), str) and value:
                    return value
    return NOT_RECORDED


def _gpu_rows(leg: LegResult) -> list[dict[str, Any]]:
    for place in _places(leg):
        rows = place.get("gpus")
        if isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows):
            return rows
    return []


def _gpus(legs: Sequence[LegResult], used: Sequence[int]) -> str | NoData:
    for leg in legs:
        names = [_gpu(row) for row in _gpu_rows(leg) if not used or row.get("index", used[0]) in used]
        if names and all(names):
            kinds = list(dict.fromkeys(names))
            return ", ".join(f"{names.count(kind)} x {kind}" for kind in kinds)
    return _first(legs, "gpu")


def _gpu(row: dict[str, Any]) -> str:
    name, memory = row.get("name"), row.get("memory_total_mib")
    if not isinstance(name, str) or not name:
        return ""
    return f"{name} ({memory} MiB)" if isinstance(memory, int) and memory > 0 else name


def arguments_for(result: Result, spike: Spike, arm: str) -> list[str] | NoData:
    """The arguments with which an arm was started: as a leg recorded them, else as the spike file gives them; a rehearsal's
    are those of its simulated server."""
    for leg in (leg for leg in result.legs if leg.arm == arm):
        known = leg.facts.get("arguments")
        if isinstance(known, list) and known:
            return [str(word) for word in known]
    named: Arm | None = next((a for a in spike.arms if a.name == arm), None)
    if named is None:
        return NOT_RECORDED
    if result.rehearsal and named.simulated.args:
        return list(named.simulated.args)
    words = arguments_of(named, [])
    return NOT_RECORDED if isinstance(words, NoData) or not words else list(words)


def shell_line(words: Sequence[str]) -> str:
    """The arguments as one line that a POSIX shell reads back as the same words. Values with JSON keep their quotes."""
    return " ".join(shlex.quote(word) for word in words)


def without_neutral(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """(the arguments without those that only say where and to whom the server answers, the flags that were left out)."""
    kept: list[str] = []
    dropped: list[str] = []
    skipping = False
    for word in words:
        flag, mark, _ = word.partition("=")
        if flag.startswith("--") and flag.replace("_", "-") in NEUTRAL:
            dropped.append(flag)
            skipping = not mark
        elif word.startswith("-"):
            kept.append(word)
            skipping = False
        elif not skipping:
            kept.append(word)
    return kept, list(dict.fromkeys(dropped))
