"""What to say about an option that a version does not have: when it came, when it went, what replaced it, what was meant.

All of it is computed over the tables of all versions.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from audition.profile.finding import Finding
from audition.profile.flag import Flag, FlagTable
from audition.profile.tables import Life, tables
from audition.units import NoData

NEAR = 0.75
"""From this similarity on (`difflib` ratio, 0 to 1) another name is offered. A choice: a wrong offer costs more than none."""
_NAMED = re.compile(r"`?(--[a-z0-9][a-z0-9.-]*[a-z0-9])|(?:use|by) `?([a-z][a-z0-9]*(?:_[a-z0-9]+)+)`?", re.IGNORECASE)


@dataclass(frozen=True)
class Replacement:
    """What stands for an option that is gone. ``told``: the source named it; else it is the likeliest of those that came."""

    form: str
    told: bool


def about_unknown(option: str, table: FlagTable) -> Finding:
    """The finding for an option that the version does not know; always blocking, since vLLM then starts no server."""
    every = tables()
    life = every.life(option)
    if isinstance(life, Life):
        return _known_elsewhere(option, life, table)
    near = nearest(option, table)
    span = f"{every.versions[0]} to {every.versions[-1]}"
    text = f"vLLM {table.version} has no {option}, nor has any version from {span}; it refuses to start"
    return Finding("blocking", "unknown-flag", text, f"did you mean {near}?" if near else f"take {option} out")


def about_choice(flag: Flag, text: str, table: FlagTable) -> str:
    """In which versions an argument accepts a value that this one refuses."""
    every = tables()
    life = every.life_of_choice(flag.name, text)
    if isinstance(life, NoData):
        return f"; nor does any version from {every.versions[0]} to {every.versions[-1]}"
    return f" in vLLM {table.version}; {every.told(life, table.version)}"


def nearest(option: str, table: FlagTable) -> str:
    """The option of the version that is written most like this one; empty where none is near."""
    close = difflib.get_close_matches(option, list(table.spellings), n=1, cutoff=NEAR)
    return close[0] if close else ""


def _known_elsewhere(option: str, life: Life, table: FlagTable) -> Finding:
    every = tables()
    had, again = every.before(life, table.version), every.after(life, table.version)
    if not had:
        text = f"vLLM {table.version} has no {option}: it is known from {again} on; this version refuses to start"
        return Finding("blocking", "unknown-flag", text, f"take {option} out, or use vLLM {again} or newer")
    gone = every.versions[every.versions.index(had) + 1]
    text = f"vLLM {table.version} has no {option}: it was dropped in {gone} ({had} was the last to have it)"
    text += f" and is known again from {again} on" if again else ""
    replacement = replaced_by(option, table)
    if replacement is None:
        return Finding("blocking", "unknown-flag", f"{text}; this version refuses to start", f"take {option} out")
    named = "renamed to" if replacement.told else "probably replaced by"
    return Finding(
        "blocking",
        "unknown-flag",
        f"{text}, {named} {replacement.form}; this version refuses to start",
        f"write {replacement.form}",
    )


def replaced_by(option: str, table: FlagTable) -> Replacement | None:
    """What took the place of an option that went before ``table``'s version, if the version has it.

    Named by the source's own words about its going; else the option that came while it existed, or with its going, and whose words
    are the same but for ``enable``, ``disable`` and ``no``; else the key of a JSON argument that its last words spell.
    """
    every = tables()
    life = every.life(option)
    had = "" if isinstance(life, NoData) else every.before(life, table.version)
    if isinstance(life, NoData) or not had:
        return None
    flag = every.table(had).spellings[option]
    for form in _told(flag):
        if form.split(".")[0] in table.spellings and form.split(".")[0] not in flag.forms:
            return Replacement(form, told=True)
    return _alike(option, flag, table, (life.since, had)) or _as_key(option, table)


def _told(flag: Flag) -> list[str]:
    return [long or f"--{field.replace('_', '-')}" for long, field in _NAMED.findall(flag.deprecated)]


def _alike(option: str, flag: Flag, table: FlagTable, existed: tuple[str, str]) -> Replacement | None:
    every = tables()
    first_without = every.versions.index(existed[1]) + 1
    meant = _meaning(option)
    for form, other in sorted(table.spellings.items()):
        came = every.life(form)
        if isinstance(came, NoData) or not form.startswith("--") or set(other.forms) & set(flag.forms):
            continue
        new = every.versions.index(existed[0]) < every.versions.index(came.since) <= first_without
        if new and _meaning(form) == meant and other.kind in {flag.kind, "bool", "switch"}:
            return Replacement(form, told=False)
    return None


def _as_key(option: str, table: FlagTable) -> Replacement | None:
    """A key of a JSON argument that at least two of the option's last words spell in full, as ``--eplb-config.window_size``."""
    words = option.lstrip("-").split("-")
    for start in range(len(words) - 1):
        key = "_".join(words[start:])
        holders = [f.name for f in table.flags.values() if f.config and key in table.configs[f.config].keys]
        if len(holders) == 1:
            return Replacement(f"{holders[0]}.{key}", told=False)
    return None


def _meaning(option: str) -> tuple[bool, frozenset[str]]:
    """Whether an option turns something off, and the words that say what."""
    words = option.lstrip("-").split("-")
    off = (words.count("no") + words.count("disable")) % 2 == 1
    return off, frozenset(words) - {"no", "disable", "enable"}
