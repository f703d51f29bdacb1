"""Checks of the Markdown that people read: links, anchors, commands in console blocks, references. No network, nothing written.

Looked at: README.md, ARCHITECTURE.md, CHANGELOG.md, docs/ (but for the raw records of runs in docs/results) and examples/.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click

from audition.cli.app import VERBS, group

_LINK = re.compile(r"(?<!\\)!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_BARE = re.compile(r"\bhttps?://[^\s<>()\[\]`\"'|,;]+")
_HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*$")
_HERE = ("127.0.0.1", "localhost")


@dataclass(frozen=True)
class Line:
    """A line with its number and the language of the fenced block that it stands in; None outside blocks."""

    number: int
    text: str
    block: str | None


def read_lines(text: str) -> list[Line]:
    """The lines of a Markdown text. Fences themselves belong to no list."""
    found, fence, language = [], "", ""
    for number, line in enumerate(text.splitlines(), start=1):
        opened = re.match(r"^\s*(`{3,}|~{3,})\s*(\S*)", line)
        if fence:
            if line.strip().startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
            else:
                found.append(Line(number, line, language))
        elif opened:
            fence, language = opened[1], opened[2]
        else:
            found.append(Line(number, line, None))
    return found


def anchor_of(heading: str) -> str:
    """The anchor that forges give a heading: lower case, punctuation gone, blanks to hyphens."""
    plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")


def anchors(text: str) -> set[str]:
    """All anchors of a text; a heading that comes again gets a number, as forges do."""
    found: set[str] = set()
    for line in read_lines(text):
        heading = _HEADING.match(line.text) if line.block is None else None
        if heading:
            name, copies = anchor_of(heading[2]), 0
            while (name if not copies else f"{name}-{copies}") in found:
                copies += 1
            found.add(name if not copies else f"{name}-{copies}")
        found.update(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", line.text) if line.block is None else [])
    return found


def documents(root: Path) -> list[Path]:
    """The Markdown that is checked."""
    named = [root / name for name in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md") if (root / name).is_file()]
    raw = re.compile(r"docs/results/[^/]+/(run|as-printed)[^/]*/")
    found = [p for folder in ("docs", "examples") for p in sorted((root / folder).rglob("*.md"))]
    return [*named, *(path for path in found if not raw.search(path.relative_to(root).as_posix()))]


def problems_of(root: Path) -> list[str]:
    """Everything that is wrong, one line each: file, line, what."""
    found: list[str] = []
    for path in documents(root):
        lines = read_lines(path.read_text(encoding="utf-8"))
        shown = path.relative_to(root)
        found += [f"{shown}:{number}: {said}" for number, said in _links(path, lines, root)]
        found += [f"{shown}:{number}: {said}" for number, said in _commands(lines)]
    return found


def _links(path: Path, lines: list[Line], root: Path) -> Iterator[tuple[int, str]]:
    for line in lines:
        if line.block is not None:
            continue
        text = re.sub(r"`+[^`]*`+", "", line.text)
        for target in _LINK.findall(text):
            if said := _link(path, target, root):
                yield line.number, said
        for bare in _BARE.findall(_LINK.sub("", text)):  # a name without a dot, such as http://host:5000, is an example
            if "." in (urlsplit(bare).hostname or "") and (said := _reference(bare)):
                yield line.number, said


def _link(path: Path, target: str, root: Path) -> str:
    parts = urlsplit(target)
    if parts.scheme or target.startswith("//"):
        return _reference(target)
    there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not there.is_relative_to(root):
        return f"the link {target} leaves the project"
    if not there.exists():
        return f"the link {target} leads nowhere"
    if parts.fragment and there.suffix == ".md" and unquote(parts.fragment) not in anchors(there.read_text(encoding="utf-8")):
        return f"there is no anchor #{parts.fragment} in {there.relative_to(root)}"
    return ""


def _reference(target: str) -> str:
    parts = urlsplit(target)
    if parts.hostname in _HERE:
        return ""
    return "" if parts.scheme == "https" and parts.hostname and "." in parts.hostname else f"the reference {target} is no https URL"


def _commands(lines: list[Line]) -> Iterator[tuple[int, str]]:
    """Commands of audition in console blocks (after ``$``) and in shell blocks: verb and options must exist."""
    for line in lines:
        if line.block is None:
            yield from _inline(line)
        if line.block not in ("console", "sh", "bash", "shell"):
            continue
        text = line.text.strip()
        if line.block == "console":
            if not text.startswith("$ "):
                continue
            text = text[2:]
        try:
            words = shlex.split(text, comments=True)
        except ValueError as error:
            yield line.number, f"no shell reads this: {error}"
            continue
        for argv in _calls(words):
            if said := wrong_call(argv):
                yield line.number, said


def _inline(line: Line) -> Iterator[tuple[int, str]]:
    """Commands that stand as code in running text, e.g. ``audition recover``; arguments may be left out there."""
    for code in re.findall(r"(?<!`)`(audition(?: [^`]*)?)`(?!`)", line.text):
        said = wrong_call(shlex.split(code)[1:] or ["--help"])
        if said and "argument" not in said:
            yield line.number, said


def _calls(words: list[str]) -> Iterator[list[str]]:
    """The words after each ``audition`` that is called, up to the next command of the line."""
    at = 0
    while at < len(words):
        before = words[at - 1] if at else ""
        called = all("=" in word for word in words[:at]) or before in ("&&", "||", ";", "|", "sudo", "then", "exec")
        if called and "=" not in words[at] and words[at].rsplit("/", 1)[-1] == "audition":
            end = next(
                (i for i in range(at + 1, len(words)) if words[i] in ("&&", "||", ";", "|", ">", ">>", "2>", "<")), len(words)
            )
            yield words[at + 1 : end]
            at = end
        at += 1


def wrong_call(argv: list[str]) -> str:
    """What is wrong with a command line of audition; empty when its verb and options exist. Nothing is run."""
    with click.Context(group, info_name="audition") as top:
        if not argv or argv[0].startswith("-"):
            known = {name for param in group.get_params(top) for name in param.opts}
            return next((f"audition has no option {word}" for word in argv[:1] if word not in known), "")
        verb, rest = argv[0], argv[1:]
        if verb not in VERBS:
            return "" if re.fullmatch(r"[A-Z]+", verb) else f"audition has no verb {verb}"
        command = group.get_command(top, verb)
        if command is None:
            return f"audition has no verb {verb}"
        try:
            with command.make_context(verb, _without_marks(rest), parent=top):
                return ""
        except click.exceptions.Exit:  # --help
            return ""
        except click.MissingParameter:
            return "" if "..." in rest or not rest else f"audition {verb}: an argument is missing"
        except click.UsageError as error:
            return f"audition {verb}: {error.format_message()}"


def _without_marks(words: list[str]) -> list[str]:
    return [word for word in words if word not in ("...", "…")]
