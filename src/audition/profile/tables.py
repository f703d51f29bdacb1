"""The tables of vLLM's arguments, one a released version, read from a data file of the package.

The file is generated from the released packages by ``make flag-tables``; nothing in it is typed by hand. It stores, for each
argument, the stretches of versions in which its facts are the same. Nothing about command lines lives here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, cast

from audition.errors import BadInput
from audition.profile.flag import Config, Flag, FlagTable, Key
from audition.units import NoData

_RELEASE = re.compile(r"v?(\d+(?:\.\d+)+)(.*)")
_BEFORE_RELEASE = re.compile(r"\.?(?:a|b|rc|dev)\d*", re.IGNORECASE)


@dataclass(frozen=True)
class Life:
    """How long something exists: ``spans`` of versions, first and last included, in order, with versions that lack it in between.

    ``gone``: the first version without it after the last span.
    """

    spans: tuple[tuple[str, str], ...]
    gone: str | NoData

    @property
    def since(self) -> str:
        """The first version that has it."""
        return self.spans[0][0]

    @property
    def last(self) -> str:
        """The newest version that has it."""
        return self.spans[-1][1]


class Tables:
    """All tables. Versions are ordered from the oldest to the newest."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self._raw = raw
        self.versions: tuple[str, ...] = tuple(raw["versions"])
        self._made: dict[int, FlagTable] = {}

    def archive(self, version: str) -> str:
        """The name of the released archive that a version's table was read from."""
        return cast(str, self._raw["versions"][version]["archive"])

    def table(self, version: str) -> FlagTable:
        """The table of a version; the nearest earlier release where that one is not known, with a note that says so.

        Texts such as ``v0.19.1``, ``0.24.0+cu130`` and ``0.25.0rc1`` are understood. A pre-release gets the release it leads to, if
        that is known; a build without a tag (``0.1.dev493+g4d9600003``) gets the newest.

        Raises BadInput when the text names no version.
        """
        found = _RELEASE.fullmatch(version.strip())
        if found is None:
            raise BadInput(
                f"{version!r} names no version of vLLM",
                seen=version,
                next_step="give the version as in 0.19.1; a running server tells it at /version",
            )
        wanted, rest = _numbers(found[1]), found[2]
        if wanted < (0, 2) and "dev" in rest:
            note = (
                f"vLLM {version.strip()} was built without a release's tag; it is judged by {self.versions[-1]}, the newest table"
            )
            return self._table(len(self.versions) - 1, version.strip(), False, note)
        index = self._nearest(wanted)
        have = self.versions[index]
        exact = _numbers(have) == wanted and not _BEFORE_RELEASE.match(rest)
        return self._table(index, version.strip(), exact, "" if exact else self._note(version.strip(), wanted, have))

    def _nearest(self, wanted: tuple[int, ...]) -> int:
        earlier = [i for i, v in enumerate(self.versions) if _numbers(v) <= wanted]
        return earlier[-1] if earlier else 0

    def _note(self, asked: str, wanted: tuple[int, ...], have: str) -> str:
        if wanted < _numbers(self.versions[0]):
            return f"vLLM {asked} is older than every table; it is judged by {have}, the oldest one, and may differ from it"
        if wanted > _numbers(self.versions[-1]):
            return f"vLLM {asked} is newer than every table; it is judged by {have}, the newest one, and may differ from it"
        if wanted == _numbers(have):
            return f"vLLM {asked} comes before the release of {have}; it is judged by {have}, and may differ from it"
        return f"there is no table of vLLM {asked}; it is judged by {have}, the nearest earlier release"

    def _table(self, index: int, asked: str, exact: bool, note: str) -> FlagTable:
        base = self._made.get(index)
        if base is None:
            flags = {name: _flag(name, fact) for name, fact in self._at("flags", index)}
            configs = {name: _config(name, fact) for name, fact in self._at("configs", index)}
            lists = {name: tuple(fact) for name, fact in self._at("lists", index)}
            version = self.versions[index]
            base = self._made[index] = FlagTable(version, version, True, "", flags, configs, lists)
        if exact and asked == base.asked:
            return base
        return FlagTable(base.version, asked, exact, note, base.flags, base.configs, base.lists)

    def _at(self, part: str, index: int) -> Iterator[tuple[str, Any]]:
        for name, stretches in self._raw[part].items():
            for first, last, fact in stretches:
                if first <= index <= last:
                    yield name, fact

    def forms(self) -> Mapping[str, tuple[int, ...]]:
        """Every form of every option of every version, with the indexes of the versions that have it."""
        return _forms(self)

    def life(self, form: str) -> Life | NoData:
        """When an option written so came and went; NoData when no version has it."""
        return self._life(self.forms().get(form, ()), form)

    def life_of_method(self, method: str) -> Life | NoData:
        """When a method of speculative decoding came and went."""
        return self._life(
            self._having("SpeculativeConfig", lambda c: method in c["keys"].get("method", {}).get("choices", [])), method
        )

    def life_of_key(self, config: str, key: str) -> Life | NoData:
        """When a key of a JSON argument came and went."""
        return self._life(self._having(config, lambda c: key in c["keys"]), key)

    def life_of_choice(self, flag: str, choice: object) -> Life | NoData:
        """When a value of an argument came and went."""
        spans = self._raw["flags"].get(flag, [])
        return self._life(
            tuple(i for a, b, f in spans for i in range(a, b + 1) if choice in [*f.get("choices", ()), *f.get("known", ())]),
            str(choice),
        )

    def _having(self, config: str, test: Any) -> tuple[int, ...]:
        return tuple(i for a, b, fact in self._raw["configs"].get(config, []) for i in range(a, b + 1) if test(fact))

    def _life(self, indexes: tuple[int, ...], what: str) -> Life | NoData:
        if not indexes:
            return NoData(f"no version from {self.versions[0]} to {self.versions[-1]} has {what}")
        spans: list[list[int]] = []
        for index in sorted(indexes):
            if spans and spans[-1][1] == index - 1:
                spans[-1][1] = index
            else:
                spans.append([index, index])
        last = spans[-1][1]
        gone: str | NoData = NoData(f"{self.versions[-1]} still has it")
        if last + 1 < len(self.versions):
            gone = self.versions[last + 1]
        return Life(tuple((self.versions[a], self.versions[b]) for a, b in spans), gone)

    def before(self, life: Life, version: str) -> str:
        """The last version before this one that had it; empty where none had."""
        earlier = [last for _, last in life.spans if self.versions.index(last) < self.versions.index(version)]
        return earlier[-1] if earlier else ""

    def after(self, life: Life, version: str) -> str:
        """The first version after this one that has it; empty where none has."""
        later = [first for first, _ in life.spans if self.versions.index(first) > self.versions.index(version)]
        return later[0] if later else ""

    def told(self, life: Life, version: str) -> str:
        """In words, to a version without it: when it went and when it comes."""
        had, again = self.before(life, version), self.after(life, version)
        if not had:
            return f"it is known from {again} on"
        return f"{had} was the last to know it" + (f", and it is known again from {again} on" if again else "")


