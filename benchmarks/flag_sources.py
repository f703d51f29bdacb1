"""Reads Python sources of a package without importing it: modules, names, imports, classes, type hints, simple expressions.

Everything is done with `ast` alone. What cannot be worked out that way becomes `Opaque`, never a guess. Nothing about vLLM's
command line lives here: that is `flag_reader`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

EXTERNAL_VALUES = {"ssl.CERT_NONE": 0, "ssl.CERT_OPTIONAL": 1, "ssl.CERT_REQUIRED": 2}
"""Constants of the standard library that defaults are made of (module `ssl`)."""


@dataclass(frozen=True)
class Opaque:
    """An expression whose value needs the running program; ``text`` is its source."""

    text: str


@dataclass(frozen=True)
class External:
    """A name of another package, such as ``json.loads``."""

    dotted: str


@dataclass(frozen=True, eq=False)
class ClassRef:
    """A class of the package with the module that defines it."""

    module: Module
    node: ast.ClassDef


@dataclass(frozen=True, eq=False)
class FuncRef:
    """A function of the package; for a method ``owner`` is the class that defines it, ``bound`` the class it was asked of."""

    module: Module
    node: ast.FunctionDef
    owner: ClassRef | None = None
    bound: ClassRef | None = None


@dataclass(eq=False)
class Module:
    """One source file: what its top level binds while running, and what it binds for type checkers alone."""

    name: str
    path: Path
    package: bool
    tree: ast.Module
    names: dict[str, ast.stmt] = field(default_factory=dict)
    typing_names: dict[str, ast.stmt] = field(default_factory=dict)

    @property
    def stars(self) -> list[ast.ImportFrom]:
        """The imports of everything that another module has."""
        return [n for n in self.tree.body if isinstance(n, ast.ImportFrom) and n.names[0].name == "*"]


def _bound(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.ClassDef | ast.FunctionDef):
        yield statement.name
    elif isinstance(statement, ast.Import | ast.ImportFrom):
        for alias in statement.names:
            yield alias.asname or alias.name.split(".")[0]
    elif isinstance(statement, ast.Assign):
        for target in statement.targets:
            if isinstance(target, ast.Name):
                yield target.id
    elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value is not None:
        yield statement.target.id


def _collect(body: list[ast.stmt], names: dict[str, ast.stmt], typing_names: dict[str, ast.stmt]) -> None:
    for statement in body:
        if isinstance(statement, ast.If):
            checking = ast.unparse(statement.test).endswith("TYPE_CHECKING")
            _collect(statement.body, typing_names if checking else names, typing_names)
            _collect(statement.orelse, names, typing_names)
        elif isinstance(statement, ast.Try):
            _collect(statement.body, names, typing_names)
        else:
            for name in _bound(statement):
                overload = isinstance(statement, ast.FunctionDef) and any(
                    "overload" in ast.unparse(d) for d in statement.decorator_list
                )
                if not overload:
                    names[name] = statement


def _dotted(module: Module, statement: ast.ImportFrom) -> str:
    """The full name of the module that a statement imports from, relative ones included."""
    if not statement.level:
        return statement.module or ""
    parts = module.name.split(".")
    parts = parts[: len(parts) - statement.level + (1 if module.package else 0)]
    return ".".join([*parts, *([statement.module] if statement.module else [])])


class Sources:
    """The source tree below ``root``; modules are parsed when they are first asked for."""

    def __init__(self, root: Path, package: str) -> None:
        self.root = root
        self.package = package
        self._modules: dict[str, Module | None] = {}

    def module(self, name: str) -> Module | None:
        """The module of that dotted name, or None where the package has none."""
        if name not in self._modules:
            base = self.root.joinpath(*name.split("."))
            path = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
            self._modules[name] = None
            if path.is_file():
                tree = ast.parse(path.read_text(encoding="utf-8"))
                module = Module(name, path, base.is_dir(), tree)
                _collect(tree.body, module.names, module.typing_names)
                self._modules[name] = module
        return self._modules[name]

    def lookup(self, module: Module, name: str, *, typing: bool = False) -> Any:
        """What ``name`` means at the top level of ``module``: a class, function, module, external name, or (module, expression).

        With ``typing`` the meaning for type checkers goes first. Raises KeyError when nothing binds the name.
        """
        first, second = (module.typing_names, module.names) if typing else (module.names, module.typing_names)
        statement = first.get(name, second.get(name))
        if statement is None:
            return self._starred(module, name, typing=typing)
        if isinstance(statement, ast.ClassDef):
            return ClassRef(module, statement)
        if isinstance(statement, ast.FunctionDef):
            return FuncRef(module, statement)
        if isinstance(statement, ast.Import):
            return self._imported(
                next(
                    a.name if a.asname else a.name.split(".")[0]
                    for a in statement.names
                    if name in (a.asname, a.name.split(".")[0])
                )
            )
        if isinstance(statement, ast.ImportFrom):
            alias = next(a for a in statement.names if (a.asname or a.name) == name)
            return self._from(module, statement, alias.name, typing=typing)
        assert isinstance(statement, ast.Assign | ast.AnnAssign)
        assert statement.value is not None
        return module, statement.value

    def _imported(self, dotted: str) -> Module | External:
        return self.module(dotted) or External(dotted)

    def _starred(self, module: Module, name: str, *, typing: bool) -> Any:
        for statement in module.stars:
            source = self.module(_dotted(module, statement))
            if source is not None:
                with suppress(KeyError):
                    return self.lookup(source, name, typing=typing)
        raise KeyError(name)

    def _from(self, module: Module, statement: ast.ImportFrom, name: str, *, typing: bool) -> Any:
        dotted = _dotted(module, statement)
        source = self.module(dotted)
        if source is None:
            return External(f"{dotted}.{name}")
        try:
            return self.lookup(source, name, typing=typing)
        except KeyError:
            return self.module(f"{dotted}.{name}") or External(f"{dotted}.{name}")


@dataclass(frozen=True)
class Hint:
    """One alternative of a type hint. ``kind`` is bool, int, float, str, none, literal, list, tuple, set, dict, class or other."""

    kind: str
    values: tuple[Any, ...] = ()  # of a literal
    items: tuple[tuple[Hint, ...], ...] = ()  # of a list, tuple or set; an Ellipsis is Hint("ellipsis")
    cls: ClassRef | None = None


_BUILTIN = {"bool", "int", "float", "str", "list", "tuple", "set", "dict"}
_ALIASES = {"List": "list", "Tuple": "tuple", "Set": "set", "Dict": "dict"}
_TRANSPARENT = {"Annotated", "SkipValidation", "Required", "NotRequired"}


class Hints:
    """Works out type hints: aliases followed, unions flattened, literals listed."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources

    def of(self, node: ast.expr, module: Module) -> tuple[Hint, ...]:
        """All alternatives of the hint, in the order of the source, without repetition."""
        return tuple(dict.fromkeys(self._walk(node, module)))

    def _walk(self, node: ast.expr, module: Module) -> Iterator[Hint]:
        if isinstance(node, ast.Constant):
            if node.value is None:
                yield Hint("none")
            elif node.value is Ellipsis:
                yield Hint("ellipsis")
            elif isinstance(node.value, str):
                yield from self._walk(ast.parse(node.value, mode="eval").body, module)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            yield from self._walk(node.left, module)
            yield from self._walk(node.right, module)
        elif isinstance(node, ast.Subscript):
            yield from self._subscript(node, module)
        elif isinstance(node, ast.Name | ast.Attribute):
            yield from self._named(node, module)
        else:
            yield Hint("other")

    def _subscript(self, node: ast.Subscript, module: Module) -> Iterator[Hint]:
        head = ast.unparse(node.value).split(".")[-1]
        head = _ALIASES.get(head, head)
        args = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        if head == "Optional":
            yield from self._walk(args[0], module)
            yield Hint("none")
        elif head == "Union":
            for arg in args:
                yield from self._walk(arg, module)
        elif head in _TRANSPARENT:
            yield from self._walk(args[0], module)
        elif head == "Literal":
            yield Hint("literal", tuple(dict.fromkeys(v for arg in args for v in self.literal(arg, module))))
        elif head in {"list", "tuple", "set"}:
            yield Hint(head, items=tuple(self.of(arg, module) for arg in args))
        elif head == "dict":
            yield Hint("dict")
        elif head in {"type", "Type"}:
            yield Hint("builtin-generic")
        else:
            yield Hint("other")

    def literal(self, node: ast.expr, module: Module) -> Iterator[Any]:
        """The values of one argument of ``Literal[...]``, names of other literals included."""
        if isinstance(node, ast.Constant):
            yield node.value
        elif isinstance(node, ast.UnaryOp):
            yield ast.literal_eval(node)
        else:
            for hint in self.of(node, module):
                yield from hint.values

    def _named(self, node: ast.Name | ast.Attribute, module: Module) -> Iterator[Hint]:
        text = ast.unparse(node)
        if isinstance(node, ast.Attribute):
            yield Hint(_ALIASES[node.attr]) if node.attr in _ALIASES else Hint("other")
            return
        try:
            found = self.sources.lookup(module, text)
        except KeyError:
            yield Hint(text) if text in _BUILTIN else Hint("other")
            return
        if isinstance(found, tuple):
            yield from self._walk(found[1], found[0])
        elif isinstance(found, ClassRef):
            yield Hint("class", cls=found)
        elif isinstance(found, External) and found.dotted.split(".")[-1] in _ALIASES:
            yield Hint(_ALIASES[found.dotted.split(".")[-1]])
        else:
            yield Hint("other")


