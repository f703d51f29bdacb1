"""Progress lines: masked, never blocking, never failing, whatever the terminal does."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from audition.run.reporter import LONGEST_TEXT, MOST_WAITING, Reporter


def test_lines_are_marked_timed_and_masked() -> None:
    out = io.StringIO()
    reporter = Reporter(rehearsal=True, stream=out)
    reporter.secrets = ["sk-planted"]
    reporter.say("the key is sk-planted")
    reporter.warn("two\nlines")
    reporter.flush()
    lines = out.getvalue().splitlines()
    assert [line[:10] for line in lines] == ["REHEARSAL "] * 3
    assert "sk-planted" not in out.getvalue()
    assert lines[0].endswith("the key is ***")


def test_a_pipe_that_nobody_reads_holds_nothing_up() -> None:
    reading, writing = os.pipe()
    stream = os.fdopen(writing, "w")
    reporter = Reporter(rehearsal=False, stream=stream)
    done = threading.Event()

    def talk() -> None:
        for _ in range(3 * MOST_WAITING):
            reporter.say("x" * 200)
        reporter.flush(0.1)
        done.set()

    threading.Thread(target=talk, daemon=True).start()
    assert done.wait(60), "the speaker was held up by a full pipe"
    os.close(reading)


def test_a_closed_stream_and_odd_text_do_not_fail() -> None:
    out = io.StringIO()
    out.close()
    reporter = Reporter(rehearsal=False, stream=out)
    reporter.say("nobody hears \udcff this")
    reporter.flush()
    heard = io.StringIO()
    other = Reporter(rehearsal=False, stream=heard)
    other.say("odd \udcff bytes")
    other.flush()
    assert "odd" in heard.getvalue()


def read_all(descriptor: int) -> bytes:
    data = b""
    while part := os.read(descriptor, 65536):
        data += part
    return data


def test_lines_reach_a_file_in_order_whatever_they_hold(tmp_path: Path) -> None:
    path = tmp_path / "err"
    with path.open("w", encoding="ascii") as stream:
        reporter = Reporter(rehearsal=False, stream=stream)
        reporter.secrets = ["s3cr\udcffet"]
        for number in range(100):
            reporter.say(f"line {number}")
        reporter.say("ä \udcff \ud800 \x1b[2J key s3cr\udcffet")
        reporter.warn("x" * 1_000_000)
        reporter.flush(30)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [line[7:] for line in lines[:100]] == [f"line {number}" for number in range(100)]
    assert lines[100][7:] == "ä \\udcff \\ud800 \\x1b[2J key ***"
    assert len(lines[101]) <= LONGEST_TEXT + 20


PROGRAM = """
import os, signal, sys, threading, time
from audition.run.reporter import Reporter
reporter = Reporter(rehearsal=False)
signal.signal(signal.SIGALRM, lambda *_: reporter.warn("heard"))
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
for number in range(3000):
    reporter.say("x" * 100)
signal.setitimer(signal.ITIMER_REAL, 0)
reporter.flush(0.2)
print("done")
"""


@pytest.mark.parametrize("how", ["closed", "full", "full and not blocking", "reader gone", "read"])
def test_a_process_goes_on_and_ends_by_itself(how: str) -> None:
    reading, writing = os.pipe()
    if how == "full and not blocking":
        os.set_blocking(writing, False)
    command = [sys.executable, "-c", PROGRAM]
    if how == "closed":
        command = ["sh", "-c", 'exec "$@" 2>&-', "sh", *command]
    if how == "reader gone":
        os.close(reading)
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=writing, text=True)
    os.close(writing)
    if how == "read":
        assert read_all(reading).count(b"heard") >= 1
    said, _ = child.communicate(timeout=120)
    assert (child.returncode, said) == (0, "done\n")
    if how != "reader gone":
        os.close(reading)


def test_dropped_lines_are_counted() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        reporter = Reporter(rehearsal=False, stream=stream)
        for _ in range(3 * MOST_WAITING):
            reporter.say("x" * 200)
        got: list[bytes] = []
        reader = threading.Thread(target=lambda: got.append(read_all(reading)))
        reader.start()
        reporter.flush(60)
        reporter.say("the end")
        reporter.flush(60)
    reader.join(60)
    os.close(reading)
    text = got[0].decode()
    dropped = [int(line.partition("(")[2].split()[0]) for line in text.splitlines() if "were not shown" in line]
    assert dropped
    assert text.count("x" * 200) + sum(dropped) == 3 * MOST_WAITING
