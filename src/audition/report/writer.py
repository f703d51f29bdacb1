"""Writes the records of a run into its folder, and entries into notes files. The one place of this room that touches files.

Judging again writes the same bytes. Texts come from the pure modules beside this one; everything passes through ``mask``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from audition.errors import InternalError
from audition.judge.result import Result, result_json
from audition.report.decision import decision_markdown
from audition.report.mask import mask
from audition.report.notes import entry_text, insert_entry
from audition.report.terminal import summary_text
from audition.report.upstream import issue_markdown, upstream_markdown
from audition.spike.model import Spike


def write_records(
    run_dir: Path, result: Result, spike: Spike, spike_folder: Path, write_notes: bool, *, secrets: Sequence[str] = ()
) -> list[Path]:
    """Write all records that this result calls for; returns the files, in order. A record no longer called for is removed.

    ``secrets``: values that must appear nowhere. ``write_notes``: also add the entries to the notes files of the spike.
    Raises InternalError when a file cannot be written.
    """
    texts: dict[str, str | None] = {
        "result.json": result_json(result),
        "summary.txt": summary_text(result),
        "decision.md": decision_markdown(result),
        "upstream.md": upstream_markdown(result, spike),
        "issue-draft.md": issue_markdown(result, spike),
    }
    written: list[Path] = []
    try:
        for name, text in texts.items():
            path = run_dir / name
            if text is None:
                path.unlink(missing_ok=True)
            else:
                _write(path, mask(text, secrets))
                written.append(path)
        if write_notes:
            written += _write_notes(result, spike, spike_folder, secrets)
    except OSError as error:
        raise InternalError(
            f"the records could not be written: {error}",
            tried=f"to write the records into {run_dir}",
            seen=str(error),
            next_step=f"free the disk or correct the rights, then type: audition judge {run_dir}",
        ) from error
    return written


def _write_notes(result: Result, spike: Spike, spike_folder: Path, secrets: Sequence[str]) -> list[Path]:
    changed: list[Path] = []
    for note in spike.records.notes:
        if result.verdict not in note.on:
            continue
        path = spike_folder / note.file
        old = path.read_bytes().decode("utf-8", "surrogateescape") if path.exists() else ""
        new = insert_entry(old, note.heading, mask(entry_text(result), secrets), result.run_id)
        if new != old:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, new)
            changed.append(path)
    return changed


def _write(path: Path, text: str) -> None:
    """Replace a file as a whole: a reader sees the old bytes or the new ones, never a part. Keeps links and modes."""
    target = path.resolve()
    beside = target.with_name(f".{target.name}.new")
    data = text.encode("utf-8", "surrogateescape")
    with beside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    if target.exists():
        beside.chmod(target.stat().st_mode & 0o7777)
    beside.replace(target)
