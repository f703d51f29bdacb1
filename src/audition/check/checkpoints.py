"""Rules about checkpoints: what the room of checkpoints says of each arm's, and what cannot be said without one. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from audition.check.asked import asked_of
from audition.check.facts import ArmFacts, Facts, Unreadable
from audition.check.finding import Finding, Group, Level
from audition.check.numbers import MOST, share, whole
from audition.check.versions import known_as_hybrid
from audition.checkpoint.facts import Facts as Checkpoint
from audition.checkpoint.findings import findings
from audition.checkpoint.problem import Problem
from audition.checkpoint.serving import Serving, Speculation
from audition.units import NoData

FORMULA_CHANGED = (0, 20, 1)
"""vLLM release from which the logged KV cache size is concurrency x max-model-len (vllm#40691)."""
_SPECULATION = ("mtp", "method", "drafter", "no-drafter")
_GIB = 2**30
_MIB = 2**20


@dataclass(frozen=True)
class _Asked:
    """What an arm's arguments ask for, as far as they can be read."""

    read: Mapping[str, str]

    def number(self, flag: str) -> int | None:
        """A whole number, with vLLM's suffixes (``32k`` is 32,000, ``32K`` is 32,768); None when it is not given or is none."""
        return whole(self.read.get(flag, ""), suffixes=True)

    def share(self, flag: str, default: float) -> float:
        """A share above 0 and up to 1; ``default`` when it is not given or is none."""
        found = share(self.read.get(flag, ""))
        return default if found is None else found

    def on(self, flag: str) -> bool:
        """Whether a switch is on."""
        return self.read.get(flag) == "true"


def speculation_of(read: Mapping[str, str]) -> Speculation | None:
    """The speculation that parsed arguments ask for; None without one, or when its JSON cannot be read."""
    try:
        said = json.loads(read.get("--speculative-config", "null"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    k = said.get("num_speculative_tokens")
    model = said.get("model")
    return Speculation(str(said.get("method") or ""), k if isinstance(k, int) and 0 < k <= MOST else 1, str(model or ""))


def release(version: str | NoData) -> tuple[int, ...] | NoData:
    """A release as numbers."""
    if isinstance(version, NoData):
        return version
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def serving_of(arm: ArmFacts, read: Mapping[str, str], gpu_memory_mib: int) -> Serving:
    """How an arm serves its checkpoint, from its parsed arguments; absent ones are vLLM's defaults."""
    asked = _Asked(read)
    return Serving(
        gpu_memory_bytes=gpu_memory_mib * _MIB,
        max_model_len=asked.number("--max-model-len"),
        gpu_memory_utilization=asked.share("--gpu-memory-utilization", 0.9),
        tensor_parallel=asked.number("--tensor-parallel-size") or 1,
        pipeline_parallel=asked.number("--pipeline-parallel-size") or 1,
        expert_parallel=asked.on("--enable-expert-parallel"),
        kv_cache_dtype=read.get("--kv-cache-dtype", "auto"),
        speculation=speculation_of(read),
        prefix_caching=asked.on("--enable-prefix-caching"),
        max_num_seqs=asked.number("--max-num-seqs"),
        max_num_batched_tokens=asked.number("--max-num-batched-tokens"),
        enforce_eager=asked.on("--enforce-eager"),
        language_model_only=asked.on("--language-model-only"),
        kv_cache_memory_bytes=asked.number("--kv-cache-memory-bytes"),
        version=release(arm.version),
    )


def about_checkpoints(facts: Facts) -> Iterator[Finding]:
    """Each arm's checkpoint against what is asked of it. What production already runs with does not block."""
    for arm in facts.arms:
        if isinstance(arm.arguments, NoData):
            continue
        read = asked_of(arm.arguments)
        if isinstance(arm.checkpoint, NoData):
            yield from _unknown(arm, read, arm.checkpoint)
        elif isinstance(arm.checkpoint, Unreadable):
            yield _finding(arm, Problem("blocking", "checkpoint-unreadable", arm.checkpoint.what, arm.checkpoint.next_step))
        else:
            yield from _known(facts, arm, read, arm.checkpoint)
    yield from _two_formulas(facts)


def _known(facts: Facts, arm: ArmFacts, read: Mapping[str, str], checkpoint: Checkpoint) -> Iterator[Finding]:
    yield Finding("checkpoint", "ok", "checkpoint", arm.name, f"read {checkpoint.source}")
    memory = _gpu_memory(facts)
    if memory is None:
        found = findings(checkpoint, speculation=speculation_of(read))
    else:
        found = findings(checkpoint, serving=serving_of(arm, read, memory))
    for problem in found:
        yield _finding(arm, problem)


def _gpu_memory(facts: Facts) -> int | None:
    """MiB of the smallest GPU that the spike uses: as told, or as seen."""
    if facts.gpu_memory_mib is not None:
        return facts.gpu_memory_mib
    if facts.machine is None or isinstance(facts.machine.gpus, NoData):
        return None
    sizes = [gpu.memory_total_mib for gpu in facts.machine.gpus if gpu.index in facts.spike.gpus]
    return min(sizes, default=None)


def _finding(arm: ArmFacts, problem: Problem) -> Finding:
    group: Group = "speculation" if problem.code.startswith(_SPECULATION) else "checkpoint"
    level: Level = problem.level
    if level == "blocking" and arm.role == "production":
        level = "warning"
    return Finding(group, level, problem.code, arm.name, problem.text, problem.hint, problem.reference)


def _unknown(arm: ArmFacts, read: Mapping[str, str], why: NoData) -> Iterator[Finding]:
    speculation = speculation_of(read)
    if speculation is not None and speculation.by_mtp:
        text = (
            f"whether its checkpoint ships MTP heads is not known ({why.reason}). A quantised checkpoint without mtp.* tensors "
            "boots green and accepts no draft"
        )
        yield Finding(
            "speculation", "warning", "mtp-unknown", arm.name, text, f"audition check SPIKE --checkpoint {arm.name}=FOLDER"
        )
    elif arm.role != "production":
        text = f"its checkpoint was not looked at: {why.reason}"
        yield Finding("checkpoint", "warning", "checkpoint-unknown", arm.name, text)


def _two_formulas(facts: Facts) -> Iterator[Finding]:
    """The logged size of the KV cache of a hybrid model says one thing up to 0.20.0 and another from 0.20.1."""
    arms = [facts.production, facts.candidate]
    if not all(_hybrid(arm) for arm in arms):
        return
    released = {arm.name: release(arm.version) for arm in arms}
    certain = {name: version for name, version in released.items() if not isinstance(version, NoData)}
    old = [name for name, version in certain.items() if version < FORMULA_CHANGED]
    if not old and len(certain) == len(arms):
        return
    figures = [text for arm in arms if (text := _figure(facts, arm))]
    shown = f"the KV sizes of this spike ({' and '.join(figures)})" if len(figures) == 2 else "the logged KV sizes of the two arms"
    text = (
        f"{shown} come from two formulas, or may: of a hybrid model like this one, vLLM up to 0.20.0 logs blocks // cache groups x "
        "block size, several times too little, and from 0.20.1 on concurrency x max-model-len; a patched image may do either"
    )
    hint = "compare concurrency x max-model-len of both arms (metric kv_capacity_tokens), never the logged figure alone"
    yield Finding("checkpoint", "warning", "kv-two-formulas", facts.candidate.name, text, hint, "vllm#40691")


def _hybrid(arm: ArmFacts) -> bool:
    if isinstance(arm.checkpoint, Checkpoint):
        return arm.checkpoint.shape.hybrid
    return not isinstance(arm.arguments, NoData) and known_as_hybrid(asked_of(arm.arguments).get("--model", ""))


def _figure(facts: Facts, arm: ArmFacts) -> str:
    size = facts.spike.arm(arm.name).simulated.settings.get("kv_tokens")
    return f"{size:,} tokens of {arm.name}" if isinstance(size, int) else ""
