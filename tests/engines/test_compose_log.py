"""Logs of containers, of any size and content, from a stand-in for the docker command that prints what it is told to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from audition.engines.compose_log import LogFile
from audition.wayback.docker_cli import Docker, EngineDown
from audition.wayback.docker_log import LONGEST_LINE, ContainerLog, stamped_lines

SCRIPT = """import os, sys, time
word = sys.argv
since = word[word.index("--since") + 1] if "--since" in word else ""
if os.path.exists({down!r}):
    print("Cannot connect to the Docker daemon", file=sys.stderr)
    sys.exit(1)
out = sys.stdout.buffer
if "--tail" in word:
    sys.exit(0)
def say(number, text):
    stamp = "2026-01-01T00:00:%02d.%09dZ" % divmod(number, 10**9)
    if stamp >= since:
        out.write(stamp.encode() + b" " + text + b"\\n")
{body}
out.flush()
"""
CONTAINER: dict[str, Any] = {"Id": "c1", "State": {"StartedAt": "2026-01-01T00:00:00.000000000Z"}}


class Printer:
    """A docker command of this folder; ``body`` is what its ``logs`` does."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.down = folder, folder / "down"

    def says(self, body: str) -> Docker:
        file = self.folder / "docker.py"
        file.write_text(SCRIPT.format(down=str(self.down), body=body))
        return Docker([sys.executable, "-I", "-S", str(file)], {})


@pytest.fixture
def printer(tmp_path: Path) -> Printer:
    return Printer(tmp_path)


def test_only_what_is_new_is_added_and_a_new_boot_begins_anew(printer: Printer, tmp_path: Path) -> None:
    log = LogFile(tmp_path / "log-x.txt", printer.says('say(1, b"one"); say(2, b"two")'))
    assert log.pull(CONTAINER) == ["one", "two"]
    assert log.pull(CONTAINER) == []
    printer.says('say(1, b"one"); say(2, b"two"); say(3, b"three")')
    assert log.pull(CONTAINER) == ["three"]
    assert log.path.read_text() == "one\ntwo\nthree\n"
    assert log.path.stat().st_mode & 0o777 == 0o600
    assert log.pull(None) == []
    assert log.path.read_text() == "one\ntwo\nthree\n"
    log.pull({**CONTAINER, "State": {"StartedAt": "2026-01-01T00:00:00.000000003Z"}})
    assert log.path.read_text() == "three\n"


def test_a_huge_log_keeps_its_beginning_and_its_end(printer: Printer, tmp_path: Path) -> None:
    body = 'for number in range(60000): say(number, b"line %07d" % number)'
    log = LogFile(tmp_path / "log-x.txt", printer.says(body), head=20_000, tail=40_000, slack=10_000)
    told = log.pull(CONTAINER)
    assert told[-1] == "line 0059999"
    assert len(told) <= 2000
    printer.says('say(70000, b"the end")')
    assert log.pull(CONTAINER) == ["the end"]
    text = log.path.read_text()
    assert len(text) <= 20_000 + 40_000 + 10_000 + 100
    lines = text.splitlines()
    notes = [line for line in lines if line.startswith("[")]
    assert len(notes) == 1
    kept = [line for line in lines if line.startswith("line ")]
    assert len(kept) + 2 == len(lines)
    assert (kept[0], kept[-1], lines[-1]) == ("line 0000000", "line 0059999", "the end")
    assert int(notes[0][1:].split()[0]) == (60_000 - len(kept)) * len("line 0000000\n")


def test_garbage_does_not_end_the_reading(printer: Printer, tmp_path: Path) -> None:
    """A line without a stamp must not be taken for the newest one: nothing would ever be newer."""
    odd = 'say(1, b"a\\\\x1c~~~ b\\\\x0bzzz c\\\\xff\\\\r~late stamp"); say(2, b"x" * 1000000)'.replace("\\\\", "\\")
    log = LogFile(tmp_path / "log-x.txt", printer.says(odd))
    assert max(map(len, log.pull(CONTAINER))) <= LONGEST_LINE
    printer.says(odd + '; say(3, b"alive")')
    assert log.pull(CONTAINER) == ["alive"]
    count = ContainerLog(printer.says(odd))
    first = count.size(CONTAINER)
    assert first > 0
    assert count.size(CONTAINER) == first
    count.cli = printer.says(odd + '; say(3, b"alive")')
    assert count.size(CONTAINER) == first + len("alive\n")


def test_an_engine_that_is_down_or_silent_is_told_from_an_empty_log(printer: Printer, tmp_path: Path) -> None:
    cli = printer.says("pass")
    assert list(stamped_lines(cli, "c1", "", 20)) == []
    printer.down.touch()
    with pytest.raises(EngineDown):
        list(stamped_lines(cli, "c1", "", 20))
    printer.down.unlink()
    with pytest.raises(EngineDown, match="took more than"):
        list(stamped_lines(printer.says("time.sleep(60)"), "c1", "", 0.5))


def test_what_came_before_the_time_was_over_is_kept(printer: Printer) -> None:
    cli = printer.says('say(1, b"one"); out.flush(); time.sleep(60)')
    assert [text for _, text in stamped_lines(cli, "c1", "", 2)] == ["one"]


def test_a_log_file_that_was_removed_is_made_anew(printer: Printer, tmp_path: Path) -> None:
    log = LogFile(tmp_path / "s" / "log-x.txt", printer.says('for n in range(9000): say(n, b"line")'), head=900, tail=900, slack=90)
    log.pull(CONTAINER)
    log.path.unlink()
    printer.says('say(10000, b"new")')
    assert log.pull(CONTAINER) == ["new"]
    assert log.path.read_text() == "new\n"
