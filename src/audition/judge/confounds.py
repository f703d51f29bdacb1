"""In what else two arms differ: their vLLM arguments and images. Comparing argument lists only; effects are for ``compare``.

When production and candidate differ in more than the one thing on trial, their ratio is the effect of all of it together. A control
arm (the candidate without the one thing) separates them: candidate / control is the thing itself, control / production the rest.
Seen in the field: 3 to 5 times between releases alone (vllm#57680, vllm#51663).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from audition.judge.load import LegData, RunData
from audition.spike.model import Arm, ProcessEngine, SimulatedEngine, Spike
from audition.units import NoData

NOT_SET = "not set"
MOST_NESTED = 50
"""Brackets within brackets of a JSON value; beyond that it is compared as plain text. No setting of vLLM comes near. Own choice."""
_NEUTRAL = {
    "--host", "--port", "--api-key", "--served-model-name", "--uvicorn-log-level", "--disable-log-requests",
    "--enable-log-requests", "--disable-uvicorn-access-log", "--ssl-keyfile", "--ssl-certfile",
    "--root-path", "--allowed-origins", "--chat-template",
}  # fmt: skip
"""Arguments that say where and to whom the server answers, not how fast it computes."""
_SHORT = {
    "-tp": "--tensor-parallel-size", "-pp": "--pipeline-parallel-size", "-dp": "--data-parallel-size", "-q": "--quantization",
    "-sc": "--speculative-config", "-cc": "--compilation-config", "-O": "--optimization-level",
}  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """One argument that two arms do not share, as each has it (``not set`` when it has none)."""

    flag: str
    arm: str
    reference: str


@dataclass(frozen=True)
class Contrast:
    """In what ``arm`` differs from ``reference_arm``. ``images``: both digests when they are known and differ, else empty.

    ``unknown``: why the arguments cannot be compared; then ``differences`` says nothing.
    """

    arm: str
    reference_arm: str
    differences: list[Difference]
    images: list[str]
    unknown: str = ""

    @property
    def things(self) -> int:
        """How many things differ, the image counted as one."""
        return len(self.differences) + bool(self.images)


def contrasts(run: RunData, spike: Spike) -> list[Contrast]:
    """Candidate against production first; then, for every control that ran, candidate against it and it against production."""
    production, candidate = spike.production.name, spike.candidate.name
    pairs = [(candidate, production)]
    for control in controls(run, spike):
        pairs += [(candidate, control), (control, production)]
    return [_contrast(run, spike, arm, reference) for arm, reference in pairs]


def controls(run: RunData, spike: Spike) -> list[str]:
    """The control arms that have a leg in this run."""
    ran = {leg.arm for leg in run.legs if not isinstance(leg.record, NoData)}
    return [arm.name for arm in spike.arms if arm.role == "control" and arm.name in ran]


def _contrast(run: RunData, spike: Spike, arm: str, reference: str) -> Contrast:
    legs = {name: [leg for leg in run.legs if leg.arm == name] for name in (arm, reference)}
    digests = [_digest(legs[arm]), _digest(legs[reference])]
    images = [d for d in digests if d] if all(digests) and digests[0] != digests[1] else []
    found = {name: arguments_of(spike.arm(name), legs[name]) for name in (arm, reference)}
    for name, words in found.items():
        if isinstance(words, NoData):
            return Contrast(arm, reference, [], images, f"{name}: {words.reason}")
    ours, theirs = (parse_arguments(w) if not isinstance(w, NoData) else {} for w in (found[arm], found[reference]))
    return Contrast(arm, reference, differences(ours, theirs), images)


def _digest(legs: Sequence[LegData]) -> str:
    boots = [leg.record.boot for leg in legs if not isinstance(leg.record, NoData)]
    return next((b.image_digest for b in boots if b.image_digest), "")


def arguments_of(arm: Arm, legs: Sequence[LegData]) -> list[str] | NoData:
    """The arguments with which an arm was started: as its legs recorded them, else as the spike file gives them."""
    for leg in legs:
        if not isinstance(leg.record, NoData):
            known = leg.record.facts.get("arguments")
            if isinstance(known, list) and known:
                return [str(word) for word in known]
    if isinstance(arm.engine, ProcessEngine):
        return list(arm.engine.command)
    if isinstance(arm.engine, SimulatedEngine):
        return list(arm.engine.args or arm.simulated.args)
    return NoData("its arguments were not recorded")


def differences(arm: dict[str, str], reference: dict[str, str]) -> list[Difference]:
    """The arguments in which two parsed lists differ, by name; those that cannot change the speed are left out."""
    names = sorted((arm.keys() | reference.keys()) - _NEUTRAL)
    rows = [Difference(name, arm.get(name, NOT_SET), reference.get(name, NOT_SET)) for name in names]
    return [row for row in rows if row.arm != row.reference]


def parse_arguments(words: Sequence[str]) -> dict[str, str]:
    """Arguments of ``vllm serve`` by their long names, values in one spelling: ``--a=b``, ``--a b``, ``--a_b``, ``--no-a``, JSON in
    any order, and ``--config.key value`` as part of the JSON. The model is ``--model`` whichever way it is given."""
    flat: dict[str, Any] = {}
    name, values = "", list[str]()

    def close() -> None:
        if name:
            _put(flat, name, values)

    for word in _after_serve(words):
        if word.startswith("--") or word in _SHORT:
            close()
            head, mark, value = word.partition("=")
            name, values = _SHORT.get(head, head), [value] if mark else []
        elif name or not word.startswith("-"):
            name, values = name or "--model", [*values, word]
    close()
    return {key: json.dumps(value, sort_keys=True) if isinstance(value, dict) else value for key, value in sorted(flat.items())}


def _after_serve(words: Sequence[str]) -> list[str]:
    """The part that vLLM reads: a script given to a shell is split, and what stands before ``serve`` or the module is left out."""
    if len(words) >= 3 and words[1] in ("-c", "-lc", "-ec") and words[0].rpartition("/")[2] in ("sh", "bash", "dash"):
        script = words[2].replace("\\\n", "")  # a shell joins lines there, shlex does not
        try:
            words = shlex.split(script)
        except ValueError:
            words = script.split()
    for place, word in enumerate(words):
        if word == "serve" or word.startswith("vllm.entrypoints"):
            return list(words[place + 1 :])
    first = next((place for place, word in enumerate(words) if word.startswith("-")), 0)
    return list(words[first:])


def _put(flat: dict[str, Any], name: str, values: list[str]) -> None:
    name, dot, inner = name.partition(".")
    name = name.replace("_", "-")
    if not values and name.startswith("--no-"):
        flat["--" + name.removeprefix("--no-")] = "false"
        return
    value: Any = " ".join(values) if values else "true"
    if dot:
        whole = flat.get(name)
        flat[name] = {**(whole if isinstance(whole, dict) else {}), inner: _scalar(value)}
        return
    try:
        parsed = _json(value)
    except ValueError:
        parsed = None
    flat[name] = parsed if isinstance(parsed, dict) else value


def _scalar(text: str) -> Any:
    try:
        return _json(text)
    except ValueError:
        return text


def _json(text: str) -> Any:
    """A JSON value. Raises ValueError when it is none, or is nested so deeply that reading it could exhaust the stack."""
    depth = 0
    for sign in text:
        depth += (sign in "[{") - (sign in "]}")
        if depth > MOST_NESTED:
            raise ValueError("nested too deeply")
    return json.loads(text)
