"""The guard in whole runs: armed before anything is touched, no run without it, another one when it dies, the deadline kept."""

from __future__ import annotations

import datetime
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from audition.run.recovering import guard_of
from audition.swap.plan import TOUCHES_PRODUCTION
from audition.wayback import state
from crash.variants import EditedWorld, journal_of, longer, run_record, state_folder
from crash.world import World, process_lines


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path / "world") as made:
        yield made


def untouched(here: World, before: list[int], log: str) -> None:
    """Production is the very process that it was, and nothing of the refused run is left."""
    assert here.engine_pids() == before, log
    assert here.quiet()
    assert here.problems() == []
    assert list(here.folder.glob("_iteration_log/*")) == []


def test_the_guard_is_armed_in_a_session_of_its_own_before_the_first_touch(here: World) -> None:
    seen = here.folder / "seen"

    def note(step: str, point: str) -> None:
        if point == "before-intent" and step.rpartition(".")[2] in TOUCHES_PRODUCTION and not seen.exists():
            folder = state_folder(here)
            guard = guard_of(folder)
            assert guard is not None
            facts = {
                "step": step,
                "sessions": [os.getsid(guard.pid), os.getsid(0)],
                "guard": guard.pid,
                "plan": (folder / state.PLAN).exists(),
                "production": here.engine_pids(),
            }
            seen.write_text(json.dumps(facts))

    before = here.engine_pids()
    assert here.run(note) in (0, 3, 4)
    facts = json.loads(seen.read_text())
    assert facts["step"] == "leg-2.stop"
    assert facts["plan"]
    assert facts["sessions"][0] == facts["guard"] != facts["sessions"][1]
    assert facts["production"] == before


@pytest.mark.parametrize("trouble", ["a file is in the way", "full disk", "read-only disk"])
def test_a_state_folder_that_takes_nothing_refuses_the_run(here: World, trouble: str) -> None:
    before, root = here.engine_pids(), here.folder / "state"
    mounted = 0
    try:
        if trouble == "a file is in the way":
            root.write_text("in the way")
        else:
            root.mkdir()
            mount(here, "-t", "tmpfs", "-o", "size=64k" if trouble == "full disk" else "size=64k,ro", "tmpfs", str(root))
            mounted = 1
        done = here.audition("run", str(here.spike))
        assert done.returncode == 5, done.stderr
        assert "next" in done.stderr, "what to type next is said"
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(root)], check=True)
        if root.is_file():
            root.unlink()
    untouched(here, before, done.stderr)


def mount(here: World, *words: str) -> None:
    done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here (needs root): {done.stderr.strip()}")


@pytest.mark.parametrize("trouble", ["the interpreter is gone", "it fails", "it ends well and leaves no guard"])
def test_a_guard_that_cannot_be_armed_refuses_the_run(here: World, trouble: str, tmp_path: Path) -> None:
    """The interpreter is taken away from the runner between its start and the arming, as an upgrade of Python would."""
    before = here.engine_pids()
    program = tmp_path / "python3"
    if trouble != "the interpreter is gone":
        program.write_text(f"#!/bin/sh\nexit {3 if trouble == 'it fails' else 0}\n")
        program.chmod(0o755)

    def take_away(step: str, point: str) -> None:
        if (step, point) == ("arm-guard", "before-intent"):
            sys._base_executable = str(program)  # type: ignore[attr-defined]  # this fork alone

    assert here.run(take_away) == 5
    log = (here.folder / "runner.log").read_text()
    assert "The guard that brings production back is not armed, so nothing is stopped." in log
    untouched(here, before, log)


def test_a_guard_that_is_killed_is_replaced_before_the_next_step(here: World) -> None:
    pids = here.folder / "pids"

    def strike(step: str, point: str) -> None:
        if point == "before-intent" and step in ("leg-2.start", "leg-2.measure"):
            guard = guard_of(state_folder(here))
            assert guard is not None
            with open(pids, "a", encoding="utf-8") as file:
                file.write(f"{guard.pid}\n")
        if (step, point) == ("leg-2.start", "before-intent"):
            os.kill(int(pids.read_text()), signal.SIGKILL)

    assert here.run(strike) in (0, 3, 4)
    first, second = pids.read_text().split()
    assert first != second, "guard.json names the new guard, and it lives"
    assert "the guard died: arming another one" in (here.folder / "runner.log").read_text()
    here.wait(here.quiet, 30, "the guard did not stand down")
    assert here.problems() == []


@pytest.mark.slow
def test_at_the_deadline_the_guard_ends_a_runner_that_hangs_and_restores(tmp_path: Path) -> None:
    """The window is 60 s + 1.5 times the slowest cold start longer than the time until the deadline."""
    closes = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=60 + 1.5 * 5 + 12)
    window = {"drain:": f"window: {{closes: {closes.isoformat(timespec='seconds')}}}\ndrain:"}
    with EditedWorld(tmp_path / "world", window) as here:

        def hang(step: str, point: str) -> None:
            if (step, point) == ("leg-2.measure", "after-intent"):
                os.kill(os.getpid(), signal.SIGSTOP)

        assert here.run(hang) == -signal.SIGKILL
        here.wait(here.quiet, 60, "the guard is still busy")
        assert here.problems() == []
        [log] = [file.read_text() for file in (here.folder / "state").glob("runs/*/guard.log")]
        assert "the restore deadline has passed" in log
        assert "ends the runner" in log
        begins = float(next(line for line in log.splitlines() if "ends the runner" in line).split()[0])
        assert begins >= closes.timestamp() - 60 - 1.5 * 5 - 1
        assert time.time() < closes.timestamp(), "production is back within the window"
        assert here.audition("recover").returncode == 0


@pytest.mark.slow
def test_at_the_deadline_a_live_runner_cuts_the_leg_and_restores_by_itself(tmp_path: Path) -> None:
    closes = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=60 + 1.5 * 5 + 15)
    window = {"drain:": f"window: {{closes: {closes.isoformat(timespec='seconds')}}}\ndrain:"}
    with EditedWorld(tmp_path / "world", {**window, **longer(60)}) as here:
        before = here.engine_pids()
        assert here.run(lambda step, point: None) == 4
        here.wait(here.quiet, 60, "the guard is still busy")
        assert here.problems() == []
        assert run_record(here)["ended"] == "early-end"
        assert "window" in run_record(here)["end_reason"]
        assert time.time() < closes.timestamp()
        assert journal_of(here)[-1].step == "release-lock"
        assert here.engine_pids() == before, "the first leg was cut: production was never stopped"
        assert [line for _, line, _ in process_lines() if str(here.folder) in line and " guard " in line] == []