def _numbers(version: str) -> tuple[int, ...]:
    numbers = [int(part) for part in version.split(".")]
    while len(numbers) > 2 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _flag(name: str, fact: Mapping[str, Any]) -> Flag:
    made = fact.get("made")
    return Flag(
        name=name,
        kind=fact["kind"],
        type=fact.get("type", ""),
        also=tuple(fact.get("also", ())),
        inverse=tuple(fact.get("inverse", ())),
        choices=tuple(fact["choices"]) if "choices" in fact else None,
        open=fact.get("open", False),
        none=fact.get("none", False),
        known=tuple(fact.get("known", ())),
        default=NoData(f"made when the server starts: {made}") if made else fact.get("default"),
        config=fact.get("config", ""),
        deprecated=fact.get("deprecated", ""),
        source=fact["src"],
    )


def _config(name: str, fact: Mapping[str, Any]) -> Config:
    keys = {
        key: Key(frozenset(known["type"].split("|")), tuple(known["choices"]) if "choices" in known else None, known.get("default"))
        for key, known in fact["keys"].items()
    }
    return Config(name, keys, fact["extra"] == "forbid", fact["src"])


@cache
def _forms(tables: Tables) -> Mapping[str, tuple[int, ...]]:
    found: dict[str, set[int]] = {}
    for name, stretches in tables._raw["flags"].items():
        for first, last, fact in stretches:
            flag = _flag(name, fact)
            if not flag.positional:
                for form in flag.forms:
                    found.setdefault(form, set()).update(range(first, last + 1))
    return {form: tuple(sorted(indexes)) for form, indexes in found.items()}


@cache
def tables() -> Tables:
    """All tables that come with this package (read once)."""
    return Tables(json.loads((files("audition.profile") / "data" / "flags.json").read_text(encoding="utf-8")))


def table(version: str) -> FlagTable:
    """The table of one version: see `Tables.table`."""
    return tables().table(version)
