"""Takes off what collectors and vLLM put before a log line: colours, docker, compose and journald prefixes, process and level."""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import dataclass

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_COLLECTOR = re.compile(
    r"^(?:"
    r"[A-Za-z0-9][\w.-]*\s+\| ?"  # compose: vllm-1  | line
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d) (?:(?:stdout|stderr) [FP] )?"  # docker, kubernetes
    r"|(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\S+) \S+ [\w./@-]+(?:\[\d+\])?: "  # journald
    r")"
)
_PROCESS = re.compile(r"^\(([A-Za-z][\w.-]*) pid=(\d+)\) ?")
_LEVEL = re.compile(r"^(DEBUG|INFO|WARNING|ERROR|CRITICAL) (\d\d-\d\d \d\d:\d\d:\d\d) \[[^\]]+\] ?")


@dataclass(frozen=True)
class Line:
    """A line without its prefixes. ``process`` and ``level`` are empty when the line names none."""

    process: str
    level: str
    text: str


_ANSI_BYTES = re.compile(_ANSI.pattern.encode())
_USUAL = (
    b"\x1b[0m",
    b"\x1b[0;0m",
    b"\x1b[36m",
    b"\x1b[1;36m",
    b"\x1b[32m",
    b"\x1b[33m",
)  # taken out first: faster than the expression


def strip_colours_bytes(text: bytes) -> bytes:
    """The same for bytes."""
    for code in _USUAL:
        text = text.replace(code, b"")
    return _ANSI_BYTES.sub(b"", text) if b"\x1b" in text else text


def strip_colours(text: str) -> str:
    """The text without ANSI escape sequences."""
    return _ANSI.sub("", text) if "\x1b" in text else text


def clean_line(raw: str) -> Line:
    """One log line, taken out of what wraps it."""
    text = strip_colours(raw.rstrip("\r\n"))
    if text.startswith('{"log":'):
        with contextlib.suppress(ValueError, KeyError):  # else it is not docker's JSON after all, and stays as it is
            text = strip_colours(str(json.loads(text)["log"]).rstrip("\r\n"))
    for _ in range(3):
        shorter = _COLLECTOR.sub("", text, count=1)
        if shorter == text:
            break
        text = shorter
    process = ""
    while match := _PROCESS.match(text):
        process, text = f"{match[1]} pid={match[2]}", text[match.end() :]
    level = ""
    if match := _LEVEL.match(text):
        level, text = match[1], text[match.end() :]
    return Line(process, level, text)
