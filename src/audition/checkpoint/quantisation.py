"""How a checkpoint is quantised and which modules are kept out of it, from its quantisation config as a dict. Pure.

The config stands in config.json (``quantization_config``, older ``compression_config``) or in a file of its own. Each method has
its own way to name what is left alone: AWQ and bitsandbytes by a part of the name, FP8 by the whole name, compressed-tensors by
the whole name or ``re:`` and a regular expression, GPTQ by ``dynamic`` with ``-:`` and a regular expression, ModelOpt by
wildcards. Source: the quantisation configs in vLLM's ``model_executor/layers/quantization``.

What must not live here: files, and whether a GPU can run it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Literal

from audition.checkpoint.pattern import Weight, weight
from audition.units import NoData

UNQUANTISED = "none"
RULES_LIMIT = 100_000
REGEX_LIMIT = 4_000  # regular expressions that are compiled; published configs have up to some hundred
WILDCARDS_LIMIT = 16  # of one entry; fnmatch does not go back over a star once the next part is found
NAME_LIMIT = 512  # characters of a module's name that is compared; published names have some 100
WORK_LIMIT = 2_000_000  # microseconds of comparing rules with modules, roughly. Own choice
RuleKind = Literal["contains", "exact", "regex", "wildcard"]


@dataclass(frozen=True)
class Rule:
    """One entry of an ignore list, with the way in which its method compares it."""

    kind: RuleKind
    text: str

    def microseconds(self, length: int) -> int:
        """What one comparison with a name of that many characters takes at most, roughly."""
        if self.kind == "wildcard":
            return Weight(min(2, self.text.count("*"))).microseconds(length)
        found = weight(self.text) if self.kind == "regex" else None
        return 1 if found is None else found.microseconds(length)

    def matches(self, module: str) -> bool:
        """Whether the rule names this module. A whole name also names what lies below it."""
        if self.kind == "contains":
            return self.text in module
        if self.kind == "wildcard":
            return fnmatchcase(module, self.text)
        if self.kind == "regex":
            return _compiled(self.text).match(module) is not None
        return module == self.text or module.startswith(self.text + ".")


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    """The pattern compiled once; one that no bound can be given for never matches (``unreadable`` names it)."""
    return re.compile(r"(?!)" if weight(pattern) is None else pattern)


@dataclass(frozen=True)
class Quantisation:
    """``method`` as the checkpoint calls it, or ``none``. ``bits``: of a weight. ``kv_cache_fp8``: it asks for an FP8 KV cache.

    ``targets``: rules that name what is quantised, when the method names it; empty means every linear layer not in ``ignored``.
    """

    method: str
    layout: str
    bits: int | NoData
    group_size: int | NoData
    block: tuple[int, int] | NoData
    ignored: tuple[Rule, ...] = ()
    targets: tuple[Rule, ...] = ()
    kv_cache_fp8: bool = False
    unreadable: tuple[str, ...] = ()

    @property
    def none(self) -> bool:
        """Whether the checkpoint is not quantised."""
        return self.method == UNQUANTISED

    def comparable(self, modules: Sequence[str]) -> bool:
        """Whether these modules can be compared with all rules within a second or two."""
        longest = min(NAME_LIMIT, max(map(len, modules), default=0))
        return 3 * len(modules) * sum(rule.microseconds(longest) for rule in (*self.ignored, *self.targets)) <= WORK_LIMIT

    def keeps_out(self, module: str) -> bool:
        """Whether a linear layer of this name is left unquantised. Names are tried with and without a leading ``model.``."""
        if len(module) > NAME_LIMIT:
            return False
        names = {module, module.removeprefix("model."), "model." + module}
        if any(rule.matches(name) for rule in self.ignored for name in names):
            return True
        return bool(self.targets) and not any(rule.matches(name) for rule in self.targets for name in names)


def read_quantisation(config: Mapping[str, Any] | None) -> Quantisation:
    """The quantisation a config states. Never raises: what cannot be understood is named in ``unreadable``."""
    if not config:
        return Quantisation(UNQUANTISED, "not quantised", NoData("not quantised"), NoData("not quantised"), NoData("not quantised"))
    if isinstance(config.get("quantization"), Mapping):  # ModelOpt's own file nests it
        config = {"quant_method": "modelopt", **config["quantization"]}
    method = str(config.get("quant_method") or ("bitsandbytes" if "load_in_4bit" in config else "unknown")).lower()
    bits, group, scheme = _numbers(method, config)
    block = _block(config)
    ignored, broken = _checked(_ignored(method, config))
    targets, broken_targets = _checked(_targets(config) if method == "compressed-tensors" else [])
    kv = config.get("kv_cache_scheme") or config.get("kv_cache_quant_algo")
    return Quantisation(
        method=method,
        layout=_layout(method, bits, group, block, scheme),
        bits=bits,
        group_size=group,
        block=block,
        ignored=ignored,
        targets=targets,
        kv_cache_fp8="fp8" in str(kv).lower() or (isinstance(kv, Mapping) and kv.get("num_bits") == 8),
        unreadable=broken + broken_targets,
    )


def _numbers(method: str, config: Mapping[str, Any]) -> tuple[int | NoData, int | NoData, str]:
    """Bits of a weight, size of a group, and the scheme's name where the method has several."""
    if method == "compressed-tensors":
        weights: Mapping[str, Any] = next(
            (group["weights"] for group in _groups(config) if isinstance(group.get("weights"), Mapping)), {}
        )
        scheme = str(config.get("format") or "")
        return _small(weights, "num_bits"), _small(weights, "group_size"), scheme
    if method == "bitsandbytes":
        four = bool(config.get("load_in_4bit"))
        return (4 if four else 8), NoData("bitsandbytes states no group"), str(config.get("bnb_4bit_quant_type") or "")
    if method in ("fp8", "fbgemm_fp8"):
        return 8, NoData("FP8 states no group"), str(config.get("activation_scheme") or "")
    if method.startswith("modelopt"):
        algorithm = str(config.get("quant_algo") or "")
        bits: int | NoData = 4 if "4" in algorithm else 8 if "8" in algorithm else NoData("ModelOpt names no known algorithm")
        return bits, _small(config, "group_size"), algorithm
    if method in ("mxfp4", "gpt_oss_mxfp4"):
        return 4, 32, ""  # OCP Microscaling formats: blocks of 32 elements share a scale
    return _small(config, "bits", "w_bit"), _small(config, "group_size", "q_group_size"), str(config.get("version") or "")


