"""Follows, on the syntax tree alone, the functions of vLLM that fill a command line parser, and collects every argument.

Only what these functions do is followed: assignments, loops over known values, changes of keyword dictionaries, calls of each
other. A condition that needs the running program is taken both ways, so that an argument is never lost. How a dataclass field
becomes an argument is told by `flag_fields`.

Longer than others: one recursive interpreter, whose parts call each other.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.flag_sources import (
    EXTERNAL_VALUES,
    PURE_CALLS,
    ClassRef,
    External,
    FuncRef,
    Hints,
    Module,
    Opaque,
    Sources,
    bases,
    class_fields,
    is_dataclass,
    is_enum,
    members,
    method,
)


class ParserRef:
    """Stands for the parser and each of its groups."""


@dataclass(frozen=True)
class Member:
    """A member of an enumeration."""

    name: str
    value: Any


@dataclass(frozen=True)
class TypeFn:
    """How one argument's text becomes a value: the name of the conversion, for JSON the dataclass that it must fit."""

    name: str
    optional: bool = False
    cls: ClassRef | None = None


@dataclass(frozen=True)
class Added:
    """One call of ``add_argument``: its names, its keywords and the module that holds the call."""

    names: tuple[str, ...]
    keywords: dict[str, Any]
    module: str


@dataclass
class Frame:
    """The local names of one function that is followed."""

    module: Module
    owner: ClassRef | None
    local: dict[str, Any] = field(default_factory=dict)
    result: Any = None
    done: bool = False


FOLLOWED = {"add_cli_args", "make_arg_parser", "_customize_cli_kwargs", "subparser_init"}
"""Functions that are followed when they are called; every other call that is not pure stays opaque."""
TYPE_NAMES = {
    "json.loads": "json", "str": "str", "int": "int", "float": "float", "bool": "bool", "human_readable_int": "human-int",
    "human_readable_int_or_auto": "human-int-or-auto", "union_dict_and_str": "json-or-text", "nullable_kvs": "str",
}  # fmt: skip


