"""Two hundred starts at the same instant have one winner, and the next one after a kill has a greater fence; twenty real runs."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from audition.wayback.lock import LockHeld, acquire, lock_files_for, next_fence
from crash.variants import Cli, EditedWorld

STARTS = 200
RUNS = 20


def racer(root: Path, number: int, start: int, results: int, stay: int) -> None:
    """One start, in a process of its own: waits at the barrier, tries, says what came of it, and holds what it won."""
    os.read(start, 1)  # returns when the barrier falls: its other end is closed
    fence = next_fence(root)
    said: dict[str, object] = {"number": number, "pid": os.getpid(), "fence": fence}
    try:
        acquire(lock_files_for(root, []), run_id=f"run-{number}", spike="s", role="run", deadline=None, fence=fence)
        said["won"] = True
    except LockHeld as held:
        said |= {"won": False, "message": str(held)}
    os.write(results, json.dumps(said).encode() + b"\n")
    if said["won"]:
        os.read(stay, 1)


def fork_racers(root: Path, numbers: range) -> tuple[list[int], int, int, int]:
    """(pids, barrier, results, stay) of racers that wait; all descriptors are this side's ends."""
    start_read, start_write = os.pipe()
    results_read, results_write = os.pipe()
    stay_read, stay_write = os.pipe()
    pids = []
    for number in numbers:
        pid = os.fork()
        if pid == 0:
            try:
                for descriptor in (start_write, results_read, stay_write):
                    os.close(descriptor)
                racer(root, number, start_read, results_write, stay_read)
                os._exit(0)
            except BaseException:  # noqa: BLE001 - a fork must not return into the test
                os._exit(99)
        pids.append(pid)
    for descriptor in (start_read, results_write, stay_read):
        os.close(descriptor)
    return pids, start_write, results_read, stay_write


def read_lines(descriptor: int, count: int, limit_s: float = 120) -> list[dict[str, object]]:
    """So many lines of JSON; each was written in one piece."""
    data, until = b"", time.monotonic() + limit_s
    while data.count(b"\n") < count:
        assert time.monotonic() < until
        part = os.read(descriptor, 65536)
        assert part, f"the racers ended after {data.count(chr(10).encode())} of {count} answers"
        data += part
    return [json.loads(line) for line in data.splitlines()]


def test_two_hundred_starts_at_once_have_one_winner_and_a_killed_one_is_followed_with_a_greater_fence(tmp_path: Path) -> None:
    pids, barrier, results, stay = fork_racers(tmp_path, range(STARTS))
    os.close(barrier)
    answers = read_lines(results, STARTS)
    winners = [answer for answer in answers if answer["won"]]
    assert len(winners) == 1
    [winner] = winners
    losers = [answer for answer in answers if not answer["won"]]
    unnamed = [a["message"] for a in losers if f"run-{winner['number']} (spike s, pid {winner['pid']})" not in str(a["message"])]
    assert unnamed == []
    assert len({answer["fence"] for answer in answers}) == STARTS, "no fence is given twice"

    holder = int(str(winner["pid"]))
    os.kill(holder, signal.SIGKILL)
    assert {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids} == {0, -signal.SIGKILL}
    fence = next_fence(tmp_path)
    assert fence > max(int(str(answer["fence"])) for answer in answers)
    with acquire(lock_files_for(tmp_path, []), run_id="next", spike="s", role="run", deadline=None, fence=fence, wait_s=0) as lock:
        assert lock.holder.fence == fence
    for descriptor in (results, stay):
        os.close(descriptor)


@pytest.mark.slow
def test_twenty_real_runs_on_one_production_one_runs_and_the_others_name_it(tmp_path: Path) -> None:
    """The one that runs waits in its own step "close the entry" until the test has seen all others end."""
    close = "drain: {budget: 2s, close: [sh, -c, 'until [ -e GO ]; do sleep 0.1; done'], open: ['true']}"
    here = EditedWorld(tmp_path / "world", {"drain: {budget: 2s}": close.replace("GO", str(tmp_path / "go"))})
    with here:
        before = here.engine_pids()
        runs = [Cli(here, f"run-{number}") for number in range(RUNS)]
        try:
            here.wait(lambda: sum(run.process.poll() is not None for run in runs) == RUNS - 1, 200, "19 runs did not end")
            time.sleep(0.5)
            [winner] = [run for run in runs if run.process.poll() is None]
            losers = [run for run in runs if run is not winner]
            assert [run.end() for run in losers] == [5] * (RUNS - 1)
            assert [run.said() for run in losers if f"(spike crash, pid {winner.pid})" not in run.said()] == []
            assert here.engine_pids() == before, "nobody has touched production so far"
            assert len(list((here.folder / "state" / "runs").iterdir())) == 1
            assert len(list((here.folder / "_iteration_log").iterdir())) == 1
            (tmp_path / "go").touch()
            assert winner.end() in (0, 3, 4), winner.said()
        finally:
            for run in runs:
                run.kill()
        here.wait(here.quiet, 30, "the guard did not stand down")
        assert here.problems() == []


def test_a_run_under_another_state_folder_on_the_same_production_is_refused(tmp_path: Path) -> None:
    """No lock is shared; the port's name in the kernel is. The first run holds still in its own step "close the entry"."""
    close = f"drain: {{budget: 2s, close: [sh, -c, 'until [ -e {tmp_path}/go ]; do sleep 0.1; done'], open: ['true']}}"
    with EditedWorld(tmp_path / "world", {"drain: {budget: 2s}": close}) as here:
        first = Cli(here, "first")
        try:
            here.wait(lambda: first.says("close the entry"), 60, "the first run did not come so far")
            before = here.engine_pids()
            here.env["AUDITION_STATE"] = str(tmp_path / "another")
            second = Cli(here, "second")
            assert second.end() == 5, second.said()
            assert f"uses the server on port {here.port}" in second.said()
            assert here.engine_pids() == before
            assert list((tmp_path / "another" / "runs").iterdir()) == []
            (tmp_path / "go").touch()
            assert first.end() in (0, 3, 4), first.said()
        finally:
            first.kill()
        here.wait(here.quiet, 30, "the guard did not stand down")
        assert here.problems() == []
