"""YAML text as plain data, with the line of every key and value. Nothing here knows what a spike is.

PyYAML composes the nodes; the meaning of plain words is decided here, because YAML 1.1 reads ``no`` as false, ``22:00`` as 1320
and ``010`` as 8. Such words are problems of their own: they must be written so that every reader understands the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from audition.spike.problems import Path, Problem, shorten, show_path

MAX_BYTES = 256 * 1024
"""A longer file is no spike file: the reference, with every key and its comments, has about 20 KiB."""
MAX_DEPTH = 32
MAX_VALUES = 20_000
"""Values after aliases are followed. Stops a few lines of aliases from growing into millions of values."""

_PLAIN = "plain"
_WIDTH = 100
_LINE_END = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_OCTAL = re.compile(r"[-+]?0[0-9_]+|0o[0-7]+")
_SEXAGESIMAL = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?")
_GROUPED = re.compile(r"[-+]?[0-9][0-9_]*_[0-9_]*(\.[0-9_]*)?|[-+]?0b[01_]+")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_TRUTH = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}


@dataclass
class Document:
    """A YAML file as data. ``data`` is None when ``problems`` says that nothing could be read.

    ``values`` and ``keys`` give line and column (from 1) of each value and of each key of a mapping, by path.
    """

    data: Any = None
    values: dict[Path, tuple[int, int]] = field(default_factory=dict)
    keys: dict[Path, tuple[int, int]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def problem(self, path: Path, text: str, hint: str = "", *, at_key: bool = False) -> Problem:
        """A problem at the value of ``path`` (or at its key: ``at_key``), or at the nearest parent that stands in the file."""
        known = path
        while known not in self.values and known:
            known = known[:-1]
        line, column = self.values.get(known, (1, 1))
        key = self.keys.get(known)
        if key is not None and (at_key or key[0] < line):  # a list or mapping that begins below its key
            line, column = key
        return self.located(line, column, path, text, hint)

    def located(self, line: int, column: int, path: Path, text: str, hint: str = "") -> Problem:
        """A problem at a line and column, with that line as its excerpt."""
        excerpt = _around(self.lines[line - 1], column - 1) if 0 < line <= len(self.lines) else ""
        return Problem(line, column, show_path(path), text, hint, excerpt)


class _Loader(Reader, Scanner, Parser, Composer, BaseResolver):
    """Text to nodes. Plain scalars keep a tag of their own; depth is limited."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        BaseResolver.__init__(self)
        self._depth = 0

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        if kind is ScalarNode:
            return _PLAIN if implicit[0] else "tag:yaml.org,2002:str"
        return "tag:yaml.org,2002:map" if kind is MappingNode else "tag:yaml.org,2002:seq"

    def compose_node(self, parent: Any, index: Any) -> Any:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem=f"more than {MAX_DEPTH} levels of nesting", problem_mark=mark)
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


def read_document(text: str) -> Document:
    """The data of a YAML text with lines. Never raises for any text: what is wrong is in ``problems``."""
    document = Document(lines=_LINE_END.split(text))
    try:
        node = _Loader(text).get_single_node()
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line, column = len(_LINE_END.findall(before)) + 1, len(_LINE_END.split(before)[-1]) + 1
        said = f"the character U+{ord(text[error.position]):04X} is not allowed in YAML"
        document.problems.append(document.located(line, column, (), said, "is this a text file?"))
        return document
    except yaml.MarkedYAMLError as error:
        document.problems.append(_syntax(document, error))
        return document
    if node is None or (isinstance(node, ScalarNode) and node.tag == _PLAIN and node.value == ""):
        document.problems.append(Problem(0, 0, "", "the file is empty", "a spike file begins with `audition: 1`"))
        return document
    _Walker(document).root(node)
    return document


