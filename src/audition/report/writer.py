"""Writes the records of a run into its folder, and entries into notes files. The one place of this room that writes files.

Judging again writes the same bytes. Texts come from the pure modules beside this one; everything passes through ``mask``.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from audition.errors import InternalError
from audition.judge.files import MOST_RECORD
from audition.judge.records import whole_characters
from audition.judge.result import Result, result_json
from audition.plain_file import NotPlain, read_bytes
from audition.report.decision import decision_markdown
from audition.report.html import report_html
from audition.report.issue_draft import issue_markdown
from audition.report.manifest import MANIFEST, changed_since, manifest_text
from audition.report.mask import mask
from audition.report.notes import entry_text, insert_entry
from audition.report.pending import entries_markdown
from audition.report.summary import summary_markdown
from audition.report.terminal import summary_text
from audition.report.upstream import upstream_markdown
from audition.spike.model import Note, Spike

REPORT = "report.html"
_HALF = re.compile("[\ud800-\udc7f\udd00-\udfff]")
_TRIES = 5
"""How often an entry is put in anew because somebody else changed the notes file meanwhile."""


def warn_on_stderr(text: str) -> None:
    """How warnings are said unless the caller has a better way."""
    with suppress(OSError, ValueError):
        print(f"warning: {text}", file=sys.stderr)


def write_records(
    run_dir: Path,
    result: Result,
    spike: Spike,
    spike_folder: Path,
    write_notes: bool,
    *,
    secrets: Sequence[str] = (),
    warn: Callable[[str], None] = warn_on_stderr,
) -> list[Path]:
    """Write all records that this result calls for; returns the files, in order, the manifest last. A record that is no longer
    called for is removed.

    ``secrets``: values that must appear nowhere. ``write_notes``: also add the entries to the notes files of the spike, never for a
    rehearsal; where that is not possible, ``warn`` is called and the entry stays in ``notes-entry.md``. ``warn`` also hears of raw
    records that are no longer what the run left. Raises InternalError when a file of the run folder cannot be written.
    """
    texts: dict[str, str | None] = {
        "result.json": result_json(result),
        "summary.txt": summary_text(result),
        "summary.md": summary_markdown(result),
        "decision.md": decision_markdown(result),
        "upstream.md": upstream_markdown(result, spike),
        "issue-draft.md": issue_markdown(result, spike),
        "notes-entry.md": entries_markdown(result, spike),
    }
    written: list[Path] = []
    try:
        for name, text in texts.items():
            path = run_dir / name
            if text is None:
                path.unlink(missing_ok=True)
            else:
                replace_file(path, mask(whole_characters(text), secrets))
                written.append(path)
        replace_file(
            run_dir / REPORT, report_html(run_dir, result, spike, secrets)
        )  # masked inside: its scripts must stay as they are
        written.append(run_dir / REPORT)
        for name in changed_since(run_dir):
            warn(f"{run_dir / name} is no longer what the run left (see {MANIFEST}); the verdict rests on the changed records")
        if write_notes and not result.rehearsal:
            written += _write_notes(result, spike, spike_folder, mask(entry_text(result), secrets), warn)
        replace_file(run_dir / MANIFEST, manifest_text(run_dir, ended=result.ended != "running"))
        written.append(run_dir / MANIFEST)
    except OSError as error:
        raise InternalError(
            f"the records could not be written: {error}",
            tried=f"to write the records into {run_dir}",
            seen=str(error),
            next_step=f"free the disk or correct the rights, then type: audition judge {run_dir}",
        ) from error
    return written


def _write_notes(result: Result, spike: Spike, spike_folder: Path, entry: str, warn: Callable[[str], None]) -> list[Path]:
    """Add the entries; a notes file that cannot be changed never fails a run, whose verdict does not depend on it."""
    changed: list[Path] = []
    for note in spike.records.notes:
        if result.verdict in note.on:
            path = spike_folder / note.file
            try:
                if add_entry(path, note, whole_characters(entry), result.run_id) and path not in changed:
                    changed.append(path)
            except OSError as error:
                seen = error.strerror or str(error)
                warn(f"no entry was added to {path} ({seen}); put the one in notes-entry.md of the run there by hand")
    return changed


def add_entry(path: Path, note: Note, entry: str, run_id: str) -> bool:
    """Add one entry to a notes file; whether it was changed. A link is followed. The file keeps its mode and its owner.

    Two processes at once take turns (a lock on the folder); a change by anybody else in between is read again and kept. Raises
    OSError when the file is read-only, no regular file, cannot be written, or changes all the time.
    """
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_symlink() or (target.exists() and not target.is_file()):
        raise OSError(f"{target} is no regular file")
    with _folder_lock(target.parent):
        for _ in range(_TRIES):
            old = read_bytes(target, MOST_RECORD) if target.exists() else b""
            text = old.decode("utf-8", "surrogateescape")
            new = insert_entry(text, note.heading, entry, run_id)
            if new == text:
                return False
            if target.exists() and (not target.stat().st_mode & 0o222 or not os.access(target, os.W_OK)):
                raise OSError("the file is read-only")
            if replace_file(target, new, unless_changed=old):
                return True
    raise OSError("somebody else keeps changing the file")


@contextmanager
def _folder_lock(folder: Path) -> Iterator[None]:
    """An advisory lock on a folder, so that nothing is left behind; where the file system has no locks, none."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def replace_file(path: Path, text: str, *, unless_changed: bytes | None = None) -> bool:
    """Replace a file as a whole: a reader sees the old bytes or the new ones, never a part. Keeps the mode and, where that is
    allowed, the owner. A link is not followed: it is replaced itself, and what it leads to stays as it is. Half characters (lone
    surrogates) become replacement characters, except those that stand for a byte. ``unless_changed``: what the file must still
    hold; False when it does not. Raises OSError, also when something is there that is neither a file nor a link."""
    target = path.parent / path.name
    there = _lstat(target)
    linked = there is not None and stat.S_ISLNK(there.st_mode)
    if there is not None and not linked and not stat.S_ISREG(there.st_mode):
        raise NotPlain(f"{target} is no regular file")
    beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    data = _HALF.sub("\ufffd", text).encode("utf-8", "surrogateescape")
    try:
        beside.unlink(missing_ok=True)
        with beside.open("xb") as file:
            if there is not None and not linked:
                _like(file.fileno(), there)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if unless_changed is not None and (read_bytes(target, MOST_RECORD) if target.exists() else b"") != unless_changed:
            return False
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)
    return True


def _lstat(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except FileNotFoundError:
        return None


def _like(descriptor: int, seen: os.stat_result) -> None:
    """Give a new file the owner and the mode of the one that it replaces; only root may give files away."""
    with suppress(PermissionError):
        os.fchown(descriptor, seen.st_uid, seen.st_gid)
    os.fchmod(descriptor, seen.st_mode & 0o7777)
