"""Takes a command line apart into options, inline values and bare words, in the way vLLM's own parser does before it looks them up.

The rules are those of `FlexibleArgumentParser` in vLLM and of Python's argparse. Whether an option exists is not decided here.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_NUMBER = re.compile(r"-\d+|-\d*\.\d+")
_MODULES = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server", "vllm.entrypoints.cli.main")
_SERVE = re.compile(
    r"(?:^|[;&|\n]|\bexec\s)\s*((?:\S*/)?vllm\s+serve\b|(?:\S*/)?python3?\S*\s+-m\s+vllm\.entrypoints\.\S+)(.*)", re.DOTALL
)


@dataclass(frozen=True)
class Word:
    """One word. ``option``: its name with dashes where it begins with one, else empty. ``inline``: what follows ``=``, or None.

    ``keys``: of a dotted form such as ``--speculative-config.method`` the parts after the first; ``listed``: it ended in ``+``.
    """

    text: str
    option: str = ""
    inline: str | None = None
    keys: tuple[str, ...] = ()
    listed: bool = False


def serve_words(argv: Sequence[str]) -> list[str]:
    """The arguments of the server in a command line: what follows ``vllm serve`` or the server's module, else all of it.

    A shell's ``-c`` script is searched for its last such command, as entry points that are scripts end in one. A script that cannot
    be read as words raises ValueError (an unclosed quote).
    """
    if (
        len(argv) >= 3
        and argv[0].rsplit("/", 1)[-1] in {"sh", "bash", "dash", "ash"}
        and "c" in argv[1].lstrip("-")
        and argv[1].startswith("-")
    ):
        found = list(_SERVE.finditer(argv[2]))
        script = f"{found[-1][1]}{_command_end(found[-1][2])}" if found else argv[2]
        return serve_words(shlex.split(script, comments=True))
    words = list(argv)
    for index, word in enumerate(words[:6]):
        if word == "serve" and index > 0 and words[index - 1].rsplit("/", 1)[-1] in {"vllm", *_MODULES}:
            return words[index + 1 :]
        if word in _MODULES and index > 0 and words[index - 1] == "-m" and words[index + 1 : index + 2] != ["serve"]:
            return words[index + 1 :]
    return words[1:] if words[:1] == ["serve"] else words


def _command_end(text: str) -> str:
    """Up to the end of the command: lines that end in a backslash go on."""
    joined = re.sub(r"\\\n", " ", text)
    return joined.split("\n", 1)[0]


def is_value(text: str) -> bool:
    """Whether argparse takes a word as a value: no dash first, a negative number, a lone dash, or with a blank."""
    return (
        not text.startswith("-")
        or text == "-"
        or bool(_NUMBER.fullmatch(text))
        or (" " in text and "=" not in text.partition(" ")[0])
    )


def split(text: str) -> Word:
    """One word taken apart; underscores in an option's name become dashes, those after its first dot stay."""
    if is_value(text):
        return Word(text)
    name, equals, inline = text.partition("=")
    head, dot, rest = name.partition(".")
    if head.startswith("--"):
        head = head.replace("_", "-")
    keys = tuple(rest.removesuffix("+").split(".")) if dot else ()
    return Word(text, head, inline if equals else None, keys, listed=bool(dot) and rest.endswith("+"))


def dotted_value(text: str, *, listed: bool) -> Any:
    """The value of a dotted form: JSON where it reads as JSON, else the text itself; with ``+`` a list of the parts."""
    if listed:
        return text.split(",")
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def merge(into: dict[str, Any], keys: Sequence[str], value: Any) -> bool:
    """Put a value at nested keys. Lists are joined, tables merged; gives whether something was overwritten."""
    for key in keys[:-1]:
        nested = into.setdefault(key, {})
        if not isinstance(nested, dict):
            into[key] = nested = {}
        into = nested
    last = keys[-1]
    if isinstance(value, list) and isinstance(into.get(last), list):
        into[last] = [*into[last], *value]
        return False
    overwritten = last in into
    into[last] = value
    return overwritten
