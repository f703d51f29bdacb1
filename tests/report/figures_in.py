"""Finds the figures in a text and where ``result.json`` has them, with the rounding that the text uses.

Written without the report's own formatting: what a figure in a text may be is worked out here from the numbers in the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?![\w]|\.\d)")
CONSTANTS = {"95": "the level of the intervals", "80": "the power of the detectable difference"}
DIGITS = 4


def figures_of(text: str) -> list[str]:
    """Every number that stands alone in a text (not inside a name such as ``users-16``), as it is written."""
    return [match[0].rstrip(",") for match in NUMBER.finditer(text)]


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        for part in value.values():
            yield from _numbers(part)
    elif isinstance(value, list):
        for part in value:
            yield from _numbers(part)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part)
    elif isinstance(value, str):
        yield value


def _spelled(value: float) -> set[str]:
    """A number as texts write it: whole from 1,000 on, four digits below; shares as per cent; ratios less one as per cent."""
    out = {f"{value:g}", f"{value:,.0f}"} if abs(value) >= 1000 else {f"{value:.{DIGITS}g}", f"{value:g}"}
    if 0 < abs(value) < 1e-4:
        out |= {f"{value:.6f}".rstrip("0").rstrip(".")}
    for share in (value, value - 1):
        out.add(f"{100 * share:.1f}" if abs(share) < 0.1 else f"{100 * share:.0f}")
    return out


def _counts(result: dict[str, Any]) -> set[str]:
    """What may be counted in the file: legs, boots, differences, repeated caveats."""
    legs = result["legs"]
    counts = {len(legs), len([leg for leg in legs if leg["outcome"] == "complete"])}
    for arm in {leg["arm"] for leg in legs}:
        boots = [leg["boot"] for leg in legs if leg["arm"] == arm and leg["boot"] and leg["boot"]["source"] == "booted"]
        counts |= {len(boots), sum(1 for b in boots if b["clean"]), sum(1 for b in boots if not b["clean"])}
        counts |= {len({b["boot_id"] for b in boots})}
    for contrast in result["contrasts"]:
        counts.add(len(contrast["differences"]) + bool(contrast["images"]))
    for code in {c["code"] for c in result["caveats"]}:
        counts.add(len([c for c in result["caveats"] if c["code"] == code]) - 1)
    for leg in legs:
        gpus = [str(g) for g in leg["facts"].get("host", {}).get("gpus", [])]
        counts.add(len(gpus))
    return {str(count) for count in counts}


def unknown_figures(text: str, result_text: str, arguments: str = "") -> list[str]:
    """Figures in a text that ``result.json`` does not have. ``arguments``: text of the spike file, whose arguments are quoted."""
    result = json.loads(result_text)
    known = set(CONSTANTS) | _counts(result)
    for value in _numbers(result):
        known |= _spelled(value)
    for quoted in [*_texts(result), arguments]:
        known |= set(figures_of(quoted)) | set(re.findall(r"\d+(?:\.\d+)*", quoted))
    ends = [result["started_at"], result["ended_at"], *(leg["ended_at"] for leg in result["legs"])]
    moments = [datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S") for at in ends if at is not None]
    for moment in [*moments, moments[0][:10]]:
        text = text.replace(moment, "")
    return [figure for figure in figures_of(text) if figure not in known]
