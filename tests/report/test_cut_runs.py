"""A run that is cut after any file, or in the middle of one, still yields records that say how far it got and what is missing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from audition.errors import BadInput
from audition.judge.folder import judge_folder
from audition.report.writer import write_records
from golden.make import DATA

ALWAYS = ["run.json", "spike.yaml", "spike.resolved.json"]
"""Written before anything is touched."""


def in_order(folder: Path) -> list[str]:
    """The files of a run in the order in which a run writes them."""
    per_leg = ["probes.json", "users.requests.jsonl", "users.json", "leg.json"]
    legs = sorted(path.name for path in (folder / "legs").iterdir())
    return [*ALWAYS, *(f"legs/{leg}/{name}" for leg in legs for name in per_leg), "restore.json"]


FILES = in_order(DATA / "go")


def cut_copy(place: Path, kept: list[str], half: str = "") -> Path:
    run = place / "run"
    for name in [*kept, *([half] if half else [])]:
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(DATA / "go" / name, run / name)
    if half:
        data = (run / half).read_bytes()
        (run / half).write_bytes(data[: len(data) // 2])
    record = json.loads((run / "run.json").read_text()) if half != "run.json" else {}
    if record:
        record |= {"ended": "running", "ended_at": None, "production_back": None}
        (run / "run.json").write_text(json.dumps(record))
    return run


def test_the_list_of_files_is_complete() -> None:
    assert sorted(FILES) == sorted(p.relative_to(DATA / "go").as_posix() for p in (DATA / "go").rglob("*") if p.is_file())


@pytest.mark.parametrize("half", [False, True], ids=["after", "inside"])
@pytest.mark.parametrize("place", range(len(FILES)))
def test_a_run_cut_at_any_file(place: int, half: bool, tmp_path: Path) -> None:
    name = FILES[place]
    run = cut_copy(tmp_path, FILES[: place if half else place + 1], name if half else "")
    if not {*ALWAYS} - {"spike.yaml"} <= {*FILES[: place + (not half)]}:
        with pytest.raises(BadInput) as caught:
            judge_folder(run)
        assert "run.json" in caught.value.what + caught.value.seen or "spike.resolved.json" in caught.value.what
        return
    spike, result = judge_folder(run)

    files = {file.name: file for file in write_records(run, result, spike, tmp_path, False)}

    whole = sum(1 for leg in result.legs if leg.outcome == "complete")
    assert whole == len([f for f in FILES[: place + (not half)] if f.endswith("leg.json")])
    assert result.verdict == "INCONCLUSIVE"
    for record in ("summary.txt", "summary.md", "decision.md"):
        text = " ".join(files[record].read_text().split())
        assert "How far the run got" in text
        assert f"got through {whole} of 5 planned legs" in text
        assert "no recorded end" in text
        assert "Whether production is back is not recorded" in text
        for leg in result.legs:
            if leg.outcome == "missing":
                gone = f"Leg {leg.index} ({leg.arm}): "
                assert f"{gone}not reached" in text or f"{gone}no record of it can be read" in text
    assert ("upstream.md" in files) == any(leg.arm == "mtp" and leg.outcome == "complete" for leg in result.legs)
    if "upstream.md" in files and whole < 5:
        assert f"got through {whole} of 5 planned legs" in files["upstream.md"].read_text()


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        ("interrupted", "it was interrupted: SIGINT received"),
        ("failed", "it failed: SIGINT received"),
        ("early-end", "it ended early"),
    ],
)
def test_how_a_run_ended_is_said(ended: str, words: str, tmp_path: Path) -> None:
    run = cut_copy(tmp_path, FILES[:11])
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**record, "ended": ended, "end_reason": "SIGINT received", "production_back": False}))
    spike, result = judge_folder(run)
    write_records(run, result, spike, tmp_path, False)
    text = (run / "summary.md").read_text()
    assert words in text
    assert "PRODUCTION IS NOT BACK" in text
