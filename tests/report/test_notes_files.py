"""Entries in real notes files: what is kept, what is refused, two processes at once."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from audition.judge.folder import judge_folder
from audition.report.notes import insert_entry, marker
from audition.report.writer import add_entry, write_records
from audition.spike.model import Note
from golden.make import DATA, records_of

NOTE = Note(file="notes.md", heading="## Datapoints")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b"## Datapoints\n\n{m}\nE\n"),
        (b"no final newline", b"no final newline\n\n## Datapoints\n\n{m}\nE\n"),
        (b"# N\r\n\r\n## Datapoints\r\nold\r\n\r\n## Z\r\n", b"# N\r\n\r\n## Datapoints\r\nold\r\n\r\n{m}\r\nE\r\n\r\n## Z\r\n"),
        (b"## Datapoints", b"## Datapoints\n\n{m}\nE\n"),
        (b"## Datapoints ##\n\nx\n", b"## Datapoints ##\n\nx\n\n{m}\nE\n"),
        (b"Datapoints\n----------\nx\n\nNext\n----\n", b"Datapoints\n----------\nx\n\n{m}\nE\n\nNext\n----\n"),
        (b"# Datapoints\nother level\n", b"# Datapoints\nother level\n\n## Datapoints\n\n{m}\nE\n"),
        (b"```md\n## Datapoints\n```\n", b"```md\n## Datapoints\n```\n\n## Datapoints\n\n{m}\nE\n"),
        (b"~~~\n## Datapoints\n", b"~~~\n## Datapoints\n~~~\n\n## Datapoints\n\n{m}\nE\n"),
        (b"## Datapoints\n```\nnever closed\n", b"## Datapoints\n```\nnever closed\n```\n\n{m}\nE\n"),
        (b"\xef\xbb\xbf## Datapoints\nx\n", b"\xef\xbb\xbf## Datapoints\nx\n\n{m}\nE\n"),
        (b"## Datapoints\nlatin \xe9\x80 and a\x0cform feed\n", b"## Datapoints\nlatin \xe9\x80 and a\x0cform feed\n\n{m}\nE\n"),
        (b"## Datapoints\na\n### Sub\nb\n## Z\n", b"## Datapoints\na\n### Sub\nb\n\n{m}\nE\n\n## Z\n"),
        (b"| a |\n| --- |\n| 1 |\n\n---\n", b"| a |\n| --- |\n| 1 |\n\n---\n\n## Datapoints\n\n{m}\nE\n"),
    ],
)
def test_the_entry_goes_under_its_heading_and_nothing_else_changes(before: bytes, after: bytes, tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    path.write_bytes(before)
    expected = after.replace(b"{m}", marker("r1", NOTE.heading).encode())

    assert add_entry(path, NOTE, "E", "r1") is True
    assert path.read_bytes() == expected
    assert add_entry(path, NOTE, "another text", "r1") is False
    assert path.read_bytes() == expected


def test_an_entry_that_was_moved_by_hand_is_not_added_again() -> None:
    text = f"## Old\n\n{marker('r1', 'Datapoints')}\nE\n\n## Datapoints\n"
    assert insert_entry(text, "## Datapoints", "E", "r1") == text


def test_one_run_may_add_an_entry_under_each_of_two_headings() -> None:
    once = insert_entry("", "## A", "E", "r1")
    twice = insert_entry(once, "## B", "E", "r1")
    assert twice.count("\nE\n") == 2
    assert insert_entry(insert_entry(twice, "## A", "E", "r1"), "## B", "E", "r1") == twice


def test_mode_owner_and_link_are_kept(tmp_path: Path) -> None:
    real = tmp_path / "elsewhere" / "real.md"
    real.parent.mkdir()
    real.write_text("## Datapoints\n")
    real.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(real, 12345, 23456)
    seen = real.stat()
    link = tmp_path / "notes.md"
    link.symlink_to(real)

    assert add_entry(link, NOTE, "E", "r1")

    now = real.stat()
    assert link.is_symlink()
    assert (stat.S_IMODE(now.st_mode), now.st_uid, now.st_gid) == (0o640, seen.st_uid, seen.st_gid)
    assert "E\n" in real.read_text()
    assert [p.name for p in real.parent.iterdir()] == ["real.md"]


def test_a_file_that_is_missing_is_made_with_its_folder_and_a_dangling_link_is_followed(tmp_path: Path) -> None:
    assert add_entry(tmp_path / "a" / "b" / "notes.md", NOTE, "E", "r1")
    link = tmp_path / "notes.md"
    link.symlink_to("later.md")
    assert add_entry(link, NOTE, "E", "r1")
    assert (tmp_path / "later.md").read_text() == (tmp_path / "a" / "b" / "notes.md").read_text()
    assert link.is_symlink()


@pytest.mark.parametrize("kind", ["read-only", "folder", "link loop"])
def test_a_notes_file_that_cannot_be_changed_fails_no_run_and_says_where_the_entry_is(kind: str, tmp_path: Path) -> None:
    notes = tmp_path / "project_spec_dec.md"
    if kind == "read-only":
        notes.write_text("## MTP on Ada\n")
        notes.chmod(0o444)
    elif kind == "folder":
        notes.mkdir()
    else:
        notes.symlink_to(notes.name)
    warnings: list[str] = []
    run = records_of("no-go-boot", tmp_path / "first")
    spike, result = judge_folder(run)

    files = write_records(run, result, spike, tmp_path, True, warn=warnings.append)

    assert notes not in files
    assert run / "result.json" in files
    assert len(warnings) == 1
    assert str(notes) in warnings[0]
    assert "notes-entry.md" in warnings[0]
    assert "project_spec_dec.md" in (run / "notes-entry.md").read_text()
    if kind == "read-only":
        assert notes.read_text() == "## MTP on Ada\n"


def test_a_rehearsal_touches_no_notes(tmp_path: Path) -> None:
    run = records_of("rehearsal", tmp_path)
    assert not (tmp_path / "project_spec_dec.md").exists()
    assert "A real run would add" in (run / "notes-entry.md").read_text()


def test_judging_again_adds_nothing_twice(tmp_path: Path) -> None:
    run = records_of("no-go-boot", tmp_path)
    notes = tmp_path / "project_spec_dec.md"
    before = notes.read_bytes()

    for write_notes in (False, True):
        spike, result = judge_folder(run)
        write_records(run, result, spike, tmp_path, write_notes)

    assert notes.read_bytes() == before
    assert before.count(b"<!-- audition run") == 1


WRITER = """
import sys
from pathlib import Path
from audition.report.writer import add_entry
from audition.spike.model import Note
note = Note(file="notes.md", heading="## Datapoints")
sys.stdin.read(1)
for number in range(20):
    add_entry(Path(sys.argv[1]), note, f"ENTRY {sys.argv[2]} {number}", f"{sys.argv[2]}-{number}")
    add_entry(Path(sys.argv[1]), note, f"SHARED {number}", f"shared-{number}")
"""


def test_two_processes_at_once_lose_nothing_and_add_nothing_twice(tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    path.write_text("## Datapoints\n\nold\n\n## Z\n\nend\n")
    both = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), name], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for name in ("one", "two")
    ]
    for process in both:
        assert process.stdin is not None
        process.stdin.write("x")
        process.stdin.flush()
    ends = [process.communicate(timeout=120) for process in both]

    text = path.read_text()
    assert [end[1] for end in ends] == ["", ""]
    for number in range(20):
        assert [text.count(f"{entry} {number}\n") for entry in ("ENTRY one", "ENTRY two", "SHARED")] == [1, 1, 1]
    assert text.startswith("## Datapoints\n\nold\n")
    assert text.endswith("\n\n## Z\n\nend\n")


def test_data_of_the_golden_runs_stay_as_they_are() -> None:
    """The tests above work on copies; a stray entry would land here."""
    assert not list(DATA.parent.rglob("project_spec_dec.md"))
