"""Files of NAME=value lines. Pure: text in, mapping out; reading the file is the caller's business.

Understood: comments, blank lines, ``export``, single quotes (literal), double quotes (with \\n, \\t, \\", \\\\ and \\$), a comment
after an unquoted value, and a bare NAME, which is taken from the given environment as docker does. No variables are substituted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from audition.errors import BadInput

_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_.-]*)\s*(?:=(.*))?$", re.DOTALL)
_LINE_END = re.compile(r"\r\n|\r|\n")  # and nothing else: a value may hold what Unicode calls a line separator
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "$": "$"}


def parse_env_file(text: str, name: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of a file. ``name`` is the file's name for messages, ``environ`` gives bare names their values.

    Raises BadInput with the line number. Values never appear in messages.
    """
    found: dict[str, str] = {}
    for number, raw in enumerate(_LINE_END.split(text.removeprefix("\ufeff")), 1):
        line = raw.strip(" \t")
        if not line or line.startswith("#"):
            continue
        match = _LINE.match(line)
        if match is None:
            raise BadInput(f"{name}, line {number}: expected NAME=value", next_step=f"put line {number} of {name} right")
        key, value = match.group(1), match.group(2)
        if value is None:
            if key in environ:
                found[key] = environ[key]
            continue
        try:
            found[key] = _value(value.strip(" \t"))
        except ValueError as error:
            raise BadInput(f"{name}, line {number}: {error}", next_step=f"put line {number} of {name} right") from error
    return found


def _value(text: str) -> str:
    if text[:1] not in ("'", '"'):
        return re.split(r"\s#", text, maxsplit=1)[0].rstrip(" \t") if not text.startswith("#") else ""
    quote, out, position = text[0], "", 1
    while position < len(text):
        letter = text[position]
        if letter == quote:
            rest = text[position + 1 :].strip()
            if rest and not rest.startswith("#"):
                raise ValueError("text after the closing quote")
            return out
        if quote == '"' and letter == "\\" and position + 1 < len(text):
            position += 1
            out += _ESCAPES.get(text[position], "\\" + text[position])
        else:
            out += letter
        position += 1
    raise ValueError("a quote is not closed")
