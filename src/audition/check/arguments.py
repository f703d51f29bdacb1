"""Rules about vLLM's arguments: what each arm's version makes of them, what is the default anyway, interactions on record. Pure.

What the arguments mean is known to ``audition.profile``; here its findings are weighed: production runs with its own, so they block
nothing, and neither does what rests on an assumption.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from audition.check.asked import asked_of
from audition.check.facts import ArmFacts, Facts
from audition.check.finding import Contrast, Finding, Group, Level, Row
from audition.check.numbers import share, whole
from audition.check.versions import known_as_hybrid
from audition.checkpoint.facts import Facts as Checkpoint
from audition.profile.arguments import Parsed, parse
from audition.profile.difference import defaults_given, difference
from audition.profile.finding import Finding as ProfileFinding
from audition.profile.interactions import ModelFacts, interactions
from audition.profile.speculation import speculation_of
from audition.profile.tables import table
from audition.profile.values import too_deep
from audition.units import NoData

_SAID_ELSEWHERE = {"kv-size-formula"}
"""Interactions that another rule of this room says with more knowledge of both arms."""
_COUNTS = (
    "--max-model-len",
    "--tensor-parallel-size",
    "--pipeline-parallel-size",
    "--data-parallel-size",
    "--max-num-seqs",
    "--max-num-batched-tokens",
    "--kv-cache-memory-bytes",
)
_SHARE = "--gpu-memory-utilization"
_CERTAIN = ("as told", "the running server", "from the tag", "from a label", "from the package")


def about_arguments(facts: Facts) -> Iterator[Finding]:
    """Each arm's arguments by the table of its version."""
    for arm in facts.arms:
        if isinstance(arm.arguments, NoData):
            yield Finding(
                "arguments", "warning", "arguments-unknown", arm.name, f"its arguments are not known: {arm.arguments.reason}"
            )
            continue
        if any(too_deep(word) for word in arm.arguments):
            text = "a value of its arguments is JSON nested too deeply to be understood, so they count as none in what follows"
            level: Level = "warning" if arm.role == "production" or arm.assumed else "blocking"
            yield Finding("arguments", level, "value-not-understood", arm.name, text, "write the JSON with fewer brackets")
        if isinstance(arm.version, NoData):
            text = f"its vLLM is not known, so its arguments were not judged: {arm.version.reason}"
            yield Finding("arguments", "warning", "version-unknown", arm.name, text)
            yield from _not_understood(arm, asked_of(arm.arguments))
            continue
        parsed = parse(arm.arguments, table(arm.version))
        yield Finding("arguments", "ok", "version", arm.name, f"vLLM {arm.version} ({arm.version_from})")
        yield from _judged(facts, arm, parsed)


def _not_understood(arm: ArmFacts, read: Mapping[str, str]) -> Iterator[Finding]:
    """Figures that no version takes, said where no table of a version can say it; the reckoning goes on with the defaults."""
    left = ("-1", "auto")
    odd = [name for name in _COUNTS if (text := read.get(name, "-1")) not in left and whole(text, suffixes=True) is None]
    if share(read.get(_SHARE, "1")) is None:
        odd.append(_SHARE)
    for name in odd:
        said = f"{name}: the value {read[name][:60]!r} is not understood"
        yield Finding("arguments", "warning", "value-not-understood", arm.name, said, f"write {name} as a number")


def parsed_of(arm: ArmFacts) -> Parsed | NoData:
    """An arm's arguments as its version understands them."""
    if isinstance(arm.arguments, NoData):
        return arm.arguments
    if isinstance(arm.version, NoData):
        return arm.version
    return parse(arm.arguments, table(arm.version))


def _judged(facts: Facts, arm: ArmFacts, parsed: Parsed) -> Iterator[Finding]:
    assert isinstance(arm.version, str)
    yield from _weighed(arm, "arguments", parsed.findings)
    if arm.role != "production":
        for change in defaults_given(parsed, hybrid=hybrid(arm)):
            if not change.addresses:
                yield Finding("arguments", "ok", "default-given", arm.name, change.text)
    asked = speculation_of(parsed)
    if asked is not None:
        yield from _weighed(arm, "speculation", asked.findings)
    if arm.role == "production":
        return  # it lives with its interactions every day
    found = interactions(parsed, _model(facts, arm), arm.version, environment=arm.variables)
    yield from _weighed(arm, "speculation", [each for each in found if each.code not in _SAID_ELSEWHERE])


def _weighed(arm: ArmFacts, group: Group, found: Sequence[ProfileFinding]) -> Iterator[Finding]:
    for each in found:
        level: Level = each.level
        text = each.text
        if level == "blocking" and arm.role == "production":
            level, text = "warning", f"{text}. It runs so, or its vLLM is another one than {arm.version}"
        elif level == "blocking" and (arm.assumed or not arm.version_from.startswith(_CERTAIN)):
            level, text = "warning", f"{text}. This rests on an assumption ({arm.version_from})"
        yield Finding(group, level, each.code, arm.name, text, each.hint, each.reference)


def hybrid(arm: ArmFacts) -> bool | NoData:
    """Whether an arm's model mixes attention with recurrent layers: by its checkpoint, else by a name that is known for it."""
    if isinstance(arm.checkpoint, Checkpoint):
        return arm.checkpoint.shape.hybrid
    if not isinstance(arm.arguments, NoData) and known_as_hybrid(asked_of(arm.arguments).get("--model", "")):
        return True
    return NoData("no checkpoint was read")


def _model(facts: Facts, arm: ArmFacts) -> ModelFacts:
    """What is known of the model. MTP layers are left to the rules about checkpoints where there is one."""
    capability = _capability(facts)
    if not isinstance(arm.checkpoint, Checkpoint):
        kind = hybrid(arm)
        return ModelFacts(hybrid=kind, gdn=kind, compute_capability=capability)
    shape = arm.checkpoint.shape
    method = arm.checkpoint.quantisation.method
    return ModelFacts(
        model_type=shape.model_type,
        hybrid=shape.hybrid,
        gdn=not isinstance(shape.linear, NoData),
        quantisation="" if arm.checkpoint.quantisation.none else method,
        max_model_len=shape.max_context,
        compute_capability=capability,
    )


def _capability(facts: Facts) -> float | NoData:
    if facts.machine is None or isinstance(facts.machine.gpus, NoData):
        return NoData("no GPU was looked at")
    known = [
        gpu.capability for gpu in facts.machine.gpus if gpu.index in facts.spike.gpus and not isinstance(gpu.capability, NoData)
    ]
    if not known:
        return NoData("no GPU of the spike was looked at")
    major, minor = min(known)
    return float(f"{major}.{minor}")


def by_version(facts: Facts, found: Contrast) -> Contrast:
    """The contrast without what is a version's default anyway, and with defaults that the two versions do not share."""
    ours, theirs = parsed_of(facts.candidate), parsed_of(facts.production)
    if found.unknown or isinstance(ours, NoData) or isinstance(theirs, NoData):
        return found
    changes = difference(ours, theirs, hybrid=hybrid(facts.candidate))
    idle = {change.flag for change in changes if change.kind == "default-given"}
    rows = [row for row in found.rows if row.what not in idle]
    named = {row.what for row in rows}
    rows += [
        Row(change.flag, f"{change.left} (default)", f"{change.right} (default)")
        for change in changes
        if change.kind == "default-differs" and change.counts and change.flag not in named
    ]
    left = [row.what for row in rows]
    return replace(found, rows=tuple(rows), trial=found.trial if found.trial in left else left[0] if len(left) == 1 else "")