def decorators(cls: ClassRef) -> list[ast.expr]:
    """The decorators of a class, calls included."""
    return list(cls.node.decorator_list)


def bases(sources: Sources, cls: ClassRef) -> list[ClassRef | External]:
    """The direct bases of a class."""
    found: list[ClassRef | External] = []
    for base in cls.node.bases:
        head = base.value if isinstance(base, ast.Subscript) else base
        first, _, rest = ast.unparse(head).partition(".")
        try:
            meaning = sources.lookup(cls.module, first)
        except KeyError:
            meaning = External(first)
        if rest and isinstance(meaning, External):
            meaning = External(f"{meaning.dotted}.{rest}")
        if isinstance(meaning, ClassRef | External):
            found.append(meaning)
    return found


def is_dataclass(sources: Sources, cls: ClassRef) -> bool:
    """Whether the class or one of its bases is made a dataclass by a decorator."""
    for decorator in decorators(cls):
        name = ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator).split(".")[-1]
        if name in {"dataclass", "config"}:
            return True
    return any(is_dataclass(sources, base) for base in bases(sources, cls) if isinstance(base, ClassRef))


def is_enum(sources: Sources, cls: ClassRef) -> bool:
    """Whether the class is an enumeration."""
    for base in bases(sources, cls):
        if is_enum(sources, base) if isinstance(base, ClassRef) else base.dotted.split(".")[-1] in {"Enum", "IntEnum", "StrEnum"}:
            return True
    return False


