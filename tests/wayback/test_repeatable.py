"""Productions that cannot be started again as they run are told beforehand; those that can are restored exactly. Real processes."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from audition.wayback.found import Found, find
from audition.wayback.plan import ArmTarget
from audition.wayback.procs import ProcessServer
from audition.wayback.proctable import command_line, credentials, is_alive, port_answers, read_proc, ref_of
from audition.wayback.repeatable import rewritten, running_file, script_of
from wayback.tiny_world import ENGINE, World, environment, wait_until

PY = [sys.executable, "-I", "-S"]
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a process another user, group or priority")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close(made.arm("production"))


def port_of(world: World) -> list[str]:
    return ["--port", str(world.port), "--model", "model-production"]


def blocking(world: World) -> str:
    wait_until(lambda: port_answers(world.port))
    return "; ".join(doubt.text for doubt in find(world.port).doubts if doubt.level == "blocking")


def server_of(world: World, found: Found) -> ProcessServer:
    arm = world.arm("production")
    assert arm.process is not None
    process = replace(
        arm.process, argv=found.argv, env=found.env or {}, cwd=found.cwd, executable=found.executable, running=found.root,
        members=found.members, log_file=found.log_file or arm.process.log_file, uid=found.uid, gid=found.gid, groups=found.groups,
        umask=found.umask, limits=found.limits,
    )  # fmt: skip
    return ProcessServer(replace(arm, process=process), adopt=True)


def end(pid: int) -> None:
    """Kill a process that is no child of this one, and wait until it is gone."""
    proc = read_proc(pid)
    assert proc is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(ref_of(proc)))


# ---- command lines


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["VLLM::APIServer", "", "", ""], True),
        (["/usr/bin/python3", "", ""], True),
        (["nginx: master process /usr/sbin/nginx"], True),
        (["python3 -m server"], True),
        (["VLLM::APIServer", "hon3", "-I"], True),
        ([], True),
        (["/usr/bin/python3"], False),
        (["python", "srv.py", ""], False),
        (["renamed", "srv.py"], False),
        (["-python3"], False),
    ],
)
def test_titles_are_told_from_command_lines(argv: list[str], expected: bool) -> None:
    assert rewritten(argv, "/usr/bin/python3.11") is expected


@pytest.mark.parametrize(
    ("argv", "kind"),
    [
        (["python3", "-"], "input"),
        (["python3", "-I", "-S"], "input"),
        (["bash", "-s", "x"], "input"),
        (["python3", "-W", "error", "srv.py"], "file"),
        (["python3", "-Im", "http.server"], "module"),
        (["python3", "-Ic", "pass"], "inline"),
        (["sh", "-ec", "x"], "inline"),
        (["sh", "-e", "start.sh"], "file"),
        (["perl", "-e", "x"], "inline"),
        (["vllm", "serve"], "none"),
    ],
)
def test_what_an_interpreter_runs(argv: list[str], kind: str) -> None:
    assert script_of(argv)[0] == kind


def test_the_file_that_a_script_runs(tmp_path: Path) -> None:
    for name, first in (("direct", sys.executable), ("by-env", f"/usr/bin/env -S {Path(sys.executable).name}")):
        (tmp_path / name).write_text(f"#!{first}\n")
        assert running_file(str(tmp_path / name), str(Path(sys.executable).parent)) == os.path.realpath(sys.executable)
    assert running_file(str(tmp_path / "none"), "") == ""


def test_a_script_from_standard_input(world: World) -> None:
    with open(ENGINE, "rb") as source:
        child = subprocess.Popen([*PY, "-", *port_of(world)], stdin=source, start_new_session=True, stdout=subprocess.DEVNULL)
    world.strangers.append(child)
    assert "standard input" in blocking(world)


def test_a_script_from_an_open_descriptor(world: World) -> None:
    world.stranger("/bin/bash", "-c", f"exec {' '.join(PY)} <(cat {ENGINE}) {' '.join(port_of(world))}")
    assert "open file" in blocking(world)


def test_a_relative_script_after_a_change_of_folder(world: World) -> None:
    code = "import os, runpy\nos.chdir('/')\nrunpy.run_path(%r, run_name='__main__')\n"
    (world.folder / "srv.py").write_text(code % ENGINE)
    world.strangers.append(subprocess.Popen([*PY, "srv.py", *port_of(world)], cwd=world.folder, start_new_session=True))
    assert "'srv.py'" in blocking(world)


def test_a_relative_argument_after_a_change_of_folder(world: World) -> None:
    (world.folder / "settings").write_text("x")
    code = f"import os, runpy, sys; os.chdir('/'); sys.argv.pop(); runpy.run_path({ENGINE!r}, run_name='__main__')"
    (world.folder / "srv.py").write_text(code)
    env = {**environment(), "PWD": str(world.folder)}
    command = [*PY, str(world.folder / "srv.py"), *port_of(world), "settings"]
    world.strangers.append(subprocess.Popen(command, cwd=world.folder, env=env, start_new_session=True))
    assert "'settings'" in blocking(world)


def test_a_script_and_an_executable_that_are_gone(world: World) -> None:
    script = world.folder / "srv.py"
    shutil.copy(ENGINE, script)
    world.stranger(*PY, str(script), *port_of(world))
    assert blocking(world) == ""
    script.unlink()
    assert "srv.py" in blocking(world)


def test_model_names_and_routes_are_no_missing_files(world: World) -> None:
    world.stranger(*PY, ENGINE, "--port", str(world.port), "--model", "meta-llama/Llama-3", "--answer", "/v1")
    assert blocking(world) == ""


# ---- where it came from


def test_a_server_that_made_itself_a_daemon(world: World) -> None:
    script = world.folder / "daemon.py"
    script.write_text(
        "import os, runpy\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\n"
        f"runpy.run_path({ENGINE!r}, run_name='__main__')\n"
    )
    subprocess.run([*PY, str(script), *port_of(world)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    text = blocking(world)
    root = find(world.port).root
    assert root is not None
    end(root.pid)
    assert "made itself a daemon" in text


def test_a_server_left_by_its_starter_is_no_daemon(world: World) -> None:
    """``nohup server &`` of a shell that ended: executed, so its command starts it again."""
    command = f"{' '.join(PY)} {ENGINE} {' '.join(port_of(world))} >/dev/null 2>&1 &"
    subprocess.run(["/bin/sh", "-c", command], start_new_session=True, check=True)
    text = blocking(world)
    root = find(world.port).root
    assert root is not None
    end(root.pid)
    assert text == ""


SUPERVISOR = """
import subprocess, sys
while True:
    subprocess.run(sys.argv[1:], start_new_session=True)
