"""What ``audition init`` does: draft, write once, never over a file by accident, then say what a check says of it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from audition.check.draft import spike_yaml, summary
from audition.check.drafting import Wanted, drafted
from audition.check.finding import Report
from audition.check.words import as_json as json_of
from audition.cli.checking import check_file
from audition.errors import BadInput, Refused
from audition.spike.parse import load_spike, parse_spike


def initialise(out: Path, given: Mapping[str, object], *, force: bool, no_input: bool, as_json: bool) -> int:
    """Write the spike file and return the exit code. Raises BadInput and Refused, and then nothing was written."""
    shown = str(out) == "-"
    if not shown and out.exists() and not force:
        raise Refused(
            f"{out} is there already", production="untouched", next_step=f"give another --out FILE, or --force to write over {out}"
        )
    if not shown and not out.parent.is_dir():
        raise BadInput(f"there is no folder {out.parent}", next_step=f"mkdir -p {out.parent}")
    asking = not no_input and not as_json and not shown and sys.stdin.isatty() and sys.stdout.isatty()
    wanted = _wanted(given, Path.cwd() if shown else out.parent.absolute())
    draft = drafted(wanted, _ask if asking else _silent)
    text = spike_yaml(draft)
    parse_spike(text, str(out))
    if shown:
        click.echo(json.dumps({"file": None, "text": text}, ensure_ascii=False) if as_json else text, nl=as_json)
        return 0
    _write(out, text, force)
    if as_json:
        report = json.loads(json_of(check_file(load_spike(out))))
        told = {"file": str(out), "summary": summary(draft).splitlines(), "check": report, "next": f"audition check {out}"}
        click.echo(json.dumps(told, ensure_ascii=False))
        return 0
    click.echo(f"wrote {out}\n{summary(draft)}")
    _say(check_file(load_spike(out)), out)
    return 0


def _wanted(given: Mapping[str, object], base: Path) -> Wanted:
    def texts(key: str) -> tuple[str, ...]:
        value = given.get(key)
        return tuple(str(each) for each in value) if isinstance(value, tuple | list) else ()

    def text(key: str) -> str:
        return str(given.get(key) or "")

    gpus = [part.strip() for part in text("gpus").split(",") if part.strip()]
    if not all(part.isdigit() for part in gpus):
        raise BadInput(f"--gpus {text('gpus')}: expected numbers", next_step="for example --gpus 0,1")
    if texts("production") and text("container"):
        raise BadInput("give --production or --from-container, not both", next_step="audition init --help")
    return Wanted(
        base=base,
        production=texts("production"),
        candidate=texts("candidate"),
        env_files=texts("env_files"),
        candidate_env_files=texts("candidate_env_file"),
        container=text("container"),
        service=text("service"),
        candidate_service=text("candidate_service"),
        project=text("project"),
        name=text("name"),
        question=text("question"),
        closes=text("closes"),
        slowest=text("slowest"),
        gpus=tuple(int(part) for part in gpus),
    )


def _ask(question: str, default: str) -> str:
    return str(click.prompt(question, default=default, show_default=bool(default)))


def _silent(_question: str, default: str) -> str:
    return default


def _write(out: Path, text: str, force: bool) -> None:
    flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if force else os.O_EXCL)
    try:
        with open(os.open(out, flags, 0o644), "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise Refused(f"{out} is there already", next_step="give another --out FILE, or --force") from error
    except OSError as error:
        raise BadInput(f"{out} cannot be written: {error.strerror}", next_step="give another --out FILE") from error


def _say(report: Report, out: Path) -> None:
    for finding in [*report.blocking, *report.warnings]:
        arm = f"{finding.arm}: " if finding.arm else ""
        click.echo(f"{finding.level}: {arm}{finding.text}")
    click.echo(f"next: read {out}, then audition check {out}")