def members(cls: ClassRef) -> dict[str, ast.expr]:
    """The members of an enumeration with the expressions of their values."""
    return {
        target.id: statement.value
        for statement in cls.node.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name) and not target.id.startswith("_")
    }


def is_dict_subclass(sources: Sources, cls: ClassRef) -> bool:
    """Whether the class is a dict but no TypedDict."""
    for base in bases(sources, cls):
        if isinstance(base, ClassRef):
            if is_dict_subclass(sources, base):
                return True
        elif base.dotted in {"dict", "collections.OrderedDict"}:
            return True
    return False


@dataclass(frozen=True, eq=False)
class Field:
    """One field of a dataclass: where it is written, its hint, its default expression and the text that documents it."""

    name: str
    module: Module
    annotation: ast.expr
    default: ast.expr | None
    doc: str


def class_fields(sources: Sources, cls: ClassRef) -> dict[str, Field]:
    """The fields of a dataclass, those of its bases first; class variables and init-only variables are no fields."""
    fields: dict[str, Field] = {}
    for base in reversed(bases(sources, cls)):
        if isinstance(base, ClassRef):
            fields.update(class_fields(sources, base))
    body = cls.node.body
    for index, statement in enumerate(body):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        head = ast.unparse(statement.annotation)
        if head.startswith(("ClassVar", "InitVar", "typing.ClassVar")):
            continue
        follow = body[index + 1] if index + 1 < len(body) else None
        doc = ""
        if isinstance(follow, ast.Expr) and isinstance(follow.value, ast.Constant) and isinstance(follow.value.value, str):
            doc = " ".join(follow.value.value.split())
        fields[statement.target.id] = Field(statement.target.id, cls.module, statement.annotation, statement.value, doc)
    return fields


def method(sources: Sources, cls: ClassRef, name: str, *, above: bool = False) -> FuncRef | None:
    """The method of that name, looked for in the class and then in its bases; with ``above`` in the bases alone."""
    if not above:
        for statement in cls.node.body:
            if isinstance(statement, ast.FunctionDef) and statement.name == name:
                return FuncRef(cls.module, statement, cls)
    for base in bases(sources, cls):
        if isinstance(base, ClassRef) and (found := method(sources, base, name)):
            return found
    return None


PURE_CALLS: dict[str, Callable[..., Any]] = {
    "list": list, "sorted": sorted, "dict": dict, "set": lambda *a: list(dict.fromkeys(*a)), "tuple": list,
    "int": int, "float": float, "str": str, "len": len, "frozenset": lambda *a: list(dict.fromkeys(*a)),
}  # fmt: skip
"""Built-in functions that an expression may call; sets keep the order of the source, so that the output is deterministic."""