class _Walker:
    """Nodes to data. Collects every problem instead of stopping at the first."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.count = 0
        self.open: list[Node] = []

    def root(self, node: Node) -> None:
        try:
            data = self.value(node, ())
        except _TooManyError:
            said = f"more than {MAX_VALUES} values once its aliases are followed"
            self.document.problems = [Problem(0, 0, "", said, "write the values out, or use fewer aliases")]
            return
        if not isinstance(data, dict) and not self.document.problems:
            found = "a list" if isinstance(data, list) else "a single value"
            said = f"expected a mapping (lines of `key: value`) at the top of the file, found {found}"
            self.document.problems.append(self.document.problem((), said, "a spike file begins with `audition: 1`"))
            return
        self.document.data = data if isinstance(data, dict) else None

    def add(self, node: Node, path: Path, text: str, hint: str = "") -> None:
        line, column = _place(node)
        self.document.problems.append(self.document.located(line, column, path, text, hint))

    def value(self, node: Node, path: Path) -> Any:
        self.count += 1
        if self.count > MAX_VALUES:
            raise _TooManyError
        self.document.values.setdefault(path, _place(node))
        if any(node is parent for parent in self.open):
            self.add(node, path, "an alias leads back to itself")
            return None
        if len(self.open) > MAX_DEPTH:
            self.add(node, path, f"more than {MAX_DEPTH} levels of nesting once aliases are followed")
            return None
        if isinstance(node, ScalarNode):
            return self.scalar(node, path)
        if node.tag not in ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"):
            self.add(node, path, f"the tag {shorten(node.tag)} has no meaning in a spike file", "leave the tag out")
        self.open.append(node)
        try:
            if isinstance(node, SequenceNode):
                return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
            return self.mapping(node, path)
        finally:
            self.open.pop()

    def mapping(self, node: Node, path: Path) -> dict[str, Any]:
        data: dict[str, Any] = {}
        merges: list[tuple[Node, Node]] = []
        first: dict[str, int] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode):
                self.add(key_node, path, "expected a text as a key, found a list or a mapping")
                continue
            key = key_node.value
            if key == "<<" and key_node.tag == _PLAIN:
                merges.append((key_node, value_node))
                continue
            if key in first:
                said = f"the key `{shorten(key)}` is given twice; the first is on line {first[key]}"
                self.add(key_node, (*path, key), said, "keep one of the two")
                continue
            first[key] = _place(key_node)[0]
            self.document.keys[(*path, key)] = _place(key_node)
            data[key] = self.value(value_node, (*path, key))
        for key_node, value_node in merges:
            self.merge(key_node, value_node, path, data)
        return data

    def merge(self, key_node: Node, value_node: Node, path: Path, data: dict[str, Any]) -> None:
        """``<<``: keys of the named mappings, where the mapping itself does not give them; earlier ones win."""
        sources = value_node.value if isinstance(value_node, SequenceNode) else [value_node]
        for source in sources:
            if not isinstance(source, MappingNode):
                self.add(key_node, path, "expected a mapping, or a list of mappings, after `<<`")
                continue
            if any(source is parent for parent in self.open) or len(self.open) > MAX_DEPTH:
                self.add(key_node, path, "an alias leads back to itself, or too deep")
                continue
            inner = MappingNode(source.tag, [(k, v) for k, v in source.value if not _gives(k, data)])
            inner.start_mark, inner.end_mark = source.start_mark, source.end_mark
            self.open.append(source)
            try:
                data.update(self.mapping(inner, path))
            finally:
                self.open.pop()

    def scalar(self, node: ScalarNode, path: Path) -> Any:
        text = node.value
        if node.tag == "tag:yaml.org,2002:str":
            return text
        if node.tag != _PLAIN:
            self.add(node, path, f"the tag {shorten(node.tag)} has no meaning in a spike file", "leave the tag out")
            return text
        if text in ("", "~", "null", "Null", "NULL"):
            return None
        if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
            return text.lower() == "true"
        if _INT.fullmatch(text) or _HEX.fullmatch(text):
            if len(text) > 18:
                self.add(node, path, "the number is too large", "put it in quotes if it is meant as a text")
                return _Reported(text)
            return int(text, 0)
        if _FLOAT.fullmatch(text):
            number = float(text)
            if number in (float("inf"), float("-inf")):
                self.add(node, path, "the number is too large")
                return _Reported(text)
            return number
        if trap := _trap(text):
            self.add(node, path, *trap)
            return _Reported(text)
        return text


class _Reported(str):
    """A word already reported; later checks leave it alone."""

    __slots__ = ()


def is_reported(value: Any) -> bool:
    """Whether a value was already reported, so that a check of its type would say the same twice."""
    return isinstance(value, _Reported)


class _TooManyError(Exception):
    """The aliases of the document grow beyond MAX_VALUES."""


def _around(line: str, at: int) -> str:
    """A line without its indentation, cut to a terminal's width around the place ``at``; control characters are dots."""
    shown = "".join(c if c.isprintable() else "." for c in line)
    start = len(shown) - len(shown.lstrip())
    if len(shown.strip()) <= _WIDTH:
        return shown.strip()
    start = max(start, min(at - _WIDTH // 3, len(shown) - _WIDTH))
    return f"{'...' if shown[:start].strip() else ''}{shown[start : start + _WIDTH]}{'...' if start + _WIDTH < len(shown) else ''}"


def _gives(key_node: Node, data: dict[str, Any]) -> bool:
    return isinstance(key_node, ScalarNode) and key_node.value in data


def _trap(text: str) -> tuple[str, str] | None:
    """What is ambiguous about a plain word, and what to write instead; None for an ordinary text."""
    quoted = f'"{shorten(text)}"'
    if meant := _TRUTH.get(text.lower()):
        return (
            f"`{text}` is a truth value to one YAML reader and a text to the next",
            f"write {meant}, or {quoted} if it is meant as a text",
        )
    if _SEXAGESIMAL.fullmatch(text):
        return f"`{shorten(text)}` is read as a number in base 60 by some YAML readers", f"write {quoted} in quotes"
    if _OCTAL.fullmatch(text):
        return (
            f"`{shorten(text)}` is an octal number to one YAML reader and a decimal one to the next",
            f"write it without the leading 0, or {quoted} in quotes",
        )
    if _GROUPED.fullmatch(text):
        return (
            f"`{shorten(text)}` is a number to one YAML reader and a text to the next",
            f"write plain digits, or {quoted} in quotes",
        )
    if _NOT_FINITE.fullmatch(text):
        return f"expected a finite number, found {text}", ""
    return None


def _place(node: Node) -> tuple[int, int]:
    mark = node.start_mark
    return (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)


_UNEXPECTED = "expected <block end>, but found"
_STARTS = re.compile(r"found character '(.+)' that cannot start any token")
_QUOTE = "while scanning a quoted scalar"


def _syntax(document: Document, error: yaml.MarkedYAMLError) -> Problem:
    """A YAML syntax error in plain words, at the place where the reader stopped."""
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
    problem = error.problem or error.context or "it cannot be read"
    text, hint = f"not valid YAML: {problem}", ""
    if found := _STARTS.search(problem):
        if found[1] in ("\\t", "\t"):
            text, hint = "a tab stands where YAML wants spaces", "indent with spaces"
        else:
            text, hint = f"not valid YAML: a text cannot begin with {found[1]}", "put the text in quotes"
    elif problem == "mapping values are not allowed here":
        text = "not valid YAML: a `:` where no key can stand"
        hint = "check the indentation of this line, or put a text that holds `: ` in quotes"
    elif problem.startswith(_UNEXPECTED):
        text, hint = "not valid YAML: the line does not fit the ones above", "check the indentation, and commas and quotes"
    elif problem == "could not find expected ':'":
        text, hint = "not valid YAML: expected `key: value`", "is a `:` missing?"
        if error.context_mark is not None:
            line, column = error.context_mark.line + 1, error.context_mark.column + 1
    elif error.context == _QUOTE and error.context_mark is not None:
        start = error.context_mark.line + 1
        text, hint = f"not valid YAML: the quote opened on line {start} is not closed", ""
        line, column = start, error.context_mark.column + 1
    elif problem.startswith("found undefined alias"):
        name = problem.removeprefix("found undefined alias").strip(" '")
        text, hint = f"not valid YAML: no anchor &{name} stands above the alias *{name}", ""
    elif problem == "but found another document":
        text, hint = "expected one document, found a second one", "remove the line `---`"
    return document.located(min(line, len(document.lines)), column, (), text, hint)
