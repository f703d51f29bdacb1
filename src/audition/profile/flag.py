"""The types of a version's table: one argument, the keys of a JSON argument, the whole table. Data and look-ups alone.

Where the tables come from is told in `tables`; what a command line means by them in `arguments`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, cast

from audition.units import NoData

Kind = Literal["switch", "bool", "value", "list", "append", "json", "optional", "help"]
"""switch: given or not. bool: also as ``--no-…``. list: one or more values. append: adds up. optional: may stand alone."""


@dataclass(frozen=True)
class Flag:
    """One argument of ``vllm serve``.

    ``name``: its first long form, or a bare word for the positional one. ``also``: further forms. ``inverse``: forms that turn a
    bool off, beside the ``--no-`` ones. ``type``: int, float, str, human-int (1k, 2M), human-int-or-auto, json, json-or-text,
    custom, or empty. ``choices``: what the parser accepts, None for anything; with ``open`` the source names more that it works out
    while running. ``known``: values that the source names without refusing others. ``none``: an empty text or ``None`` stands for
    nothing. ``default``: the parser's own; NoData where it is made while the server starts. ``config``: the dataclass whose keys a
    JSON argument has. ``deprecated``: what the source says about its going, or empty. ``source``: the file that adds it.
    """

    name: str
    kind: Kind
    type: str = ""
    also: tuple[str, ...] = ()
    inverse: tuple[str, ...] = ()
    choices: tuple[Any, ...] | None = None
    open: bool = False
    none: bool = False
    known: tuple[Any, ...] = ()
    default: object = None
    config: str = ""
    deprecated: str = ""
    source: str = ""

    @property
    def positional(self) -> bool:
        """Whether it is a bare word, not an option."""
        return not self.name.startswith("-")

    @property
    def forms(self) -> tuple[str, ...]:
        """Every way to write it, those that turn a bool off included."""
        names = (self.name, *self.also)
        negative = tuple(f"--no-{name[2:]}" for name in names if name.startswith("--")) if self.kind == "bool" else ()
        return names + negative + self.inverse

    def turns_off(self, form: str) -> bool:
        """Whether this form of a bool means off."""
        return self.kind == "bool" and form in self.forms and form not in (self.name, *self.also)

    @property
    def takes_value(self) -> bool:
        """Whether at least one word must follow."""
        return self.kind in {"value", "list", "append", "json"}


@dataclass(frozen=True)
class Key:
    """One key of a JSON argument. ``types``: bool, int, float, str, none, list, dict, literal, class, other."""

    types: frozenset[str]
    choices: tuple[Any, ...] | None = None
    default: object = None


@dataclass(frozen=True)
class Config:
    """The keys that a JSON argument knows. ``forbids_others``: an unknown key ends the server; else it is dropped silently."""

    name: str
    keys: Mapping[str, Key]
    forbids_others: bool
    source: str = ""


@dataclass(frozen=True)
class FlagTable:
    """The arguments of one released version.

    ``version``: the release that the table is of. ``asked``: what was asked for. ``exact``: whether the two are the same release;
    where not, ``note`` says in one sentence what is used instead.
    """

    version: str
    asked: str
    exact: bool
    note: str
    flags: Mapping[str, Flag]
    configs: Mapping[str, Config]
    lists: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def spellings(self) -> Mapping[str, Flag]:
        """Every form of every option, as written on a command line."""
        return {form: flag for flag in self.flags.values() if not flag.positional for form in flag.forms}

    def has(self, form: str) -> bool:
        """Whether the version knows an option written so (dashes; no value)."""
        return form in self.spellings

    @property
    def methods(self) -> tuple[str, ...] | NoData:
        """The methods of speculative decoding that the version knows."""
        config = self.configs.get("SpeculativeConfig")
        key = config.keys.get("method") if config else None
        if key is None or key.choices is None:
            return NoData(f"the source of {self.version} names no methods")
        return cast(tuple[str, ...], key.choices)

    @property
    def kv_cache_dtypes(self) -> tuple[str, ...] | NoData:
        """The values of ``--kv-cache-dtype``."""
        flag = self.flags.get("--kv-cache-dtype")
        named = (flag.choices or flag.known) if flag else ()
        if not named:
            return NoData(f"the source of {self.version} names no values of --kv-cache-dtype")
        return tuple(str(choice) for choice in named)

    @property
    def hybrid_prefix_caching(self) -> bool | NoData:
        """Whether hybrid models (attention mixed with recurrent layers) cache prefixes by default."""
        said = self.lists.get("hybrid-prefix-caching", ("unknown",))[0]
        return NoData(f"the source of {self.version} does not say") if said == "unknown" else said == "on"
