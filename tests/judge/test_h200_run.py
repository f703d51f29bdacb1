"""The verdicts of two spikes on a real H200 (docs/results/h200-mtp-k3), from the committed records alone.

The figures must stay those that audition printed on that machine. Where the wording of the records changes on purpose, write them
anew with `audition judge` on both folders and commit them; `as-printed/` is never written anew.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[2] / "docs" / "results" / "h200-mtp-k3"
RECORDS = ("summary.txt", "result.json", "decision.md", "upstream.md")
PARTS = re.compile(r"(?ms)^Figures of (?P<name>[^\n]+)\n(?P<table>.*?)(?=^Figures of |^What the arms)")


def unpacked(name: str, folder: Path) -> Path:
    """A copy of the run folder, to be judged without touching the committed one."""
    if (HOME / name).is_dir():
        shutil.copytree(HOME / name, folder / name)
    else:
        with tarfile.open(HOME / f"{name}.tar.gz") as packed:
            packed.extractall(folder, filter="data")
    return folder / name


def judged(run: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "audition", "judge", str(run)], capture_output=True, text=True, check=False)


def figures(text: str) -> list[tuple[str, ...]]:
    """Rows of the tables of figures: table, figure, values of production's and of the candidate's legs (not their ratio)."""
    rows = []
    for part in PARTS.finditer(re.sub(r"(?m)^[0-9:]{8} ", "", text)):
        for line in part["table"].splitlines():
            cells = re.split(r"\s{2,}", line.strip())
            if len(cells) >= 3 and not cells[0].startswith(("figure", "---")):
                rows.append((part["name"], *cells[:3]))
    return rows


@pytest.mark.parametrize("name", ["run", "run-warm"])
def test_judging_the_records_of_the_h200_gives_the_committed_bytes_again(name: str, tmp_path: Path) -> None:
    run = unpacked(name, tmp_path)
    committed = {record: (run / record).read_bytes() for record in RECORDS}
    for record in RECORDS:
        (run / record).unlink()

    done = judged(run)

    assert done.returncode == 4, done.stderr  # INCONCLUSIVE, as on the machine
    assert done.stdout.encode() == committed["summary.txt"]
    assert {record: (run / record).read_bytes() for record in RECORDS} == committed
    beside = HOME / ("summary.txt" if name == "run" else "summary-warm.txt")
    assert beside.read_bytes() == committed["summary.txt"]


@pytest.mark.parametrize("name", ["run", "run-warm"])
def test_the_figures_are_those_that_were_printed_on_the_machine(name: str, tmp_path: Path) -> None:
    printed = figures((HOME / "as-printed" / f"{name}.txt").read_text(encoding="utf-8"))

    now = figures(judged(unpacked(name, tmp_path)).stdout)

    assert len(printed) >= 30
    assert now == printed
