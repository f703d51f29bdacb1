"""Takes a command line apart into options, inline values and bare words, in the way vLLM's own parser does before it looks them up.

The rules are those of `FlexibleArgumentParser` in vLLM and of Python's argparse. Whether an option exists is not decided here.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import Any

from audition.profile.values import too_deep

_NUMBER = re.compile(r"-\d+|-\d*\.\d+")
_SHELLS = ("sh", "bash", "dash", "ash", "zsh")
_MODULES = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server", "vllm.entrypoints.cli.main")
_SERVE = re.compile(r"(?:^|[\s;&|(])((?:\S*/)?vllm\s+serve|(?:\S*/)?python[\d.]*\s+-m\s+vllm\.entrypoints\.\S+)(?=\s|$)")


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

    A shell's ``-c`` script is searched for its last such command, as entry points that are scripts end in one. Raises ValueError
    when that command cannot be read as words (a quote is not closed).
    """
    if script := _script(argv):
        found = list(_SERVE.finditer(script))
        return serve_words(_first_command(script[found[-1].start(1) :] if found else script))
    words = list(argv)
    for index in range(1, min(len(words), 8)):
        before, word = words[index - 1], words[index]
        if word == "serve" and (before in _MODULES or before.rsplit("/", 1)[-1] == "vllm"):
            return words[index + 1 :]
        if before == "-m" and word in _MODULES and words[index + 1 : index + 2] != ["serve"]:
            return words[index + 1 :]
    return words[1:] if words[:1] == ["serve"] else words


def _script(argv: Sequence[str]) -> str:
    """The script of ``sh -c SCRIPT``, also behind other flags of the shell; empty for anything else."""
    if len(argv) < 3 or argv[0].rsplit("/", 1)[-1] not in _SHELLS:
        return ""
    for flag, script in pairwise(argv[1:]):
        if flag.startswith("-") and flag.endswith("c"):
            return script
    return ""


def _first_command(script: str) -> list[str]:
    """The words of the command that a script begins with: up to an unquoted line end, ``;``, ``&``, ``|``, ``)`` or ``>``."""
    lines = re.sub(r"(?<=\s)[012](?=>)", "", script.replace("\\\n", " ")).split("\n")
    for end in range(1, len(lines) + 1):
        lexer = shlex.shlex("\n".join(lines[:end]), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        try:
            words = list(lexer)
        except ValueError:
            if end == len(lines):
                raise
            continue
        return list(takewhile(lambda word: not word or set(word) - set("();<>|&"), words))
    return []


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
    if too_deep(text):
        return text
    try:
        return json.loads(text)
    except ValueError:
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
