"""Document blocks as HTML: the blocks of ``audition.report.documents``, and those that only a page has. Pure.

Every text goes through ``Ink``: masked first, then escaped, so that no answer, name or log line can add markup or show a key.
"""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from audition.report.documents import Block, Bullets, Code, Heading, Paragraph, Table
from audition.report.mask import mask

_NUMERIC = re.compile(r"[-+≥≤<>~±]?\s*\d[\d,.]*(?:e[-+]?\d+)?(?:\s?[^\s\d\[\],;/]{1,9})?")
_BADGES = {
    "passed": "good", "failed": "bad", "unknown": "open", "complete": "good", "supported": "good", "refuted": "bad",
    "open": "open", "void": "bad", "note": "plain", "missing": "bad", "cut": "open", "boot-failed": "bad", "engine-died": "bad",
    "could not be judged": "open", "cut short": "open", "ok": "good", "not made": "plain",
}  # fmt: skip
_SIGNS = {"good": "✓", "bad": "✕", "open": "?", "plain": "i"}


@dataclass(frozen=True)
class Grid:
    """A table with a caption. ``badges``: columns of outcomes. ``head``: the column that names its row, or None. ``depths``: how
    far the name of each row is set in. ``wide``: columns of running text, which may wrap."""

    caption: str
    table: Table
    badges: frozenset[int] = frozenset()
    head: int | None = 0
    depths: Sequence[int] = ()
    wide: frozenset[int] = frozenset()
    show_caption: bool = True


@dataclass(frozen=True)
class Chart:
    """A chart: what the script draws (``kind`` and ``data``, plain JSON), what it shows in words, and the same data as a table."""

    kind: str
    caption: str
    summary: str
    data: dict[str, Any]
    table: Table
    arms: Sequence[str] = ()
    note: str = ""


@dataclass(frozen=True)
class Details:
    """Blocks behind a summary line."""

    summary: str
    blocks: Sequence[PageBlock]
    opened: bool = False


@dataclass(frozen=True)
class Missing:
    """Something that the report would show but has not, and why."""

    what: str
    why: str


@dataclass(frozen=True)
class Card:
    """Blocks that belong together, under a heading of level 3."""

    title: str
    blocks: Sequence[PageBlock]


@dataclass(frozen=True)
class Section:
    """One part of the page. ``name`` is its anchor."""

    name: str
    title: str
    blocks: Sequence[PageBlock] = field(default_factory=list)


PageBlock = Block | Grid | Chart | Details | Missing | Card


