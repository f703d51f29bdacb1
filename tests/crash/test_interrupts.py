"""SIGINT, SIGTERM and SIGHUP to a real ``audition run`` at several moments: production is back, and the record says what was."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from audition.wayback import state
from crash.variants import HOLD, Cli, EditedWorld, Edits, longer, restore_record, run_record, state_folder, verdict_of
from crash.world import World

pytestmark = pytest.mark.slow
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
BOOTS_FOR_20_S = {
    "--model m, env: {CRASH_TEST_ARM: candidate}": "--model m --boot-s 20, env: {CRASH_TEST_ARM: candidate}",
}
MOMENTS: dict[str, tuple[Edits, str]] = {
    "in production's first leg": (longer(30), "measure prod"),
    "while the candidate boots": (BOOTS_FOR_20_S, "wait until cand answers"),
    "in the candidate's leg": (longer(4), "measure cand"),
}


def check_back(here: World) -> None:
    here.wait(here.quiet, 60, "the guard did not stand down")
    assert here.problems() == []
    assert state.closed(state_folder(here))
    assert here.audition("recover").returncode == 0


@pytest.mark.parametrize("number", SIGNALS, ids=[number.name for number in SIGNALS])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_signal_ends_the_run_early_and_production_is_back(tmp_path: Path, moment: str, number: signal.Signals) -> None:
    edits, text = MOMENTS[moment]
    with EditedWorld(tmp_path / "world", edits) as here:
        run = Cli(here)
        try:
            here.wait(lambda: run.says(text), 60, f"the run did not say {text!r}")
            os.kill(run.pid, number)
            assert run.end() == 4, run.said()
        finally:
            run.kill()
        check_back(here)
        record = run_record(here)
        assert record["ended"] == "interrupted"
        assert number.name in record["end_reason"]
        assert record["production_back"] is True
        assert verdict_of(run.said().rpartition("bring prod back")[2]) == "INCONCLUSIVE"


def test_a_second_signal_does_not_cut_the_restore(tmp_path: Path) -> None:
    with EditedWorld(tmp_path / "world", {**longer(4), HOLD: "hold: 3s"}) as here:
        run = Cli(here)
        try:
            here.wait(lambda: run.says("measure cand"), 60, "the candidate's leg did not begin")
            os.kill(run.pid, signal.SIGINT)
            here.wait(lambda: run.says("restore: stop:cand ..."), 60, "restoring did not begin")
            os.kill(run.pid, signal.SIGINT)
            here.wait(lambda: run.says("restore: hold ..."), 60, "the hold time did not begin")
            os.kill(run.pid, signal.SIGINT)
            assert run.end() == 4, run.said()
        finally:
            run.kill()
        check_back(here)
        report = restore_record(here)
        assert report["verified"]
        assert [step["seconds"] >= 3 for step in report["steps"] if step["step"] == "hold"] == [True]
        assert run.said().count("SIGINT is put off: production is being brought back") == 2


def test_signals_in_the_restore_of_a_complete_run_change_neither_restore_nor_record(tmp_path: Path) -> None:
    with EditedWorld(tmp_path / "world", {HOLD: "hold: 2s"}) as here:
        run = Cli(here)
        try:
            here.wait(lambda: run.says("restore: hold ..."), 60, "the hold time did not begin")
            for number in SIGNALS:
                os.kill(run.pid, number)
            assert run.end() in (0, 3, 4), run.said()
        finally:
            run.kill()
        check_back(here)
        assert run_record(here)["ended"] == "complete", "all legs were measured before the signals came"
        assert restore_record(here)["verified"]


def test_a_signal_before_anything_is_touched_refuses_the_run(tmp_path: Path) -> None:
    """It comes between the snapshot and the guard, from a runner that sends it to itself."""
    with EditedWorld(tmp_path / "world", {}) as here:
        before = here.engine_pids()

        def strike(step: str, point: str) -> None:
            if (step, point) == ("snapshot", "after-effect"):
                os.kill(os.getpid(), signal.SIGTERM)

        assert here.run(strike) == 5
        assert "SIGTERM received before anything was touched" in (here.folder / "runner.log").read_text()
        assert here.engine_pids() == before
        assert here.quiet()
        assert here.problems() == []
        assert list(here.folder.glob("_iteration_log/*")) == []