class Interpreter:
    """Collects ``added`` while functions are followed; ``get_kwargs`` tells the keywords of a dataclass."""

    def __init__(self, sources: Sources, get_kwargs: Callable[[Interpreter, ClassRef], dict[str, dict[str, Any]]]) -> None:
        self.sources = sources
        self.hints = Hints(sources)
        self.get_kwargs = get_kwargs
        self.added: list[Added] = []

    # ---- functions and statements

    def call(self, function: FuncRef, arguments: list[Any], keywords: dict[str, Any] | None = None) -> Any:
        """Follow one function and give what it returns."""
        frame = Frame(function.module, function.owner)
        named = [*function.node.args.posonlyargs, *function.node.args.args]
        defaults = function.node.args.defaults
        for name, default in zip(named[len(named) - len(defaults) :], defaults, strict=True):
            frame.local[name.arg] = self.value(default, frame)
        for name, given in zip(named, arguments, strict=False):
            frame.local[name.arg] = given
        frame.local.update(keywords or {})
        self.block(function.node.body, frame)
        return frame.result

    def block(self, body: list[ast.stmt], frame: Frame) -> None:
        """Carry statements out until one returns."""
        for statement in body:
            if frame.done:
                return
            self.statement(statement, frame)

    def statement(self, node: ast.stmt, frame: Frame) -> None:
        """Carry one statement out; kinds that cannot matter for a parser are passed over."""
        if isinstance(node, ast.Assign):
            given = self.value(node.value, frame)
            for target in node.targets:
                self.assign(target, given, frame)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self.assign(node.target, self.value(node.value, frame), frame)
        elif isinstance(node, ast.AugAssign):
            joined = self.binary(node.op, self.value(_load(node.target), frame), self.value(node.value, frame), node)
            self.assign(node.target, joined, frame)
        elif isinstance(node, ast.Expr):
            self.value(node.value, frame)
        elif isinstance(node, ast.Return):
            frame.result = self.value(node.value, frame) if node.value else None
            frame.done = True
        elif isinstance(node, ast.If):
            self.branch(node, frame)
        elif isinstance(node, ast.For):
            self.loop(node, frame)
        elif isinstance(node, ast.With | ast.Try):
            self.block(node.body, frame)
        elif isinstance(node, ast.Delete):
            for target in node.targets:
                if isinstance(target, ast.Subscript) and isinstance(holder := self.value(target.value, frame), dict):
                    holder.pop(self.value(target.slice, frame), None)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                name = alias.asname or alias.name
                frame.local[name] = self.settle(self.sources._from(frame.module, node, alias.name, typing=False), frame)

    def branch(self, node: ast.If, frame: Frame) -> None:
        """One side where the condition is known, else both: an early return of one side then does not end the function."""
        test = self.value(node.test, frame)
        if isinstance(test, Opaque | External):
            self.block(node.body, frame)
            frame.done = False
            self.block(node.orelse, frame)
            frame.done = False
        else:
            self.block(node.body if test else node.orelse, frame)

    def loop(self, node: ast.For, frame: Frame) -> None:
        """Over a known list or dictionary; anything else is passed over, loudly."""
        values = self.value(node.iter, frame)
        if isinstance(values, Opaque | External):
            raise ValueError(f"{frame.module.name}:{node.lineno}: cannot follow a loop over {ast.unparse(node.iter)}")
        for item in list(values):
            self.assign(node.target, item, frame)
            self.block(node.body, frame)

    def assign(self, target: ast.expr, given: Any, frame: Frame) -> None:
        """Bind a name, the parts of a tuple, or an entry of a dictionary."""
        if isinstance(target, ast.Name):
            frame.local[target.id] = given
        elif isinstance(target, ast.Tuple) and isinstance(given, tuple | list):
            for part, item in zip(target.elts, given, strict=True):
                self.assign(part, item, frame)
        elif isinstance(target, ast.Subscript):
            holder = self.value(target.value, frame)
            if isinstance(holder, dict | list):
                holder[self.value(target.slice, frame)] = given

    # ---- expressions

    def value(self, node: ast.expr, frame: Frame) -> Any:
        """The value of an expression, or Opaque with its source."""
        handler = getattr(self, f"_{type(node).__name__.lower()}", None)
        return handler(node, frame) if handler else Opaque(ast.unparse(node))

    def _constant(self, node: ast.Constant, _: Frame) -> Any:
        return node.value

    def _lambda(self, node: ast.Lambda, _: Frame) -> Any:
        return Opaque(ast.unparse(node))

    def _name(self, node: ast.Name, frame: Frame) -> Any:
        if node.id in frame.local:
            return frame.local[node.id]
        try:
            return self.settle(self.sources.lookup(frame.module, node.id), frame)
        except KeyError:
            return External(node.id)

    def settle(self, meaning: Any, frame: Frame) -> Any:
        """Turn what a name means into a value: an assignment is evaluated where it stands."""
        if isinstance(meaning, tuple):
            module, expression = meaning
            if isinstance(expression, ast.Subscript) and ast.unparse(expression.value).split(".")[-1] in {
                "Literal",
                "Union",
                "Optional",
            }:
                return (module, expression)
            return self.value(expression, Frame(module, None))
        return meaning

    def _attribute(self, node: ast.Attribute, frame: Frame) -> Any:
        holder = self.value(node.value, frame)
        if isinstance(holder, ClassRef):
            return self.of_class(holder, node.attr)
        if isinstance(holder, Member) and node.attr in {"value", "name"}:
            return holder.value if node.attr == "value" else holder.name
        if isinstance(holder, Module):
            try:
                return self.settle(self.sources.lookup(holder, node.attr), frame)
            except KeyError:
                return Opaque(ast.unparse(node))
        if isinstance(holder, External):
            dotted = f"{holder.dotted}.{node.attr}"
            return EXTERNAL_VALUES.get(dotted, External(dotted))
        return Opaque(ast.unparse(node))

    def of_class(self, cls: ClassRef, name: str) -> Any:
        """What ``Class.name`` is: a method, a member, the default of a field, or a plain class attribute.

        A list or dictionary of a class that is no dataclass is a registry, filled while the program runs, so it stays opaque.
        """
        if name == "__name__":
            return cls.node.name
        if name == "__doc__":
            return ast.get_docstring(cls.node) or ""
        if found := method(self.sources, cls, name):
            return FuncRef(found.module, found.node, found.owner, cls)
        if is_enum(self.sources, cls):
            return next((m for m in self.all_members(cls) if m.name == name), Opaque(f"{cls.node.name}.{name}"))
        plain = self.plain_attribute(cls, name)
        registry = isinstance(plain, list | dict) and not is_dataclass(self.sources, cls)
        return Opaque(f"{cls.node.name}.{name}") if registry else plain

    def all_members(self, cls: ClassRef) -> list[Member]:
        """The members of an enumeration, in the order of the source."""
        return [Member(name, self.value(value, Frame(cls.module, cls))) for name, value in members(cls).items()]

    def plain_attribute(self, cls: ClassRef, name: str) -> Any:
        """The default of a field, or the value of an assignment in the class or its bases."""
        if known := class_fields(self.sources, cls).get(name):
            return self.default_of(known.default, known.module)
        for statement in cls.node.body:
            if isinstance(statement, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in statement.targets):
                return self.value(statement.value, Frame(cls.module, cls))
        for base in bases(self.sources, cls):
            if isinstance(base, ClassRef) and not isinstance(found_above := self.plain_attribute(base, name), Opaque):
                return found_above
        return Opaque(f"{cls.node.name}.{name}")

    def default_of(self, expression: ast.expr | None, module: Module) -> Any:
        """The default that a field's expression gives, ``field`` and ``Field`` with factories included."""
        if expression is None:
            return Opaque("no default")
        frame = Frame(module, None)
        if isinstance(expression, ast.Call) and ast.unparse(expression.func).split(".")[-1] in {"field", "Field", "PydanticField"}:
            for keyword in expression.keywords:
                if keyword.arg == "default":
                    return self.value(keyword.value, frame)
                if keyword.arg == "default_factory":
                    return self.made_by(keyword.value, frame)
            return self.value(expression.args[0], frame) if expression.args else Opaque("no default")
        return self.value(expression, frame)

    def made_by(self, factory: ast.expr, frame: Frame) -> Any:
        """What a default factory gives."""
        if isinstance(factory, ast.Lambda):
            return self.value(factory.body, frame)
        name = ast.unparse(factory)
        return {"list": [], "dict": {}, "set": []}.get(name.split("[")[0], Opaque(f"{name}()"))

    def _list(self, node: ast.List | ast.Tuple | ast.Set, frame: Frame) -> Any:
        out: list[Any] = []
        for item in node.elts:
            if isinstance(item, ast.Starred):
                inner = self.value(item.value, frame)
                out.extend(inner if isinstance(inner, list | tuple) else [inner])
            else:
                out.append(self.value(item, frame))
        return out

    _tuple = _list
    _set = _list

    def _dict(self, node: ast.Dict, frame: Frame) -> Any:
        out: dict[Any, Any] = {}
        for key, item in zip(node.keys, node.values, strict=True):
            given = self.value(item, frame)
            if key is None:
                out.update(given if isinstance(given, dict) else {})
            else:
                out[self.value(key, frame)] = given
        return out

    def _joinedstr(self, node: ast.JoinedStr, frame: Frame) -> Any:
        parts = [self.value(part.value if isinstance(part, ast.FormattedValue) else part, frame) for part in node.values]
        return "".join("…" if isinstance(part, Opaque | External) else str(part) for part in parts)

    def _binop(self, node: ast.BinOp, frame: Frame) -> Any:
        return self.binary(node.op, self.value(node.left, frame), self.value(node.right, frame), node)

    def binary(self, op: ast.operator, left: Any, right: Any, node: ast.AST) -> Any:
        """Arithmetic and joining; a list joined with something opaque keeps a mark that it is not complete."""
        if isinstance(op, ast.Add) and isinstance(left, list) and not isinstance(right, list):
            return [*left, right]
        if isinstance(left, Opaque | External) or isinstance(right, Opaque | External):
            return Opaque(ast.unparse(node))
        operations: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
            ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b,
            ast.Pow: lambda a, b: a**b, ast.FloorDiv: lambda a, b: a // b,
            ast.LShift: lambda a, b: a << b, ast.Div: lambda a, b: a / b,
        }  # fmt: skip
        return operations[type(op)](left, right) if type(op) in operations else Opaque(ast.unparse(node))

    def _unaryop(self, node: ast.UnaryOp, frame: Frame) -> Any:
        given = self.value(node.operand, frame)
        if isinstance(given, Opaque | External):
            return Opaque(ast.unparse(node))
        return not given if isinstance(node.op, ast.Not) else -given if isinstance(node.op, ast.USub) else Opaque(ast.unparse(node))

    def _compare(self, node: ast.Compare, frame: Frame) -> Any:
        left, right = self.value(node.left, frame), self.value(node.comparators[0], frame)
        if isinstance(left, Opaque | External) or isinstance(right, Opaque | External):
            return Opaque(ast.unparse(node))
        if isinstance(node.ops[0], ast.In | ast.NotIn) and isinstance(right, dict | list | str | tuple):
            return (left in right) == isinstance(node.ops[0], ast.In)
        if isinstance(node.ops[0], ast.Eq | ast.NotEq):
            return (left == right) == isinstance(node.ops[0], ast.Eq)
        if isinstance(node.ops[0], ast.Is | ast.IsNot):
            return (left is right) == isinstance(node.ops[0], ast.Is)
        return Opaque(ast.unparse(node))

    def _ifexp(self, node: ast.IfExp, frame: Frame) -> Any:
        test = self.value(node.test, frame)
        if isinstance(test, Opaque | External):
            return Opaque(ast.unparse(node))
        return self.value(node.body if test else node.orelse, frame)

    def _subscript(self, node: ast.Subscript, frame: Frame) -> Any:
        holder = self.value(node.value, frame)
        if isinstance(holder, dict | list) and not isinstance(node.slice, ast.Slice):
            key = self.value(node.slice, frame)
            if isinstance(holder, dict) or isinstance(key, int):
                return holder[key]
        return Opaque(ast.unparse(node))

    def _listcomp(self, node: ast.ListComp | ast.GeneratorExp, frame: Frame) -> Any:
        rule = node.generators[0]
        values = self.value(rule.iter, frame)
        if isinstance(values, ClassRef) and is_enum(self.sources, values):
            values = self.all_members(values)
        if len(node.generators) > 1 or not isinstance(values, list | tuple | dict):
            return Opaque(ast.unparse(node))
        out = []
        for item in list(values):
            inner = Frame(frame.module, frame.owner, dict(frame.local))
            self.assign(rule.target, item, inner)
            if all(self.value(test, inner) is True for test in rule.ifs):
                out.append(self.value(node.elt, inner))
        return out

    _generatorexp = _listcomp

    # ---- calls

    def _call(self, node: ast.Call, frame: Frame) -> Any:
        if isinstance(node.func, ast.Attribute):
            if isinstance(node.func.value, ast.Call) and ast.unparse(node.func.value.func) == "super":
                return self.call_super(node, frame)
            holder = self.value(node.func.value, frame)
            if isinstance(holder, ParserRef) or node.func.attr == "add_parser":
                return self.on_parser(node, frame)
            if isinstance(holder, dict | list | str):
                return self.on_value(holder, node, frame)
        arguments, keywords = self.arguments(node, frame)
        function = self.value(node.func, frame)
        name = ast.unparse(node.func).split(".")[-1]
        if name == "get_kwargs" and isinstance(arguments[0], ClassRef):
            return self.get_kwargs(self, arguments[0])
        if isinstance(function, FuncRef) and name in FOLLOWED:
            kind = [ast.unparse(d) for d in function.node.decorator_list]
            first = [function.bound] if function.bound and "classmethod" in kind else []
            return self.call(function, [*first, *arguments], keywords)
        return self.on_function(name, arguments, node, frame)

    def arguments(self, node: ast.Call, frame: Frame) -> tuple[list[Any], dict[str, Any]]:
        """The evaluated arguments and keywords of a call; ``**`` of something unknown adds nothing."""
        arguments: list[Any] = []
        for item in node.args:
            given = self.value(item.value if isinstance(item, ast.Starred) else item, frame)
            arguments.extend(given if isinstance(item, ast.Starred) and isinstance(given, list) else [given])
        keywords: dict[str, Any] = {}
        for keyword in node.keywords:
            given = self.value(keyword.value, frame)
            if keyword.arg is not None:
                keywords[keyword.arg] = given
            elif isinstance(given, dict):
                keywords.update(given)
            else:
                raise ValueError(f"{frame.module.name}:{node.lineno}: cannot follow **{ast.unparse(keyword.value)}")
        return arguments, keywords

    def call_super(self, node: ast.Call, frame: Frame) -> Any:
        """``super().name(...)`` of a followed method."""
        assert isinstance(node.func, ast.Attribute)
        own = frame.local.get("cls", frame.owner)
        found = method(self.sources, frame.owner, node.func.attr, above=True) if frame.owner else None
        arguments, keywords = self.arguments(node, frame)
        if found is None:
            return arguments[0] if arguments else None
        return self.call(FuncRef(found.module, found.node, found.owner), [own, *arguments], keywords)

    def on_parser(self, node: ast.Call, frame: Frame) -> Any:
        """``add_argument`` is collected; every other call on a parser gives a parser."""
        assert isinstance(node.func, ast.Attribute)
        if node.func.attr == "add_argument":
            names, keywords = self.arguments(node, frame)
            self.added.append(Added(tuple(names), dict(keywords), frame.module.name))
            return None
        return ParserRef()

    def on_value(self, holder: Any, node: ast.Call, frame: Frame) -> Any:
        """Methods of texts, lists and dictionaries that do not need the running program."""
        assert isinstance(node.func, ast.Attribute)
        arguments, keywords = self.arguments(node, frame)
        if node.func.attr == "join" and isinstance(holder, str):
            parts = arguments[0]
            return holder.join(map(str, parts)) if isinstance(parts, list) else Opaque(ast.unparse(node))
        if node.func.attr in {"extend", "append", "remove", "pop", "update", "get", "keys", "items", "values", "setdefault", "copy",
                              "replace", "format", "strip", "lower", "split", "removesuffix", "removeprefix"}:  # fmt: skip
            if node.func.attr == "extend" and not isinstance(arguments[0], list):
                arguments = [[arguments[0]]]
            done = getattr(holder, node.func.attr)(*arguments, **keywords)
            return list(done) if node.func.attr in {"keys", "items", "values"} else done
        return Opaque(ast.unparse(node))

    def on_function(self, name: str, arguments: list[Any], node: ast.Call, frame: Frame) -> Any:
        """Conversions, ``get_args`` of a literal, pure built-in functions; the rest stays opaque."""
        if name in {"optional_type", "parse_type"}:
            return self.type_of(arguments[0], optional=name == "optional_type")
        if name == "get_args":
            module, expression = arguments[0] if isinstance(arguments[0], tuple) else (frame.module, node.args[0])
            return [v for hint in self.hints.of(expression, module) for v in hint.values]
        if name == "get_field" and isinstance(arguments[0], ClassRef):
            return self.of_class(arguments[0], arguments[1])
        if name == "cast" and len(arguments) == 2:
            return arguments[1]
        if name == "permutations":
            return [list(p) for p in itertools.permutations(arguments[0], 2)]
        known = isinstance(node.func, ast.Name) and name in PURE_CALLS
        if known and not any(isinstance(a, Opaque | External) for a in arguments):
            return PURE_CALLS[name](*arguments)
        return Opaque(ast.unparse(node))

    def type_of(self, given: Any, *, optional: bool = False) -> TypeFn:
        """The conversion that a ``type=`` value stands for; one of its own making is called ``custom``."""
        if isinstance(given, TypeFn):
            return TypeFn(given.name, given.optional or optional, given.cls)
        if isinstance(given, External):
            return TypeFn(TYPE_NAMES.get(given.dotted, "custom"), optional)
        if isinstance(given, FuncRef):
            return TypeFn(TYPE_NAMES.get(given.node.name, "custom"), optional)
        return TypeFn("custom", optional)


def _load(target: ast.expr) -> ast.expr:
    return ast.parse(ast.unparse(target), mode="eval").body
