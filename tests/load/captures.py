"""Captured streams as (arrival, bytes) pairs."""

from __future__ import annotations

import re
from pathlib import Path

DATA = Path(__file__).parents[1] / "data"


def cpu_capture(name: str) -> list[tuple[float, bytes]]:
    """A capture with arrivals: the first line is the headers, each event begins with its arrival and a tab."""
    text = (DATA / "vllm-0.32-cpu" / name).read_text(encoding="utf-8").split("\n", 1)[1]
    parts = re.split(r"(?m)^(\d+\.\d{4})\t", text)[1:]
    return [(float(at), body.encode()) for at, body in zip(parts[::2], parts[1::2], strict=True)]


def gpu_capture(name: str) -> list[tuple[float, bytes]]:
    """A capture without arrivals, as one piece."""
    return [(0.0, (DATA / "vllm-0.24-h200" / name).read_bytes())]
