"""Process servers with real processes: starting, stopping with proof, orphans, strangers, comparing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from audition.wayback.found import find
from audition.wayback.plan import ArmTarget, ProcessRef
from audition.wayback.procs import ProcessServer
from audition.wayback.proctable import is_alive, own_ref, port_answers, read_proc, ref_of, send_signal
from audition.wayback.server import WaybackError
from wayback.tiny_world import ENGINE, World, environment, start_and_wait, wait_until

SLEEP = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(300)"]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close(made.arm("production"), made.arm("candidate"))


def changed(arm: ArmTarget, **values: object) -> ArmTarget:
    assert arm.process is not None
    return replace(arm, process=replace(arm.process, **values))  # type: ignore[arg-type]


def wait_past(moment: float) -> None:
    """``moment``: of the monotonic clock."""
    wait_until(lambda: time.monotonic() > moment)


def test_identity_is_on_disk_and_survives_the_exec(world: World) -> None:
    server = start_and_wait(world.arm("candidate"))
    assert server.leader() is not None
    data = json.loads(Path(server.target.identity_file).read_text())
    proc = read_proc(data["pid"])
    assert proc is not None
    assert proc.start_ticks == data["start_ticks"]
    assert proc.sid == proc.pid
    assert server.differences() == []


def test_two_starts_at_once_give_one_server(world: World) -> None:
    arm = world.arm("candidate", "--boot-s", "0.2")
    code = (
        "import sys; from wayback.tiny_world import World; from pathlib import Path\n"
        "from audition.wayback.procs import ProcessServer\n"
        "w = World(Path(sys.argv[1]), port=int(sys.argv[2])); ProcessServer(w.arm('candidate', '--boot-s', '0.2')).start()\n"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    starters = [subprocess.Popen([sys.executable, "-c", code, str(world.folder), str(world.port)], env=env) for _ in range(4)]
    assert [starter.wait() for starter in starters] == [0, 0, 0, 0]
    server = ProcessServer(arm)
    assert len(server.members()) == 1
    wait_until(lambda: port_answers(world.port))
    assert server.stop(3).proved


def test_a_start_whose_starter_died_leaves_no_unknown_server(world: World) -> None:
    """Killed right after the launcher began: either nothing runs, or what runs has its identity on disk."""
    code = (
        "import os, sys, threading, time; from wayback.tiny_world import World; from pathlib import Path\n"
        "from audition.wayback.procs import ProcessServer\n"
        "w = World(Path(sys.argv[1]), port=int(sys.argv[2]))\n"
        "threading.Timer(float(sys.argv[3]), lambda: os.kill(os.getpid(), 9)).start()\n"
        "ProcessServer(w.arm('candidate')).start(); time.sleep(10)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    server = ProcessServer(world.arm("candidate"))
    for delay in ("0.001", "0.01", "0.02", "0.03", "0.05", "0.2"):
        starter = subprocess.Popen([sys.executable, "-c", code, str(world.folder), str(world.port), delay], env=env)
        assert starter.wait() == -9
        dead = time.monotonic()
        assert server.stop(2).proved
        wait_past(dead + 0.4)  # a launcher on its way would have come up by now
        assert server.members() == []
        assert not port_answers(world.port)


@pytest.mark.parametrize("worker", ["session", "own-session"])
def test_orphans_are_stopped_with_their_killed_leader(world: World, worker: str) -> None:
    server = start_and_wait(world.arm("candidate", "--worker", worker, "--stubborn-worker"))
    assert len(server.members()) == 2
    leader = server.leader()
    assert leader is not None
    os.kill(leader.pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(leader))
    fresh = ProcessServer(server.arm)  # a restorer that has seen nothing of the past
    assert fresh.view().state == "stopped"
    with pytest.raises(WaybackError, match="its processes are left"):
        fresh.start()
    report = fresh.stop(0.3)
    assert report.proved
    assert report.killed
    assert fresh.view().state == "absent"


def test_a_worker_without_marks_is_stopped_while_its_leader_lives(world: World) -> None:
    server = start_and_wait(world.arm("candidate", "--worker", "bare", "--stubborn-worker"))
    workers = [proc for proc in server.members() if server.leader() and proc.pid != server.leader().pid]  # type: ignore[union-attr]
    assert len(workers) == 1
    assert server.stop(0.3).proved
    assert not is_alive(ref_of(workers[0]))


def test_sigterm_first_and_sigkill_only_after_the_grace(world: World) -> None:
    server = start_and_wait(world.arm("candidate"))
    assert not server.stop(5).killed
    server = start_and_wait(world.arm("candidate", "--ignore-term"))
    report = server.stop(0.3)
    assert report.killed
    assert report.proved
    assert report.seconds >= 0.3


def test_strangers_survive_a_stop(world: World) -> None:
    """Same command, same port in the arguments, same working folder, another token, a recycled identity: all live on."""
    arm = world.arm("candidate")
    decoys = [
        world.stranger(*SLEEP),
        world.stranger(*SLEEP, "--port", str(world.port), ENGINE),
        world.stranger(*SLEEP, env={**environment(), "AUDITION_TOKEN": "token-of-somebody-else"}),
    ]
    server = start_and_wait(arm)
    assert server.stop(3).proved
    assert all(is_alive(decoy) for decoy in decoys)
    recycled = replace(decoys[0], start_ticks=decoys[0].start_ticks - 1)
    stale = ProcessServer(changed(arm, running=recycled, members=[replace(decoys[1], start_ticks=1)]))
    assert stale.view().state == "absent"
    assert stale.stop(0).proved
    assert not send_signal(recycled, signal.SIGKILL)
    assert all(is_alive(decoy) for decoy in decoys)


def test_a_stranger_on_the_port_is_reported_and_left_alone(world: World) -> None:
    stranger = world.stranger(sys.executable, ENGINE, "--port", str(world.port))
    wait_until(lambda: port_answers(world.port))
    server = ProcessServer(world.arm("candidate"))
    assert server.view().state == "foreign"
    with pytest.raises(WaybackError, match=f"pid {stranger.pid}"):
        server.start()
    report = server.stop(0)
    assert report.proved
    assert str(stranger.pid) in report.detail
    assert is_alive(stranger)


def test_after_a_reboot_a_stored_identity_is_nobody(world: World) -> None:
    me = own_ref()
    server = ProcessServer(changed(world.arm("candidate"), running=ProcessRef(me.pid, me.start_ticks, "another-boot")))
    assert server.view().state == "absent"
    assert server.members() == []


def test_this_process_is_never_its_own_member(world: World) -> None:
    server = ProcessServer(changed(world.arm("candidate"), running=own_ref(), members=[own_ref(os.getppid())]))
    assert server.members() == []


def test_exit_code_and_failed_exec_are_told(world: World) -> None:
    server = ProcessServer(world.arm("candidate", "--exit-at-boot", "7"))
    server.start()
    wait_until(lambda: server.view().state == "absent")
    assert server.view().exit_code == 7
    assert "crashed at boot" in server.log_tail(3)
    with pytest.raises(WaybackError, match="no executable"):
        ProcessServer(changed(world.arm("candidate"), argv=["/no/such/program"])).start()
    with pytest.raises(WaybackError, match=r"no/such/folder"):
        ProcessServer(changed(world.arm("candidate"), cwd="/no/such/folder", executable=sys.executable)).start()


def test_the_server_gets_default_signals_and_nothing_inherited(world: World) -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    try:
        server = start_and_wait(world.arm("candidate"))
    finally:
        signal.signal(signal.SIGTERM, before)
        os.close(reading)
        os.close(writing)
    leader = server.leader()
    assert leader is not None
    status = Path(f"/proc/{leader.pid}/status").read_text()
    ignored = int(next(line for line in status.splitlines() if line.startswith("SigIgn")).split()[1], 16)
    assert not ignored & (1 << (signal.SIGTERM - 1))
    links = [os.readlink(f"/proc/{leader.pid}/fd/{number}") for number in os.listdir(f"/proc/{leader.pid}/fd")]
    assert not [name for name in links if name.startswith("pipe:")]
    assert not server.stop(5).killed


def test_an_identity_folder_that_cannot_be_made_has_a_stand_in(world: World) -> None:
    (world.folder / "in-the-way").write_text("a file where a folder should be")
    arm = changed(
        world.arm("candidate"),
        identity_file=str(world.folder / "in-the-way" / "identity.json"),
        log_file=str(world.folder / "in-the-way" / "server.log"),
    )
    server = start_and_wait(arm)
    again = ProcessServer(arm)
    assert again.view().boot_id == server.view().boot_id
    assert "tiny engine" in again.log_tail(10)
    assert again.stop(3).proved


def test_differences_name_variables_and_never_values(world: World) -> None:
    server = start_and_wait(world.arm("candidate"))
    assert server.target.env["SECRET_KEY"] == "hush-hush"
    other = ProcessServer(changed(server.arm, env={**server.target.env, "SECRET_KEY": "new-secret", "MORE": "x"}, cwd="/"))
    texts = "\n".join(other.differences())
    assert "differs in SECRET_KEY" in texts
    assert "lacks MORE" in texts
    assert "working folder" in texts
    assert "hush" not in texts
    assert "new-secret" not in texts


def test_a_production_of_somebody_else_is_found_and_started_again_exactly(world: World) -> None:
    log = world.folder / "prod.log"
    command = f"exec {sys.executable} {ENGINE} --port {world.port} --worker session >> {log} 2>&1"
    stranger = world.stranger("/bin/sh", "-c", command, env={**environment(), "AUDITION_TOKEN": "of-an-earlier-run"})
    wait_until(lambda: port_answers(world.port))
    found = find(world.port)
    assert found.doubts == []
    assert found.root == stranger
    assert found.log_file == str(log)
    assert len(found.members) == 2
    assert found.env is not None
    arm = changed(
        world.arm("production"), argv=found.argv, env=found.env, cwd=found.cwd, executable=found.executable, running=found.root,
        members=found.members, log_file=found.log_file, limits=found.limits,
    )  # fmt: skip
    server = ProcessServer(arm, adopt=True)
    assert server.differences() == []
    assert server.stop(3).proved
    server.start()
    wait_until(lambda: port_answers(world.port))
    assert server.differences() == []
    assert server.leader() != stranger
    assert server.stop(3).proved


@pytest.mark.parametrize(
    ("redirection", "read"),
    [(">> {0}.out 2>> {0}.err", "{0}.out"), (">> /dev/null 2>> {0}.err", "{0}.err"), ("2>> /dev/null >> {0}.out", "{0}.out")],
)
def test_output_and_errors_go_where_they_went_before(world: World, redirection: str, read: str) -> None:
    place = str(world.folder / "prod")
    command = f"exec {sys.executable} {ENGINE} --port {world.port} {redirection.format(place)}"
    stranger = world.stranger("/bin/sh", "-c", command, env=environment())
    wait_until(lambda: port_answers(world.port))
    streams = [os.readlink(f"/proc/{stranger.pid}/fd/{number}") for number in (1, 2)]
    found = find(world.port)
    assert found.doubts == []
    assert found.log_file == read.format(place)
    assert [found.output_file, found.error_file] == streams
    arm = changed(
        world.arm("production"), argv=found.argv, env=found.env, cwd=found.cwd, executable=found.executable, running=found.root,
        members=found.members, log_file=found.log_file, output_file=found.output_file, error_file=found.error_file,
    )  # fmt: skip
    server = ProcessServer(arm, adopt=True)
    assert server.stop(3).proved
    server.start()
    wait_until(lambda: port_answers(world.port))
    leader = server.leader()
    assert leader is not None
    assert [os.readlink(f"/proc/{leader.pid}/fd/{number}") for number in (1, 2)] == streams
    assert server.stop(3).proved


def test_a_production_under_a_supervisor_is_seen_and_not_signalled(world: World) -> None:
    arm = world.arm("production")
    assert arm.process is not None
    again = subprocess.Popen(arm.process.argv, cwd=arm.process.cwd, start_new_session=True, stdout=subprocess.DEVNULL)
    world.strangers.append(again)
    wait_until(lambda: port_answers(world.port))
    server = ProcessServer(arm, adopt=True)
    assert server.view().state == "running"
    assert ProcessServer(arm).view().state == "foreign"
    server.stop(0)
    assert again.poll() is None


def test_a_group_shared_with_others_forbids_a_stop(world: World) -> None:
    script = f"{sys.executable} {ENGINE} --port {world.port} & {' '.join(SLEEP[:4])} 'import time; time.sleep(300)' & wait"
    world.stranger("/bin/sh", "-c", script)
    wait_until(lambda: port_answers(world.port))
    wait_until(lambda: bool(find(world.port).doubts))
    blocking = [doubt.text for doubt in find(world.port).doubts if doubt.level == "blocking"]
    assert any("a stop would hit" in text for text in blocking), blocking
    root = find(world.port).root
    assert root is not None
    ProcessServer(changed(world.arm("candidate"), running=root, members=find(world.port).members)).stop(0)


def test_stopping_from_another_thread_while_it_boots(world: World) -> None:
    server = ProcessServer(world.arm("candidate", "--boot-s", "5"))
    server.start()
    reports = []
    stopper = threading.Thread(target=lambda: reports.append(ProcessServer(server.arm).stop(3)))
    stopper.start()
    stopper.join(20)
    assert reports[0].proved
    wait_until(lambda: server.view().state == "absent")


def test_a_declared_server_is_told_its_own_folder_and_not_the_callers(world: World) -> None:
    """A folder of the caller that holds the module's name must not look like where the server came from."""
    (world.folder / "elsewhere" / "tiny_engine").mkdir(parents=True)
    arm = world.arm("production")
    assert arm.process is not None
    argv = [sys.executable, "-m", "tiny_engine", *arm.process.argv[2:]]
    env = {**arm.process.env, "PWD": str(world.folder / "elsewhere"), "PYTHONPATH": str(Path(ENGINE).parent)}
    server = start_and_wait(replace(arm, process=replace(arm.process, argv=argv, env=env)))
    try:
        found = find(world.port)
        assert found.env is not None
        assert found.env["PWD"] == str(world.folder)
        assert [doubt.text for doubt in found.doubts if "module" in doubt.text] == []
    finally:
        server.stop(1.0)
