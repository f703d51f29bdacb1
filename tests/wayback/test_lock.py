"""Locks with real processes: one winner, stale writing, GPU sets, fencing numbers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from audition.wayback.lock import LockHeld, acquire, current_holder, lock_files_for, next_fence, read_holder, state_root

TAKE = """
import sys, time
from pathlib import Path
from audition.wayback.lock import LockHeld, acquire, lock_files_for
root = Path(sys.argv[1])
while not (root / "go").exists():
    time.sleep(0.002)
try:
    lock = acquire(lock_files_for(root, []), run_id=sys.argv[2], spike="s", role="run", deadline=None, fence=1)
except LockHeld as error:
    print("lost", flush=True)
else:
    print("won", flush=True)
    sys.stdin.read()
"""


def get(root: Path, gpus: list[int] | None = None, name: str = "run-1", **more: float) -> object:
    return acquire(lock_files_for(root, gpus or []), run_id=name, spike="s", role="run", deadline=None, fence=1, **more)


def test_two_hundred_starts_one_winner(tmp_path: Path) -> None:
    """Twenty processes at a time, ten times over, all let go at the same instant."""
    for number in range(10):
        root = tmp_path / str(number)
        root.mkdir()
        racers = [
            subprocess.Popen(
                [sys.executable, "-c", TAKE, str(root), f"run-{i}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for i in range(20)
        ]
        (root / "go").touch()
        words = [racer.stdout.readline().strip() for racer in racers if racer.stdout]
        for racer in racers:
            racer.communicate("")
        assert sorted(words) == ["lost"] * 19 + ["won"]


def test_the_holder_is_named_and_a_dead_one_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    winner = subprocess.Popen(
        [sys.executable, "-c", TAKE, str(tmp_path), "run-old"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert winner.stdout
    assert winner.stdout.readline().strip() == "won"
    with pytest.raises(LockHeld, match=f"run run-old.*pid {winner.pid}.*audition status") as caught:
        get(tmp_path)
    assert caught.value.holder is not None
    assert caught.value.holder.role == "run"
    assert current_holder(lock_files_for(tmp_path, [])) == caught.value.holder
    winner.kill()
    winner.communicate()
    assert current_holder(lock_files_for(tmp_path, [])) is None
    with get(tmp_path, name="run-new"):  # type: ignore[attr-defined]
        holder = read_holder(lock_files_for(tmp_path, [])[0])
        assert holder is not None
        assert holder.run_id == "run-new"
        assert holder.process.pid == os.getpid()


def test_gpu_sets_exclude_each_other_only_where_they_meet(tmp_path: Path) -> None:
    with get(tmp_path, [0, 1]):  # type: ignore[attr-defined]
        with get(tmp_path, [2], "run-2"):  # type: ignore[attr-defined]
            pass
        for gpus in ([1], [1, 2], []):
            with pytest.raises(LockHeld):
                get(tmp_path, gpus, "run-3")
        with get(tmp_path, [2], "run-2"):  # type: ignore[attr-defined]  # a lost try left nothing behind
            pass
    with get(tmp_path), pytest.raises(LockHeld):  # type: ignore[attr-defined]
        get(tmp_path, [5])


def test_waiting_for_the_lock(tmp_path: Path) -> None:
    first = get(tmp_path)
    started = time.monotonic()
    with pytest.raises(LockHeld):
        get(tmp_path, name="run-2", wait_s=0.6)
    assert time.monotonic() - started >= 0.6
    first.release()  # type: ignore[attr-defined]
    get(tmp_path, name="run-2").release()  # type: ignore[attr-defined]


def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    code = TAKE.replace(
        "sys.stdin.read()",
        "import os\n    if os.fork() == 0:\n        time.sleep(30)\n    print(0, flush=True)\n    sys.stdin.read()",
    )
    (tmp_path / "go").touch()
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path), "run-1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert parent.stdout
    assert parent.stdout.readline().strip() == "won"
    parent.stdout.readline()
    parent.kill()
    parent.wait()
    get(tmp_path, name="run-2", wait_s=5.0).release()  # type: ignore[attr-defined]
    os.killpg(parent.pid, 9)


def test_a_removed_lock_file_does_not_make_two_winners(tmp_path: Path) -> None:
    path = Path(lock_files_for(tmp_path, [])[0])
    first = get(tmp_path)
    path.unlink()
    first.release()  # type: ignore[attr-defined]
    second = get(tmp_path)
    with pytest.raises(LockHeld):
        get(tmp_path, name="run-3")
    second.release()  # type: ignore[attr-defined]


def test_fencing_numbers_only_grow(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from audition.wayback.lock import next_fence\n"
        "for _ in range(20): print(next_fence(Path(sys.argv[1])))"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    numbers = [int(line) for writer in writers for line in writer.communicate()[0].split()]
    assert sorted(numbers) == list(range(1, 81))
    (tmp_path / "fence").write_text("damaged")
    assert next_fence(tmp_path) > 80
    assert next_fence(tmp_path) > int(time.time()) - 5


def test_unreadable_holders_are_still_holders(tmp_path: Path) -> None:
    with get(tmp_path):  # type: ignore[attr-defined]
        Path(lock_files_for(tmp_path, [])[0]).write_text("{half")
        with pytest.raises(LockHeld, match="not written its name"):
            get(tmp_path)
        holder = current_holder(lock_files_for(tmp_path, []))
        assert holder is not None
        assert holder.run_id == "unknown"
    json.dumps(lock_files_for(tmp_path, [3, 1, 3]))
    assert [Path(file).name for file in lock_files_for(tmp_path, [3, 1, 3])] == ["host.lock", "gpu-1.lock", "gpu-3.lock"]


def test_the_state_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUDITION_STATE", str(tmp_path))
    assert state_root() == tmp_path
    monkeypatch.delenv("AUDITION_STATE")
    expected = Path("/var/lib/audition") if os.geteuid() == 0 else Path.home() / ".local/state/audition"
    assert state_root() == expected
