"""Parking in whole runs: kills at every point around it, failures of it, clients meanwhile, and what is refused beforehand."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from crash.kill_matrix import VICTIMS, all_jobs, every_point, run_matrix
from crash.parking import ParkWorld
from crash.variants import run_record

STRUCK = ("leg-2.park", "leg-3.park", "leg-3.unpark", "leg-4.unpark", "restore.unpark")
"""Production is parked, the candidate is, production is resumed, the candidate is, the way back resumes production. `kill_matrix.py
--engine park` strikes every other step, too."""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_point_around_parking_with_changing_victims(tmp_path: Path) -> None:
    jobs = [job for job in every_point(all_jobs(ParkWorld, tmp_path)) if job[0] in STRUCK]
    assert {step for step, _, _ in jobs} == set(STRUCK)
    assert len(jobs) == 4 * len(STRUCK)
    assert {victims for _, _, victims in jobs} == set(VICTIMS)
    trials = run_matrix(ParkWorld, tmp_path, jobs, workers=2)
    assert [trial for trial in trials if trial.problems] == []
    assert [trial for trial in trials if not trial.struck] == [], "these points were never reached"


def restored(here: ParkWorld) -> dict[str, Any]:
    [folder] = (here.folder / "_iteration_log").iterdir()
    report: dict[str, Any] = json.loads((folder / "restore.json").read_text())
    return report


def notes(here: ParkWorld) -> str:
    """What the records of the legs say about parking."""
    legs = (here.folder / "_iteration_log").glob("*/legs/*/leg.json")
    return "\n".join(c["text"] for leg in sorted(legs) for c in json.loads(leg.read_text())["caveats"] if c["code"] == "park")


def leader(here: ParkWorld) -> int:
    """Production's leader: the one that listens on production's port."""
    [pid] = [pid for pid in here.engine_pids() if f"--port\0{here.port}\0".encode() in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return pid


def completion(here: ParkWorld) -> str:
    body = json.dumps({"model": "m", "prompt": "x"}).encode()
    ask = urllib.request.Request(f"http://127.0.0.1:{here.port}/v1/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(ask, timeout=60) as reply:
        return str(json.load(reply)["choices"][0]["text"])


def test_clients_of_a_parked_production_wait_and_are_answered_and_it_is_never_rebooted(tmp_path: Path) -> None:
    with ParkWorld(tmp_path / "world") as here:
        before, answered = leader(here), tmp_path / "answered"
        waited: list[threading.Thread] = []

        def ask() -> None:
            began = time.monotonic()
            text = completion(here)
            answered.write_text(json.dumps({"text": text, "seconds": time.monotonic() - began}))

        def on_point(step: str, point: str) -> None:
            if (step, point) == ("leg-2.park", "after-effect"):
                assert not answered.exists()
                waited.append(threading.Thread(target=ask))
                waited[0].start()
            if (step, point) == ("leg-3.unpark", "before-intent"):
                assert not answered.exists(), "it was answered by a parked server"
            if (step, point) == ("leg-3.unpark", "after-done"):
                waited[0].join(30)
                assert answered.exists(), "it was not answered after the resume"

        assert here.run(on_point) in (0, 3, 4)
        assert json.loads(answered.read_text())["text"] == "one two three"
        assert here.problems() == []
        assert leader(here) == before
        assert restored(here)["verified"] is True
        assert [step["step"] for step in restored(here)["steps"]][:3] == ["stop:cand", "gpu", "unpark"]
        said = notes(here)
        assert "by the stand-in (SIGSTOP, SIGCONT" in said
        assert "answered late, not refused" in said
        assert "1 connections to prod were open when it was resumed" in said


def test_a_production_that_cannot_be_resumed_is_killed_and_started_anew_and_that_is_said_loudly(tmp_path: Path) -> None:
    """Its worker is killed while it stands still, so that there is nothing to resume."""
    with ParkWorld(tmp_path / "world") as here:
        before = leader(here)

        def on_point(step: str, point: str) -> None:
            if (step, point) == ("leg-2.park", "after-done"):
                for pid in here.stopped():
                    os.kill(pid, signal.SIGKILL)

        here.run(on_point)
        here.wait(here.quiet, 60, "the guard did not stand down")
        assert here.problems() == []
        assert leader(here) != before
        assert run_record(here)["ended"] == "failed"
        assert restored(here)["verified"] is True


def test_a_production_that_somebody_resumes_meanwhile_is_told(tmp_path: Path) -> None:
    with ParkWorld(tmp_path / "world") as here:

        def on_point(step: str, point: str) -> None:
            if (step, point) == ("leg-2.measure", "after-effect"):
                for pid in here.stopped():
                    os.kill(pid, signal.SIGCONT)

        assert here.run(on_point) in (0, 3, 4)
        assert here.problems() == []
        assert "prod is not parked any more" in notes(here)


def test_a_server_of_one_process_is_restarted_instead_and_the_records_say_why(tmp_path: Path) -> None:
    with ParkWorld(tmp_path / "world", behind="") as here:
        before = leader(here)
        assert here.run(lambda step, point: None) in (0, 3, 4)
        assert here.problems() == []
        assert leader(here) != before
        assert "cannot be parked: it has no engine process beside the one that answers clients" in notes(here)
        assert "stopped and started instead" in notes(here)


def test_a_candidate_on_productions_port_is_refused_with_nothing_touched(tmp_path: Path) -> None:
    with ParkWorld(tmp_path / "world", same_port=True) as here:
        before = leader(here)
        assert here.run(lambda step, point: None) == 5
        assert leader(here) == before
        assert "a parked server keeps listening" in (here.folder / "runner.log").read_text()
        assert list((here.folder / "state" / "runs").iterdir()) == []
