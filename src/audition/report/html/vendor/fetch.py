"""Fetches the vendored chart libraries anew and checks them against ``vendored.json``. Run by hand: ``python fetch.py``; needs npm.

Versions are pinned in ``vendored.json`` beside this file, with the npm integrity of each package and the SHA-256 of each file taken
from it. A file whose hash differs is not written. Nothing of audition imports this; a run never needs the network.
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


class WrongHash(Exception):
    """What came is not what was pinned."""


def packed(package: str, integrity: str, folder: Path) -> Path:
    """The package's archive, fetched by npm into ``folder``. Raises WrongHash, or CalledProcessError when npm fails."""
    done = subprocess.run(["npm", "pack", "--json", package], cwd=folder, check=True, capture_output=True, text=True)
    archive = folder / str(json.loads(done.stdout)[0]["filename"])
    kind, _, wanted = integrity.partition("-")
    found = base64.b64encode(hashlib.new(kind, archive.read_bytes()).digest()).decode("ascii")
    if found != wanted:
        raise WrongHash(f"{package}: expected {integrity}, npm gave {kind}-{found}")
    return archive


def take(archive: Path, files: dict[str, dict[str, str]]) -> None:
    """Write the wanted files of an archive beside this script. Raises WrongHash, or KeyError for a file that is not there."""
    with tarfile.open(archive) as tar:
        for inside, entry in files.items():
            stream = tar.extractfile(f"package/{inside}")
            if stream is None:
                raise KeyError(inside)
            data = stream.read()
            found = hashlib.sha256(data).hexdigest()
            if found != entry["sha256"]:
                raise WrongHash(f"{inside}: expected {entry['sha256']}, found {found}")
            (HERE / entry["file"]).write_bytes(data)
            print(f"{entry['file']}: {len(data)} bytes, as pinned")


def main() -> int:
    """Fetch everything. Exit code 1 when a hash differs."""
    pinned: dict[str, Any] = json.loads((HERE / "vendored.json").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        for package, entry in pinned.items():
            try:
                take(packed(package, entry["integrity"], Path(folder)), entry["files"])
            except WrongHash as error:
                print(f"NOT written: {error}", file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
