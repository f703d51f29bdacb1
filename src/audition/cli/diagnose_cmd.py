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
    from audition.faults.matcher import Diagnosis

NOTHING, KNOWN, UNKNOWN = 0, 3, 4
_BLOCK = 1 << 20

EPILOG = """\b
Exit codes:
  0 nothing wrong was found    3 a known failure was found
  4 a failure that no signature knows    2 a log cannot be read
"""


@click.command("diagnose", epilog=EPILOG)
@click.argument("logs", metavar="LOG...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print the diagnoses as JSON.")
def command(logs: tuple[str, ...], as_json: bool) -> int:
    """Say what went wrong according to logs of vLLM, docker or the journal, root cause first; - is standard input.

    Colours and the prefixes of docker, compose, kubernetes and journald are taken off; processes may be interleaved; logs may be of
    any size. Works on its own: no run folder, server or GPU is needed.
    """
    from audition.errors import BadInput  # noqa: PLC0415 - lazily: only when the verb runs
    from audition.faults.matcher import diagnose_blocks  # noqa: PLC0415

    found: dict[str, list[Diagnosis]] = {}
    for name in logs:
        try:
            with ExitStack() as stack:
                source = sys.stdin.buffer if name == "-" else stack.enter_context(open(name, "rb", buffering=0))
                found[name] = diagnose_blocks(_blocks(source))
        except OSError as cause:
            seen = cause.strerror or str(cause)
            hint = "give the path of a log, or - to read one from standard input: docker logs NAME 2>&1 | audition diagnose -"
            raise BadInput(f"the log {name} cannot be read", tried=f"open {name}", seen=seen, next_step=hint) from cause
    if as_json:
        body = [{"log": name, "diagnoses": [asdict(d) for d in rows]} for name, rows in found.items()]
        click.echo(json.dumps(body, ensure_ascii=False, indent=1, allow_nan=False))
    else:
        click.echo("\n\n".join(_text(name, rows, several=len(found) > 1) for name, rows in found.items()))
    names = [d.name for rows in found.values() for d in rows]
    return UNKNOWN if "unknown" in names else KNOWN if names else NOTHING


def _blocks(source: BinaryIO) -> Iterator[bytes]:
    while block := source.read(_BLOCK):
        yield block


def _text(name: str, rows: list[Diagnosis], *, several: bool) -> str:
    head = [f"== {name} =="] if several else []
    if not rows:
        return "\n".join([*head, "Nothing wrong was found."])
    first, *others = rows
    where = f"line {first.line_number}" + (f", {first.process}" if first.process else "")
    lines = [*head, f"{first.name}: {first.title} ({where})", f"  cause    {first.cause}", f"  remedy   {first.remedy}"]
    if first.captures:
        lines.append("  figures  " + ", ".join(f"{key} {value}" for key, value in first.captures.items()))
    lines += [f"  see      {link}" for link in first.references]
    lines += ["  log", *(f"    {line}" for line in first.excerpt.splitlines())]
    if others:
        lines.append("  also     " + "; ".join(f"{d.name}, line {d.line_number}" for d in others))
    return "\n".join(lines)