"""


def test_a_launcher_that_still_runs(world: World) -> None:
    supervisor = world.stranger(*PY, "-c", SUPERVISOR, *PY, ENGINE, *port_of(world))
    text = blocking(world)
    end_supervised(world, supervisor.pid)
    assert f"started by pid {supervisor.pid}" in text


def test_a_shell_loop_that_restarts_it(world: World) -> None:
    loop = world.folder / "loop.sh"
    loop.write_text(f"while true; do setsid -w {' '.join(PY)} {ENGINE} {' '.join(port_of(world))}; done\n")
    shell = world.stranger("/bin/sh", str(loop))
    text = blocking(world)
    end_supervised(world, shell.pid)
    assert "which still runs" in text


def end_supervised(world: World, supervisor: int) -> None:
    os.kill(supervisor, signal.SIGKILL)
    root = find(world.port).root
    assert root is not None
    end(root.pid)


def test_strangers_in_its_session_are_told_and_never_killed(world: World) -> None:
    """A start script left something behind in the session and became the server."""
    note = world.folder / "pid"
    script = f"(sleep 300 & echo $! > {note}) ; exec {' '.join(PY)} {ENGINE} {' '.join(port_of(world))}"
    world.stranger("/bin/bash", "-c", script)
    text = blocking(world)
    stranger = read_proc(int(note.read_text()))
    assert stranger is not None
    assert "shares its session" in text
    assert f"pid {stranger.pid}" in text
    assert server_of(world, find(world.port)).stop(3).proved
    assert is_alive(ref_of(stranger))
    end(stranger.pid)


def test_later_children_of_an_observed_server_are_stopped_with_it(world: World) -> None:
    world.stranger(*PY, ENGINE, *port_of(world), "--worker", "own-session")
    wait_until(lambda: port_answers(world.port))
    found = replace(find(world.port), members=[])
    server = server_of(world, found)
    assert len(server.members()) == 2
    assert server.stop(3).proved


# ---- user, groups, priorities, output


@AS_ROOT
def test_group_groups_and_settings_come_back_exactly(world: World) -> None:
    world.folder.chmod(0o755)
    engine = world.folder / "srv.py"
    shutil.copy(ENGINE, engine)
    run = f"exec {python_for_all()} -I -S {engine} {' '.join(port_of(world))}"
    inner = f"echo 500 > /proc/self/oom_score_adj; ulimit -f 1000000; ulimit -n 1000; {run}"
    user = ["setpriv", "--regid", "65534", "--groups", "44,27", "--no-new-privs"]
    world.stranger(*user, "nice", "-n", "3", "taskset", "-c", "0", "sh", "-c", inner)
    assert blocking(world) == ""
    server = server_of(world, find(world.port))
    before = attributes(server)
    assert before["nice"] == 3
    assert server.differences() == []
    assert server.stop(3).proved
    server.start()
    wait_until(lambda: port_answers(world.port))
    assert attributes(server) == before
    assert server.differences() == []
    other = ProcessServer(replace(server.arm, process=replace(server.target, gid=1, groups=[])), adopt=True)
    assert [text for text in other.differences() if "group" in text]
    assert server.stop(3).proved


def python_for_all() -> str:
    """An interpreter that every user may execute."""
    return os.path.realpath("/usr/bin/python3")


def attributes(server: ProcessServer) -> dict[str, object]:
    leader = server.leader()
    assert leader is not None
    pid = leader.pid
    status = Path(f"/proc/{pid}/status").read_text()
    return {
        "who": credentials(pid),
        "nice": os.getpriority(os.PRIO_PROCESS, pid),
        "cpus": os.sched_getaffinity(pid),
        "limits": Path(f"/proc/{pid}/limits").read_text(),
        "oom": Path(f"/proc/{pid}/oom_score_adj").read_text(),
        "privileges": next(line for line in status.splitlines() if line.startswith("NoNewPrivs")),
    }


def open_to_all(folder: Path) -> None:
    """Let every user enter the folder: pytest's own folders above it are closed by default."""
    for place in (folder, *folder.parents):
        place.chmod(0o755)
        if place.name.startswith("pytest-of-"):
            return
    raise AssertionError(f"{folder} does not lie in a folder of pytest")