def _small(config: Mapping[str, Any], *keys: str) -> int | NoData:
    for key in keys:
        value = config.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 65_536:
            return value
    return NoData(f"the quantisation config does not state {' or '.join(keys)}")


def _block(config: Mapping[str, Any]) -> tuple[int, int] | NoData:
    block = config.get("weight_block_size")
    if isinstance(block, list) and len(block) == 2 and all(isinstance(side, int) and 0 < side <= 65_536 for side in block):
        return block[0], block[1]
    return NoData("the quantisation config states no weight_block_size")


def _layout(method: str, bits: int | NoData, group: int | NoData, block: tuple[int, int] | NoData, scheme: str) -> str:
    """The layout in plain words: ``compressed-tensors pack-quantized, 4 bit, groups of 32``."""
    names = {"awq": "AWQ", "gptq": "GPTQ", "fp8": "FP8", "modelopt": "ModelOpt", "mxfp4": "MXFP4"}
    parts = [" ".join(part for part in (names.get(method, method), scheme) if part)]
    if not isinstance(bits, NoData):
        parts.append(f"{bits} bit")
    if not isinstance(group, NoData):
        parts.append(f"groups of {group}")
    if not isinstance(block, NoData):
        parts.append(f"blocks of {block[0]} x {block[1]}")
    return ", ".join(parts)


def _ignored(method: str, config: Mapping[str, Any]) -> list[Rule]:
    """The ignore list of any method, each entry with its method's way of comparing."""
    if method == "compressed-tensors":
        return [_named(text) for text in _texts(config.get("ignore"))]
    if method.startswith("modelopt"):
        texts = [*_texts(config.get("exclude_modules")), *_texts(config.get("ignore"))]
        return [Rule("wildcard", text if "*" in text else text + "*") for text in texts]
    rules: list[Rule] = []
    dynamic = config.get("dynamic")
    if isinstance(dynamic, Mapping):
        rules += [Rule("regex", text[2:]) for text in _texts(list(dynamic)) if text.startswith("-:")]
    kind: RuleKind = "exact" if method in ("fp8", "fbgemm_fp8") else "contains"
    for key in ("modules_to_not_convert", "ignored_layers", "llm_int8_skip_modules", "ignore"):
        rules += [_named(text) if text.startswith("re:") else Rule(kind, text) for text in _texts(config.get(key))]
    extra = config.get("extra_config")  # AutoRound: bits of 16 and more mean left alone
    if isinstance(extra, Mapping):
        left = [str(name) for name, value in extra.items() if isinstance(value, Mapping) and int_or(value.get("bits"), 0) >= 16]
        rules += [Rule("regex" if set(name) & set("*^$[(\\") else "contains", name) for name in left]
    return rules


def int_or(value: Any, otherwise: int) -> int:
    """``value`` when it is a whole number, else ``otherwise``."""
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def _named(text: str) -> Rule:
    return Rule("regex", text[3:]) if text.startswith("re:") else Rule("exact", text)


def _groups(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    groups = config.get("config_groups")
    if isinstance(groups, Mapping):
        yield from (group for group in groups.values() if isinstance(group, Mapping))


def _targets(config: Mapping[str, Any]) -> list[Rule]:
    """Modules that compressed-tensors names as quantised; empty when a group's target is a class such as ``Linear``."""
    targets = [text for group in _groups(config) for text in _texts(group.get("targets"))]
    if any("." not in text and not text.startswith("re:") for text in targets):
        return []
    return [_named(text) for text in targets]


def _texts(value: Any) -> Sequence[str]:
    if isinstance(value, str):
        return [value]
    return [text for text in value[:RULES_LIMIT] if isinstance(text, str) and text] if isinstance(value, list) else []


def _checked(rules: Sequence[Rule]) -> tuple[tuple[Rule, ...], tuple[str, ...]]:
    """Rules that can be used, and the texts of those that cannot."""
    good: list[Rule] = []
    bad: list[str] = []
    for rule in rules:
        if rule.kind == "regex":
            if len(good) >= REGEX_LIMIT or weight(rule.text) is None:
                bad.append(rule.text[:80])
                continue
        elif rule.kind == "wildcard" and rule.text.count("*") > WILDCARDS_LIMIT:
            bad.append(rule.text[:80])
            continue
        good.append(rule)
    return tuple(good), tuple(bad)
