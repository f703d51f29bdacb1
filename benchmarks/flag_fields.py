"""Tells how vLLM turns one dataclass field into one command line argument, from the type hint and the default alone.

The rules are those of `get_kwargs` in vllm/engine/arg_utils.py. They changed between versions; which rule a version follows is
read off the source of that function (`Rules`), not off the version number.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from benchmarks.flag_interpreter import Interpreter, TypeFn
from benchmarks.flag_sources import ClassRef, Field, Hint, Module, is_dataclass, is_dict_subclass


@dataclass(frozen=True)
class Rules:
    """What differs between versions: the names that read human-readable numbers, and five branches that came later."""

    human: frozenset[str]
    human_or_auto: frozenset[str]
    sets: bool
    optional_value: bool
    open_literals: bool
    dict_subclasses: bool
    none_choice: str | None


def rules_of(module: Module) -> Rules:
    """Read the rules off the source of the module that defines ``get_kwargs``."""
    functions = {n.name: n for n in module.tree.body if isinstance(n, ast.FunctionDef)}
    compute = functions.get("_compute_kwargs") or functions["get_kwargs"]
    text = ast.unparse(compute)
    literal = ast.unparse(functions["literal_to_kwargs"])
    human: set[str] = set()
    for node in ast.walk(compute):
        if isinstance(node, ast.Set):
            human |= {e.value for e in node.elts if isinstance(e, ast.Constant) and isinstance(e.value, str)}
    auto = {
        n.comparators[0].value
        for n in ast.walk(compute)
        if isinstance(n, ast.Compare) and isinstance(n.comparators[0], ast.Constant)
    }
    compared = {str(name) for name in auto if isinstance(name, str)}
    has_auto = "human_readable_int_or_auto" in text
    return Rules(
        human=frozenset(human | (set() if has_auto else compared)),
        human_or_auto=frozenset(compared if has_auto else ()),
        sets="contains_type(type_hints, set)" in text,
        optional_value="{bool, str, type(None)}" in text,
        open_literals="metavar" in literal,
        dict_subclasses="is_dict_subclass" in text or "issubclass" in text,
        none_choice="None" if "append('None')" in text else None,
    )


def hints_of(interpreter: Interpreter, known: Field, rules: Rules) -> list[Hint]:
    """The alternatives of a field's hint, with subclasses of dict as dict where the version does so."""
    found = list(interpreter.hints.of(known.annotation, known.module))
    if rules.dict_subclasses:
        found = [Hint("dict") if h.cls and is_dict_subclass(interpreter.sources, h.cls) else h for h in found]
    return found


def keywords_of(interpreter: Interpreter, known: Field, rules: Rules) -> dict[str, Any]:
    """The keywords with which the field is added to a parser."""
    hints = hints_of(interpreter, known, rules)
    out: dict[str, Any] = {"default": interpreter.default_of(known.default, known.module), "help": known.doc}
    kinds = {h.kind for h in hints}
    nested = next((h.cls for h in hints if h.cls and is_dataclass(interpreter.sources, h.cls)), None)
    if nested is not None:
        out["type"] = TypeFn("json", cls=nested)
    elif rules.optional_value and kinds == {"bool", "str", "none"}:
        out |= {"type": TypeFn("str"), "nargs": "?", "const": True}
    elif "bool" in kinds:
        out["action"] = "BooleanOptionalAction"
    elif "literal" in kinds:
        out |= _literal(hints, rules)
    elif sequence := next((k for k in ("tuple", "list", *(["set"] if rules.sets else [])) if k in kinds), ""):
        out |= _collection(next(h for h in hints if h.kind == sequence), rules)
    else:
        out["type"] = _scalar(known.name, hints, kinds, rules)
    if "none" in kinds and "bool" not in kinds:
        out["type"] = TypeFn(out["type"].name, True, out["type"].cls)
        if "choices" in out:
            out["choices"] = [*out["choices"], rules.none_choice]
    return out


def _literal(hints: list[Hint], rules: Rules) -> dict[str, Any]:
    options = next(h for h in hints if h.kind == "literal").values
    name = {str: "str", int: "int", float: "float"}.get(type(options[0]), "custom")
    key = "known" if rules.open_literals and any(h.kind == "str" for h in hints) else "choices"
    return {"type": TypeFn(name), key: sorted(options)}


def _collection(hint: Hint, rules: Rules) -> dict[str, Any]:
    first = hint.items[0] if hint.items else (Hint("str"),)
    name = next((h.kind for h in first if h.kind in {"str", "int", "float"}), "str")
    if len(first) > 1 and any(h.kind == "str" for h in first):
        name = "str"
    out: dict[str, Any] = {"type": TypeFn(name), "nargs": "+"}
    if hint.kind == "tuple" and not any(h.kind == "ellipsis" for item in hint.items for h in item):
        out["nargs"] = len(hint.items)
    if first[0].kind == "literal":
        out |= _literal(list(first), rules)
    return out


def _scalar(name: str, hints: list[Hint], kinds: set[str], rules: Rules) -> TypeFn:
    if "int" in kinds:
        return TypeFn("human-int-or-auto" if name in rules.human_or_auto else "human-int" if name in rules.human else "int")
    if "float" in kinds:
        return TypeFn("float")
    if "dict" in kinds:
        text_too = "str" in kinds or any(h.kind in {"class", "other"} for h in hints)
        return TypeFn("json-or-text" if text_too else "json")
    return TypeFn("str")


def extra_keys(interpreter: Interpreter, cls: ClassRef) -> str:
    """What the dataclass does with a key that it does not know: ``forbid`` (an error) or ``ignore`` (silently dropped).

    A dataclass of the standard library raises TypeError; one of pydantic ignores unknown keys unless its configuration says
    ``extra="forbid"``, written at the class or inside the package's own decorator.
    """
    for decorator in cls.node.decorator_list:
        if "extra='forbid'" in ast.unparse(decorator):
            return "forbid"
    names = [ast.unparse(d.func if isinstance(d, ast.Call) else d) for d in cls.node.decorator_list]
    for name in names:
        meaning = interpreter.sources.lookup(cls.module, name.split(".")[0])
        source = getattr(meaning, "dotted", "")
        if source == "dataclasses.dataclass":
            return "forbid"
        if "pydantic" in source:
            return "ignore"
        node = getattr(meaning, "node", None)
        if node is not None and "pydantic" in "".join(
            ast.unparse(n) for n in meaning.module.tree.body if isinstance(n, ast.ImportFrom)
        ):
            body = ast.unparse(node)
            if "dataclass(" in body:
                return "forbid" if "extra='forbid'" in body else "ignore"
    return "ignore"
