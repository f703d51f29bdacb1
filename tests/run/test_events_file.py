"""The file of ``--events``: what is never overwritten, and that nothing is written before a run begins. Real files and pipes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from audition.errors import BadInput
from audition.run.events_file import open_events

EARLIER = b'{"event": "said", "at": 0.1, "rehearsal": true, "text": "of an earlier run"}\n'


@pytest.fixture
def spike(tmp_path: Path) -> Path:
    path = tmp_path / "spike.yaml"
    path.write_text("audition: 1\n")
    return path


@pytest.mark.parametrize("earlier", [None, b"", EARLIER], ids=["new", "empty", "earlier events"])
def test_a_file_is_written_from_the_begin_on_with_what_was_told_before(earlier: bytes | None, spike: Path) -> None:
    file = spike.parent / "events"
    if earlier is not None:
        file.write_bytes(earlier)
    sink = open_events(str(file), spike)
    assert sink.descriptor is not None
    os.write(sink.descriptor, b"before\n")
    assert (file.read_bytes() if file.exists() else None) == earlier
    sink.begin()
    os.write(sink.descriptor, b"after\n")
    assert file.read_bytes() == b"before\nafter\n"
    assert not os.get_inheritable(sink.descriptor)


@pytest.mark.parametrize("text", [b"notes\n", b"\x00\xff", b"[1]\n", b'{"a": 1}\n', b"\n" + EARLIER, b"[" * 100_000, b"9" * 5000])
def test_a_file_that_holds_something_else_is_never_emptied(text: bytes, spike: Path) -> None:
    file = spike.parent / "notes"
    file.write_bytes(text)
    with pytest.raises(BadInput, match="it is not empty and holds no events; it would be lost"):
        open_events(str(file), spike)
    assert file.read_bytes() == text


def test_the_spike_file_is_never_written_by_whatever_name(spike: Path) -> None:
    spike.write_bytes(EARLIER)
    (spike.parent / "link").symlink_to(spike)
    os.link(spike, spike.parent / "other")
    for name in ("spike.yaml", "link", "other"):
        with pytest.raises(BadInput, match="this is the spike file"):
            open_events(str(spike.parent / name), spike)
    assert spike.read_bytes() == EARLIER


def test_a_file_that_becomes_another_one_before_the_begin_is_kept(spike: Path) -> None:
    file = spike.parent / "events"
    sink = open_events(str(file), spike)
    file.write_text("notes")
    with pytest.raises(BadInput, match="it would be lost"):
        sink.begin()
    assert file.read_text() == "notes"


@pytest.mark.parametrize("name", ["nowhere/events", ".", "", "a\0b", "pipe"])
def test_what_cannot_be_written_is_refused_at_once(name: str, spike: Path) -> None:
    os.mkfifo(spike.parent / "pipe")
    with pytest.raises(BadInput, match="it cannot be written"):
        open_events(f"{spike.parent}/{name}" if name else "", spike)


def test_a_pipe_is_written_at_once(spike: Path) -> None:
    os.mkfifo(spike.parent / "pipe")
    reading = os.open(spike.parent / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    sink = open_events(str(spike.parent / "pipe"), spike)
    assert sink.descriptor is not None
    os.write(sink.descriptor, b"before\n")
    assert os.read(reading, 100) == b"before\n"
    sink.begin()
    os.close(reading)
    os.close(sink.descriptor)


def audition(folder: Path, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "audition", *arguments], cwd=folder, text=True, capture_output=True, stdin=subprocess.DEVNULL,
        env={**os.environ, "AUDITION_STATE": str(folder / "state")}, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


TINY = """\
audition: 1
name: events
question: Is the file kept?
arms:
  - {name: prod, role: production, engine: {kind: process, command: "true"}, endpoint: {url: "http://127.0.0.1:9", model: m}}
  - {name: cand, role: candidate, engine: {kind: process, command: "true"}, endpoint: {url: "http://127.0.0.1:9", model: m}}
workloads: [{name: one, users: 1, requests: 1}]
gates: [{metric: failure_share, workload: one, at_most: 0}]
"""


def test_a_refused_run_leaves_the_file_as_it_was_and_a_bad_file_is_told_before_the_wait(tmp_path: Path) -> None:
    (tmp_path / "spike.yaml").write_text(TINY)
    (tmp_path / "events").write_bytes(EARLIER)
    code, said = audition(tmp_path, "run", "spike.yaml", "--events", "events")
    assert code == 5, said  # production does not run
    assert (tmp_path / "events").read_bytes() == EARLIER
    assert audition(tmp_path, "run", "spike.yaml", "--events", "new")[0] == 5
    assert not (tmp_path / "new").exists()
    code, said = audition(tmp_path, "run", "spike.yaml", "--events", "spike.yaml", "--at", "2190-01-01T00:00:00Z")
    assert (code, "this is the spike file" in said, "waiting" in said) == (2, True, False), said
    assert (tmp_path / "spike.yaml").read_text() == TINY
