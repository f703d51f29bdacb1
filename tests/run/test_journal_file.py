"""The journal on a real disk: sqlite files, a full file system (by limit), read-only folders, stale writers, kills."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from audition.errors import InternalError
from audition.run.journal import Journal, read_entries
from audition.swap.journal import replay


def test_entries_come_back_in_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite", fence=3)
    journal.write("stop", "stop", "intent")
    journal.write("stop", "stop", "done", {"seconds": 1.5})
    entries = read_entries(journal.path)
    assert [(e.step, e.mark, e.fence, e.data) for e in entries] == [
        ("stop", "intent", 3, {}),
        ("stop", "done", 3, {"seconds": 1.5}),
    ]
    assert replay(entries).touched


def test_the_file_is_written_with_wal_and_full(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite", fence=1)
    modes = [journal._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
    assert modes == ["wal", 2]


def test_an_entry_survives_a_kill_right_after_it(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from audition.run.journal import Journal\n"
        "j = Journal(Path(sys.argv[1]), 1); j.write('stop', 'stop', 'intent'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    path = tmp_path / "journal.sqlite"
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert replay(read_entries(path)).open_step == "stop"


def test_a_stale_holder_cannot_write(tmp_path: Path) -> None:
    old, new = Journal(tmp_path / "j", fence=1), Journal(tmp_path / "j", fence=2)
    old.write("stop", "stop", "intent")
    new.write("restore", "restore", "intent")
    with pytest.raises(InternalError, match="another holder"):
        old.write("stop", "stop", "done")


def test_a_corrupt_file_is_an_error_with_the_path(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    path.write_bytes(b"this is no database" * 100)
    with pytest.raises(InternalError, match=r"journal\.sqlite cannot be opened"):
        Journal(path, fence=1)
    with pytest.raises(sqlite3.Error):
        read_entries(path)


def test_a_full_disk_is_an_error_before_and_a_note_after(tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk: the same write fails in the same place."""
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        journal = Journal(tmp_path / "j", fence=1)
        size = sum(f.stat().st_size for f in tmp_path.iterdir())
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        failures = 0
        for _ in range(50):
            try:
                journal.write("stop", "stop", "intent", {"text": "x" * 20000})
            except InternalError:
                failures += 1
                break
        journal.tolerate()
        journal.write("restore", "restore", "intent", {"text": "x" * 20000})
        os._exit(0 if failures == 1 and journal.broken else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
