"""``audition diagnose``: what went wrong according to a server's log."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, BinaryIO

import click

if TYPE_CHECKING:
    from audition.faults.matcher import Reading

NOTHING, KNOWN, UNKNOWN = 0, 3, 4
_BLOCK = 1 << 20

EPILOG = """\b
Exit codes:
  0 nothing wrong was found: the server was ready or answered requests
  2 a log cannot be read, or is no text (binary, compressed, UTF-16)
  3 a known failure was found
  4 a failure that no signature knows; or nothing can be known: the log is empty, ends in a boot, or has no line of a server
"""
_NOTHING = {
    "ready": "Nothing wrong was found.",
    "unfinished": "Nothing is known: the log ends before the server was ready, and tells of no failure.\n"
    "  If the server is still starting, wait. If it is gone, look for its exit code and for the end of its log.",
    "nothing known": "Nothing is known: no line tells of a failure, and none of a server that was ready.\n"
    "  Check that it is the log of the server, and that its begin and end are there.",
    "empty": "Nothing is known: the log is empty.\n"
    "  Check the name; docker logs writes to standard error too: docker logs NAME 2>&1 | audition diagnose -",
}


@click.command("diagnose", epilog=EPILOG)
@click.argument("logs", metavar="LOG...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print the diagnoses as JSON.")
def command(logs: tuple[str, ...], as_json: bool) -> int:
    """Say what went wrong according to logs of vLLM, docker or the journal, root cause first; - is standard input.

    Colours and the prefixes of docker, compose, kubernetes and journald are taken off; processes may be interleaved; logs may be of
    any size. Works on its own: no run folder, server or GPU is needed.
    """
    from audition.errors import BadInput  # noqa: PLC0415 - lazily: only when the verb runs
    from audition.faults.matcher import read_blocks  # noqa: PLC0415

    found: dict[str, Reading] = {}
    for name in logs:
        try:
            with ExitStack() as stack:
                source = sys.stdin.buffer if name == "-" else stack.enter_context(open(name, "rb", buffering=0))
                found[name] = read_blocks(_blocks(name, source))
        except OSError as cause:
            seen = cause.strerror or str(cause)
            hint = "give the path of a log, or - to read one from standard input: docker logs NAME 2>&1 | audition diagnose -"
            raise BadInput(f"the log {name} cannot be read", tried=f"open {name}", seen=seen, next_step=hint) from cause
    if as_json:
        body = [
            {"log": name, "ending": told.ending, "diagnoses": [asdict(d) for d in told.diagnoses]} for name, told in found.items()
        ]
        click.echo(json.dumps(body, ensure_ascii=False, indent=1, allow_nan=False))
    else:
        click.echo("\n\n".join(_text(name, told, several=len(found) > 1) for name, told in found.items()))
    names = [d.name for told in found.values() for d in told.diagnoses]
    if "unknown" in names:
        return UNKNOWN
    if names:
        return KNOWN
    return NOTHING if all(told.ending == "ready" for told in found.values()) else UNKNOWN


def _blocks(name: str, source: BinaryIO) -> Iterator[bytes]:
    """The pieces of a log. Raises BadInput when it does not begin as text."""
    from audition.errors import BadInput  # noqa: PLC0415 - lazily: only when the verb runs
    from audition.faults.matcher_ending import is_text  # noqa: PLC0415

    first = True
    while block := source.read(_BLOCK):
        if first and not is_text(block):
            hint = "unpack it, or convert it to UTF-8, and give the result"
            raise BadInput(f"the log {name} is no text", seen="bytes that no UTF-8 text holds", next_step=hint)
        first = False
        yield block


def _text(name: str, told: Reading, *, several: bool) -> str:
    head = [f"== {name} =="] if several else []
    if not told.diagnoses:
        return "\n".join([*head, _NOTHING[told.ending]])
    first, *others = told.diagnoses
    where = f"line {first.line_number}" + (f", {first.process}" if first.process else "")
    lines = [*head, f"{first.name}: {first.title} ({where})", f"  cause    {first.cause}", f"  remedy   {first.remedy}"]
    if first.captures:
        lines.append("  figures  " + ", ".join(f"{key} {value}" for key, value in first.captures.items()))
    lines += [f"  see      {link}" for link in first.references]
    lines += ["  log", *(f"    {line}" for line in first.excerpt.splitlines())]
    if others:
        lines.append("  also     " + "; ".join(f"{d.name}, line {d.line_number}" for d in others))
    return "\n".join(lines)
