"""What two command lines do not share, as people would say it: what was given, what the versions' defaults make of the rest.

Pure. Which of the differences is on trial is not decided here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from audition.profile.arguments import Parsed, Setting
from audition.profile.prefix_caching import FLAG as PREFIX_CACHING
from audition.profile.prefix_caching import default_prefix_caching
from audition.units import NoData

ChangeKind = Literal["differs", "only-left", "only-right", "default-given", "default-differs"]
SECRET = frozenset({"--api-key", "--hf-token", "--ssl-keyfile"})
"""Arguments whose values are never shown."""
ADDRESS = frozenset({
    "--host", "--port", "--api-key", "--hf-token", "--served-model-name", "--uds", "--root-path", "--ssl-keyfile", "--ssl-certfile",
    "--ssl-ca-certs", "--allowed-origins", "--allowed-methods", "--allowed-headers", "--uvicorn-log-level", "--download-dir",
})  # fmt: skip
"""Arguments that say where and as whom the server answers: they do not change how fast or how well."""
_MODEL = "model"


@dataclass(frozen=True)
class Change:
    """One argument in which two command lines differ.

    ``kind``: *differs*, both give it; *only-left*, *only-right*: one gives it, and the other's default is another or not known;
    *default-given*: one gives what is its version's default, so it changes nothing; *default-differs*: nobody gives it, and the
    versions have different defaults. ``left`` and ``right``: as each has it, in words. ``text``: one plain sentence. ``addresses``:
    it says where the server answers, not how well.
    """

    flag: str
    kind: ChangeKind
    left: str
    right: str
    text: str
    addresses: bool = False

    @property
    def counts(self) -> bool:
        """Whether it can change a measurement."""
        return self.kind != "default-given" and not self.addresses


def difference(left: Parsed, right: Parsed, *, hybrid: bool | NoData | None = None) -> list[Change]:
    """Every argument in which two command lines differ, in order of name.

    ``hybrid``: whether the model mixes attention with recurrent layers, on which the default of prefix caching depends. An argument
    that both give with the same value is left out, even where it is a default.
    """
    kind: bool | NoData = NoData("nobody looked at the model") if hybrid is None else hybrid
    changes = list(_model_change(left, right))
    names = set(left.settings) | set(right.settings) | _defaults_apart(left, right)
    for name in sorted(names - {"--model"}):
        if change := _change(name, left, right, kind):
            changes.append(change)
    return changes


def defaults_given(parsed: Parsed, *, hybrid: bool | NoData | None = None) -> list[Change]:
    """The arguments of one command line that give what its version's default is anyway, in order of name."""
    kind: bool | NoData = NoData("nobody looked at the model") if hybrid is None else hybrid
    found = []
    for name, setting in sorted(parsed.settings.items()):
        if _is_default(setting, parsed, kind):
            shown = _shown(name, setting.value)
            found.append(Change(name, "default-given", shown, shown, _default_text(setting, parsed), name in ADDRESS))
    return found


def _model_change(left: Parsed, right: Parsed) -> Iterator[Change]:
    one = left.model if isinstance(left.model, str) else "(not known)"
    two = right.model if isinstance(right.model, str) else "(not known)"
    if one != two:
        yield Change(_MODEL, "differs", one, two, f"the model is {one} on one side and {two} on the other")


def _defaults_apart(left: Parsed, right: Parsed) -> set[str]:
    """Arguments of both versions whose parser defaults differ; those made while starting cannot be compared."""
    if left.table.version == right.table.version:
        return set()
    shared = set(left.table.flags) & set(right.table.flags)
    return {n for n in shared if left.table.flags[n].default != right.table.flags[n].default} | {PREFIX_CACHING}


def _default(name: str, parsed: Parsed, hybrid: bool | NoData) -> Any | NoData:
    if name == PREFIX_CACHING:
        return default_prefix_caching(parsed.table, hybrid)
    flag = parsed.table.flags.get(name)
    return NoData(f"vLLM {parsed.table.version} has no {name}") if flag is None else flag.default


