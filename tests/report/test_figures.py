"""Every figure in what is posted stands in ``result.json``; the check itself is shown to find one that does not."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from golden.make import CASES, DATA, EXPECTED
from report.figures_in import figures_of, unknown_figures

POSTED = ("upstream.md", "summary.md", "issue-draft.md")
H200 = Path(__file__).resolve().parents[2] / "docs" / "results" / "h200-mtp-k3" / "run"


def posted(folder: Path) -> list[Path]:
    return [folder / name for name in POSTED if (folder / name).exists()]


@pytest.mark.parametrize("case", [*CASES, "h200"])
def test_every_figure_is_in_the_result(case: str) -> None:
    folder, raw = (H200, H200) if case == "h200" else (EXPECTED / case, DATA / case)
    result = (folder / "result.json").read_text(encoding="utf-8")
    arguments = (raw / "spike.resolved.json").read_text(encoding="utf-8")

    texts = [path.read_text(encoding="utf-8") for path in posted(folder)]

    assert texts
    assert sum(len(figures_of(text)) for text in texts) > 15
    assert [unknown_figures(text, result, arguments) for text in texts] == [[] for _ in texts]


@pytest.mark.parametrize("name", ["upstream.md", "summary.md"])
def test_a_figure_that_is_not_in_the_result_is_found(name: str) -> None:
    """Every figure of the tables is falsified in its last digit, one after the other: nearly all must be found. (A false figure may
    be another true one by chance, such as one interval's end beside the other's.)"""
    text, result = ((EXPECTED / "go" / file).read_text(encoding="utf-8") for file in (name, "result.json"))
    places = [m for m in re.finditer(r"(?<![\w.])\d[\d,]*\.\d+(?![\w.])", text) if len(m[0]) >= 4]
    caught = 0
    for place in places:
        wrong = place[0][:-1] + str((int(place[0][-1]) + 5) % 10)
        caught += wrong in unknown_figures(text[: place.start()] + wrong + text[place.end() :], result)

    assert len(places) >= 20
    assert caught >= 0.9 * len(places)


def test_invented_counts_and_arguments_are_found(tmp_path: Path) -> None:
    shutil.copy(EXPECTED / "no-go-boot" / "issue-draft.md", tmp_path)
    text = (tmp_path / "issue-draft.md").read_text(encoding="utf-8")
    result = (EXPECTED / "no-go-boot" / "result.json").read_text(encoding="utf-8")

    assert unknown_figures(text.replace("of which 0 clean", "of which 9 clean"), result) == ["9"]
    assert unknown_figures(text.replace("--max-model-len 131072", "--max-model-len 131073"), result) == ["131073"] * text.count(
        "--max-model-len 131072"
    )
