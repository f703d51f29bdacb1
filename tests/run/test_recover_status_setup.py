"""The logic of recover, status and setup, on real runs with real processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from audition.errors import Refused
from audition.run.recovering import recover
from audition.run.setup import DEADLINE, SERVICE, TIMER, install, plan_setup, setup, setup_text, systemd_runs
from audition.run.status import status, status_text
from audition.wayback import state
from audition.wayback.plan import RestorePlan
from audition.wayback.procs import ProcessServer
from audition.wayback.proctable import own_ref
from wayback.tiny_world import FAST, World, start_and_wait, wait_until

RUNNER = """
import sys, time
from audition.wayback.lock import acquire
lock = acquire(sys.argv[1:], run_id="run-1", spike="tiny", role="run", deadline=None, fence=1)
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close(made.arm("production"), made.arm("candidate"))


def root(world: World) -> Path:
    return world.folder / "root"


def interrupted(world: World) -> RestorePlan:
    """A run that died in the middle: candidate up, production down, plan on disk."""
    plan = world.plan(world.arm("production"), world.arm("candidate"), entry=world.entry())
    state.write_plan(plan)
    start_and_wait(plan.others[0])
    return plan


def runner_of(world: World, plan: RestorePlan) -> subprocess.Popen[str]:
    child = subprocess.Popen([sys.executable, "-c", RUNNER, *plan.lock_files], stdout=subprocess.PIPE, text=True)
    world.strangers.append(child)  # type: ignore[arg-type]
    assert child.stdout
    assert child.stdout.readline().strip() == "held"
    return child


def test_nothing_to_do(world: World) -> None:
    said: list[str] = []
    report = recover(root=root(world), say=said.append)
    assert report.exit_code == 0
    assert len(said) == 1
    assert said[0].startswith(f"no run is recorded under {root(world)}. If production is down, why cannot be known here")
    assert "lock     free" in status_text(status(root=root(world)))


def test_an_interrupted_run_is_brought_back_once(world: World) -> None:
    plan = interrupted(world)
    before = status(root=root(world))
    assert before.runs[0].decision == "restore"
    assert before.runs[0].next_step == "audition recover"
    assert "hush-hush" not in status_text(before) + str(before.to_data())
    report = recover(root=root(world), pace=FAST)
    assert report.exit_code == 0, report
    assert int(report) == 0
    assert world.works(plan.verify.endpoint)
    assert ProcessServer(plan.others[0]).members() == []
    assert (world.folder / "entry-open").exists()
    assert state.closed(Path(plan.state_dir))
    assert not (Path(plan.state_dir) / "plan.json").exists()
    boot = ProcessServer(plan.production).view().boot_id
    said: list[str] = []
    assert recover(root=root(world), pace=FAST, say=said.append).runs == []
    assert said == ["no run is unfinished: there is nothing to bring back"]
    assert ProcessServer(plan.production).view().boot_id == boot
    assert status(root=root(world)).ended == 1
    assert "hush-hush" not in str(report.to_data())


