"""Journal and state folder lost in the middle of a whole run: production comes back, from the runner or from the guard's copy.

Afterwards ``audition recover`` finds nothing wrong, or says what it cannot know.
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from audition.check.machine import DISK_BLOCKING_MIB
from audition.wayback import state
from crash.variants import run_record, state_folder
from crash.world import World, process_lines

pytestmark = pytest.mark.slow
MOMENT = ("leg-2.measure", "after-intent")
Damage = Callable[[World], None]


class Remembering(World):
    """Knows its run's guard also when the state folder is gone."""

    def guard_pids(self) -> list[int]:
        name = self.folder / "run-name"
        if not name.exists():
            return super().guard_pids()
        return [pid for pid, line, _ in process_lines() if " guard " in line and name.read_text() in line]


def disk_full(here: World) -> None:
    """The state root is a small disk of its own (see the fixture): fill it."""
    with (here.folder / "state" / "filler").open("wb", buffering=0) as file:
        for size in (2**20, 4096):  # quickly, then to the last page
            try:
                while file.write(b"x" * size) == size:
                    pass
            except OSError as error:
                assert error.errno == errno.ENOSPC  # noqa: PT017


def no_file_grows(_: World) -> None:
    """Needs no root: every write beyond 512 bytes of any file fails from now on, for this runner and what it starts."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, hard))


def read_only(here: World) -> None:
    """A read-only mount over the state root: what is open stays writable, nothing new can be made."""
    root = str(here.folder / "state")
    subprocess.run(["mount", "--bind", root, root], check=True)
    subprocess.run(["mount", "-o", "remount,ro,bind", root], check=True)


def journal_corrupt(here: World) -> None:
    for file in state_folder(here).glob("journal.sqlite*"):
        with file.open("r+b") as opened:
            opened.write(b"this is no journal any more. " * 2000)


def journal_gone(here: World) -> None:
    for file in state_folder(here).glob("journal.sqlite*"):
        file.unlink()


def run_folder_gone(here: World) -> None:
    shutil.rmtree(state_folder(here))


def state_root_gone(here: World) -> None:
    shutil.rmtree(here.folder / "state")


DAMAGES: list[Damage] = [disk_full, no_file_grows, read_only, journal_corrupt, journal_gone, run_folder_gone, state_root_gone]


@pytest.fixture
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """A world; for faults of the disk its state root is a small disk of its own, just large enough for the checks beforehand."""
    damage: Damage = request.node.callspec.params["damage"]
    needs_disk = damage in (disk_full, read_only)
    made = Remembering(tmp_path / "world")
    root = made.folder / "state"
    if needs_disk:
        root.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_BLOCKING_MIB + 64}m", "tmpfs", str(root)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            pytest.skip(f"a small disk cannot be mounted here (needs root): {done.stderr.strip()}")
    try:
        with made:
            yield made
    finally:
        while needs_disk and os.path.ismount(root):
            subprocess.run(["umount", "-l", str(root)], check=True)


def mend(here: World, damage: Damage) -> None:
    """The disk takes files again, as after somebody has made room."""
    root = here.folder / "state"
    if damage is disk_full:
        (root / "filler").unlink()
    if damage is read_only:
        subprocess.run(["umount", "-l", str(root)], check=True)


def run_damaged(here: World, damage: Damage, victims: list[str]) -> int:
    """One run that is damaged in the candidate's leg, and struck there."""

    def strike(step: str, point: str) -> None:
        if (step, point) == MOMENT:
            (here.folder / "run-name").write_text(state_folder(here).name)
            assert here.guard_pids()
            damage(here)
            (here.folder / "struck").touch()
            if victims:
                here.strike(victims)

    code = here.run(strike)
    assert (here.folder / "struck").exists(), "the candidate's leg was never reached"
    return code


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_runner_lives_and_restores_by_itself(here: World, damage: Damage) -> None:
    code = run_damaged(here, damage, [])
    log = (here.folder / "runner.log").read_text()
    assert code in (0, 1, 3, 4), log
    assert damage is no_file_grows or "production is back" in log  # there the log cannot grow either
    here.wait(here.quiet, 60, "the guard is still busy")
    assert here.server_problems() == []
    assert here.answers()
    mend(here, damage)
    recovered = here.audition("recover")
    assert recovered.returncode == 0, recovered.stderr
    assert here.problems() == []
    if damage is no_file_grows:  # there the records cannot be written either
        [production] = here.engine_pids()
        assert resource.prlimit(production, resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY, "its limits are its own"
    else:
        assert run_record(here)["production_back"] is True


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_runner_is_killed_too_and_the_guard_restores_from_its_own_copy(here: World, damage: Damage) -> None:
    assert run_damaged(here, damage, ["runner"]) == -signal.SIGKILL
    here.wait(here.quiet, 60, "the guard is still busy")
    assert here.server_problems() == []
    assert here.answers()
    mend(here, damage)
    recovered = here.audition("recover")
    assert recovered.returncode == 0, recovered.stderr
    assert here.problems() == []


@pytest.mark.parametrize("damage", DAMAGES)
def test_runner_and_guard_are_killed_and_recover_restores_or_says_what_it_cannot_know(here: World, damage: Damage) -> None:
    assert run_damaged(here, damage, ["guard", "runner"]) == -signal.SIGKILL
    assert here.quiet()
    mend(here, damage)
    recovered = here.audition("recover")
    if damage in (run_folder_gone, state_root_gone):  # nothing is left that could know how production ran
        assert "why cannot be known here" in recovered.stderr
        return
    assert recovered.returncode == 0, recovered.stderr
    assert here.server_problems() == []
    assert here.problems() == []
    assert state.closed(state_folder(here))
