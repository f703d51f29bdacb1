"""The manifest: what it covers, and what it says when records are changed after the run."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audition.judge.folder import judge_folder
from audition.report.manifest import MANIFEST, changed_since, manifest_text, read_manifest
from audition.report.writer import write_records
from golden.make import records_of


def judged_again(run: Path) -> list[str]:
    warnings: list[str] = []
    spike, result = judge_folder(run)
    write_records(run, result, spike, run.parent, False, warn=warnings.append)
    return warnings


def check(run: Path) -> list[str]:
    done = subprocess.run(["sha256sum", "-c", "--quiet", MANIFEST], cwd=run, capture_output=True, text=True, check=False)
    return sorted(line.partition(":")[0] for line in done.stdout.splitlines())


@pytest.mark.parametrize("how", ["changed", "removed"])
def test_a_raw_record_that_is_touched_later_stays_found_also_after_judging_again(how: str, tmp_path: Path) -> None:
    run = records_of("go", tmp_path)
    victim = run / "legs" / "02-mtp" / "users.requests.jsonl"
    if how == "changed":
        victim.write_bytes(victim.read_bytes().replace(b'"ok"', b'"ok" '))
    else:
        victim.unlink()

    first, second = judged_again(run), judged_again(run)

    assert len(first) == 1
    assert str(victim) in first[0]
    assert second == first
    assert check(run) == ["legs/02-mtp/users.requests.jsonl"]


def test_derived_records_may_be_made_again_and_new_files_are_taken_in(tmp_path: Path) -> None:
    run = records_of("go", tmp_path)
    (run / "decision.md").write_text("changed by hand")
    (run / "restored-by-guard.json").write_text('{"verified": true}')
    (run / ".x.json.77.tmp").write_text("left by an abrupt end")
    assert judged_again(run) == []
    (run / "restored-by-guard.json").write_text('{"verified": true, "again": 1}')
    assert judged_again(run) == []
    assert check(run) == []
    assert "restored-by-guard.json" in read_manifest(run)
    assert ".x.json.77.tmp" not in read_manifest(run)


def test_a_run_that_still_goes_on_is_not_sealed(tmp_path: Path) -> None:
    run = records_of("cut", tmp_path)
    leg = run / "legs" / "03-v2g" / "leg.json"
    leg.write_text(leg.read_text() + "\n")
    assert changed_since(run) == []
    assert judged_again(run) == []
    assert check(run) == []


def test_links_and_the_manifest_itself_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "link").symlink_to("a.txt")
    (tmp_path / MANIFEST).write_text("nonsense\n../../etc/passwd\n" + "0" * 64 + "  ../up\n")
    assert manifest_text(tmp_path, ended=True) == f"{hashlib.sha256(b'x').hexdigest()}  a.txt\n"


@given(st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="/\0"), min_size=1, max_size=20))
def test_any_name_can_be_read_back(name: str) -> None:
    from tempfile import TemporaryDirectory

    if name in (".", "..", MANIFEST) or len(name.encode()) > 200 or (name.startswith(".") and name.endswith((".tmp", ".new"))):
        return
    with TemporaryDirectory() as place:
        folder = Path(place)
        (folder / name).write_text("x")
        (folder / MANIFEST).write_bytes(manifest_text(folder, ended=True).encode("utf-8", "surrogateescape"))
        assert list(read_manifest(folder)) == [name]


def test_sha256sum_reads_odd_names(tmp_path: Path) -> None:
    for name in ("a\nb", "back\\slash", "two  spaces", "ümlaut"):
        (tmp_path / name).write_text(name)
    (tmp_path / MANIFEST).write_text(manifest_text(tmp_path, ended=True))
    assert check(tmp_path) == []
    assert len(read_manifest(tmp_path)) == 4
