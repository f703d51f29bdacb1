"""The annotated reference: comments of ``reference.yaml`` written from the model, so that the file and the model cannot part.

Lines that begin with ``#:`` are written here, above the first place where a key stands; everything else in the file is written by
hand. ``python -m audition.spike.reference`` prints the file with its comments renewed. Nothing is written to disk here.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

from audition.spike import keys
from audition.spike.document import Document, read_document
from audition.spike.model import Spike
from audition.spike.problems import Path as KeyPath

REFERENCE = Path(__file__).parent / "reference.yaml"
_MARK = "#:"
_WIDTH = 120


def reference_text() -> str:
    """The reference as it is shipped."""
    return REFERENCE.read_text(encoding="utf-8")


def annotate(source: str) -> str:
    """The reference with every ``#:`` comment renewed: meaning, type, default. The example is the value below it.

    Raises ValueError when the text is no YAML mapping.
    """
    lines = [line for line in source.splitlines() if not line.lstrip().startswith(_MARK)]
    document = read_document("\n".join(lines))
    if document.data is None or document.problems:
        raise ValueError(f"the reference is no YAML mapping: {document.problems}")
    above: dict[int, list[str]] = {}
    for key, path in first_places(document):
        line, column = document.keys[path]
        above.setdefault(line, []).extend(_comment(key, _indent(lines[line - 1], column), named=_shares_line(document, path)))
    out: list[str] = []
    for at, text in enumerate(lines, start=1):
        out += [*above.get(at, []), text]
    return "\n".join(out) + "\n"


def first_places(document: Document) -> list[tuple[keys.Key, KeyPath]]:
    """Each key of the model that the document gives, with the first place where it stands, in the order of the file."""
    found: dict[tuple[type, str], tuple[keys.Key, KeyPath]] = {}
    for path in sorted(document.keys, key=lambda p: document.keys[p]):
        owner = owner_of(document, path)
        if owner is not None:
            found.setdefault((owner, str(path[-1])), (keys.key(owner, str(path[-1])), path))
    return list(found.values())


def owner_of(document: Document, path: KeyPath) -> type | None:
    """The model that the last key of a path belongs to; None for a free name such as a variable of ``env``."""
    here: object = Spike
    value: object = document.data
    for part in path[:-1]:
        here = keys.below(_chosen(here, value), part)
        value = value[part] if isinstance(value, dict | list) else None  # type: ignore[index]
    for model in keys.models(_chosen(here, value)):
        if path[-1] in model.model_fields:
            return model
    return None


def _chosen(here: object, value: object) -> object:
    """The member of a discriminated union that a value selects by its ``kind``."""
    members = keys.models(here)
    if len(members) > 1 and isinstance(value, dict):
        return next((member for member in members if keys.tag(member) == value.get("kind")), here)
    return here


def _indent(line: str, column: int) -> str:
    before = line[: column - 1]
    return " " * (len(before) - len(before.lstrip(" -"))) if before.strip(" -") else before.replace("-", " ")


def _shares_line(document: Document, path: KeyPath) -> bool:
    line = document.keys[path][0]
    return sum(1 for other, (at, _) in document.keys.items() if at == line and other[:-1] == path[:-1]) > 1


def _comment(key: keys.Key, indent: str, *, named: bool) -> list[str]:
    default = "must be given" if key.default is None else f"default: {key.default}"
    text = f"{key.name}: {key.description}" if named else key.description
    begin = f"{indent}{_MARK} "
    return textwrap.wrap(
        f"{text} [{key.type}; {default}]", _WIDTH, initial_indent=begin, subsequent_indent=begin + "  ", break_on_hyphens=False
    )


if __name__ == "__main__":
    print(annotate(reference_text()), end="")
