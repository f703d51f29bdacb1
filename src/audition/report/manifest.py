"""``MANIFEST``: a SHA-256 of every file of a run folder, in the form that ``sha256sum -c MANIFEST`` reads.

A raw record's line is written once and kept: when such a file is changed or removed later, ``sha256sum -c`` says so, also after the
run was judged again. Lines of derived records follow the files. While a run has no recorded end its records still change: then the
manifest has no line for ``run.json`` and is made anew each time. Reads files; writing is ``writer``'s.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from audition.judge.files import MOST_RECORD
from audition.plain_file import open_plain, read_bytes

MANIFEST = "MANIFEST"
DERIVED = frozenset({
    "result.json", "summary.txt", "summary.md", "decision.md", "upstream.md", "issue-draft.md", "notes-entry.md", "report.html",
})  # fmt: skip
"""Files that are made from the others, and may be made again."""

_SEAL = "run.json"
_BLOCK = 1 << 20


def manifest_text(folder: Path, *, ended: bool) -> str:
    """The manifest of a run folder as it is now, lines sorted by name. Links and files in the making are left out.

    ``ended``: whether the run has a recorded end. Raises OSError when a file cannot be read.
    """
    lines = {name: digest_of(folder / name) for name in file_names(folder)}
    if not ended:
        lines.pop(_SEAL, None)
    else:
        lines |= _sealed(folder)
    return "".join(f"{_line(lines[name], name)}\n" for name in sorted(lines))


def changed_since(folder: Path) -> list[str]:
    """Raw records that are no longer what the manifest says: changed or missing, by name. Empty without a manifest."""
    wrong = []
    for name, digest in sorted(_sealed(folder).items()):
        path = folder / name
        if not path.is_file() or digest_of(path) != digest:
            wrong.append(name)
    return wrong


def _sealed(folder: Path) -> dict[str, str]:
    """The lines of raw records in the manifest of a run that had ended; empty otherwise."""
    old = read_manifest(folder)
    return {name: digest for name, digest in old.items() if not may_change(name)} if _SEAL in old else {}


def may_change(name: str) -> bool:
    """Whether a file may be made again after the run's end: derived records, and how production was restored later."""
    return name in DERIVED or ("/" not in name and name.startswith("restored-by-"))


def file_names(folder: Path) -> Iterator[str]:
    """Every regular file below a run folder, relative, with ``/``; not the manifest, links, or temporary files (``.name.tmp``)."""
    for place, folders, files in os.walk(folder):
        folders.sort()
        for file in files:
            path = Path(place) / file
            name = path.relative_to(folder).as_posix()
            if name != MANIFEST and not path.is_symlink() and path.is_file() and not is_temporary(file):
                yield name


def is_temporary(name: str) -> bool:
    """Whether a name is that of a file in the making, which an abrupt end may leave behind."""
    return name.startswith(".") and name.endswith((".tmp", ".new"))


def digest_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal. Raises OSError."""
    digest = hashlib.sha256()
    with open_plain(path) as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def read_manifest(folder: Path) -> Mapping[str, str]:
    """Name -> digest; lines that are none are left out; empty when there is no manifest."""
    try:
        text = read_bytes(folder / MANIFEST, MOST_RECORD).decode("utf-8", "surrogateescape")
    except OSError:
        return {}
    found: dict[str, str] = {}
    for line in text.split("\n"):
        escaped = line.startswith("\\")
        digest, mark, name = line.removeprefix("\\").partition("  ")
        name = _unescaped(name) if escaped else name
        if mark and name and len(digest) == 64 and not name.startswith("/") and ".." not in name.split("/"):
            found[name] = digest
    return found


def _line(digest: str, name: str) -> str:
    """GNU coreutils' form: a leading backslash when the name holds a backslash or a line end, which are then escaped."""
    escaped = name.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"{chr(92) if escaped != name else ''}{digest}  {escaped}"


def _unescaped(name: str) -> str:
    out, rest = "", name
    while rest:
        head, mark, tail = rest.partition("\\")
        out += head
        if mark:
            out += {"n": "\n", "r": "\r"}.get(tail[:1], tail[:1])
            tail = tail[1:]
        rest = tail
    return out
