"""Run folders that hold links, pipes, endless files and records of the wrong types; what is typed at `report --out`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from audition.errors import BadInput
from audition.judge.files import MOST_RECORD
from audition.judge.folder import judge_folder
from audition.judge.load import MOST_LEGS, load_run
from audition.judge.result import Result
from audition.plain_file import NotPlain, TooLong, read_bytes
from audition.report.comparing import load_one
from audition.report.documents import Code, Heading, Table, to_text
from audition.report.history import CACHE, history
from audition.report.html import report_html
from audition.report.mask import mask
from audition.report.writer import replace_file, write_records
from audition.units import NoData
from golden.make import DATA


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA / "go", tmp_path / "go"))


def judged(run: Path) -> Result:
    spike, result = judge_folder(run)
    write_records(run, result, spike, run.parent, False)
    return result


def changed(path: Path, **more: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **more}))


def typed(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "audition", *map(str, words)], capture_output=True, text=True, check=False)


def leg_of(run: Path) -> Path:
    return sorted((run / "legs").iterdir())[0]


# -- writing ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["summary.md", "MANIFEST", "result.json", "report.html"])
def test_a_link_in_the_place_of_a_record_is_replaced_not_followed(run: Path, name: str) -> None:
    outside = run.parent / "bashrc"
    outside.write_text("mine")
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(outside)
    judged(run)
    assert outside.read_text() == "mine"
    assert not (run / name).is_symlink()


def test_a_link_in_the_place_of_the_file_in_the_making_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "bashrc"
    outside.write_text("mine")
    (tmp_path / f".out.{os.getpid()}.tmp").symlink_to(outside)
    assert replace_file(tmp_path / "out", "new")
    assert (outside.read_text(), (tmp_path / "out").read_text()) == ("mine", "new")


def test_out_replaces_only_reports_unless_forced(run: Path) -> None:
    pipe, mine, fresh = run.parent / "pipe", run.parent / "mine.txt", run.parent / "fresh.html"
    os.mkfifo(pipe)
    mine.write_text("mine")
    for place, code in ((pipe, 2), (Path("/dev/null"), 2), (mine, 5), (fresh, 0), (fresh, 0)):
        done = typed("report", run, "--out", place)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
    assert mine.read_text() == "mine"
    assert pipe.is_fifo()
    assert typed("report", run, "--out", mine, "--force").returncode == 0
    assert mine.read_text().startswith("<!doctype html>")
    assert typed("report", run, "--out", pipe, "--force").returncode == 2


# -- reading ------------------------------------------------------------------------------------------------------------


def test_the_reader_takes_regular_files_up_to_its_limit(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(NotPlain):
            read_bytes(place, MOST_RECORD)
    (tmp_path / "five").write_bytes(b"12345")
    assert read_bytes(tmp_path / "five", 5) == b"12345"
    with pytest.raises(TooLong):
        read_bytes(tmp_path / "five", 4)


NAMES = ["run.json", "spike.resolved.json", "restore.json", "spike.yaml", "MANIFEST", "result.json", "leg.json", "probes.json"]


@pytest.mark.parametrize("name", [*NAMES, "users.json", "users.requests.jsonl"])
def test_pipes_and_huge_files_are_damage(run: Path, name: str) -> None:
    judged(run)
    place = (run if name in NAMES[:6] else leg_of(run)) / name
    for make in (os.mkfifo, huge):
        place.unlink(missing_ok=True)
        make(place)
        if name in ("run.json", "spike.resolved.json"):
            with pytest.raises(BadInput, match=name):
                judge_folder(run)
        else:
            spike, result = judge_folder(run)
            assert "</html>" in report_html(run, result, spike)
        if name in ("result.json", "spike.resolved.json", "run.json"):
            assert (history(run.parent, cache=False)[0].state == "damaged") is (name != "spike.resolved.json")
        if name in ("result.json", "spike.resolved.json"):
            with pytest.raises(BadInput):
                load_one(run)


def huge(place: Path) -> None:
    """A file without blocks that is larger than any limit of a record or of requests."""
    with place.open("wb") as file:
        file.truncate(32 * MOST_RECORD)


RUN_FAULTS: list[dict[str, Any]] = [
    {"question": ["x"]}, {"ended": []}, {"production_back": 5}, {"spike": None}, {"started_at": 1e299}, {"started_at": -9e10},
    {"ended_at": 1e12}, {"legs_planned": ["v2g"] * (MOST_LEGS + 1)}, {"started_at": 10**400},
]  # fmt: skip


@pytest.mark.parametrize("more", RUN_FAULTS, ids=lambda more: next(iter(more)))
def test_a_run_of_wrong_types_is_one_clear_error(run: Path, more: dict[str, Any]) -> None:
    changed(run / "run.json", **more)
    with pytest.raises(BadInput, match=r"run\.json"):
        judge_folder(run)
    assert [row.state for row in history(run.parent, cache=False)] == ["damaged" if "started_at" in more else "not judged"]


LEG_FAULTS: list[dict[str, Any]] = [
    {"workloads": None}, {"workloads": [1]}, {"outcome": []}, {"detail": None}, {"started_at": 1e299}, {"facts": {"x": 1e999}},
    {"boot": {"source": "booted", "boot_id": "b", "seconds": None, "clean": False, "failure": 5}},
]  # fmt: skip


@pytest.mark.parametrize("more", LEG_FAULTS, ids=lambda more: next(iter(more)))
def test_a_leg_of_wrong_types_is_damaged(run: Path, more: dict[str, Any]) -> None:
    changed(leg_of(run) / "leg.json", **more)
    record = load_run(run).legs[0].record
    assert isinstance(record, NoData)
    assert record.reason.startswith("leg.json")
    assert judged(run).verdict


@pytest.mark.parametrize("more", [{"requests_file": 5}, {"counters": 5}, {"started_at": -1}], ids=str)
def test_a_workload_of_wrong_types_is_damaged(run: Path, more: dict[str, Any]) -> None:
    file = next(p for p in sorted(leg_of(run).glob("*.json")) if p.name not in ("leg.json", "probes.json"))
    changed(file, **more)
    record = load_run(run).legs[0].workloads[file.stem].record
    assert isinstance(record, NoData)
    assert judged(run).verdict


def test_instants_out_of_range_in_a_result_are_damage(run: Path) -> None:
    judged(run)
    changed(run / "result.json", started_at=1e299)
    with pytest.raises(BadInput):
        load_one(run)


# -- texts --------------------------------------------------------------------------------------------------------------


def test_half_characters_are_written_as_replacement_characters(run: Path) -> None:
    changed(run / "run.json", question="half \ud83d")
    changed(leg_of(run) / "leg.json", detail="half \ud83d")
    probe = {"probe": "canary", "passed": False, "detail": "\ud83d", "evidence": "\ud83d"}
    (leg_of(run) / "probes.json").write_text(json.dumps([probe]))
    assert judged(run).question == "half \ufffd"
    assert "half \ufffd" in (run / "result.json").read_text()
    spike, result = judge_folder(run)
    write_records(run, replace(result, question="\ud83d", reasons=["\ud83d"]), spike, run.parent, False)
    assert "\ufffd" in (run / "summary.md").read_text()


def test_odd_answers_and_readings_cost_only_their_part(run: Path) -> None:
    probe = {"probe": "canary", "passed": False, "detail": "deep", "evidence": "[" * 100_000}
    (leg_of(run) / "probes.json").write_text(json.dumps([probe]))
    names = [p.name.removesuffix(".requests.jsonl") for p in leg_of(run).glob("*.requests.jsonl")]
    for name in names:
        (leg_of(run) / f"{name}.telemetry.jsonl").write_text('{"at": 0, "running": NaN}\n{"at": 1, "kv_usage": 1e999}\n')
    judged(run)
    page = (run / "report.html").read_text()
    assert names
    assert "[[[[[" in page
    assert "</html>" in page


def test_nothing_in_a_text_reaches_the_terminal_as_a_command(run: Path) -> None:
    bad = "\x1b]0;title\a\x9b31m\u202e"
    text = to_text([Heading(1, bad), Table([bad], [[bad]]), Code(f"{bad}\r\n\tkept")])
    assert not set(text) & set("\x1b\a\x9b\u202e\r")
    assert "\\x1b]0;title\\x07\\x9b31m\\u202e" in text
    assert "\tkept" in text
    changed(run / "run.json", question=bad)
    assert "\x1b" not in typed("judge", run).stdout


@pytest.mark.parametrize("more", [{"started_at": "x"}, {"folder": None}, {"state": 5}, {"verdict": []}, {"reason": 1}], ids=str)
def test_a_cache_of_wrong_types_is_read_anew(run: Path, more: dict[str, Any]) -> None:
    judged(run)
    good = history(run.parent)
    cache = json.loads((run.parent / CACHE).read_text())
    cache["runs"]["go"]["row"] |= more
    (run.parent / CACHE).write_text(json.dumps(cache))
    assert history(run.parent) == good


@pytest.mark.parametrize(
    "write", [lambda s: f'password: "{s}"', lambda s: f"password='{s}'", lambda s: json.dumps(json.dumps({"api_key": s}))]
)
def test_a_quoted_secret_is_masked_up_to_its_closing_quote(write: Callable[[str], str]) -> None:
    masked = mask(f"{write('pw with space 123')} rest")
    assert "space" not in masked
    assert masked.endswith(" rest")
    assert mask(masked) == masked