@AS_ROOT
def test_a_server_of_another_user_comes_back_as_that_user(world: World) -> None:
    open_to_all(world.folder)
    engine = world.folder / "srv.py"
    shutil.copy(ENGINE, engine)
    user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--groups", "44"]
    world.stranger(*user, python_for_all(), "-I", "-S", str(engine), *port_of(world))
    assert blocking(world) == ""
    server = server_of(world, find(world.port))
    before = attributes(server)["who"]
    assert server.stop(3).proved
    server.start()
    wait_until(lambda: port_answers(world.port))
    assert attributes(server)["who"] == before
    assert server.stop(3).proved


@AS_ROOT
def test_a_server_that_dropped_its_privileges(world: World) -> None:
    open_to_all(world.folder)
    engine = world.folder / "srv.py"
    shutil.copy(ENGINE, engine)
    key = world.folder / "key"
    key.write_text("only root reads it")
    key.chmod(0o600)
    script = world.folder / "drop.py"
    drop = "import os, runpy, sys; os.setgid(65534); os.setuid(65534); sys.argv.pop(); "
    script.write_text(drop + f"runpy.run_path({str(engine)!r}, run_name='__main__')")
    world.stranger(python_for_all(), str(script), *port_of(world), str(script))
    assert "became user 65534" in blocking(world)
    world.close()
    world.stranger(python_for_all(), str(script), *port_of(world), str(key))
    assert "cannot read" in blocking(world)


def test_output_to_a_device_stays_there(world: World) -> None:
    child = subprocess.Popen(
        [*PY, ENGINE, *port_of(world)], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    world.strangers.append(child)
    wait_until(lambda: port_answers(world.port))
    found = find(world.port)
    assert found.log_file == os.devnull
    assert found.doubts == []
    server = server_of(world, found)
    assert server.stop(3).proved
    server.start()
    wait_until(lambda: port_answers(world.port))
    leader = server.leader()
    assert leader is not None
    assert {os.readlink(f"/proc/{leader.pid}/fd/{number}") for number in (1, 2)} == {os.devnull}
    first = server.log_size()
    assert first > 0
    socket.create_connection(("127.0.0.1", world.port)).close()
    assert not list(world.folder.rglob("server.log"))
    bystander = world.stranger("sleep", "300")  # writes to /dev/null as well
    assert bystander.pid not in [proc.pid for proc in server.members()]
    assert server.stop(3).proved


# ---- no disk at all


def test_production_starts_although_its_identity_can_be_written_nowhere(world: World) -> None:
    """As with a full disk and a full /dev/shm: every file that could be written stands where a folder would be needed."""
    wall = world.folder / "wall"
    wall.write_text("a file where a folder should be")
    server = without_disk(world.arm("production"), wall, adopt=True)
    server.start()
    wait_until(lambda: port_answers(world.port))
    assert "identity" in server.view().detail
    again = without_disk(server.arm, wall, adopt=True)  # another process that restores
    assert again.view().boot_id == server.view().boot_id
    again.start()
    assert len(again.members()) == 1
    assert again.differences() == []
    leader = again.leader()
    assert leader is not None
    assert command_line(leader.pid) == again.target.argv
    assert again.stop(3).proved
    assert again.view().state == "absent"


def test_a_candidate_without_an_identity_does_not_start(world: World) -> None:
    wall = world.folder / "wall"
    wall.write_text("a file where a folder should be")
    server = without_disk(world.arm("candidate"), wall, adopt=False)
    with pytest.raises(Exception, match="cannot be written"):
        server.start()
    assert not port_answers(world.port)


class NoPlace(ProcessServer):
    """A server whose machine has no place left for small files."""

    def _places(self, path: str) -> list[str]:
        return [path]


def without_disk(arm: ArmTarget, wall: Path, *, adopt: bool) -> ProcessServer:
    assert arm.process is not None
    process = replace(arm.process, identity_file=str(wall / "identity.json"), log_file=str(wall / "server.log"))
    return NoPlace(replace(arm, process=process), adopt=adopt)
