"""One document model for all records, and its two renderings: Markdown and plain text. Knows layout, not results."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH = 100


@dataclass(frozen=True)
class Heading:
    """A heading; ``level`` 1 is the title."""

    level: int
    text: str


@dataclass(frozen=True)
class Paragraph:
    """Running text."""

    text: str


@dataclass(frozen=True)
class Bullets:
    """A list without an order."""

    items: Sequence[str]


@dataclass(frozen=True)
class Table:
    """A table with a header row. Every row has as many cells as the header."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Code:
    """Text that is kept as it is, such as a log excerpt."""

    text: str
    language: str = ""


Block = Heading | Paragraph | Bullets | Table | Code
Document = list[Block]


def to_markdown(document: Document) -> str:
    """Markdown (CommonMark with GitHub's tables), ending in one newline."""
    return "\n\n".join(_markdown(block) for block in document) + "\n"


def _markdown(block: Block) -> str:
    if isinstance(block, Heading):
        return f"{'#' * block.level} {block.text}"
    if isinstance(block, Paragraph):
        return block.text
    if isinstance(block, Bullets):
        return "\n".join(f"- {item}" for item in block.items)
    if isinstance(block, Code):
        fence = "```"
        while fence in block.text:
            fence += "`"
        return f"{fence}{block.language}\n{block.text.rstrip()}\n{fence}"
    rows = [list(block.header), ["---"] * len(block.header), *block.rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows)


_UNPRINTABLE = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]")
"""Control characters but for tab and line end, characters that turn the writing direction, and half characters."""


def escaped(character: str) -> str:
    """One character as an escape sequence of plain letters."""
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def printable(text: str) -> str:
    """The text without anything that a terminal would obey: names, questions and log lines come from anywhere."""
    return _UNPRINTABLE.sub(lambda found: escaped(found[0]), text)


def to_text(document: Document) -> str:
    """Plain text of at most 100 columns (tables and log excerpts may be wider), ending in one newline; see ``printable``."""
    return printable("\n\n".join(_text(block) for block in document)) + "\n"


def _text(block: Block) -> str:
    if isinstance(block, Heading):
        return block.text if block.level > 1 else f"{block.text}\n{'=' * len(block.text)}"
    if isinstance(block, Paragraph):
        return textwrap.fill(block.text, WIDTH)
    if isinstance(block, Bullets):
        return "\n".join(textwrap.fill(item, WIDTH, initial_indent="  - ", subsequent_indent="    ") for item in block.items)
    if isinstance(block, Code):
        return textwrap.indent(block.text.rstrip(), "    ")
    widths = [max(len(row[i]) for row in [block.header, *block.rows]) for i in range(len(block.header))]
    lines = [block.header, ["-" * w for w in widths], *block.rows]
    return "\n".join("  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in lines)