def test_twice_at_once(world: World) -> None:
    plan = interrupted(world)
    reports = []
    code = (
        "import sys; from pathlib import Path; from audition.run.recovering import recover; from wayback.tiny_world import FAST\n"
        "sys.exit(int(recover(root=Path(sys.argv[1]), pace=FAST, say=print)))"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    pair = [subprocess.Popen([sys.executable, "-c", code, str(root(world))], env=env) for _ in range(2)]
    reports = [one.wait(120) for one in pair]
    assert reports == [0, 0]
    assert world.works(plan.verify.endpoint)
    assert state.closed(Path(plan.state_dir))


def test_a_live_runner_is_left_alone_until_its_deadline_is_forced(world: World) -> None:
    plan = interrupted(world)
    runner = runner_of(world, plan)
    plan = replace(plan, runner=own_ref(runner.pid))
    state.write_plan(plan)
    report = recover(root=root(world), force_deadline=True, pace=FAST)
    assert report.exit_code == 5
    assert runner.poll() is None
    seen = status(root=root(world))
    assert seen.runs[0].runner_lives
    assert f"pid {runner.pid}" in status_text(seen)
    assert f"kill -TERM {runner.pid}" in seen.runs[0].next_step
    state.write_plan(replace(plan, deadline=time.time() - 1))
    assert recover(root=root(world), pace=FAST).exit_code == 5
    assert runner.poll() is None
    assert recover(root=root(world), force_deadline=True, pace=FAST).exit_code == 0
    assert runner.wait(10) is not None
    assert world.works(plan.verify.endpoint)


@pytest.mark.parametrize("damage", ["journal corrupt", "journal missing", "plan damaged", "plan gone"])
def test_damaged_records(world: World, damage: str) -> None:
    plan = interrupted(world)
    folder = Path(plan.state_dir)
    if damage == "journal corrupt":
        (folder / "journal.sqlite").write_bytes(b"this is no database" * 500)
    if damage == "plan damaged":
        (folder / "plan.json").write_text((folder / "plan.json").read_text()[:-40])
    if damage == "plan gone":
        (folder / "plan.json").unlink()
        (folder / state.GUARD).write_text("{}")
    report = recover(root=root(world), pace=FAST)
    if damage.startswith("journal"):
        assert report.exit_code == 0
        assert world.works(plan.verify.endpoint)
    else:
        assert report.exit_code == 7
        assert report.runs[0].decision == "ask"
        assert report.runs[0].manual
        assert status(root=root(world)).runs[0].decision == "ask"


def test_what_cannot_be_restored_is_said(world: World) -> None:
    plan = interrupted(world)
    assert plan.production.process is not None
    broken = replace(plan.production, process=replace(plan.production.process, argv=["/no/such/server"]))
    state.write_plan(replace(plan, production=broken))
    report = recover(root=root(world), pace=FAST)
    assert report.exit_code == 7
    assert "start production by hand" in report.runs[0].manual
    seen = status(root=root(world))
    assert "NOT RESTORED" in status_text(seen)
    assert "start production by hand" in status_text(seen)


def test_it_waits_for_a_restorer_that_is_at_work(world: World) -> None:
    plan = interrupted(world)
    code = RUNNER.replace('role="run"', 'role="guard"').replace("time.sleep(600)", "time.sleep(1.0)")
    child = subprocess.Popen([sys.executable, "-c", code, *plan.lock_files], stdout=subprocess.PIPE, text=True)
    assert child.stdout
    child.stdout.readline()
    said: list[str] = []
    closer = threading.Timer(0.3, lambda: None)
    closer.start()
    report = recover(root=root(world), pace=FAST, say=said.append)
    assert child.wait(10) == 0
    assert report.exit_code == 0
    assert any("waiting for it" in text for text in said)


def test_a_run_that_never_began_is_no_trouble(world: World) -> None:
    (root(world) / "runs" / "run-0").mkdir(parents=True)
    assert recover(root=root(world)).exit_code == 0
    assert status(root=root(world)).runs == []


# ---- setup


def test_units_are_shown_and_complete(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUDITION_STATE", str(tmp_path / "with space"))
    planned = plan_setup(
        environ={"PATH": "/usr/bin", "DOCKER_HOST": "unix:///x%y", "SECRET": "no"}, python="/opt/my env/bin/python"
    )
    text = setup_text(planned)
    assert set(planned.units) == {SERVICE, DEADLINE, TIMER}
    assert 'ExecStart="/opt/my env/bin/python" -m audition recover\n' in planned.units[SERVICE]
    assert "recover --force-deadline" in planned.units[DEADLINE]
    assert 'Environment="DOCKER_HOST=unix:///x%%y"' in text
    assert f'Environment="AUDITION_STATE={tmp_path}/with space"' in text
    assert "SECRET" not in text
    assert "WantedBy=timers.target" in planned.units[TIMER]
    assert "daemon-reload" in text
    analyze = shutil.which("systemd-analyze")
    if analyze is not None:
        for name, unit in planned.units.items():
            (tmp_path / name).write_text(unit.replace('"/opt/my env/bin/python"', sys.executable))
        files = [str(tmp_path / name) for name in planned.units]
        checked = subprocess.run([analyze, "verify", "--man=no", *files], capture_output=True, text=True, check=False)
        assert "Unknown" not in checked.stderr, checked.stderr
        assert "Invalid" not in checked.stderr, checked.stderr


def test_what_may_be_gone_at_boot_is_warned_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stays = "/var/lib/audition"
    monkeypatch.setenv("AUDITION_STATE", stays)
    sound = plan_setup(environ={}, python="/opt/audition/bin/python", package=Path("/opt/audition/lib/audition"))
    assert sound.warnings == ()
    gone = plan_setup(environ={}, python="/tmp/env/bin/python", package=Path("/opt/audition/lib/audition"))
    assert [w.startswith("the interpreter /tmp/env/bin/python lies in a temporary folder") for w in gone.warnings] == [True]
    home = plan_setup(environ={}, python="/opt/audition/bin/python", package=Path("/home/ada/audition"))
    assert [w.startswith("the package /home/ada/audition lies in a home folder") for w in home.warnings] == [True] * (not home.user)
    monkeypatch.setenv("AUDITION_STATE", str(tmp_path / "state"))
    assert any("the state" in w and "AUDITION_STATE" in w for w in plan_setup(environ={}, python="/opt/p").warnings)
    monkeypatch.setenv("AUDITION_STATE", stays)
    tree = tmp_path / "tree"
    (tree / ".git").mkdir(parents=True)
    told = plan_setup(environ={}, python="/opt/p", package=tree / "src" / "audition").warnings
    assert f"lies in the working tree {tree.resolve()}" in told[-1]
    said: list[str] = []
    setup(say=said.append, confirm=lambda text: False)
    assert all(f"warning: {text}" in said[0] for text in plan_setup().warnings)


def test_the_search_path_holds_every_absolute_folder_once() -> None:
    unit = plan_setup(environ={"PATH": "/a:/b::/a:bin:/c:/b"}).units[SERVICE]
    assert 'Environment="PATH=/a:/b:/c"\n' in unit


def test_setup_asks_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUDITION_STATE", str(tmp_path))
    said: list[str] = []
    asked: list[str] = []

    def decline(text: str) -> bool:
        asked.append(text)
        return False

    code = setup(say=said.append, confirm=decline)
    assert code == 0
    if systemd_runs():
        assert asked
        assert said[-1] == "Nothing was installed."
    else:
        assert not asked
        assert "What is lost" in said[0]


def test_setup_is_refused_while_a_run_is_unfinished(world: World, tmp_path: Path) -> None:
    interrupted(world)
    planned = replace(plan_setup(), folder=tmp_path / "units")
    with pytest.raises(Refused, match="while a run is unfinished"):
        install(planned, root=root(world))
    assert not (tmp_path / "units").exists()
    wait_until(lambda: True)
