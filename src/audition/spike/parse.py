"""A spike file read and checked: text in, ``Spike`` out, or one error that names everything that is wrong.

The only module of this room that reads a spike file from disk. The YAML itself is read by ``document``, pydantic's findings are
worded by ``wording``, what the model cannot see is checked by ``checks``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from audition.spike.checks import cross_check
from audition.spike.document import MAX_BYTES, read_document
from audition.spike.model import Spike
from audition.spike.problems import BadSpike, Problem
from audition.spike.wording import problem_of

_NEXT = "correct the file; `audition schema` prints the schema for your editor, and the reference explains every key"


@dataclass(frozen=True)
class LoadedSpike:
    """A spike with where it came from. ``path`` and ``folder`` are absolute, links followed; ``source`` is the text of the file."""

    spike: Spike
    path: Path
    folder: Path
    source: str


def load_spike(path: Path) -> LoadedSpike:
    """Read and check a spike file. Raises BadInput (exit 2) with every problem of the file; nothing else is read or touched."""
    source = _read(path)
    spike = parse_spike(source, str(path))
    real = path.resolve()
    return LoadedSpike(spike, real, real.parent, source)


def parse_spike(text: str, name: str) -> Spike:
    """The spike in a YAML text. ``name`` is what errors call the file. Raises BadInput with every problem, in line order."""
    document = read_document(text)
    problems = list(document.problems)
    spike: Spike | None = None
    if document.data is not None:
        try:
            spike = Spike.model_validate(document.data, strict=True)
        except ValidationError as error:
            found = (problem_of(document, record) for record in error.errors(include_url=False))
            problems += [problem for problem in found if problem is not None]
        taken = {(problem.line, problem.path) for problem in problems}
        problems += [p for p in cross_check(document) if (p.line, p.path) not in taken]
    if problems or spike is None:
        raise BadSpike(name, problems, next_step=_NEXT)
    return spike


def resolve(folder: Path, text: str) -> Path:
    """A path of a spike file as an absolute path: relative ones from ``folder``, ``~`` as the user's home.

    Variables such as ``$HOME`` are not replaced: a spike means the same in every shell. Raises BadInput when ``~name`` names no
    user. Whether the path exists is not looked at.
    """
    if "\0" in text:
        raise BadSpike(repr(text), [Problem(0, 0, "", "a path cannot hold a zero byte")])
    try:
        path = Path(text).expanduser()
    except RuntimeError as error:
        raise BadSpike(text, [Problem(0, 0, "", f"the home folder cannot be found ({error})")]) from error
    return path if path.is_absolute() else folder / path


def _read(path: Path) -> str:
    """The text of the file. Raises BadInput when it is missing, no file, too long, or no UTF-8 text."""
    name = str(path)
    try:
        if path.is_dir():
            raise _unreadable(name, "this is a folder, expected a spike file", f"try {path / 'spike.yaml'}")
        if not path.exists():
            raise _unreadable(name, "there is no such file", "check the path; the shipped examples go by their names")
        if not path.is_file():
            raise _unreadable(name, "this is not a regular file, expected a spike file", "")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else str(error)
        raise _unreadable(name, f"the file cannot be read: {said}", "check its rights with ls -l") from error
    if len(data) > MAX_BYTES:
        raise _unreadable(name, f"the file is longer than {MAX_BYTES // 1024} KiB; this is no spike file", "")
    if b"\0" in data:
        raise _unreadable(name, "the file is binary (or UTF-16), expected UTF-8 text", "")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        said = f"byte 0x{data[error.start]:02X} is not UTF-8 text"
        raise BadSpike(name, [Problem(line, 1, "", said, "save the file as UTF-8")], next_step=_NEXT) from error


def _unreadable(name: str, said: str, hint: str) -> BadSpike:
    return BadSpike(name, [Problem(0, 0, "", said)], next_step=hint)
