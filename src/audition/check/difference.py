"""In what the arms differ, which of it is on trial, and a control arm that separates the two, as text to paste. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from audition.check.asked import asked_of
from audition.check.facts import ArmFacts, Container, Facts
from audition.check.finding import Contrast, Finding, Paste, Row
from audition.judge.confounds import differences
from audition.spike.model import Arm, ComposeEngine, ProcessEngine, Spike
from audition.units import NoData

SPECULATION = "--speculative-config"
MANY_RUNS = "vllm#57680, vllm#51663"
_SECRET = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
_SHORT = {SPECULATION: "-sc"}


def contrast(facts: Facts) -> Contrast:
    """The candidate against production: arguments in one spelling, image, variables. Values of secrets are never shown."""
    ours, theirs = facts.candidate, facts.production
    for arm in (ours, theirs):
        if isinstance(arm.arguments, NoData):
            return Contrast(ours.name, theirs.name, unknown=f"the arguments of {arm.name} are not known: {arm.arguments.reason}")
    assert not isinstance(ours.arguments, NoData)
    assert not isinstance(theirs.arguments, NoData)
    found = [
        Row(row.flag, _shown(row.flag, row.arm), _shown(row.flag, row.reference))
        for row in differences(asked_of(ours.arguments), asked_of(theirs.arguments))
    ]
    trial = next((row.what for row in found if row.what == SPECULATION), found[0].what if len(found) == 1 else "")
    rows = [*_images(ours, theirs), *found, *_variables(ours.variables, theirs.variables)]
    return Contrast(ours.name, theirs.name, tuple(rows), trial)


def _images(ours: ArmFacts, theirs: ArmFacts) -> list[Row]:
    if isinstance(ours.container, NoData) or isinstance(theirs.container, NoData):
        if ours.version == theirs.version or isinstance(ours.version, NoData) or isinstance(theirs.version, NoData):
            return []
        return [Row("vLLM", ours.version, theirs.version)]
    if ours.container.image == theirs.container.image:
        return []
    return [Row("image", ours.container.image, theirs.container.image)]


def _variables(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[Row]:
    rows = []
    for name in sorted(ours.keys() | theirs.keys()):
        here, there = ours.get(name), theirs.get(name)
        if (here or "") != (there or ""):
            rows.append(Row(f"${name}", _shown(name, here), _shown(name, there)))
    return rows


def _shown(name: str, value: str | None) -> str:
    if not value:
        return "not set"
    return "set (not shown)" if _SECRET.search(name) and value != "not set" else value


def about_difference(facts: Facts, found: Contrast) -> Iterator[Finding]:
    """Confounds: whatever differs beside the one thing on trial."""
    arm = facts.candidate
    if found.unknown:
        yield Finding("arguments", "warning", "difference-unknown", arm.name, found.unknown, "docker compose config")
        return
    for one in facts.arms:
        if one.assumed:
            text = "its real arguments cannot be read here; what is said of them rests on `simulated.args`"
            yield Finding("arguments", "warning", "arguments-assumed", one.name, text, "check where docker compose is installed")
    if not found.rows:
        text = f"differs from {found.reference_arm} in nothing that can be seen: there is nothing to try"
        yield Finding("arguments", "warning", "no-difference", arm.name, text, "correct `files`, `env_files` or `command`")
        return
    others = [row.what for row in found.rows if row.what != found.trial]
    if not others:
        yield Finding("arguments", "ok", "one-difference", arm.name, f"differs from {found.reference_arm} in {found.trial} alone")
        return
    if any(a.role == "control" for a in facts.arms):
        text = f"differs from {found.reference_arm} in {len(found.rows)} things; a control arm is there to separate them"
        yield Finding("arguments", "ok", "control", arm.name, text)
        return
    trial = f"{found.trial} is on trial, but " if found.trial else ""
    text = f"{trial}{', '.join(others)} differ from {found.reference_arm}, too: their ratio is the effect of all of it together"
    hint = "add a control arm (below): candidate / control is the thing itself, control / production is the rest"
    yield Finding(
        "arguments", "warning", "confounded", arm.name, text, hint if found.trial else "change one thing at a time", MANY_RUNS
    )


def control(facts: Facts, found: Contrast) -> tuple[Paste, ...]:
    """A control arm to paste: the candidate without the one thing on trial. Empty where none is needed or none can be made."""
    others = [row for row in found.rows if row.what != found.trial]
    if not found.trial or not others or any(arm.role == "control" for arm in facts.arms):
        return ()
    arm, spec = facts.candidate, facts.spike.candidate
    if isinstance(spec.engine, ComposeEngine):
        return _of_compose(facts.spike, arm, spec, found.trial)
    data = spec.model_dump(mode="json", exclude_unset=True)
    key = "command" if isinstance(spec.engine, ProcessEngine) else "args"
    words = spec.engine.command if isinstance(spec.engine, ProcessEngine) else (spec.engine.args or spec.simulated.args)
    data["engine"] = {**data["engine"], key: without(words, found.trial)}
    return (_arm_text(facts.spike, data, found.trial),)


def _of_compose(spike: Spike, arm: ArmFacts, spec: Arm, flag: str) -> tuple[Paste, ...]:
    if isinstance(arm.container, NoData) or not isinstance(spec.engine, ComposeEngine):
        return ()
    command = arm.container.service.get("command")
    data = spec.model_dump(mode="json", exclude_unset=True)
    if not isinstance(command, list) or without(command, flag) == command:
        files = ", ".join(spec.engine.files)
        data["engine"] = {**data["engine"], "files": ["control.yml"]}
        paste = _arm_text(spike, data, flag)
        head = f"# control.yml: copy {files} and take {flag} out of its script\n"
        return (Paste(paste.name, head + paste.text),)
    import yaml  # noqa: PLC0415 - only when there is something to write

    words = _with_names(without([str(word) for word in command], flag), arm.container)
    profile = {"services": {arm.container.service_name: {"command": words}}}
    text = yaml.safe_dump(profile, sort_keys=False, allow_unicode=True, width=100, default_flow_style=None)
    data["engine"] = {**data["engine"], "files": [*spec.engine.files, "control.yml"]}
    return (Paste(f"control.yml, beside the spike file: the candidate without {flag}", text), _arm_text(spike, data, flag))


def _with_names(words: Sequence[str], container: Container) -> list[str]:
    """Secret values written as the variable that they come from; where none is known, a placeholder."""
    out: list[str] = []
    for place, word in enumerate(words):
        flag, mark, value = word.partition("=")
        before = words[place - 1] if place else ""
        if mark and flag.startswith("-") and _SECRET.search(flag):
            out.append(f"{flag}={_name_of(value, container)}")
        elif before.startswith("-") and "=" not in before and _SECRET.search(before) and not word.startswith("-"):
            out.append(_name_of(word, container))
        else:
            out.append(word)
    return out


def _name_of(value: str, container: Container) -> str:
    plain = value.replace("$$", "$")
    names = sorted(name for name, given in container.variables.items() if given == plain and given)
    named = [name for name in names if _SECRET.search(name)] or names
    return "${" + (named[0] if named else "SECRET") + "}"


def _arm_text(spike: Spike, data: dict[str, Any], flag: str) -> Paste:
    import yaml  # noqa: PLC0415 - only when there is something to write

    taken = {arm.name for arm in spike.arms}
    name = f"{data['name'][:59]}-off"
    while name in taken:
        name += "x"
    data = {**data, "name": name, "role": "control"}
    if data.get("simulated", {}).get("args"):
        data["simulated"] = {**data["simulated"], "args": shlex.join(without(data["simulated"]["args"], flag))}
    listed = yaml.safe_dump([_whole(data)], sort_keys=False, allow_unicode=True, width=100)
    body = "".join(f"  {line}\n" for line in listed.splitlines())
    p, c = spike.production.name, spike.candidate.name
    legs = f"legs: [{', '.join([p, c, name, p, c, name, p])}]\n"
    return Paste("spike.yaml: one more arm, and legs that hold it", f"arms:   # add\n{body}{legs}")


def _whole(value: Any) -> Any:
    """Plain data with whole numbers written without a point."""
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def without(words: Sequence[str], flag: str) -> list[str]:
    """The words without one option of vLLM, in each of its spellings: ``--a v``, ``--a=v``, ``--a_b``, ``--a.key v``, short."""
    out: list[str] = []
    dropping = False
    for word in words:
        head = word.partition("=")[0]
        base = head.partition(".")[0].replace("_", "-")
        if base in (flag, f"--no-{flag[2:]}") or head == _SHORT.get(flag):
            dropping = "=" not in word
            continue
        if dropping and not word.startswith("--") and not re.fullmatch(r"-[a-zA-Z]{1,3}", word):
            continue
        dropping = False
        out.append(word)
    return out