def _is_default(setting: Setting, parsed: Parsed, hybrid: bool | NoData) -> bool:
    default = _default(setting.flag.name, parsed, hybrid)
    return not isinstance(default, NoData) and default is not None and _same(default, setting.value)


def _same(one: Any, two: Any) -> bool:
    return bool(one == two) and isinstance(one, bool) == isinstance(two, bool)


def _default_text(setting: Setting, parsed: Parsed) -> str:
    version, name = parsed.table.version, setting.flag.name
    where = f"{version} for this kind of model" if name == PREFIX_CACHING else version
    return f"{setting.spelled} is given, and is the default of vLLM {where} anyway: it changes nothing"


def _change(name: str, left: Parsed, right: Parsed, hybrid: bool | NoData) -> Change | None:
    one, two = left.settings.get(name), right.settings.get(name)
    addresses = name in ADDRESS
    if one is None and two is None:
        return _apart(name, left, right, hybrid)
    if one is not None and two is not None:
        if _same(one.value, two.value):
            return None
        shown = _shown(name, one.value), _shown(name, two.value)
        text = _both_text(name, one.value, two.value)
        for setting, side in ((one, left), (two, right)):
            if _is_default(setting, side, hybrid):
                text += f"; {_shown(name, setting.value)} is the default of vLLM {side.table.version} anyway"
        return Change(name, "differs", *shown, text, addresses)
    given, side, other = (one, left, right) if one is not None else (two, right, left)
    assert given is not None
    elsewhere = _default(name, other, hybrid)
    own = _is_default(given, side, hybrid)
    quiet = own and not isinstance(elsewhere, NoData) and _same(elsewhere, given.value)
    mine, theirs = _shown(name, given.value), _elsewhere(name, other, elsewhere)
    ordered = (mine, theirs) if given is one else (theirs, mine)
    if quiet or (own and left.table.version == right.table.version):
        return Change(name, "default-given", *ordered, _default_text(given, side), addresses)
    kind: ChangeKind = "only-left" if given is one else "only-right"
    text = f"{given.spelled} is given on one side only ({mine}); the other has {theirs}"
    if own:
        text += f"; it is the default of vLLM {side.table.version}, but not of {other.table.version}"
    return Change(name, kind, *ordered, text, addresses)


def _apart(name: str, left: Parsed, right: Parsed, hybrid: bool | NoData) -> Change | None:
    one, two = _default(name, left, hybrid), _default(name, right, hybrid)
    if isinstance(one, NoData) or isinstance(two, NoData) or _same(one, two):
        return None
    shown = _shown(name, one), _shown(name, two)
    text = (
        f"nobody gives {name}, and its default is {shown[0]} in vLLM {left.table.version} and {shown[1]} in {right.table.version}"
    )
    return Change(name, "default-differs", *shown, text, name in ADDRESS)


def _elsewhere(name: str, parsed: Parsed, default: Any | NoData) -> str:
    if name not in parsed.table.flags:
        return f"no such argument in {parsed.table.version}"
    if default is None:
        return "nothing"
    if isinstance(default, NoData):
        return "a default that is made when the server starts"
    return f"{_shown(name, default)} by default"


def _both_text(name: str, one: Any, two: Any) -> str:
    if isinstance(one, dict) and isinstance(two, dict):
        keys = sorted(k for k in {*one, *two} if one.get(k) != two.get(k))
        parts = [
            f"{k}: {json.dumps(one[k]) if k in one else 'none'} and {json.dumps(two[k]) if k in two else 'none'}" for k in keys
        ]
        return f"{name} differs in {'; '.join(parts)}"
    return f"{name} is {_shown(name, one)} on one side and {_shown(name, two)} on the other"


def _shown(name: str, value: Any) -> str:
    if name in SECRET:
        return "(secret)"
    if isinstance(value, NoData):
        return "(not readable)"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return " ".join(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)
