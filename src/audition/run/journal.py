"""The journal file: sqlite with WAL and synchronous=FULL, so that an intent is on disk before its effect.

Encoding and replay are in ``swap.journal``. A journal that cannot be written any more is an error before production is touched,
and a note afterwards: restoring never waits for a disk.
"""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path
from typing import Any

from audition.errors import InternalError
from audition.swap.journal import Entry, Mark

_SCHEMA = """CREATE TABLE IF NOT EXISTS entries (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, fence INTEGER NOT NULL,
    step TEXT NOT NULL, kind TEXT NOT NULL, mark TEXT NOT NULL, data TEXT NOT NULL)"""


class Journal:
    """One run's journal. One writer at a time; readers may look while it is written."""

    def __init__(self, path: Path, fence: int) -> None:
        self.path = path
        self._fence = fence
        self.broken: str | None = None
        try:
            self._db = sqlite3.connect(path, isolation_level=None, timeout=10)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute(_SCHEMA)
        except sqlite3.Error as cause:
            raise InternalError(f"the journal {path} cannot be opened", seen=str(cause)) from cause

    def write(self, step: str, kind: str, mark: Mark, data: dict[str, Any] | None = None) -> None:
        """One entry, on disk when this returns.

        Raises InternalError when it cannot be written or when a newer fence has written (a stale holder must not go on).
        After ``tolerate`` was called, failures are kept in ``broken`` instead.
        """
        if self.broken is not None and self._tolerant:
            return
        try:
            self._db.execute("BEGIN IMMEDIATE")
            newest = self._db.execute("SELECT max(fence) FROM entries").fetchone()[0] or 0
            if newest > self._fence:
                self._db.execute("ROLLBACK")
                raise InternalError(f"another holder (fence {newest}) has taken this run over; this one had fence {self._fence}")
            self._db.execute(
                "INSERT INTO entries (at, fence, step, kind, mark, data) VALUES (?, ?, ?, ?, ?, ?)",
                (time.time(), self._fence, step, kind, mark, json.dumps(data or {})),
            )
            self._db.execute("COMMIT")
        except sqlite3.Error as cause:
            self.broken = str(cause)
            if self._db.in_transaction:
                try:
                    self._db.execute("ROLLBACK")
                except sqlite3.Error as second:
                    self.broken = f"{cause}; roll back: {second}"
            if not self._tolerant:
                raise InternalError(f"the journal {self.path} cannot be written", seen=str(cause)) from cause

    _tolerant = False

    def tolerate(self) -> None:
        """From now on a failing journal does not stop anything: restoring comes first."""
        self._tolerant = True

    def close(self) -> None:
        """Close the file; the entries stay."""
        self._db.close()


def read_entries(path: Path) -> list[Entry]:
    """All entries of a journal file, oldest first. Raises FileNotFoundError, or sqlite3.Error when it is no readable journal."""
    if not path.exists():
        raise FileNotFoundError(path)
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)
    try:
        rows = db.execute("SELECT seq, at, fence, step, kind, mark, data FROM entries ORDER BY seq").fetchall()
    finally:
        db.close()
    return [Entry(seq, at, fence, step, kind, mark, json.loads(data)) for seq, at, fence, step, kind, mark, data in rows]
