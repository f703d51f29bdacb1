"""Finding a spike file from what a person types: a path, a folder, or the name of a shipped example."""

from __future__ import annotations

from pathlib import Path

from audition.spike.problems import BadSpike, Problem, nearest

FILE_NAME = "spike.yaml"
_SHIPPED = Path(__file__).parent.parent / "examples"


def example_names() -> list[str]:
    """The names of the shipped examples, sorted."""
    return sorted(folder.parent.name for folder in _SHIPPED.glob(f"*/{FILE_NAME}"))


def find_spike(name_or_path: str | Path) -> Path:
    """The spike file meant: a file, a folder that holds ``spike.yaml``, or the name of a shipped example.

    A path that exists wins over an example of the same name, except a folder without ``spike.yaml``. Raises BadInput that lists
    the examples when there is nothing of that name. The file's content is not looked at.
    """
    text = str(name_or_path)
    shipped = _SHIPPED / text / FILE_NAME
    is_name = text in example_names()
    path = Path(text)
    try:
        if path.is_dir():
            inside = path / FILE_NAME
            if inside.exists():
                return inside
            if not is_name:
                raise BadSpike(text, [Problem(0, 0, "", f"the folder holds no {FILE_NAME}")], next_step=_hint(text))
        elif path.exists():
            return path
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else str(error)
        raise BadSpike(text, [Problem(0, 0, "", f"the path cannot be read: {said}")], next_step=_hint(text)) from error
    if is_name:
        return shipped
    said = "there is no such file, folder or shipped example"
    raise BadSpike(text, [Problem(0, 0, "", said, nearest(text, example_names()))], next_step=_hint(text))


def _hint(text: str) -> str:
    names = example_names()
    return (
        f"give the path of a spike file, or one of the shipped examples: {', '.join(names)}"
        if names
        else "give the path of a spike file"
    )


def is_example(path: Path) -> bool:
    """Whether a spike file is one of the shipped examples; their folder may be read-only, so records go elsewhere."""
    return path.resolve().is_relative_to(_SHIPPED.resolve())