class Ink:
    """Turns texts into HTML and JSON, masking ``secrets`` and all that looks like a key. ``arms``: arms in the order of their
    colours. Collects the data of the charts that were rendered."""

    def __init__(self, secrets: Iterable[str] = (), arms: Sequence[str] = ()) -> None:
        self._secrets = tuple(secrets)
        self._known: dict[str, str] = {}
        self.arms = list(arms)
        self.charts: list[dict[str, Any]] = []

    def masked(self, text: str) -> str:
        """The text without secrets. NUL, which HTML cannot hold, and lone surrogates become replacement characters."""
        if text not in self._known:
            plain = mask(text, self._secrets)
            self._known[text] = plain.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")
        return self._known[text]

    def text(self, text: str) -> str:
        """The text for an element or a quoted attribute."""
        return html.escape(self.masked(text), quote=True)

    def data(self, value: Any) -> Any:
        """Plain JSON with every text in it masked."""
        if isinstance(value, str):
            return self.masked(value)
        if isinstance(value, dict):
            return {self.masked(str(key)): self.data(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.data(item) for item in value]
        return _short(value)

    def json(self) -> str:
        """The data of all charts for a script element: nothing in it can end that element or begin a comment."""
        text = json.dumps(self.charts, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        for sign in "<>&\u2028\u2029":
            text = text.replace(sign, f"\\u{ord(sign):04x}")
        return text


def _short(value: Any) -> Any:
    """Six significant digits are more than any screen shows. What is no finite number is drawn as absent."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def render(blocks: Iterable[PageBlock], ink: Ink) -> str:
    """The blocks as HTML."""
    return "\n".join(_render(block, ink) for block in blocks)


def _render(block: PageBlock, ink: Ink) -> str:
    if isinstance(block, Heading):
        return f"<h{block.level}>{ink.text(block.text)}</h{block.level}>"
    if isinstance(block, Paragraph):
        return f"<p>{ink.text(block.text)}</p>"
    if isinstance(block, Bullets):
        return "<ul>" + "".join(f"<li>{ink.text(item)}</li>" for item in block.items) + "</ul>"
    if isinstance(block, Code):
        label = f"{block.language or 'text'}, may be scrolled"
        return f'<pre tabindex="0" role="group" aria-label="{ink.text(label)}"><code>{ink.text(block.text.rstrip())}</code></pre>'
    if isinstance(block, Table):
        return _grid(Grid("", block), ink)
    if isinstance(block, Grid):
        return _grid(block, ink)
    if isinstance(block, Chart):
        return _chart(block, ink)
    if isinstance(block, Missing):
        return f'<p class="missing"><strong>{ink.text(block.what)}: not recorded.</strong> {ink.text(block.why)}</p>'
    if isinstance(block, Card):
        return f'<section class="card"><h3>{ink.text(block.title)}</h3>{render(block.blocks, ink)}</section>'
    opened = " open" if block.opened else ""
    return f"<details{opened}><summary>{ink.text(block.summary)}</summary>{render(block.blocks, ink)}</details>"


def section(part: Section, ink: Ink) -> str:
    """A part of the page with its heading."""
    name = ink.text(part.name)
    return (
        f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{ink.text(part.title)}</h2>'
        f"{render(part.blocks, ink)}</section>"
    )


def _grid(grid: Grid, ink: Ink) -> str:
    table = grid.table
    numeric = {
        i
        for i in range(len(table.header))
        if i != grid.head and i not in grid.badges | grid.wide and _is_numeric([row[i] for row in table.rows])
    }
    head = "".join(f'<th scope="col"{_class(i, numeric, grid)}>{ink.text(name)}</th>' for i, name in enumerate(table.header))
    rows = "".join(_row(row, grid, numeric, grid.depths[n] if grid.depths else 0, ink) for n, row in enumerate(table.rows))
    hidden = "" if grid.show_caption else ' class="visually-hidden"'
    caption = f"<caption{hidden}>{ink.text(grid.caption)}</caption>" if grid.caption else ""
    label = ink.text(grid.caption or "Table")
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{label}, may be scrolled"><table>{caption}'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _row(row: Sequence[str], grid: Grid, numeric: set[int], depth: int, ink: Ink) -> str:
    cells = []
    for i, cell in enumerate(row):
        inner = _badge(cell, ink) if i in grid.badges else ink.text(cell)
        if i == grid.head:
            names = [*(["long"] if len(cell) > 14 else []), *([f"depth-{min(depth, 4)}"] if depth else [])]
            cells.append(f'<th scope="row"{_names(names)}>{inner}</th>')
        else:
            cells.append(f"<td{_class(i, numeric, grid)}>{inner}</td>")
    return f"<tr>{''.join(cells)}</tr>"


def _names(names: Sequence[str]) -> str:
    return f' class="{" ".join(names)}"' if names else ""


def _class(column: int, numeric: set[int], grid: Grid) -> str:
    return ' class="n"' if column in numeric else ' class="w"' if column in grid.wide else ""


def _is_numeric(cells: Sequence[str]) -> bool:
    filled = [cell for cell in cells if cell not in ("", "-")]
    return all(_NUMERIC.fullmatch(cell) for cell in filled)


def _badge(outcome: str, ink: Ink) -> str:
    """An outcome with a sign and a colour; what stands behind its colon goes beside it."""
    if not outcome:
        return ""
    word, _, more = outcome.partition(": ")
    kind = _BADGES.get(word, "plain")
    beside = f' <span class="beside">{ink.text(more)}</span>' if more else ""
    return f'<span class="badge {kind}"><span aria-hidden="true">{_SIGNS[kind]}</span> {ink.text(word)}</span>{beside}'


def _chart(chart: Chart, ink: Ink) -> str:
    number = len(ink.charts)
    ink.charts.append({"kind": chart.kind, "label": ink.masked(chart.summary), **ink.data(chart.data)})
    key = "".join(
        f'<span class="key arm-{ink.arms.index(arm) % 6}"><span aria-hidden="true" class="mark"></span>{ink.text(arm)}</span>'
        for arm in chart.arms
    )
    note = f'<p class="note">{ink.text(chart.note)}</p>' if chart.note else ""
    return (
        f'<figure id="chart-{number}"><figcaption>{ink.text(chart.caption)}{f" <span class=keys>{key}</span>" if key else ""}'
        f'</figcaption><div class="plot" data-chart="{number}"></div>'
        f'<p class="visually-hidden">{ink.text(chart.summary)}</p>{note}'
        f'<details class="data"><summary>The same data as a table<span class="visually-hidden">: {ink.text(chart.caption)}</span>'
        f"</summary>{_grid(Grid(chart.caption, chart.table, show_caption=False), ink)}</details></figure>"
    )
