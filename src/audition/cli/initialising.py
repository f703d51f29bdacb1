"""What ``audition init`` does: draft, write once, never over a file by accident, then say what a check says of it."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import tempfile
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

_GPU = re.compile(r"[0-9]{1,4}")


def initialise(out: Path, given: Mapping[str, object], *, force: bool, no_input: bool, as_json: bool) -> int:
    """Write the spike file and return the exit code. Raises BadInput and Refused, and then nothing was written."""
    shown = str(out) == "-"
    if not shown:
        _refuse_what_is_no_file(out)
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
    write(out, text, force=force)
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
    if not all(_GPU.fullmatch(part) for part in gpus):
        raise BadInput(f"--gpus {text('gpus')[:60]}: expected numbers", next_step="for example --gpus 0,1")
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


def write(out: Path, text: str, *, force: bool) -> None:
    """Write beside and rename, so that a file that is there stays whole when the write fails. Raises BadInput and Refused."""
    try:
        data = text.encode("utf-8")
        target = Path(os.path.realpath(out)) if force else out  # a link keeps its place, what it names is replaced
        mode = _mode_of(target)
        handle, beside = tempfile.mkstemp(prefix=".audition-", suffix=".new", dir=target.parent)
        try:
            with open(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            if not force:
                os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))  # never over a file that came meanwhile
            os.replace(beside, target)
        finally:
            Path(beside).unlink(missing_ok=True)
    except FileExistsError as error:
        raise Refused(f"{out} is there already", next_step="give another --out FILE, or --force") from error
    except UnicodeEncodeError as error:
        raise BadInput("the spike file would hold bytes that are no UTF-8 text", next_step="write --question in UTF-8") from error
    except OSError as error:
        raise BadInput(f"{out} cannot be written: {error.strerror}", next_step="give another --out FILE") from error


def _mode_of(target: Path) -> int:
    """The mode that the file keeps, or that a new one gets under the umask."""
    try:
        return stat.S_IMODE(target.stat().st_mode)
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o644 & ~mask


def _refuse_what_is_no_file(out: Path) -> None:
    """Raises BadInput when a pipe, a device, a folder or a loop of links lies where the file would go."""
    try:
        mode = out.stat().st_mode
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else str(error)
        raise BadInput(f"{out} cannot be written: {said}", next_step="give another --out FILE") from error
    if not stat.S_ISREG(mode):
        raise BadInput(f"{out} is no regular file", next_step="give another --out FILE, or - for the terminal")


def _say(report: Report, out: Path) -> None:
    for finding in [*report.blocking, *report.warnings]:
        arm = f"{finding.arm}: " if finding.arm else ""
        click.echo(f"{finding.level}: {arm}{finding.text}")
    click.echo(f"next: read {out}, then audition check {out}")
