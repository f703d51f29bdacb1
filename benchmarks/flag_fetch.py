"""Fetches released versions of vLLM by pip and keeps of each only its Python sources; nothing of it is built, installed or run.

A source archive is preferred (about 30 MB). pip insists on a package's metadata; vLLM's own build would need torch for that, so
pip is handed a build backend of a few lines that answers from the archive's PKG-INFO. Versions without a source archive come as a
wheel (about 400 MB, deleted at once).
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "vllm"
OLDEST = (0, 9, 2)
BACKEND = """
import pathlib
def get_requires_for_build_wheel(config_settings=None):
    return []
def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    head = pathlib.Path("PKG-INFO").read_text(encoding="utf-8").split("\\n\\n")[0].splitlines()
    kept = [line for line in head if line.startswith(("Metadata-Version:", "Name:", "Version:"))]
    version = next(line.split(": ")[1] for line in kept if line.startswith("Version:"))
    folder = pathlib.Path(metadata_directory) / f"vllm-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("\\n".join(kept) + "\\n", encoding="utf-8")
    return folder.name
"""


@dataclass(frozen=True)
class Release:
    """One released version: where its sources lie now, and the archive that they come from."""

    version: str
    folder: Path
    archive: str
    sha256: str


def order(version: str) -> tuple[int, ...]:
    """A sort key for plain release numbers such as 0.10.1.1."""
    return tuple(int(part) for part in version.split("."))


def released() -> list[str]:
    """All released versions from 0.9.2 on, oldest first, as pip lists them. Raises CalledProcessError when pip fails."""
    ran = subprocess.run([*_pip(), "index", "versions", PACKAGE], check=True, capture_output=True, text=True)
    listed = re.search(r"Available versions: (.*)", ran.stdout)
    names = listed.group(1).split(", ") if listed else []
    return sorted((n for n in names if re.fullmatch(r"[\d.]+", n) and order(n) >= OLDEST), key=order)


def fetch(version: str, keep: Path) -> Release:
    """The Python sources of one version below ``keep``/version; fetched when they are not there yet.

    Raises CalledProcessError when pip can get neither a source archive nor a wheel.
    """
    folder, note = keep / version, keep / f"{version}.archive"
    if not note.is_file():
        with tempfile.TemporaryDirectory(dir=keep) as work:
            archive = _download(version, Path(work))
            shutil.rmtree(folder, ignore_errors=True)
            _unpack(archive, folder)
            note.write_text(f"{archive.name} {_digest(archive)}\n", encoding="utf-8")
    name, digest = note.read_text(encoding="utf-8").split()
    return Release(version, folder, name, digest)


def _pip() -> list[str]:
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]


def _download(version: str, work: Path) -> Path:
    backend = work / "backend" / "setuptools"
    backend.mkdir(parents=True)
    (backend / "__init__.py").write_text("", encoding="utf-8")
    (backend / "build_meta.py").write_text(BACKEND, encoding="utf-8")
    common = [*_pip(), "download", "-qq", "--no-deps", "--no-cache-dir", "-d", str(work / "got"), f"{PACKAGE}=={version}"]
    source = [*common, "--no-binary", PACKAGE, "--no-build-isolation"]
    if subprocess.run(source, env={**os.environ, "PYTHONPATH": str(backend.parent)}, capture_output=True, check=False).returncode:
        subprocess.run(common, check=True, capture_output=True)
    return next((work / "got").iterdir())


def _unpack(archive: Path, folder: Path) -> None:
    """Only ``vllm/**/*.py``; names that would leave the folder are passed over."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for name in wheel.namelist():
                if name.startswith(f"{PACKAGE}/") and name.endswith(".py") and ".." not in name:
                    wheel.extract(name, folder)
        return
    with tarfile.open(archive) as tree:
        for member in tree:
            name = member.name.partition("/")[2]
            if member.isfile() and name.startswith(f"{PACKAGE}/") and name.endswith(".py") and ".." not in name:
                content = tree.extractfile(member)
                assert content is not None
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content.read())


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
