"""Events of a run: as plain lines, as JSON lines and back, and what they say about production."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import get_args

import pytest

from audition.run.events import (
    BootLogged,
    EndedEarly,
    Event,
    LegProgressed,
    Line,
    ProductionChanged,
    RestoreEnded,
    RestoreStepped,
    SignalHeard,
    StepBegan,
    StepEnded,
    Warned,
    from_data,
    plain,
    to_data,
)
from audition.run.reporter import MOST_WAITING, Reporter
from audition.units import NoData
from run.scripted_run import AFTER, ALL_KINDS, BEFORE, MEASURE_NEW, MIDDLE, RESTORE, measured


def test_every_kind_of_event_comes_back_from_json() -> None:
    assert {type(event) for event in ALL_KINDS} == set(get_args(Event)), "an event of each kind"
    for number, event in enumerate(ALL_KINDS):
        data = json.loads(json.dumps(to_data(event, 1.5 + number, rehearsal=True)))
        assert (data["at"], data["rehearsal"]) == (1.5 + number, True)
        assert from_data(data) == event


def test_absent_figures_keep_their_reason() -> None:
    data = to_data(measured(1, "old", "production", "many", 3.0), 0.0, rehearsal=False)
    assert data["acceptance_rate"] == {"missing": "nothing was drafted"}
    assert from_data({**data, "event": "unheard_of"}) is None
    with pytest.raises(KeyError):
        from_data({"event": "warned"})


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (StepBegan(MEASURE_NEW), Line("measure new")),
        (StepEnded(MEASURE_NEW, 0.9), None),
        (StepEnded(MEASURE_NEW, 61.0), Line("measure new: done (1 min 1 s)")),
        (measured(1, "old", "production", "many", 1.0), Line("  old: many measured (2.0 s)")),
        (EndedEarly("early-end", "no boot"), Line("ending early: no boot")),
        (SignalHeard("SIGINT", 0, "SIGINT: ending"), Line("warning: SIGINT: ending", loud=True)),
        (RestoreStepped("restore: stop new ..."), Line("  restore: stop new ...")),
        (RestoreEnded(True, (), 2.0), Line("production is back (2.0 s)")),
        (RestoreEnded(False, ("no boot",), 0.1), Line("PRODUCTION IS NOT BACK")),
        (Warned("odd"), Line("warning: odd", loud=True)),
        (BootLogged("new", "Loading"), None),
        (ProductionChanged("stopped", "old"), None),
    ],
)
def test_plain_lines(event: Event, line: Line | None) -> None:
    assert plain(event) == line


def events_in(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_the_reporter_says_what_production_does_and_masks_everything(tmp_path: Path) -> None:
    path, lines = tmp_path / "events.jsonl", io.StringIO()
    with path.open("wb") as file:
        reporter = Reporter(rehearsal=True, stream=lines, events=file.fileno())
        reporter.secrets = ["s3cr3t-word"]
        for event in [*BEFORE, *MIDDLE, *AFTER]:
            reporter.tell(event)
        reporter.close()
    told = events_in(path)
    states = [event["state"] for event in told if event["event"] == "production_changed"]
    assert states == ["running", "draining", "stopped", "being restored", "back and verified"]
    assert all(event["rehearsal"] is True for event in told)
    assert [event["at"] for event in told] == sorted(float(str(event["at"])) for event in told)
    assert "s3cr3t" not in path.read_text() + lines.getvalue()
    assert "warning: the key is ***" in lines.getvalue()


def test_events_instead_of_lines_on_one_stream(tmp_path: Path) -> None:
    path = tmp_path / "both"
    with path.open("w") as stream:
        reporter = Reporter(rehearsal=False, stream=stream, events=stream.fileno())
        reporter.tell(StepBegan(RESTORE))
        reporter.close()
    assert [event["event"] for event in events_in(path)] == ["step_began", "production_changed"]


def test_of_progress_only_the_latest_waits_for_a_slow_reader() -> None:
    reading, writing = os.pipe()
    reporter = Reporter(rehearsal=False, stream=io.StringIO(), events=writing)
    for _ in range(MOST_WAITING // 2):
        reporter.say("x" * 1000)  # more than the pipe holds
    figure = NoData("-")
    for done in range(5000):
        reporter.tell(
            LegProgressed(1, "a", "candidate", "w", "measuring", done, None, 0, 1.0, figure, figure, figure, figure, figure)
        )
    parts: list[bytes] = []

    def read() -> None:
        while part := os.read(reading, 65536):
            parts.append(part)

    reader = threading.Thread(target=read)
    reader.start()
    reporter.close(60.0)
    os.close(writing)
    reader.join(60)
    os.close(reading)
    told = [json.loads(line) for line in b"".join(parts).splitlines()]
    progress = [event["done"] for event in told if event["event"] == "leg_progressed"]
    assert progress[-1] == 4999
    assert len(progress) < 50
    assert sum(event["event"] == "said" for event in told) == MOST_WAITING // 2


@pytest.mark.parametrize("verb", ["run", "rehearse"])
def test_events_that_cannot_be_written_are_refused_before_anything_is_started(tmp_path: Path, verb: str) -> None:
    spike = tmp_path / "spike.yaml"
    spike.write_text((Path(__file__).parent / "faults_spike.yaml").read_text())
    os.mkfifo(tmp_path / "unread")
    for place in (str(tmp_path / "no" / "such" / "folder"), str(tmp_path / "unread")):
        done = subprocess.run(
            [sys.executable, "-m", "audition", verb, str(spike), "--events", place],
            capture_output=True, text=True, check=False, timeout=60, env={**os.environ, "AUDITION_STATE": str(tmp_path / "state")},
        )  # fmt: skip
        assert done.returncode == 2, done.stderr
        assert f"--events {place}: it cannot be written" in done.stderr
    assert not (tmp_path / "state").exists()
