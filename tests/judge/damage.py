"""Ways in which a record on disk can be spoilt."""

from __future__ import annotations

from pathlib import Path

HOW = ["missing", "truncated", "nan", "garbled", "empty", "short"]


def damage(path: Path, how: str, at: float) -> None:
    """Spoil a file in one of these ways; ``at``: after which share of it."""
    data = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "truncated":
        path.write_bytes(data[: int(len(data) * at)])
    elif how == "nan":
        text = data.decode()
        number = next(x for x in ('"end":', '"wall_s": ', '"started_at": ') if x in text)
        head, _, rest = text.partition(number)
        path.write_text(head + number + "NaN" + rest[len(rest.split(",")[0].split("\n")[0]) :])
    elif how == "garbled":
        path.write_bytes(b"\xff\xfe" + data[2:])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "short":
        lines = data.splitlines(keepends=True)
        path.write_bytes(b"".join(lines[: max(1, int(len(lines) * at))]))
